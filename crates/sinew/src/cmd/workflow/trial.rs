//! `sinew workflow convert --try`: one conversion function on sample data.

use sinew_protocol::code;
use std::path::Path;

use serde_json::{Value, json};
use sinew_dialects::agentteam::{self, ConversionTrial, TrialRefusal};
use sinew_source::{Diagnostic, Diagnostics, Document};

use super::describe::Which;
use crate::exit::{Exit, Failure};
use crate::load;
use crate::output::{Format, Output};

/// The dialect that has conversion functions.
const DIALECT: &str = "agentteam";

/// Calls the function of a connection with a sample. The value is on stdout whatever became of it; a function that
/// gave no result is the failure.
pub(super) fn run(which: &Which, connection: &str, sample: &str, output: &Output) -> Result<Exit, Failure> {
    let document = read(which)?;
    let sample = parse(sample)?;
    let trial = agentteam::try_conversion(&document, connection, &sample)
        .map_err(|error| nothing(&error, &which.file))?;
    report(&trial, &document, output);
    match &trial.error {
        None => Ok(Exit::Ok),
        Some(error) => Err(failure(&trial, error, document)),
    }
}

/// Reads the file as it is: other errors in it do not keep a function from being tried.
pub(super) fn read(which: &Which) -> Result<Document, Failure> {
    let document = load::document(&which.file, &load::read(&which.file)?).map_err(Failure::diagnostics)?;
    let dialect = load::dialect_of(&document, which.dialect.as_deref())?.name();
    if dialect != DIALECT {
        let text =
            format!("{} is of the dialect {dialect}: it has no conversion functions", which.file.display());
        return Err(Failure::new(Exit::Failed, code::CONVERSION_FUNCTION_MISSING.as_str(), text)
            .hint("only agentteam has them on its connections"));
    }
    Ok(document)
}

/// The sample: JSON, or the content of a file.
fn parse(text: &str) -> Result<Value, Failure> {
    match text.strip_prefix('@') {
        Some(file) => load::read_data(Path::new(file)),
        None => serde_json::from_str(text).map_err(|error| {
            Failure::new(
                Exit::Usage,
                code::ARGUMENT_NOT_JSON.as_str(),
                format!("--sample is not JSON: {error}"),
            )
            .hint("quote it for your shell, or name a file with @FILE")
        }),
    }
}

fn nothing(error: &TrialRefusal, file: &Path) -> Failure {
    let (exit, hint) = match error {
        TrialRefusal::Unknown { near: Some(near), .. } => (Exit::NotFound, format!("did you mean '{near}'?")),
        TrialRefusal::Unknown { known, .. } if known.is_empty() => {
            (Exit::NotFound, "no connection of the file has a conversion function".to_owned())
        }
        TrialRefusal::Unknown { known, .. } => {
            (Exit::NotFound, format!("functions are on {}", known.join(", ")))
        }
        TrialRefusal::NoFunction(_) => (Exit::Failed, "it carries what it gets".to_owned()),
    };
    Failure::new(exit, code::CONVERSION_FUNCTION_MISSING.as_str(), format!("{}: {error}", file.display()))
        .hint(hint)
}

/// Returns the outcome of the sample.
fn outcome(trial: &ConversionTrial) -> &'static str {
    match (&trial.error, trial.fell_back()) {
        (None, _) => "converted",
        (Some(_), true) => "fell_back",
        (Some(_), false) => "failed",
    }
}

fn report(trial: &ConversionTrial, document: &Document, output: &Output) {
    let error = trial.error.as_ref().map(|error| {
        let file = document.sources.get(error.span.file).map(|file| file.name.as_str());
        json!({
            "code": error.script.code(),
            "message": error.script.message,
            "line": error.script.line,
            "column": error.script.column,
            "place": { "file": file, "line": error.span.line, "column": error.span.column },
        })
    });
    let whole = json!({
        "connection": trial.connection,
        "outcome": outcome(trial),
        "fell_back": trial.fell_back(),
        "value": trial.value,
        "argument": trial.argument,
        "error": error,
    });
    output.document(&whole, outcome(trial), Format::Json);
}

fn failure(trial: &ConversionTrial, error: &agentteam::ConversionFailure, document: Document) -> Failure {
    let after =
        if trial.fell_back() { "the sample travels on as it is" } else { "an execution would fail here" };
    let own = match (error.script.line, error.script.column) {
        (Some(line), Some(column)) => format!("line {line}, column {column} of the function"),
        (Some(line), None) => format!("line {line} of the function"),
        _ => "the function".to_owned(),
    };
    let message = format!("the conversion function of '{}' gave no result: {error}", trial.connection);
    let mut hint = format!("{own}; {after}");
    if let Some(snippet) = &error.script.snippet {
        hint = format!("{own}: {}; {after}", snippet.trim());
    }
    let mut found = Diagnostics::new(document.sources);
    found.push(Diagnostic::error(error.script.code(), message).at(error.span).dialect(DIALECT).hint(hint));
    Failure::diagnostics(found)
}
