//! `!include path` on a separate line, as in application files of SAM.
//!
//! There an include is a text operation: the members of the file are added to the top level, and
//! its anchors can be used below. Such a line is not YAML, so it is searched for only in texts that
//! do not parse.

use granit_parser::{Options, Parser};

use crate::Span;

/// A text with include lines.
pub(crate) struct IncludeLines {
    /// The text with the lines made comments: every other byte stays at its place.
    pub(crate) text: String,
    pub(crate) includes: Vec<IncludeLine>,
}

/// One such line.
pub(crate) struct IncludeLine {
    pub(crate) target: String,
    pub(crate) span: Span,
}

/// The include lines of a text that does not parse with them; `None` where there are none.
pub(crate) fn find(text: &str, file: u32, options: &Options) -> Option<IncludeLines> {
    if !text.contains("!include") {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut includes = Vec::new();
    let mut start = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let target = line.strip_prefix("!include").filter(|rest| rest.starts_with([' ', '\t']));
        if let Some(target) = target {
            // ` #` starts a comment, as it would in YAML.
            let target = target.split(" #").next().unwrap_or(target).trim().trim_matches(['"', '\'']);
            let end = start + line.trim_end().len();
            let span = Span { file, line: index as u32 + 1, column: 1, start, end };
            includes.push(IncludeLine { target: target.to_owned(), span });
            out.push('#');
            out.push_str(&line[1..]);
        } else {
            out.push_str(line);
        }
        start += line.len();
    }
    let parses = || Parser::new_from_str_with_options(text, options.clone()).all(|event| event.is_ok());
    (!includes.is_empty() && !parses()).then_some(IncludeLines { text: out, includes })
}
