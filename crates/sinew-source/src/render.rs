//! Diagnostics as text for people and in machine-readable formats.

mod machine;
mod text;

pub use machine::{render_github, render_json, render_sarif};
pub use text::{render_text, summary};

use crate::{Diagnostic, Diagnostics};

/// Maximum number of findings in a machine-readable report; the counts include all.
const MAX_FINDINGS: usize = 1_000;

/// Returns the message followed by the code of the dialect.
fn message(item: &Diagnostic) -> String {
    match (&item.sub_code, &item.dialect) {
        (Some(code), Some(dialect)) => format!("{} ({dialect}: {code})", item.message),
        (Some(code), None) => format!("{} ({code})", item.message),
        (None, _) => item.message.clone(),
    }
}

/// Returns the name of the file of a finding: the one of its span, otherwise the loaded one.
fn file_name<'d>(diagnostics: &'d Diagnostics, item: &Diagnostic) -> Option<&'d str> {
    let file = item.span.map_or(0, |span| span.file);
    diagnostics.sources.get(file).map(|file| file.name.as_str())
}
