//! `sinew execution import`: adds an execution from a file to the history of a mesh.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use sinew_documents::words;
use sinew_operations::export_file;
use sinew_operations::failure::Failure;
use sinew_operations::history_import::{import_execution, refuse_open};

use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

const IMPORT_EXAMPLES: &str = "Examples:
  sinew execution import run.json
  sinew execution import run.json --nats nats://localhost:4222 && sinew execution tree @latest";

/// Arguments of `sinew execution import`.
#[derive(Args, Debug)]
#[command(
    long_about = "Add an execution from a file to the history of a mesh, under its own id, so that others \
                  can inspect it there. It must have ended. To inspect a file yourself, no import is needed.",
    after_help = IMPORT_EXAMPLES
)]
pub(crate) struct ImportArgs {
    /// File written by `export`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    mesh: Connection,
}

/// Adds an execution to the history of a mesh.
pub(super) async fn import(args: &ImportArgs, output: &Output) -> Result<Exit, Failure> {
    let record = export_file::read(&args.file)?;
    refuse_open(&record)?;
    let remote = args.mesh.operator().await?;
    let (id, status) = import_execution(&remote, &record).await?;
    output.value(&json!({ "execution": id.as_str(), "status": words::status_word(status) }), |_| {
        id.to_string()
    });
    Ok(Exit::Ok)
}
