//! `sinew workflow convert --try`: runs one conversion function on sample data.

use std::path::Path;

use serde_json::Value;
use sinew_operations::conversion_trial::{
    read_document, trial_document, trial_failure, trial_outcome, try_connection,
};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file;
use sinew_protocol::code;

use super::describe::Which;
use crate::exit::Exit;
use crate::output::{Format, Output};

/// Calls the function of a connection with a sample. Prints the resulting value in any case, and fails
/// if the function returned no result.
pub(super) fn run(which: &Which, connection: &str, sample: &str, output: &Output) -> Result<Exit, Failure> {
    let document = read_document(&which.file, which.dialect.as_deref())?;
    let sample = parse(sample)?;
    let trial = try_connection(&document, connection, &sample, &which.file)?;
    output.document(&trial_document(&trial, &document), trial_outcome(&trial).as_str(), Format::Json);
    match &trial.error {
        None => Ok(Exit::Ok),
        Some(error) => Err(trial_failure(&trial, error, document)),
    }
}

/// Parses the sample: JSON, or the content of a file.
fn parse(text: &str) -> Result<Value, Failure> {
    match text.strip_prefix('@') {
        Some(file) => workflow_file::read_data(Path::new(file)),
        None => serde_json::from_str(text).map_err(|error| {
            Failure::new(
                FailureKind::Usage,
                code::ARGUMENT_NOT_JSON.as_str(),
                format!("--sample is not JSON: {error}"),
            )
            .hint("quote it for your shell, or name a file with @FILE")
        }),
    }
}
