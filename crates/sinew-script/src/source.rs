//! Analysis of the author's source without running it: selects the function to call.

/// Returns the name of the first function at top level, a `def` or a `lambda` assigned to a name.
/// Ignores strings, brackets and comments. Names with a leading underscore are helpers; one is
/// called only if there is no other function.
pub(crate) fn first_function(source: &str) -> Option<&str> {
    let mut scan = LineScan { rest: source, depth: 0 };
    let mut helper = None;
    loop {
        if scan.depth == 0
            && let Some(name) = function_at(scan.rest)
        {
            if !name.starts_with('_') {
                return Some(name);
            }
            helper = helper.or(Some(name));
        }
        if !scan.next_line() {
            return helper;
        }
    }
}

/// Returns whether the source starts with the keyword `lambda`.
pub(crate) fn is_lambda(source: &str) -> bool {
    source.trim_start().strip_prefix("lambda").is_some_and(|rest| !rest.starts_with(is_name_char))
}

fn function_at(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("def").filter(|rest| rest.starts_with([' ', '\t'])) {
        let name = leading_name(rest.trim_start_matches([' ', '\t']));
        return (!name.is_empty()).then_some(name);
    }
    let name = leading_name(line);
    let value = line[name.len()..].trim_start_matches([' ', '\t']).strip_prefix('=')?;
    (!name.is_empty() && is_lambda(value)).then_some(name)
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|c| !is_name_char(c)).unwrap_or(text.len());
    &text[..end]
}

fn is_name_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Iterates over logical lines, skipping strings, comments and brackets.
struct LineScan<'a> {
    rest: &'a str,
    depth: usize,
}

impl LineScan<'_> {
    /// Moves past the next line break outside a string; returns false at the end of the source.
    fn next_line(&mut self) -> bool {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '"' | '\'' => self.skip_string(c),
                '#' => self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]),
                '\\' => {
                    self.rest = &self.rest[1..];
                    self.skip_char();
                }
                '\n' => {
                    self.rest = &self.rest[1..];
                    return true;
                }
                other => {
                    match other {
                        '(' | '[' | '{' => self.depth += 1,
                        ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                    self.skip_char();
                }
            }
        }
        false
    }

    fn skip_string(&mut self, quote: char) {
        let triple: String = [quote; 3].iter().collect();
        let is_triple = self.rest.starts_with(&triple);
        self.rest = &self.rest[if is_triple { 3 } else { 1 }..];
        while let Some(c) = self.rest.chars().next() {
            if is_triple && self.rest.starts_with(&triple) {
                self.rest = &self.rest[3..];
                return;
            }
            match c {
                // An unclosed single-quoted string is a syntax error that the compiler reports.
                '\n' if !is_triple => return,
                '\\' => self.rest = &self.rest[1..],
                _ => {}
            }
            self.skip_char();
            if !is_triple && c == quote {
                return;
            }
        }
    }

    fn skip_char(&mut self) {
        self.rest = self.rest.chars().next().map_or("", |c| &self.rest[c.len_utf8()..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_function_is_found() {
        for (source, expected) in [
            ("def f(d): pass", Some("f")),
            ("# def g(d)\nimport json\ndef  convert (d):\n  def inner(): pass\n", Some("convert")),
            ("'''\ndef no(d): pass\n'''\ndef yes(d): pass", Some("yes")),
            ("x = '\\'\\\\'\ndef f(d): pass", Some("f")),
            ("x = (1,\ndef\n)\ng = lambda d: d", Some("g")),
            ("def _help(d): pass\ndef convert(d): pass", Some("convert")),
            ("def _only(d): pass\n_other = lambda d: d", Some("_only")),
            ("x = 1\n", None),
            ("definitely = 1", None),
            ("  def indented(d): pass", None),
            ("", None),
        ] {
            assert_eq!(first_function(source), expected, "{source:?}");
        }
    }
}
