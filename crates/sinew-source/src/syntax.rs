//! YAML parser errors as diagnostics, with hints for common mistakes.

use granit_parser::{ErrorKind, ScanError};
use sinew_codes as code;

use crate::{Diagnostic, Span};

/// Returns the finding for a parser error in this file.
pub(crate) fn finding(error: &ScanError, file: u32, text: &str) -> Diagnostic {
    let mark = error.marker();
    let start = mark.byte_offset().unwrap_or(0).min(text.len());
    let span = Span { file, line: mark.line() as u32, column: mark.col() as u32 + 1, start, end: start };
    let (code, message) = match error.kind() {
        ErrorKind::RecursionLimitExceeded => {
            (code::FILE_NESTED_TOO_DEEPLY.as_str(), "nested too deeply".to_owned())
        }
        ErrorKind::ExpectedDocumentStart => {
            (code::FILE_NOT_VALID_YAML_OR_JSON.as_str(), "text after the end of the value".to_owned())
        }
        kind => (
            code::FILE_NOT_VALID_YAML_OR_JSON.as_str(),
            plain(kind).map_or_else(|| error.info(), str::to_owned),
        ),
    };
    if let Some(tab) = tab_near(file, text, span.line as usize).filter(|_| message.contains("tab")) {
        let message = "a tab in the indentation".to_owned();
        return Diagnostic::error(code, message).at(tab).hint("indent with spaces, not tabs");
    }
    let finding = Diagnostic::error(code, message).at(span);
    match hint(error.kind()) {
        Some(hint) => finding.hint(hint),
        None => finding,
    }
}

/// Describes a mistake without terms of the YAML grammar; `None` if the parser's message has none.
fn plain(kind: &ErrorKind) -> Option<&'static str> {
    use ErrorKind as Kind;
    Some(match kind {
        Kind::UnexpectedEofFlowSequence => "the file ends before the list's ']'",
        Kind::UnexpectedEofFlowMapping | Kind::UnexpectedEofImplicitFlowMapping => {
            "the file ends before the object's '}'"
        }
        Kind::UnexpectedEof | Kind::UnexpectedEofBlockSequence | Kind::UnexpectedEofBlockMapping => {
            "the file ends too early"
        }
        Kind::ExpectedNodeContent => "a value is missing",
        Kind::ExpectedBlockMappingKey => {
            "the indentation fits no object: expected 'key: value', aligned with the other keys"
        }
        Kind::ExpectedBlockSequenceEntry => {
            "the indentation fits no list: expected '- item', aligned with the other items"
        }
        Kind::ExpectedFlowMappingSeparator => "expected ',' or '}'",
        Kind::ExpectedFlowSequenceSeparator => "expected ',' or ']'",
        Kind::SimpleKeyExpected | Kind::InvalidSimpleKey => "a key without ':'",
        Kind::InvalidIndentation | Kind::InvalidFlowScalarIndent => "the indentation fits no line above",
        Kind::InvalidQuotedScalarIndent => "a line of the quoted text is not indented",
        Kind::InvalidBlockScalarIndent => "a line of the text is indented less than its first line",
        Kind::InvalidBlockScalarHeader => "text after '|' or '>': it starts in the next line",
        Kind::ZeroBlockScalarIndent => "the indentation after '|' or '>' is 0",
        Kind::BlockEntryInFlowCollection => "'- ' inside brackets",
        Kind::BlockSequenceEntryNotAllowed => "a list starts where none can",
        Kind::InvalidBlockEntryWhitespace => "'-' without a space after it",
        Kind::InvalidMappingValueWhitespace => "':' without a space after it",
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => {
            "text after the end of a quoted text"
        }
        Kind::PlainScalarStartsWithDashFlowIndicator => {
            "a text without quotes starts with '-' and a bracket or ','"
        }
        Kind::UnexpectedEndOfPlainScalar => "a text without quotes ends too early",
        Kind::MappingKeyNotAllowed => "a key starts where none can",
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement => {
            "a second ': ' in one line, or a key that is indented wrongly"
        }
        _ => return None,
    })
}

/// Returns the first tab in the indentation of a line, or of the next one that is not empty: the parser
/// reports the end of the value before it.
fn tab_near(file: u32, text: &str, line: usize) -> Option<Span> {
    let mut start = 0;
    for (n, one) in text.split_inclusive('\n').enumerate() {
        let indent = &one[..one.len() - one.trim_start().len()];
        if n + 1 >= line && !one.trim().is_empty() {
            if let Some(at) = indent.find('\t') {
                let column = indent[..at].chars().count() as u32 + 1;
                let start = start + at;
                return Some(Span { file, line: n as u32 + 1, column, start, end: start + 1 });
            }
            if n + 1 > line {
                return None;
            }
        }
        start += one.len();
    }
    None
}

fn hint(kind: &ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::TabAtBlockScalarStart => "indent with spaces, not tabs",
        ErrorKind::MappingValueNotAllowed => "check the indentation; a text with ': ' in it needs quotes",
        ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
            "remove the control character, or write it as an escape in double quotes"
        }
        ErrorKind::UnexpectedCharacter { .. } => "a text that starts with this character needs quotes",
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => "is there a ':' missing after a key?",
        ErrorKind::ExpectedDocumentStart => {
            "a file contains one value; put each other value into a separate file"
        }
        ErrorKind::MissingLowSurrogate | ErrorKind::UnpairedLowSurrogate | ErrorKind::InvalidLowSurrogate => {
            "half of a surrogate pair is not a character"
        }
        ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator => {
            "is there a ',' missing? A text with { or } inside brackets needs quotes"
        }
        ErrorKind::UnknownQuotedScalarEscape => {
            "in double quotes a backslash starts an escape; use single quotes"
        }
        _ => return None,
    })
}
