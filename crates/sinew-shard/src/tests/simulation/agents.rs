//! Agents that take tasks from queues, and senders of forged results.

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_protocol::{Fault, ResultKey, ResultToken, Subject, Token};

use super::hostile::HostileMesh;
use super::shard_of;
use crate::tests::kit::{answer, answer_with_usage, key};

/// All agents.
#[derive(Default)]
pub(super) struct SimulatedAgents {
    /// Tasks that no agent has answered, by their positions in the stream.
    open: Vec<usize>,
    /// Number of tasks seen.
    seen: usize,
    /// Results of tasks in progress.
    unsent: Vec<(Subject, Bytes)>,
}

impl SimulatedAgents {
    /// Lets an agent process a task: it succeeds, fails, continues working, or abandons the task.
    /// Some tasks are answered again.
    pub(super) fn work(&mut self, mesh: &mut HostileMesh) {
        if !self.unsent.is_empty() && mesh.dice.chance(30) {
            let nth = mesh.dice.roll(self.unsent.len() as u64) as usize;
            let (subject, body) = self.unsent.swap_remove(nth);
            mesh.bus.put_once(subject, body);
            return;
        }
        self.open.extend(self.seen..mesh.bus.tasks.len());
        self.seen = mesh.bus.tasks.len();
        if self.open.is_empty() {
            return;
        }
        let nth = mesh.dice.roll(self.open.len() as u64) as usize;
        let place =
            if mesh.is_stormy && mesh.dice.chance(5) { self.open[nth] } else { self.open.swap_remove(nth) };
        let Subject::Task { agent, execution, task } = mesh.bus.tasks[place].subject.clone() else { return };
        if mesh.bus.withdrawn.contains(&task) {
            mesh.invariants.reach("tasks withdrawn");
            return;
        }
        if mesh.invariants.is_late(&execution, &task, mesh.bus.now) {
            return mesh.invariants.reach("tasks refused");
        }
        let token = ResultToken::of(&key(), &task);
        let subject =
            Subject::Result { shard: shard_of(&execution), agent, execution: execution.clone(), task, token };
        let Subject::Result { agent, task, .. } = &subject else { return };
        // Agents look up the result of a task that they may have completed.
        if mesh.bus.result(&subject).is_none() {
            mesh.invariants.taken(&execution, task);
        }
        // Only for tasks with a timeout.
        if *agent == Token::of("b") && mesh.dice.chance(20) {
            return;
        }
        let result = match mesh.dice.roll(10) {
            0 => Err(Fault::error("crash", "the agent crashed")),
            1 => Err(Fault::error("hard", "never").with_retryable(false)),
            _ => Ok(json!({ "task": task.as_str() })),
        };
        let body = answer_with_usage(task, result).into();
        if mesh.dice.chance(20) {
            self.unsent.push((subject, body));
        } else {
            mesh.bus.put_once(subject, body);
        }
    }
}

/// Stores a result without proof, or from an agent that was not called.
pub(super) fn forge_result(mesh: &mut HostileMesh) {
    let count = mesh.bus.tasks.len() as u64;
    if count == 0 {
        return;
    }
    let place = mesh.dice.roll(count) as usize;
    let Subject::Task { agent, execution, task } = mesh.bus.tasks[place].subject.clone() else { return };
    let body: Value = json!({ "forged": true, "task": task.as_str() });
    let (agent, token) = match mesh.dice.roll(2) {
        0 => (agent, ResultToken::of(&ResultKey::new([9; 32]), &task)),
        _ => (Token::of("mallory"), ResultToken::of(&key(), &task)),
    };
    let body = answer(&task, Ok(body)).into();
    let subject = Subject::Result { shard: shard_of(&execution), agent, execution, task, token };
    mesh.bus.put_once(subject, body);
}
