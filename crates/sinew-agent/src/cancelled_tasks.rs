//! Cancelled tasks that this process has not received.
//!
//! A cancellation and its task arrive on different subjects, in any order. A task that arrives
//! after its cancellation must not start.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sinew_protocol::{ExecutionId, TaskId};
use tokio::time::Instant;

/// Time for which a cancellation is remembered. Executors remove a task from its queue before they
/// cancel it, so only a delivery that was already in flight arrives later.
const MEMORY: Duration = Duration::from_secs(30);
/// Maximum number of remembered cancellations. One fail-fast may cancel thousands of tasks.
const MAX_CANCELLATIONS: usize = 20_000;

/// Recent cancellations.
#[derive(Debug, Default)]
pub(crate) struct CancelledTasks(Mutex<Cancellations>);

#[derive(Debug, Default)]
struct Cancellations {
    tasks: HashSet<(ExecutionId, TaskId)>,
    oldest_first: VecDeque<(Instant, (ExecutionId, TaskId))>,
}

impl CancelledTasks {
    /// Records the cancellation of a task by its execution.
    pub(crate) fn insert(&self, execution: &ExecutionId, task: &TaskId, now: Instant) {
        let mut known = self.lock();
        known.forget_old(now);
        let key = (execution.clone(), task.clone());
        if known.tasks.insert(key.clone()) {
            known.oldest_first.push_back((now, key));
        }
    }

    /// Returns true if the execution has cancelled the task recently.
    pub(crate) fn contains(&self, execution: &ExecutionId, task: &TaskId) -> bool {
        let known = self.lock();
        !known.tasks.is_empty() && known.tasks.contains(&(execution.clone(), task.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Cancellations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cancellations {
    fn forget_old(&mut self, now: Instant) {
        while let Some((at, _)) = self.oldest_first.front()
            && (now.duration_since(*at) > MEMORY || self.oldest_first.len() >= MAX_CANCELLATIONS)
        {
            if let Some((_, key)) = self.oldest_first.pop_front() {
                self.tasks.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(execution: &str, task: usize) -> (ExecutionId, TaskId) {
        (ExecutionId::parse(execution).unwrap(), TaskId::parse(&format!("task-{task}")).unwrap())
    }

    #[test]
    fn a_cancellation_is_remembered_for_a_while_and_for_its_execution() {
        let (tasks, start) = (CancelledTasks::default(), Instant::now());
        let (execution, task) = ids("e", 0);
        tasks.insert(&execution, &task, start);
        assert!(tasks.contains(&execution, &task));
        assert!(!tasks.contains(&ids("other", 0).0, &task), "another execution may not cancel it");
        let (_, next) = ids("e", 1);
        tasks.insert(&execution, &next, start + MEMORY);
        assert!(tasks.contains(&execution, &task));
        tasks.insert(&execution, &next, start + MEMORY + Duration::from_millis(1));
        assert!(!tasks.contains(&execution, &task) && tasks.contains(&execution, &next));
    }

    #[test]
    fn the_number_of_cancellations_is_limited() {
        let (tasks, now) = (CancelledTasks::default(), Instant::now());
        for nth in 0..=MAX_CANCELLATIONS {
            let (execution, task) = ids("e", nth);
            tasks.insert(&execution, &task, now);
        }
        let (execution, first) = ids("e", 0);
        assert!(!tasks.contains(&execution, &first) && tasks.contains(&execution, &ids("e", 1).1));
    }
}
