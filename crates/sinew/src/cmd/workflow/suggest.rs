//! `sinew workflow convert --suggest`: suggests conversion functions for connections.

use std::fmt::Write as _;
use std::path::Path;

use sinew_dialects::agentteam::{self, ConversionSuggestion};
use sinew_operations::conversion_trial::read_document;
use sinew_operations::failure::Failure;
use sinew_operations::workflow_file;

use super::describe::Which;
use crate::exit::Exit;
use crate::output::Output;

/// Prints a function for each connection without one whose target declares its input.
pub(super) fn run(which: &Which, output: &Output) -> Result<Exit, Failure> {
    let document = read_document(&which.file, which.dialect.as_deref())?;
    let folder = workflow_file::folder_of(&which.file);
    let suggestions = agentteam::suggest_conversions(&document, None, &|wanted| {
        workflow_file::read_beside(&folder, Path::new(wanted))
    });
    if suggestions.is_empty() {
        output.note("no connection needs a conversion function");
        if !output.is_machine() {
            return Ok(Exit::Ok);
        }
    }
    output.value(&suggestions, |suggestions| words(suggestions));
    Ok(Exit::Ok)
}

fn words(suggestions: &[ConversionSuggestion]) -> String {
    let mut out = String::new();
    for suggestion in suggestions {
        // Writing to a String cannot fail.
        let _ =
            writeln!(out, "# connection {}: {} to {}", suggestion.connection, suggestion.from, suggestion.to);
        let _ = writeln!(out, "{}", suggestion.function);
    }
    out.trim_end().to_owned()
}
