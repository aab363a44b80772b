//! `!include path` on a separate line, as in application files of SAM.
//!
//! In SAM an include is a text operation: the fields of the file are added to the top level, and
//! its anchors can be used below. Such a line is not YAML, so include lines are only searched in
//! files that do not parse.

use granit_parser::{Options, Parser};

use crate::Span;

/// File contents with include lines.
pub(crate) struct IncludeLines {
    /// Contents with these lines commented out; every other byte keeps its offset.
    pub(crate) text: String,
    pub(crate) includes: Vec<IncludeLine>,
}

/// An include line.
pub(crate) struct IncludeLine {
    pub(crate) target: String,
    pub(crate) span: Span,
}

/// Finds the include lines of a file that does not parse with them. Returns `None` without such
/// lines.
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
