//! `sinew execution export | import | replay`: executions as files.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use sinew_mesh::history::Closed;
use sinew_protocol::Token;
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord};

use super::Which;
use crate::connect::Connection;
use crate::deploy;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::record::{self, Record};
use crate::remote::Remote;
use crate::views::tree::{self, Options};
use crate::views::{Standing, replay};

/// This version decides otherwise.
const DIFFERS: &str = "SINEW-8023";
/// An execution with this id is on the mesh already.
const EXISTS: &str = "SINEW-8028";
/// Only what has ended can be imported.
const NOT_ENDED: &str = "SINEW-8029";

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
            record.write(file)?;
            output.note(&format!("wrote {}", file.display()));
        }
        None => output.text(&record.to_json().to_string()),
    }
    Ok(Exit::Ok)
}

const IMPORT_EXAMPLES: &str = "Examples:
  sinew execution import run.json
  sinew execution import run.json --nats nats://localhost:4222 && sinew execution tree @latest";

/// Arguments of `sinew execution import`.
#[derive(Args, Debug)]
#[command(
    long_about = "Put an execution from a file into the history of a mesh, under its own id, so that others can look at \
                  it there. It must have ended. To look at a file yourself no import is needed.",
    after_help = IMPORT_EXAMPLES
)]
pub(crate) struct ImportArgs {
    /// A file that `export` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    mesh: Connection,
}

/// Puts an execution into a mesh's history.
pub(super) async fn import(args: &ImportArgs, output: &Output) -> Result<Exit, Failure> {
    let record = record::read(&args.file)?;
    let standing = Standing::of(record.execution.state());
    if !standing.is_over() {
        return Err(Failure::new(
            Exit::Conflict,
            NOT_ENDED,
            format!("it has not ended: it is {}", standing.as_str()),
        ));
    }
    let remote = Remote::open(&args.mesh).await?;
    let id = record.execution.id().clone();
    if remote.client.record(&id).await?.is_some() {
        return Err(Failure::new(Exit::Conflict, EXISTS, format!("the mesh has an execution {id} already")));
    }
    deploy::store(remote.mesh(), record.plan(), None).await?;
    let state = record.execution.state();
    let closed = Closed {
        execution: id.clone(),
        workflow: record.plan().name.clone(),
        status: standing.as_str().to_owned(),
        started: state.started_at,
        ended: state.at,
        caller: Token::of(&record.about.caller).to_string(),
    };
    remote.mesh().put_history(&closed, stored(&record).encode()).await?;
    output.value(&json!({ "execution": id.as_str(), "status": standing }), |_| id.to_string());
    Ok(Exit::Ok)
}

/// The record as the mesh keeps it.
fn stored(record: &Record) -> ExecutionRecord {
    let rounds = record.execution.journal().iter();
    ExecutionRecord {
        meta: ExecutionMeta {
            execution: record.execution.id().clone(),
            workflow: record.plan().name.clone(),
            dialect: record.plan().dialect.clone(),
            plan: record.execution.program().graph.digest().to_owned(),
            caller: Token::of(&record.about.caller),
            user: record.about.user.clone(),
            session: record.about.session.clone(),
            labels: record.about.labels.clone(),
            created: record.execution.state().started_at,
            parent: None,
            traceparent: None,
            start_digest: None,
        },
        rounds: rounds.map(|round| sinew_engine::encode_round(round).into()).collect(),
        commands: record.commands.clone(),
        hold: None,
    }
}

const REPLAY_EXAMPLES: &str = "Examples:
  sinew execution replay run.json
  sinew execution replay @latest                 # would this version have decided the same?
  sinew execution replay run.json --until 12     # how it stood after round 12";

/// Arguments of `sinew execution replay`.
#[derive(Args, Debug)]
#[command(
    long_about = "Fold an execution's facts again, offline, and decide every round again: this version of Sinew should \
                  decide the same. Exits with 1 if it does not. No agent is asked anything.",
    after_help = REPLAY_EXAMPLES
)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    which: Which,
    /// Stop after this round, and show the tree as it was
    #[arg(long, value_name = "ROUND")]
    until: Option<usize>,
    /// Fold only, do not decide again
    #[arg(long)]
    fold_only: bool,
}

/// Replays an execution.
pub(super) async fn replay(args: &ReplayArgs, output: &Output) -> Result<Exit, Failure> {
    let mut record = args.which.open().await?.record;
    if let Some(until) = args.until {
        record = record.until(until);
    }
    if record.redacted && !args.fold_only {
        output.note("its values were taken out, so it can only be folded");
    }
    let report = replay::replay(&record, !args.fold_only && !record.redacted);
    output.value(&report, |report| {
        let mut text =
            format!("{} rounds, {} facts: {}", report.rounds, report.facts, report.status.as_str());
        if report.difference.is_none() && report.decided_again > 0 {
            text.push_str(", every round decided the same again");
        }
        if args.until.is_some() {
            let branches = tree::tree(&record, record.at(), &Options::default()).unwrap_or_default();
            let lines = tree::lines(&branches, output.color, output.ascii);
            text = format!("{text}\n{}\n{}", tree::head(&record, record.at()), lines.join("\n"));
        }
        text
    });
    let Some(difference) = report.difference else { return Ok(Exit::Ok) };
    let (recorded, decided) = (&difference.recorded, &difference.decided);
    Err(Failure::new(
        Exit::Failed,
        DIFFERS,
        format!("round {} is decided otherwise: recorded {recorded}, now {decided}", difference.round),
    ))
}
