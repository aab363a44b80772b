//! Diagnostics as text for people and in machine-readable formats.

mod machine;
mod text;

pub use machine::{render_github, render_json, render_sarif};
pub use text::{render_text, summary};

use crate::{Diagnostic, Diagnostics};

/// Findings that a report for programs holds; it counts all.
const MAX_FINDINGS: usize = 1_000;

/// The message with the dialect's own code behind it.
fn message(item: &Diagnostic) -> String {
    match (&item.sub_code, &item.dialect) {
        (Some(code), Some(dialect)) => format!("{} ({dialect}: {code})", item.message),
        (Some(code), None) => format!("{} ({code})", item.message),
        (None, _) => item.message.clone(),
    }
}

/// The name of the file a finding is about: the one it points into, else the one that was asked for.
fn file_name<'d>(diagnostics: &'d Diagnostics, item: &Diagnostic) -> Option<&'d str> {
    let file = item.span.map_or(0, |span| span.file);
    diagnostics.sources.get(file).map(|file| file.name.as_str())
}
