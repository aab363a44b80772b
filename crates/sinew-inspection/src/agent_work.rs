//! The agents of an execution: calls, results, durations and costs of each.

use sinew_documents::agent::AgentWork;
use std::collections::BTreeMap;

use sinew_engine::{ActivationId, Fact, RequestTarget, Time};
use sinew_protocol::usage::TaskUsage;

use crate::record::Record;
use crate::task_times::split_time;

/// Maximum nodes per agent.
const MAX_NODES: usize = 50;

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
        let (worked, queued) = split_time(at.saturating_sub(sent_at), worked_ms);
        work.working_ms += worked;
        work.longest_ms = work.longest_ms.max(worked);
        work.queued_ms += queued;
        work.longest_queued_ms = work.longest_queued_ms.max(queued);
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
