//! Times of the tasks of an execution: work and queue apart.

use std::collections::BTreeMap;

use sinew_engine::{Fact, RequestTarget, Time};

use crate::record::Record;

/// Times of a task that has a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTime {
    /// Id of the node that sent it.
    pub node: String,
    /// Name of the agent or workflow.
    pub agent: String,
    /// Milliseconds of work: as the agent reports, else from the task to its result.
    pub worked_ms: u64,
    /// Milliseconds in the queue; 0 if the agent does not report its work.
    pub queued_ms: u64,
    /// Whether the task failed.
    pub failed: bool,
}

/// Returns the times of the tasks of an execution, in the order of their results. Scripts are no tasks.
pub fn task_times(record: &Record) -> Vec<TaskTime> {
    let ctx = record.execution.ctx();
    let mut open: BTreeMap<_, (String, Time)> = BTreeMap::new();
    let mut found = Vec::new();
    for round in record.execution.journal() {
        for fact in &round.facts {
            match fact {
                Fact::Dispatched { act, attempt, ask, .. } if ask.target != RequestTarget::Evaluation => {
                    open.insert((*act, *attempt), (ask.target.name().to_owned(), round.at));
                }
                Fact::Replied { act, attempt, result, worked_ms, .. } => {
                    let Some((agent, sent_at)) = open.remove(&(*act, *attempt)) else { continue };
                    let (worked_ms, queued_ms) = split_time(round.at.saturating_sub(sent_at), *worked_ms);
                    let node = ctx.node_of(*act).id.clone();
                    found.push(TaskTime { node, agent, worked_ms, queued_ms, failed: result.is_err() });
                }
                _ => {}
            }
        }
    }
    found
}

/// Splits the time of a task into work, as its agent reports it, and queue.
pub(crate) fn split_time(took: Time, worked_ms: Option<u64>) -> (u64, u64) {
    let worked = worked_ms.map_or(took, |worked| worked.min(took));
    (worked, took - worked)
}
