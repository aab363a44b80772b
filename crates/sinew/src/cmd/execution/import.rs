//! `sinew execution import`: an execution from a file enters the history of a mesh.

use sinew_protocol::code;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use sinew_mesh::history::ClosedExecution;
use sinew_protocol::Token;
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord};

use crate::connect::Connection;
use crate::deploy;
use crate::exit::{Exit, Failure};
use crate::export_file;
use crate::output::Output;
use crate::remote::Remote;
use sinew_inspection::record::Record;
use sinew_inspection::words;

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
    let record = export_file::read(&args.file)?;
    let status = words::status_of(record.execution.state());
    if !status.is_terminal() {
        return Err(Failure::new(
            Exit::Conflict,
            code::EXECUTION_NOT_ENDED.as_str(),
            format!("it has not ended: it is {}", status.as_str()),
        ));
    }
    let remote = Remote::open(&args.mesh).await?;
    let id = record.execution.id().clone();
    if remote.client.record(&id).await?.is_some() {
        return Err(Failure::new(
            Exit::Conflict,
            code::EXECUTION_EXISTS.as_str(),
            format!("the mesh has an execution {id} already"),
        ));
    }
    deploy::store(remote.mesh(), record.plan(), None).await?;
    let (state, stored) = (record.execution.state(), stored(&record));
    let closed = ClosedExecution {
        execution: id.clone(),
        workflow: record.plan().name.clone(),
        status: status.as_str().to_owned(),
        started: state.started_at,
        ended: state.at,
        caller: Token::of(&record.about.caller).to_string(),
        entries: stored.entry_count(),
    };
    remote.mesh().history().put(&closed, stored.encode()).await?;
    output.value(&json!({ "execution": id.as_str(), "status": words::status_word(status) }), |_| {
        id.to_string()
    });
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
            user_config: serde_json::Value::Null,
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
