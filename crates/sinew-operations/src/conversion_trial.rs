//! Trials of connections' conversion functions on samples.

use sinew_documents::trial::{ConversionError, ConversionOutcome, ConversionPlace, ConversionReport};
use std::path::Path;

use serde_json::Value;
use sinew_dialects::agentteam::{self, ConversionTrial, TrialRefusal};
use sinew_protocol::code;
use sinew_source::{Diagnostic, Diagnostics, Document};

use crate::failure::{Failure, FailureKind};
use crate::workflow_file;

/// The dialect that has conversion functions.
const DIALECT: &str = "agentteam";

/// Reads the file without checks: other errors in it do not prevent a trial.
pub fn read_document(file: &Path, dialect: Option<&str>) -> Result<Document, Failure> {
    let document =
        workflow_file::document(file, &workflow_file::read(file)?).map_err(Failure::diagnostics)?;
    let found = workflow_file::dialect_of(&document, dialect)?.name();
    if found != DIALECT {
        let text = format!("{} is in the dialect {found}, which has no conversion functions", file.display());
        return Err(Failure::new(FailureKind::Failed, code::CONVERSION_FUNCTION_MISSING.as_str(), text)
            .hint("only agentteam has conversion functions on its connections"));
    }
    Ok(document)
}

/// Calls a connection's function with a sample, like an execution.
pub fn try_connection(
    document: &Document,
    connection: &str,
    sample: &Value,
    file: &Path,
) -> Result<ConversionTrial, Failure> {
    agentteam::try_conversion(document, connection, sample).map_err(|error| refused_trial(&error, file))
}

fn refused_trial(error: &TrialRefusal, file: &Path) -> Failure {
    let (kind, hint) = match error {
        TrialRefusal::Unknown { near: Some(near), .. } => {
            (FailureKind::NotFound, format!("did you mean '{near}'?"))
        }
        TrialRefusal::Unknown { known, .. } if known.is_empty() => {
            (FailureKind::NotFound, "no connection of the file has a conversion function".to_owned())
        }
        TrialRefusal::Unknown { known, .. } => {
            (FailureKind::NotFound, format!("connections with a function: {}", known.join(", ")))
        }
        TrialRefusal::NoFunction(_) => (FailureKind::Failed, "it passes its value on unchanged".to_owned()),
    };
    Failure::new(kind, code::CONVERSION_FUNCTION_MISSING.as_str(), format!("{}: {error}", file.display()))
        .hint(hint)
}

/// Returns the outcome of the sample.
pub fn trial_outcome(trial: &ConversionTrial) -> ConversionOutcome {
    match (&trial.error, trial.fell_back()) {
        (None, _) => ConversionOutcome::Converted,
        (Some(_), true) => ConversionOutcome::FellBack,
        (Some(_), false) => ConversionOutcome::Failed,
    }
}

/// Returns the trial for programs.
pub fn trial_document(trial: &ConversionTrial, document: &Document) -> ConversionReport {
    let error = trial.error.as_ref().map(|error| ConversionError {
        code: error.script.code().to_owned(),
        message: error.script.message.clone(),
        line: error.script.line,
        column: error.script.column,
        place: ConversionPlace {
            file: document.sources.get(error.span.file).map(|file| file.name.clone()),
            line: error.span.line,
            column: error.span.column,
        },
    });
    ConversionReport {
        connection: trial.connection.clone(),
        outcome: trial_outcome(trial),
        fell_back: trial.fell_back(),
        value: trial.value.clone(),
        argument: trial.argument.clone(),
        error,
    }
}

/// Returns the failure of a function without a result.
pub fn trial_failure(
    trial: &ConversionTrial,
    error: &agentteam::ConversionFailure,
    document: Document,
) -> Failure {
    let after = if trial.fell_back() {
        "the sample is passed on unconverted"
    } else {
        "an execution would fail here"
    };
    let own = match (error.script.line, error.script.column) {
        (Some(line), Some(column)) => format!("line {line}, column {column} of the function"),
        (Some(line), None) => format!("line {line} of the function"),
        _ => "the function".to_owned(),
    };
    let message = format!("the conversion function of '{}' failed: {error}", trial.connection);
    let mut hint = format!("{own}; {after}");
    if let Some(snippet) = &error.script.snippet {
        hint = format!("{own}: {}; {after}", snippet.trim());
    }
    let mut found = Diagnostics::new(document.sources);
    found.push(Diagnostic::error(error.script.code(), message).at(error.span).dialect(DIALECT).hint(hint));
    Failure::diagnostics(found)
}
