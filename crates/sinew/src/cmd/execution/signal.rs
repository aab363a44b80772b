//! `sinew execution cancel | pause | resume`: words to executions that go on.

use std::io::{BufRead as _, IsTerminal as _};

use clap::Args;
use serde_json::{Value, json};
use sinew_protocol::ExecutionId;
use sinew_protocol::command::{CancelCommand, Command, PauseCommand, ResumeCommand};

use super::NEEDS_MESH;
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::remote::Remote;
use crate::views::{Standing, words};

/// Several executions would be changed and nobody said yes.
const UNCONFIRMED: &str = "SINEW-8027";

const CANCEL_EXAMPLES: &str = "Examples:
  sinew execution cancel @latest --reason 'wrong input'
  sinew execution cancel x7f3 y81c --yes
  sinew execution cancel @latest --dry-run";

/// Executions to change.
#[derive(Args, Debug)]
pub(super) struct Several {
    /// Ids, the first characters of them, or @latest
    #[arg(value_name = "ID|@latest", required = true)]
    ids: Vec<String>,
    /// Say what would be touched, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before several are changed
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew execution cancel`.
#[derive(Args, Debug)]
#[command(
    long_about = "End executions: nothing new is begun, agents are told to stop, sub-workflows are ended too.",
    after_help = CANCEL_EXAMPLES
)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    several: Several,
    /// Why; recorded with the execution
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Ends executions.
pub(super) async fn cancel(args: &CancelArgs, output: &Output) -> Result<Exit, Failure> {
    let command = |execution| Command::Cancel(CancelCommand { execution, reason: args.reason.clone() });
    signal(&args.several, "cancel", "cancelled", command, output).await
}

/// Arguments of `sinew execution pause`.
#[derive(Args, Debug)]
#[command(
    long_about = "Start nothing new in executions: what agents work on goes on, and deadlines too.",
    after_help = "Examples:\n  sinew execution pause @latest --reason 'the shop is closed'"
)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    several: Several,
    /// Why; recorded with the execution
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Pauses executions.
pub(super) async fn pause(args: &PauseArgs, output: &Output) -> Result<Exit, Failure> {
    let command = |execution| Command::Pause(PauseCommand { execution, reason: args.reason.clone() });
    signal(&args.several, "pause", "paused", command, output).await
}

/// Arguments of `sinew execution resume`.
#[derive(Args, Debug)]
#[command(
    long_about = "Go on after a pause. Also takes up an execution that was set aside because executors ended over it \
                  (SINEW-6061); `sinew execution list` and `sinew doctor` show such executions.",
    after_help = "Examples:\n  sinew execution resume @latest"
)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    several: Several,
}

/// Resumes executions.
pub(super) async fn resume(args: &ResumeArgs, output: &Output) -> Result<Exit, Failure> {
    let command = |execution| Command::Resume(ResumeCommand { execution });
    signal(&args.several, "resume", "resumed", command, output).await
}

async fn signal(
    several: &Several,
    verb: &str,
    done: &'static str,
    command: impl Fn(ExecutionId) -> Command,
    output: &Output,
) -> Result<Exit, Failure> {
    if let Some(file) = several.ids.iter().find(|id| id.contains(['.', '/'])) {
        return Err(Failure::new(
            Exit::Usage,
            NEEDS_MESH,
            format!("{file} is a file; nothing goes on in it"),
        ));
    }
    let remote = Remote::open(&several.mesh).await?;
    let mut found: Vec<ExecutionId> = Vec::new();
    for text in &several.ids {
        let id = remote.find(text).await?;
        if !found.contains(&id) {
            found.push(id);
        }
    }
    let names: Vec<&str> = found.iter().map(ExecutionId::as_str).collect();
    if several.dry_run {
        return would(&remote, &found, verb, output).await;
    }
    if found.len() > 1 && !several.yes {
        confirm(&format!("{verb} {} executions: {}", found.len(), names.join(", ")))?;
    }
    let alone = found.len() == 1;
    let mut results: Vec<Value> = Vec::new();
    let mut worst = None;
    for id in found {
        let execution = id.to_string();
        match remote.signal(command(id)).await {
            Ok(_) => results.push(json!({ "execution": execution, "status": done })),
            Err(failure) => {
                results
                    .push(json!({ "execution": execution, "error": failure.message, "code": failure.code }));
                // The last one is said at the end; what programs read has them all.
                if !alone && !output.is_machine() {
                    output.note(&format!("{execution}: {} [{}]", failure.message, failure.code));
                }
                worst = Some(failure);
            }
        }
    }
    let done: Vec<&Value> = results.iter().filter(|result| result["error"].is_null()).collect();
    let word = |result: &&Value, key: &str| result[key].as_str().unwrap_or_default().to_owned();
    if output.is_machine() {
        output.value(&results, |_| String::new());
    } else {
        for one in &done {
            output.value(one, |one| format!("{} {}", word(one, "execution"), word(one, "status")));
        }
    }
    worst.map_or(Ok(Exit::Ok), Err)
}

/// Says what would become of executions, as far as it can be known before their owner decides.
async fn would(remote: &Remote, ids: &[ExecutionId], verb: &str, output: &Output) -> Result<Exit, Failure> {
    let mut rows: Vec<Value> = Vec::new();
    for id in ids {
        let standing = Standing::of(remote.record(id).await?.execution.state());
        let fits = match verb {
            "pause" => !standing.is_over() && standing != Standing::Paused,
            "resume" => standing == Standing::Paused,
            _ => !standing.is_over(),
        };
        rows.push(json!({ "execution": id.as_str(), "status": standing, "would": fits.then_some(verb) }));
    }
    output.value(&rows, |rows| {
        let line = |row: &Value| {
            let word = if row["would"].is_null() { "would refuse to" } else { "would" };
            let said = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            format!("{word} {verb} {} ({})", said("execution"), said("status"))
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(if rows.iter().any(|row| row["would"].is_null()) { Exit::Conflict } else { Exit::Ok })
}

/// Asks on a terminal; elsewhere nobody can answer.
pub(crate) fn confirm(what: &str) -> Result<(), Failure> {
    let refused =
        || Failure::new(Exit::Usage, UNCONFIRMED, format!("not confirmed: {what}")).hint("say --yes");
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(refused());
    }
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("{}. Go on? [y/N] ", words::name(what)).as_bytes(),
    );
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match line.trim() {
        "y" | "Y" | "yes" if read.is_ok() => Ok(()),
        _ => Err(refused()),
    }
}
