//! Reports of a stored commit as messages of the mesh, and its notices as logs and metrics.

use bytes::Bytes;
use sinew_engine::{AdapterContext, Fact, Time};
use sinew_mesh::HeaderMap;
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::message::MeshMessage;
use sinew_protocol::{Subject, Token, header};
use sinew_shard::{FactObserver, Outgoing, ShardNotice, ShardReport};
use tracing::{debug, error, warn};

use super::Shared;
use super::observe;
use super::outbox::Job;

/// More than the headers of an event take, in bytes.
const MAX_HEADER_BYTES: usize = 4 * 1024;

/// Measures facts.
pub(super) struct FactMeter;

impl FactObserver for FactMeter {
    fn observe(&mut self, ctx: &AdapterContext<'_>, meta: &ExecutionMeta, at: Time, fact: &Fact) {
        observe::fact(ctx, meta, at, fact);
    }
}

/// Counts a message that leaves.
pub(super) fn count(outgoing: &Outgoing) {
    match outgoing {
        Outgoing::Task { .. } => metrics::counter!("sinew_tasks_total").increment(1),
        Outgoing::Finish { outcome, .. } => {
            metrics::counter!("sinew_executions_ended_total", "status" => outcome.status.as_str())
                .increment(1);
        }
        _ => {}
    }
}

/// Returns a report as a message.
pub(super) fn event(shared: &Shared, report: ShardReport) -> Job {
    match report {
        ShardReport::Event { meta, place: (round, index), at, message } => {
            let kind = Token::of(message.kind(shared.vocabulary));
            let (workflow, execution) = (Token::of(&meta.workflow), meta.execution.clone());
            let subject = Subject::Event { workflow, execution, kind };
            let mut headers = Shared::headers(&meta);
            headers.insert(header::SEQ, format!("{round}.{index}").as_str());
            headers.insert(header::TIME, at.to_string().as_str());
            Job::Event { subject, headers, body: body(shared, *message) }
        }
        ShardReport::Verdict { execution, workflow, verdict } => {
            let workflow = if workflow.is_empty() { "-".to_owned() } else { workflow };
            let (workflow, kind) = (Token::of(&workflow), Token::of("command"));
            let subject = Subject::Event { workflow, execution, kind };
            let body = serde_json::to_vec(&verdict).unwrap_or_default().into();
            Job::Event { subject, headers: HeaderMap::new(), body }
        }
    }
}

/// Logs and counts what an owner noticed.
pub(super) fn tell(notices: Vec<ShardNotice>) {
    for notice in notices {
        match notice {
            ShardNotice::Started(_) => metrics::counter!("sinew_executions_started_total").increment(1),
            ShardNotice::StartRepeated(execution) => debug!(%execution, "a start was given twice"),
            ShardNotice::CommandDecided { execution, operation, caller, accepted } => {
                debug!(%execution, op = operation.as_str(), %caller, accepted, "command");
            }
            ShardNotice::ResultLate { execution, task } => {
                metrics::counter!("sinew_results_late_total").increment(1);
                debug!(%execution, %task, "a result for a task that is over");
            }
            ShardNotice::ResultForeign { execution, task, agent } => {
                metrics::counter!("sinew_results_foreign_total").increment(1);
                warn!(%execution, %task, %agent, "a result from an agent that was not asked");
            }
            ShardNotice::ResultUnusable { execution, task } => {
                error!(%execution, %task, "neither the result nor its failure could be taken");
            }
            ShardNotice::ExecutionsLoaded(count) => {
                metrics::counter!("sinew_refolds_total").increment(count);
            }
        }
    }
}

/// An event as it is sent. One that its values make too large tells what happened without them: the record has them.
fn body(shared: &Shared, mut message: MeshMessage) -> Bytes {
    let body = message.to_bytes(shared.vocabulary);
    if body.len() + MAX_HEADER_BYTES <= shared.mesh.client().max_payload() {
        return body.into();
    }
    match &mut message {
        MeshMessage::ExecutionStart(start) => start.workflow_input = None,
        MeshMessage::ExecutionResult(result) => result.workflow_output = None,
        _ => {}
    }
    message.to_bytes(shared.vocabulary).into()
}
