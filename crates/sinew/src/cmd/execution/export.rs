//! `sinew execution export`: writes an execution to a file.

use std::path::PathBuf;

use clap::Args;
use sinew_case_runner::recorded_case;
use sinew_inspection::record;
use sinew_operations::export_file;
use sinew_operations::failure::Failure;

use super::Which;
use crate::exit::Exit;
use crate::output::{Output, to_yaml};

const EXPORT_EXAMPLES: &str = "Examples:
  sinew execution export @latest -O run.json
  sinew execution export @latest --redact > for-a-bug-report.json
  sinew execution describe run.json
  sinew execution export @latest --case -O flows/order.test.yaml   # then: sinew test flows/order.test.yaml";

/// Arguments of `sinew execution export`.
#[derive(Args, Debug)]
#[command(
    long_about = "Write an execution to a file: its plan, every fact, and the caller of each command. All \
                  commands that inspect executions accept such a file, without a mesh.\n\n\
                  --redact removes all values, questions, comments and messages; names of nodes and agents, \
                  times and the plan itself remain.\n\n\
                  --case writes a test file with one case: agents return their recorded answers, and the \
                  recorded end is expected. Sub-workflows run in it, so add the answers of their agents by \
                  hand.",
    after_help = EXPORT_EXAMPLES
)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    which: Which,
    /// Write to this file instead of stdout
    #[arg(short = 'O', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Remove values
    #[arg(long)]
    redact: bool,
    /// Write a case for `sinew test` instead
    #[arg(long, conflicts_with = "redact")]
    case: bool,
    /// Expect the end of this node in the case, instead of the execution's
    #[arg(long, value_name = "NODE", requires = "case")]
    node: Option<String>,
    /// Workflow file to name in the case [default: the name of the workflow with `.yaml`]
    #[arg(long, value_name = "FILE", requires = "case")]
    workflow: Option<String>,
}

/// Writes an execution to a file.
pub(super) async fn export(args: &ExportArgs, output: &Output) -> Result<Exit, Failure> {
    let mut record = args.which.open().await?.record;
    if args.case {
        let named = args.workflow.clone().unwrap_or_else(|| format!("{}.yaml", record.plan().name));
        let case = to_yaml(&recorded_case(&record, &named, args.node.as_deref())?);
        match &args.out {
            Some(file) => {
                export_file::write_text(&case, file)?;
                output.note(&format!("wrote {0}; run it with: sinew test {0}", file.display()));
            }
            None => output.text(&case),
        }
        return Ok(Exit::Ok);
    }
    if args.redact {
        record = record::redact(&record);
        output.note("values are redacted, but not the plan; check whether it may be shared");
    }
    match &args.out {
        Some(file) => {
            export_file::write(&record, file)?;
            output.note(&format!("wrote {}", file.display()));
        }
        None => output.text(&record.to_json().to_string()),
    }
    Ok(Exit::Ok)
}
