//! Spans of script errors in the file that contains the script.

use sinew_script::ScriptError;
use sinew_source::{Sources, Span, place_within};

/// Returns the span of a script error in the file.
pub(crate) fn place_in(sources: &Sources, span: Span, source: &str, error: &ScriptError) -> Option<Span> {
    place_within(sources, span, source, error.line?, error.column.unwrap_or(1))
}
