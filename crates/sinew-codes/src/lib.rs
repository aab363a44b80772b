//! Operator codes: a constant and a page for each, compiled in from `codes/SINEW-NNNN.md` and `codes/names.txt`.
//!
//! `sinew explain SINEW-5003` prints one; diagnostics link to them. A new code is a page and a line in
//! `codes/names.txt`, which gives the constant that product code names. Every crate may name this one.
//!
//! It never says when an error occurs, and has no dependencies.

/// The first characters of every code; four digits follow.
pub const PREFIX: &str = "SINEW-";

/// An operator code with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(&'static str);

impl Code {
    /// Returns the code as people see it, for instance `SINEW-5003`.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.0.to_owned()
    }
}

include!(concat!(env!("OUT_DIR"), "/code_names.rs"));

static PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/codes.rs"));

/// The whole page of a code, for instance `SINEW-5003`, as Markdown.
pub fn page(code: &str) -> Option<&'static str> {
    let at = PAGES.binary_search_by_key(&code, |(code, _)| code).ok()?;
    PAGES.get(at).map(|(_, text)| *text)
}

/// The first line of a code's page without its `# `.
pub fn title(code: &str) -> Option<&'static str> {
    let first = page(code)?.lines().next()?;
    Some(first.trim_start_matches('#').trim())
}

/// Every code with its page, in the order of the codes.
pub fn all() -> &'static [(&'static str, &'static str)] {
    PAGES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_named_and_titled() {
        let mut wrong = Vec::new();
        for (code, text) in all() {
            let digits = code.strip_prefix("SINEW-").unwrap_or_default();
            if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                wrong.push(format!("{code}: the file name must be SINEW-NNNN.md"));
            }
            if !text.starts_with("# ") || title(code).is_none_or(str::is_empty) {
                wrong.push(format!("{code}: the first line must be `# <short title>`"));
            }
            if text.lines().filter(|l| !l.trim().is_empty()).count() < 4 {
                wrong.push(format!("{code}: the page says too little"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(!all().is_empty());
    }

    #[test]
    fn pages_are_found_by_code() {
        assert_eq!(all().iter().filter(|(code, text)| page(code) == Some(text)).count(), all().len());
        assert_eq!(page("SINEW-0000"), None);
        assert_eq!(title("nonsense"), None);
    }
}
