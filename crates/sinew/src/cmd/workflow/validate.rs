//! `sinew workflow validate`: every finding with file, line and column.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sinew_source::escape_text;

use super::find::{self, Read};
use crate::exit::{Exit, Failure};
use crate::load::{Options, VariableArgs};
use crate::output::{Format, Output};

const EXAMPLES: &str = "Examples:
  sinew workflow validate flows/audit.yaml
  sinew workflow validate flows --strict               # warnings fail too
  sinew workflow validate flows --format github        # annotations in a pull request
  sinew workflow validate flows --format sarif > findings.sarif
  cat flow.yaml | sinew workflow validate - -o json

Findings go to stdout, the count to stderr. Exit code 1 if there is an error, or no workflow at all.";

/// Arguments of `sinew workflow validate`.
#[derive(Args, Debug)]
#[command(
    long_about = "Check workflow files and say what is wrong, and where.\n\nReads files and every workflow in \
                  folders (not *.test.* and *.agent.*). Nothing is run and nothing is contacted.",
    after_help = EXAMPLES
)]
pub(crate) struct ValidateArgs {
    /// Files, folders, or - for stdin
    #[arg(required = true, value_name = "FILE|FOLDER|-")]
    paths: Vec<PathBuf>,
    /// Take the files as this dialect, whatever they look like
    #[arg(long)]
    dialect: Option<String>,
    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
    /// Form of the findings, when other tools read them [default: text; for JSON use -o json]
    #[arg(long, value_enum)]
    format: Option<FindingFormat>,
    #[command(flatten)]
    variables: VariableArgs,
}

/// Forms of findings beside JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FindingFormat {
    /// For people
    Text,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Annotations of a GitHub workflow
    Github,
}

/// Does what the command line says.
pub(super) fn validate(args: &ValidateArgs, output: &Output) -> Result<Exit, Failure> {
    if args.format.is_some() && output.format != Format::Table {
        return Err(Failure::usage("--format and -o both choose the form of the findings: give one of them"));
    }
    let options =
        Options { dialect: args.dialect.clone(), variables: args.variables.rules()?, ..Options::default() };
    let files = find::workflows(&args.paths, &options)?;
    if files.is_empty() {
        return Err(find::nothing(Exit::Failed, &args.paths));
    }
    let errors: usize = files.iter().map(|file| file.diagnostics.errors()).sum();
    let warnings: usize = files.iter().map(|file| file.diagnostics.warnings()).sum();
    match (args.format.unwrap_or(FindingFormat::Text), output.format) {
        (_, Format::Json | Format::Yaml) => output.value(&document(&files), |_| String::new()),
        (_, Format::Jsonl) => {
            for finding in findings(&files) {
                output.text(&finding.to_string());
            }
        }
        (_, Format::Name) => {
            let bad = |file: &&Read| !file.diagnostics.is_empty();
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

fn each(files: &[Read], output: &Output, render: impl Fn(&sinew_source::Diagnostics) -> String) {
    for file in files.iter().filter(|file| !file.diagnostics.is_empty()) {
        output.styled(&render(&file.diagnostics));
    }
}

/// One document for all files: what was read, and the findings in order.
fn document(files: &[Read]) -> Value {
    let read: Vec<Value> = files
        .iter()
        .map(|file| {
            let workflows: Vec<&str> = file
                .loaded
                .iter()
                .flat_map(|loaded| &loaded.workflows)
                .map(|lowered| lowered.plan.name.as_str())
                .collect();
            json!({
                "file": file.path,
                "dialect": file.loaded.as_ref().map(|loaded| loaded.dialect.name()),
                "workflows": workflows,
                "errors": file.diagnostics.errors(),
                "warnings": file.diagnostics.warnings(),
            })
        })
        .collect();
    json!({
        "version": 1,
        "errors": files.iter().map(|file| file.diagnostics.errors()).sum::<usize>(),
        "warnings": files.iter().map(|file| file.diagnostics.warnings()).sum::<usize>(),
        "files": read,
        "diagnostics": findings(files),
    })
}

fn findings(files: &[Read]) -> Vec<Value> {
    let of = |file: &Read| -> Value {
        let text = sinew_source::render_json(&file.diagnostics);
        serde_json::from_str::<Value>(&text).map(|mut value| value["diagnostics"].take()).unwrap_or_default()
    };
    files.iter().flat_map(|file| of(file).as_array_mut().map(std::mem::take).unwrap_or_default()).collect()
}

/// One run for all files: code scanning takes one run per tool.
fn sarif(files: &[Read]) -> String {
    let parse = |file: &Read| -> Value {
        serde_json::from_str(&sinew_source::render_sarif(&file.diagnostics)).unwrap_or_default()
    };
    let mut files = files.iter();
    let mut whole = files.next().map(parse).unwrap_or_default();
    for file in files {
        let mut more = parse(file);
        for list in ["/runs/0/results", "/runs/0/tool/driver/rules"] {
            let added = more.pointer_mut(list).map(Value::take).unwrap_or_default();
            let (Some(all), Value::Array(added)) =
                (whole.pointer_mut(list).and_then(Value::as_array_mut), added)
            else {
                continue;
            };
            for item in added {
                // Rules are named once; equal results cannot be, they stand in different files.
                if !all.contains(&item) {
                    all.push(item);
                }
            }
        }
    }
    serde_json::to_string_pretty(&whole).unwrap_or_default()
}
