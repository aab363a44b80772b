//! Effects of a stored commit: reports as messages of the mesh, notices as logs and metrics.

use bytes::Bytes;
use sinew_engine::{AdapterContext, Fact, Time};
use sinew_mesh::event::OutgoingEvent;
use sinew_mesh::log_limited;
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::message::MeshMessage;
use sinew_shard::{FactObserver, Outgoing, ShardNotice, ShardReport};
use tracing::{debug, error};

use super::Shared;
use crate::measures::execution_facts;

/// Upper bound for the headers of an event, in bytes.
const MAX_HEADER_BYTES: usize = 4 * 1024;

/// Kind of the event that a callee starts or stops waiting for a person.
const PERSON_WAIT_EVENT: &str = "person_wait";

/// Updates metrics for facts.
pub(super) struct FactMeter;

impl FactObserver for FactMeter {
    fn observe(&mut self, ctx: &AdapterContext<'_>, meta: &ExecutionMeta, at: Time, fact: &Fact) {
        execution_facts::measure(ctx, meta, at, fact);
    }
}

/// Counts a sent message.
pub(super) fn count(outgoing: &Outgoing) {
    if let Outgoing::Task { .. } = outgoing {
        metrics::counter!("sinew_tasks_total").increment(1);
    }
}

/// Publishes reports in order.
pub(super) async fn publish(shared: &Shared, reports: Vec<ShardReport>) {
    if reports.is_empty() {
        return;
    }
    let mut writer = shared.mesh.events().writer();
    // A trace header costs the server a map of headers per message, so it is only added where spans
    // are collected.
    let is_traced = execution_facts::collects_spans();
    let max_payload = shared.mesh.client().max_payload();
    for report in reports {
        match report {
            ShardReport::Event { meta, place, at, message } => {
                let event = OutgoingEvent {
                    workflow: &meta.workflow,
                    execution: &meta.execution,
                    kind: message.kind(shared.vocabulary),
                    place: Some(place),
                    at: Some(at),
                    traceparent: meta.traceparent.as_deref().filter(|_| is_traced),
                };
                writer.write(event, body(shared, max_payload, *message)).await;
            }
            ShardReport::PersonWait { meta, place, at, node, wait } => {
                let event = OutgoingEvent {
                    workflow: &meta.workflow,
                    execution: &meta.execution,
                    kind: PERSON_WAIT_EVENT,
                    place: Some(place),
                    at: Some(at),
                    traceparent: meta.traceparent.as_deref().filter(|_| is_traced),
                };
                let body = serde_json::json!({ "node_id": node, "wait": wait });
                writer.write(event, body.to_string().into()).await;
            }
            ShardReport::Verdict { execution, workflow, verdict } => {
                let workflow = if workflow.is_empty() { "-" } else { &workflow };
                let (execution, kind) = (&execution, "command");
                let (place, at, traceparent) = (None, None, None);
                let event = OutgoingEvent { workflow, execution, kind, place, at, traceparent };
                writer.write(event, serde_json::to_vec(&verdict).unwrap_or_default().into()).await;
            }
        }
    }
}

/// Logs and counts the notices of an owner.
pub(super) fn tell(notices: Vec<ShardNotice>) {
    for notice in notices {
        match notice {
            ShardNotice::Started(_) => metrics::counter!("sinew_executions_started_total").increment(1),
            ShardNotice::StartRepeated(execution) => debug!(%execution, "ignored a repeated start"),
            ShardNotice::CommandDecided { execution, operation, caller, accepted } => {
                let (op, caller) = (operation.as_str(), caller.name().unwrap_or_else(|| caller.to_string()));
                log_limited!(20, info, %execution, op, caller, accepted, "command decided");
            }
            ShardNotice::ResultLate { execution, task } => {
                metrics::counter!("sinew_results_late_total").increment(1);
                debug!(%execution, %task, "ignored a result for a task that has ended");
            }
            ShardNotice::ResultForeign { execution, task, agent } => {
                metrics::counter!("sinew_results_foreign_total").increment(1);
                log_limited!(warn, %execution, %task, %agent, "rejected a result from an agent that was not called");
            }
            ShardNotice::ResultUnusable { execution, task } => {
                error!(%execution, %task, "cannot apply the result or record its failure");
            }
            ShardNotice::ExecutionsLoaded(count) => {
                metrics::counter!("sinew_refolds_total").increment(count);
            }
        }
    }
}

/// Returns the body of an event. If its values make it too large, they are omitted: the record
/// contains them.
fn body(shared: &Shared, max_payload: usize, mut message: MeshMessage) -> Bytes {
    let body = message.to_bytes(shared.vocabulary);
    if body.len() + MAX_HEADER_BYTES <= max_payload {
        return body.into();
    }
    match &mut message {
        MeshMessage::ExecutionStart(start) => start.workflow_input = None,
        MeshMessage::ExecutionResult(result) => result.workflow_output = None,
        _ => {}
    }
    message.to_bytes(shared.vocabulary).into()
}
