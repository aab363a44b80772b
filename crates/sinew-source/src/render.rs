//! Diagnostics as text for people and in the formats that machines ask for.

mod machine;
mod text;

pub use machine::{render_github, render_json, render_sarif};
pub use text::{render_text, summary};

use std::borrow::Cow;

use crate::{Diagnostic, Diagnostics};

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

/// Text from a file without anything that could steer a terminal.
fn clean(text: &str) -> Cow<'_, str> {
    // Besides the control characters: marks that turn the reading direction can make text lie.
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.contains(steers) {
        let shown = |c: char| {
            if c == '\t' {
                ' '
            } else if steers(c) {
                '\u{fffd}'
            } else {
                c
            }
        };
        Cow::Owned(text.chars().map(shown).collect())
    } else {
        Cow::Borrowed(text)
    }
}
