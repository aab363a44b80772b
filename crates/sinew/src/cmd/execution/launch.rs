//! New executions that reuse old ones: input, kept outputs, and the start.

use clap::Args;
use sinew_documents::words;
use sinew_inspection::record::Record;
use sinew_operations::execution_start::NewExecution;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::MeshOperator;

use super::retry::{wait_until_known, watched};
use crate::exit::Exit;
use crate::output::Output;

/// Handling of the new execution.
#[derive(Args, Debug)]
pub(super) struct LaunchArgs {
    /// Show what would start, without starting it
    #[arg(long)]
    dry_run: bool,
    /// Follow it until it ends
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
}

pub(super) async fn launch(
    remote: &MeshOperator,
    record: &Record,
    new: NewExecution,
    how: &LaunchArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let preview = new.preview(record);
    let workflow = preview.would_start.clone();
    let shown = preview.version.as_deref().map_or("the newest version", words::short).to_owned();
    if how.dry_run {
        output.value(&preview, |preview| {
            let mut text = format!("would start {workflow} ({shown}) with {}", preview.input);
            for (what, nodes) in [("given", &preview.given), ("from", &preview.from)] {
                if !nodes.is_empty() {
                    text = format!("{text}\n  {what:<5}  {}", nodes.join(", "));
                }
            }
            text
        });
        return Ok(Exit::Ok);
    }
    output.note(&format!("starting {workflow} ({shown})"));
    let launched = remote.launch(record, new).await?;
    let id = &launched.execution;
    if how.watch {
        wait_until_known(remote, id, &workflow, output).await?;
        return watched(remote, id, output).await;
    }
    output.value(&launched.document(), |_| id.to_string());
    Ok(Exit::Ok)
}
