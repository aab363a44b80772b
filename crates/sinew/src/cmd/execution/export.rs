//! `sinew execution export`: an execution is written to a file.

use std::path::PathBuf;

use clap::Args;
use sinew_inspection::record;
use sinew_operations::export_file;
use sinew_operations::failure::Failure;

use super::Which;
use crate::exit::Exit;
use crate::output::Output;

const EXPORT_EXAMPLES: &str = "Examples:
  sinew execution export @latest -O run.json
  sinew execution export @latest --redact > for-a-bug-report.json
  sinew execution describe run.json";

/// Arguments of `sinew execution export`.
#[derive(Args, Debug)]
#[command(
    long_about = "Write an execution to a file: its plan, every fact, and who asked for what. All commands that look \
                  at executions take such a file, without a mesh.\n\n--redact takes out all values, questions, \
                  comments and messages; names of nodes and agents, times and the plan itself stay.",
    after_help = EXPORT_EXAMPLES
)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    which: Which,
    /// Write into this file instead of stdout
    #[arg(short = 'O', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Take out values
    #[arg(long)]
    redact: bool,
}

/// Writes an execution to a file.
pub(super) async fn export(args: &ExportArgs, output: &Output) -> Result<Exit, Failure> {
    let mut record = args.which.open().await?.record;
    if args.redact {
        record = record::redact(&record);
        output.note("values were taken out; the plan is as it was: look whether it may be shared");
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
