//! `sinew test`: runs workflow tests offline, in virtual time.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sinew_case_runner::{CaseOptions, CaseProgress, CaseReport, run_cases};
use sinew_documents::words;
use sinew_operations::failure::Failure;
use sinew_protocol::code;

use crate::exit::Exit;
use crate::output::Output;
use crate::variable_args::VariableArgs;

const EXAMPLES: &str = "Examples:
  sinew test                                  # all *.test.yaml files under this folder
  sinew test flows/order.test.yaml --filter refund
  sinew test --update                         # update `expect` from the results; review the diff
  sinew test --coverage -O coverage.svg
  sinew test --format junit > report.xml";

/// Arguments of `sinew test`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TestArgs {
    /// Test files, or folders with `*.test.yaml`, `*.test.yml` and `*.test.json` [default: this folder]
    paths: Vec<PathBuf>,
    /// Run only cases with this text in `FILE: NAME`
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Update `expect` of failing cases from their results, and show the changes
    #[arg(long)]
    update: bool,
    /// Show the nodes, edges and branches that no case reached
    #[arg(long)]
    coverage: bool,
    /// Write a drawing of the coverage (SVG)
    #[arg(short = 'O', long, value_name = "FILE", requires = "coverage")]
    out: Option<PathBuf>,
    /// Print a report for CI servers instead of text
    #[arg(long, value_enum)]
    format: Option<ReportFormat>,
    #[command(flatten)]
    variables: VariableArgs,
}

/// Report formats in addition to those of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// JUnit XML
    Junit,
}

/// Runs test files.
pub(crate) fn test(args: &TestArgs, output: &Output) -> Result<Exit, Failure> {
    let paths = if args.paths.is_empty() { vec![PathBuf::from(".")] } else { args.paths.clone() };
    let options = CaseOptions {
        paths,
        filter: args.filter.clone(),
        update: args.update,
        variables: args.variables.rules()?,
    };
    let people = args.format.is_none() && !output.is_machine();
    let report = run_cases(&options, &mut |progress| match progress {
        CaseProgress::Judged(verdict) if people => {
            output.styled(&verdict.text(output.color, output.ascii));
        }
        CaseProgress::Judged(_) => {}
        CaseProgress::Rewritten(diff) => output.note_block(diff.trim_end()),
    })?;
    if let Some(out) = &args.out {
        report.coverage.write_drawing(out)?;
    }
    Ok(finish(args, &report, output))
}

fn finish(args: &TestArgs, report: &CaseReport, output: &Output) -> Exit {
    for failure in &report.broken {
        output.failure(failure);
    }
    if args.format == Some(ReportFormat::Junit) {
        output.text(&report.junit());
    } else if output.is_machine() {
        output.value(&report.results(args.coverage), |_| String::new());
    } else {
        if args.coverage {
            output.text(&report.coverage.text());
        }
        output.text(&report.summary());
    }
    if report.verdicts.is_empty() && report.broken.is_empty() {
        let code = code::NO_TEST_CASE_FOUND;
        if let Some(filter) = &args.filter {
            output.error_line(&format!(
                "error: no test case matches --filter {} [{code}]",
                words::shell(filter)
            ));
        } else {
            output.error_line(&format!("error: no test case was found [{code}]"));
            let hint =
                format!("hint: test files are named NAME.test.yaml; `sinew explain {code}` shows an example");
            output.note(&hint);
        }
    }
    if report.is_good() { Exit::Ok } else { Exit::Failed }
}
