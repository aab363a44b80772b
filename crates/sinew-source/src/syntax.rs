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
        _ => (code::FILE_NOT_VALID_YAML_OR_JSON.as_str(), error.info()),
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
