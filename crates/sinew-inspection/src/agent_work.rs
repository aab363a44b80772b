//! The agents of an execution: what each of them was asked, how it went, how long it took, and what it cost.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sinew_engine::{ActivationId, Fact, RequestTarget, Time};
use sinew_protocol::Fault;
use sinew_protocol::usage::TaskUsage;

use crate::record::Record;

/// Nodes that are named of one agent.
const MAX_NODES: usize = 50;

/// Work of one agent or workflow for an execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct AgentWork {
    /// Name of the agent or workflow.
    pub agent: String,
    /// Whether a workflow was called.
    pub is_workflow: bool,
    /// Nodes that it worked on, in the order of their first task; not more than 50.
    pub nodes: Vec<String>,
    /// Tasks that were sent, those of repeated attempts included.
    pub tasks: usize,
    /// Tasks without an answer yet.
    pub open: usize,
    /// Tasks that ended with a fault.
    pub failed: usize,
    /// Milliseconds of work, summed up; open tasks count to the time of the view. Of agents that do not report how long they
    /// worked, the whole time from a task to its answer.
    pub working_ms: Time,
    /// The longest of them.
    pub longest_ms: Time,
    /// Milliseconds that tasks waited in queues before the work on them started, summed up, as far as the agent reports it.
    pub queued_ms: Time,
    /// The longest of them.
    pub longest_queued_ms: Time,
    /// Tokens and price, as the agent told them.
    #[serde(flatten)]
    pub used: TaskUsage,
    /// The latest fault; `None` if no task failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Fault>,
}

/// Tasks as they are read from the facts.
#[derive(Default)]
struct WorkRecorder {
    found: Vec<AgentWork>,
    places: BTreeMap<(bool, String), usize>,
    /// Open tasks: place of the agent, and the time when the task was sent.
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

/// Returns the work of each agent and workflow that an execution asked, in the order of their first tasks, seen at `now`.
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
