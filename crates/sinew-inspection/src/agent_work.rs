//! The agents of an execution: calls, results, durations and costs of each.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sinew_engine::{ActivationId, Fact, RequestTarget, Time};
use sinew_protocol::Fault;
use sinew_protocol::usage::TaskUsage;

use crate::record::Record;

/// Maximum nodes per agent.
const MAX_NODES: usize = 50;

/// Work of one agent or workflow for an execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct AgentWork {
    /// Name of the agent or workflow.
    pub agent: String,
    /// Whether a workflow was called.
    pub is_workflow: bool,
    /// Nodes that it worked on, in order of their first task; at most 50.
    pub nodes: Vec<String>,
    /// Number of tasks, including those of repeated attempts.
    pub tasks: usize,
    /// Tasks without a result.
    pub open: usize,
    /// Tasks that ended with a fault.
    pub failed: usize,
    /// Total milliseconds of work; open tasks count to the time of the view. If an agent does not
    /// report its work time, the time from task to result.
    pub working_ms: Time,
    /// The longest of these times.
    pub longest_ms: Time,
    /// Total milliseconds that tasks were queued, if the agent reports its work time.
    pub queued_ms: Time,
    /// The longest of these times.
    pub longest_queued_ms: Time,
    /// Tokens and price, as reported by the agent.
    #[serde(flatten)]
    pub used: TaskUsage,
    /// The latest fault; `None` if no task failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Fault>,
}

/// Collects tasks from facts.
#[derive(Default)]
struct WorkRecorder {
    found: Vec<AgentWork>,
    places: BTreeMap<(bool, String), usize>,
    /// Open tasks: index of the agent, and the time when the task was sent.
    open: BTreeMap<(ActivationId, u32), (usize, Time)>,
}

impl WorkRecorder {
    fn place_of(&mut self, target: &RequestTarget) -> Option<usize> {
        let (is_workflow, name) = match target {
            RequestTarget::Agent(name) => (false, name),
            RequestTarget::Workflow(name) => (true, name),
            RequestTarget::Evaluation => return None,
        };
        let found = &mut self.found;
        let place = *self.places.entry((is_workflow, name.clone())).or_insert_with(|| {
            found.push(AgentWork { agent: name.clone(), is_workflow, ..AgentWork::default() });
            found.len() - 1
        });
        Some(place)
    }

    fn sent(&mut self, place: usize, node: &str, task: (ActivationId, u32), at: Time) {
        let work = &mut self.found[place];
        work.tasks += 1;
        if work.nodes.len() < MAX_NODES && !work.nodes.iter().any(|known| known == node) {
            work.nodes.push(node.to_owned());
        }
        self.open.insert(task, (place, at));
    }

    fn ended(
        &mut self,
        task: (ActivationId, u32),
        at: Time,
        worked_ms: Option<u64>,
    ) -> Option<&mut AgentWork> {
        let (place, sent_at) = self.open.remove(&task)?;
        let work = &mut self.found[place];
        let took = at.saturating_sub(sent_at);
        let worked = worked_ms.map_or(took, |worked| worked.min(took));
        work.working_ms += worked;
        work.longest_ms = work.longest_ms.max(worked);
        work.queued_ms += took - worked;
        work.longest_queued_ms = work.longest_queued_ms.max(took - worked);
        Some(work)
    }
}

/// Returns the work of each called agent and workflow, in order of their first tasks, at `now`.
pub fn agent_work(record: &Record, now: Time) -> Vec<AgentWork> {
    let mut recorder = WorkRecorder::default();
    let ctx = record.execution.ctx();
    for round in record.execution.journal() {
        for fact in &round.facts {
            match fact {
                Fact::Dispatched { act, attempt, ask, .. } => {
                    if let Some(place) = recorder.place_of(&ask.target) {
                        recorder.sent(place, &ctx.node_of(*act).id, (*act, *attempt), round.at);
                    }
                }
                Fact::Replied { act, attempt, result, worked_ms, .. } => {
                    let ended = recorder.ended((*act, *attempt), round.at, *worked_ms);
                    let Some(work) = ended else { continue };
                    match result {
                        Ok(reply) => {
                            if let Some(used) = TaskUsage::of(&reply.usage) {
                                work.used.add(&used);
                            }
                        }
                        Err(fault) => {
                            work.failed += 1;
                            work.last_error = Some(fault.clone());
                        }
                    }
                }
                _ => {}
            }
        }
    }
    let state = record.execution.state();
    let until = record.seen_until(now);
    for task in recorder.open.keys().copied().collect::<Vec<_>>() {
        if let Some(work) = recorder.ended(task, until, None) {
            work.open += usize::from(!state.ended);
        }
    }
    recorder.found
}
