//! Import of executions into the history of a mesh.

use sinew_execution::route::{called_names, route};
use sinew_execution::usage::execution_usage;
use sinew_inspection::execution_status::status_of;
use sinew_inspection::record::Record;
use sinew_mesh::history::ClosedExecution;
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord};
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::{ExecutionId, Token, code};

use crate::deployment;
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::MeshOperator;

/// Rejects an execution that has not ended, because no mesh can continue it.
pub fn refuse_open(record: &Record) -> Result<(), Failure> {
    let status = status_of(record.execution.state());
    if !status.is_terminal() {
        return Err(Failure::new(
            FailureKind::Conflict,
            code::EXECUTION_NOT_ENDED.as_str(),
            format!("the execution has not ended; its status is {}", status.as_str()),
        ));
    }
    Ok(())
}

/// Imports an ended execution into the history of a mesh, under its own id. Returns the id and the
/// status.
pub async fn import_execution(
    remote: &MeshOperator,
    record: &Record,
) -> Result<(ExecutionId, ExecutionStatus), Failure> {
    refuse_open(record)?;
    let status = status_of(record.execution.state());
    let id = record.execution.id().clone();
    if remote.client.record(&id).await?.is_some() {
        return Err(Failure::new(
            FailureKind::Conflict,
            code::EXECUTION_EXISTS.as_str(),
            format!("the mesh already has an execution {id}"),
        ));
    }
    deployment::store(remote.mesh(), record.plan(), None, None).await?;
    let (state, stored) = (record.execution.state(), stored(record));
    let closed = ClosedExecution {
        execution: id.clone(),
        workflow: record.plan().name.clone(),
        status: status.as_str().to_owned(),
        started: state.started_at,
        ended: state.at,
        caller: Token::of(&record.about.caller).to_string(),
        entries: stored.entry_count(),
        usage: execution_usage(state),
        fault_code: state.outcome.as_ref().and_then(|outcome| Some(outcome.fault.as_ref()?.code.to_string())),
        plan: Some(record.execution.program().graph.digest().to_owned()),
        is_dry_run: record.is_dry_run(),
        route: Some(route(record.plan(), state)),
        attributes: ExecutionAttributes::of(&stored.meta, called_names(state)),
    };
    remote.mesh().history().put(&closed, stored.encode()).await?;
    Ok((id, status))
}

/// Returns the record as the mesh stores it.
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
            calling: None,
            idempotency_key: record.about.idempotency_key.clone(),
            conversation: None,
        },
        rounds: rounds.map(|round| sinew_engine::encode_round(round).into()).collect(),
        commands: record.commands.clone(),
        hold: None,
    }
}
