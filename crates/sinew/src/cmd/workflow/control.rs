//! `sinew workflow pause | resume | rollback`: controls of a deployed workflow.

use clap::Args;
use sinew_documents::words;
use sinew_documents::workflow::WorkflowState;
use sinew_operations::failure::Failure;

use super::list::short;
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `sinew workflow pause`.
#[derive(Args, Debug)]
#[command(
    long_about = "Pause a workflow. New executions of it are created, and start when the workflow is resumed; \
                  their callers see the reason. Executions that have started continue: pause them with \
                  `sinew execution pause --where workflow:NAME`.",
    after_help = "Examples:\n  sinew workflow pause orders --reason 'wrong prices, see INC-42'\n  sinew workflow resume orders"
)]
pub(crate) struct PauseArgs {
    /// The name of the workflow
    #[arg(value_name = "NAME")]
    name: String,
    /// Reason, shown to callers
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew workflow resume`.
#[derive(Args, Debug)]
#[command(
    long_about = "Resume a paused workflow. Executions that its pause kept start.",
    after_help = "Examples:\n  sinew workflow resume orders"
)]
pub(crate) struct ResumeArgs {
    /// The name of the workflow
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew workflow rollback`.
#[derive(Args, Debug)]
#[command(
    long_about = "Make an earlier version of a workflow the one that new executions run. Executions that have \
                  started keep their version.",
    after_help = "Examples:\n  sinew workflow rollback orders\n  sinew workflow rollback orders 3f2a91\n  sinew workflow rollback orders 1.4.0"
)]
pub(crate) struct RollbackArgs {
    /// The name of the workflow
    #[arg(value_name = "NAME")]
    name: String,
    /// Prefix of the digest, or the version in the file [default: the version before the current one]
    #[arg(id = "workflow-version", value_name = "VERSION")]
    version: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Pauses a workflow.
pub(super) fn pause(args: &PauseArgs, output: &Output) -> Result<Exit, Failure> {
    block(async {
        let state = args.mesh.operator().await?.pause_workflow(&args.name, &args.reason).await?;
        Ok(show(&state, output))
    })
}

/// Resumes a workflow.
pub(super) fn resume(args: &ResumeArgs, output: &Output) -> Result<Exit, Failure> {
    block(async {
        let state = args.mesh.operator().await?.resume_workflow(&args.name).await?;
        Ok(show(&state, output))
    })
}

/// Rolls a workflow back.
pub(super) fn rollback(args: &RollbackArgs, output: &Output) -> Result<Exit, Failure> {
    block(async {
        let remote = args.mesh.operator().await?;
        let state = remote.rollback_workflow(&args.name, args.version.as_deref()).await?;
        Ok(show(&state, output))
    })
}

fn show(state: &WorkflowState, output: &Output) -> Exit {
    output.value(state, |state| {
        let author =
            state.author_version.as_ref().map(|version| format!(" ({})", words::one_line(version, 40)));
        let name = format!(
            "{}@{}{}",
            words::one_line(&state.name, 60),
            short(&state.version),
            author.unwrap_or_default()
        );
        match &state.paused {
            Some(paused) => format!("{name}: {}", words::one_line(paused, 300)),
            None => format!("{name}: new executions start"),
        }
    });
    if state.kept > 0 {
        let verb = if state.paused.is_some() { "wait for the resume" } else { "start now" };
        output.note(&format!("{} {verb}", words::count(state.kept, "execution")));
    }
    Exit::Ok
}
