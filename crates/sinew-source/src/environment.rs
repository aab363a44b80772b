//! `${NAME}` and `${NAME, default}` in values.
//!
//! Substitution works on scalars after parsing, so a variable can never add keys or structure.
//! `$${NAME}` keeps the text `${NAME}`; braces around anything that is no name stay as they are.

use std::borrow::Cow;

/// A text after substitution.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Substituted<'t> {
    pub(crate) text: Cow<'t, str>,
    /// The whole text was one substitution, so its type may come from the variable.
    pub(crate) whole: bool,
    /// Bytes that came from variables.
    pub(crate) added: usize,
}

/// A variable that is not set and has no default.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing<'t>(pub(crate) &'t str);

/// Replaces every substitution in `text`.
pub(crate) fn substitute<'t>(
    text: &'t str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Substituted<'t>, Missing<'t>> {
    let mut out = String::new();
    let mut done = 0; // everything before this byte is in `out`
    let mut from = 0; // where to look for the next `${`
    let (mut whole, mut added) = (false, 0);
    while let Some(at) = text[from..].find("${").map(|at| from + at) {
        let Some(found) = Reference::parse(&text[at..]) else {
            from = at + 2;
            continue;
        };
        let end = at + found.length;
        if at > done && text.as_bytes()[at - 1] == b'$' {
            out.push_str(&text[done..at - 1]);
            out.push_str(&text[at..end]);
        } else {
            out.push_str(&text[done..at]);
            let value = env(found.name).or_else(|| found.default.map(str::to_owned));
            let value = value.ok_or(Missing(found.name))?;
            added += value.len();
            out.push_str(&value);
            whole = at == 0 && end == text.len();
        }
        (done, from) = (end, end);
    }
    if done == 0 {
        return Ok(Substituted { text: Cow::Borrowed(text), whole: false, added: 0 });
    }
    out.push_str(&text[done..]);
    Ok(Substituted { text: Cow::Owned(out), whole, added })
}

/// One `${…}` at the start of a text.
struct Reference<'t> {
    name: &'t str,
    default: Option<&'t str>,
    length: usize,
}

impl<'t> Reference<'t> {
    fn parse(text: &'t str) -> Option<Self> {
        let inner = text.strip_prefix("${")?;
        let inner = &inner[..inner.find('}')?];
        let (name, default) = match inner.split_once(',') {
            Some((name, default)) => (name, Some(default.trim())),
            None => (inner, None),
        };
        let name = name.trim();
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_name.then_some(Self { name, default, length: inner.len() + 3 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text and whether it was one whole substitution, or the name that is missing.
    type Expected = Result<(&'static str, bool), &'static str>;

    #[test]
    fn substitution() {
        let env = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "TRICK" => Some("${A}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let cases: &[(&str, Expected)] = &[
            ("plain", Ok(("plain", false))),
            ("${A}", Ok(("1", true))),
            ("${ A }", Ok(("1", true))),
            ("x${A}y${A}", Ok(("x1y1", false))),
            ("${A}${A}", Ok(("11", false))),
            ("${NO, ws://localhost:8008}", Ok(("ws://localhost:8008", true))),
            ("${NO,}", Ok(("", true))),
            ("${EMPTY, x}", Ok(("", true))),
            ("${NO}", Err("NO")),
            ("${TRICK}", Ok(("${A}", true))),
            ("$${A}", Ok(("${A}", false))),
            ("x$${A}${A}", Ok(("x${A}1", false))),
            ("${A", Ok(("${A", false))),
            ("${a.b}", Ok(("${a.b}", false))),
            ("${{ x }}", Ok(("${{ x }}", false))),
            ("${}${A}", Ok(("${}1", false))),
            ("${1A}", Ok(("${1A}", false))),
            ("$A", Ok(("$A", false))),
        ];
        for (text, expected) in cases {
            let got = substitute(text, &env);
            let got = match &got {
                Ok(found) => Ok((&*found.text, found.whole)),
                Err(missing) => Err(missing.0),
            };
            assert_eq!(got, *expected, "{text}");
        }
    }
}
