//! `sinew workflow validate`: reports every finding with file, line and column.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::sarif::sarif;
use sinew_operations::workflow_file::Options;
use sinew_operations::workflow_search::{
    SearchedFile, find_workflows, findings, nothing_found, validation_report,
};
use sinew_source::escape_text;

use crate::exit::Exit;
use crate::output::{Format, Output};
use crate::variable_args::VariableArgs;

const EXAMPLES: &str = "Examples:
  sinew workflow validate flows/audit.yaml
  sinew workflow validate flows --strict               # warnings fail too
  sinew workflow validate flows --format github        # annotations in a pull request
  sinew workflow validate flows --format sarif > findings.sarif
  cat flow.yaml | sinew workflow validate - -o json

Findings are printed to stdout, their count to stderr. Exits with 1 on errors, or if no workflow is found.";

/// Arguments of `sinew workflow validate`.
#[derive(Args, Debug)]
#[command(
    long_about = "Validate workflow files, and report errors with their positions.\n\n\
                  Reads files and every workflow in folders (not *.test.* and *.agent.*). Runs nothing and \
                  contacts nothing.",
    after_help = EXAMPLES
)]
pub(crate) struct ValidateArgs {
    /// Files, folders, or - for stdin
    #[arg(required = true, value_name = "FILE|FOLDER|-")]
    paths: Vec<PathBuf>,
    /// Dialect of the files [default: detected from their content]
    #[arg(long)]
    dialect: Option<String>,
    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
    /// Format of the findings for other tools [default: text; for JSON use -o json]
    #[arg(long, value_enum)]
    format: Option<FindingFormat>,
    #[command(flatten)]
    variables: VariableArgs,
}

/// Formats of findings other than JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FindingFormat {
    /// For people
    Text,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Annotations of a GitHub workflow
    Github,
}

/// Runs the command.
pub(super) fn validate(args: &ValidateArgs, output: &Output) -> Result<Exit, Failure> {
    if args.format.is_some() && output.format != Format::Table {
        return Err(Failure::usage(
            "--format and -o both choose the format of the findings; use one of them",
        ));
    }
    let options =
        Options { dialect: args.dialect.clone(), variables: args.variables.rules()?, ..Options::default() };
    let files = find_workflows(&args.paths, &options)?;
    if files.is_empty() {
        return Err(nothing_found(FailureKind::Failed, &args.paths));
    }
    let errors: usize = files.iter().map(|file| file.diagnostics.errors()).sum();
    let warnings: usize = files.iter().map(|file| file.diagnostics.warnings()).sum();
    match (args.format.unwrap_or(FindingFormat::Text), output.format) {
        (_, Format::Json | Format::Yaml) => output.value(&validation_report(&files), |_| String::new()),
        (_, Format::Jsonl) => {
            for finding in findings(&files) {
                output.text(&serde_json::to_string(&finding).unwrap_or_default());
            }
        }
        (_, Format::Name) => {
            let bad = |file: &&SearchedFile| !file.diagnostics.is_empty();
            for file in files.iter().filter(bad) {
                output.line(&file.path.display().to_string());
            }
        }
        (FindingFormat::Sarif, _) => output.text(&sarif(&files)),
        (FindingFormat::Github, _) => {
            each(&files, output, |found| escape_text(&sinew_source::render_github(found)).into_owned());
        }
        (FindingFormat::Text, _) => {
            each(&files, output, |found| sinew_source::render_text(found, output.color));
        }
    }
    output.note(&sinew_source::summary(errors, warnings, files.len()));
    let failed = errors > 0 || (args.strict && warnings > 0);
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

fn each(files: &[SearchedFile], output: &Output, render: impl Fn(&sinew_source::Diagnostics) -> String) {
    for file in files.iter().filter(|file| !file.diagnostics.is_empty()) {
        output.styled(&render(&file.diagnostics));
    }
}
