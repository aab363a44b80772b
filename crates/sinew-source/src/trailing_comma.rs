//! Commas after the last value of a JSON file: YAML accepts them, but JSON does not.

use sinew_codes as code;

use crate::{Diagnostic, Sources, Span};

/// Returns a warning about the first comma before a closing bracket, if the first file is named as JSON.
pub fn trailing_comma(sources: &Sources) -> Option<Diagnostic> {
    let file = sources.get(0).filter(|file| file.name.to_ascii_lowercase().ends_with(".json"))?;
    let (mut quoted, mut escaped) = (false, false);
    let (mut line, mut column) = (1, 0);
    let mut comma = None;
    for (at, c) in file.text.char_indices() {
        (line, column) = if c == '\n' { (line + 1, 0) } else { (line, column + 1) };
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => (quoted, comma) = (!quoted, None),
            _ if quoted => {}
            ',' => comma = Some(Span { file: 0, line, column, start: at, end: at + 1 }),
            '}' | ']' if comma.is_some() => {
                let text = "a comma after the last value is not JSON: other programs cannot read the file";
                let warning = Diagnostic::warning(code::TRAILING_COMMA.as_str(), text);
                return Some(warning.at(comma?).hint("remove the comma"));
            }
            c if c.is_whitespace() => {}
            _ => comma = None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commas_before_a_bracket_are_trailing() {
        let place = |name: &str, text: &str| {
            let found = trailing_comma(&Sources::single(name, text))?;
            found.span.map(|span| (span.line, span.column))
        };
        assert_eq!(place("a.json", "{\"a\": [1, 2,\n ], \"b\": \",]\"}"), Some((1, 12)));
        assert_eq!(place("a.json", "{\"a\": \"\\\",}\",\n}"), Some((1, 13)));
        assert_eq!(place("a.json", "{\"a\": [1, 2], \"b\": \",}\"}"), None);
        assert_eq!(place("a.yaml", "[1,]"), None);
    }
}
