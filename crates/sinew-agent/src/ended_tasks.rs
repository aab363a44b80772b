//! Ended tasks in order, and which of them a process forgets.
//!
//! Results of executions are stored: their tasks are redelivered within minutes or never. Callers
//! read their tasks later, so these are limited only by number and size.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of remembered ended tasks.
const MAX_ENDED_TASKS: usize = 10_000;
/// Maximum bytes of remembered ended tasks, as JSON.
const MAX_BYTES: usize = 64 << 20;
/// A task of an execution is remembered for one to two of these periods. Only ends of tasks start a
/// period, so an idle or unreachable mesh ages nothing: redelivered tasks are those from before.
const GENERATION: Duration = Duration::from_mins(5);

/// Keys of ended tasks.
#[derive(Debug)]
pub(crate) struct EndedTasks<K> {
    of_executions: VecDeque<(K, usize)>,
    of_callers: VecDeque<(K, usize)>,
    bytes: usize,
    /// Start of the current generation; `None` before the first task has ended.
    generation_began: Option<Instant>,
    /// Tasks of executions from the previous generation.
    aged: usize,
}

impl<K> Default for EndedTasks<K> {
    fn default() -> Self {
        Self {
            of_executions: VecDeque::new(),
            of_callers: VecDeque::new(),
            bytes: 0,
            generation_began: None,
            aged: 0,
        }
    }
}

impl<K> EndedTasks<K> {
    pub(crate) fn len(&self) -> usize {
        self.of_executions.len() + self.of_callers.len()
    }

    /// Adds an ended task; returns the tasks to forget.
    pub(crate) fn push(&mut self, key: K, size: usize, is_of_execution: bool, now: Instant) -> Vec<K> {
        let mut forgotten = Vec::new();
        let began = *self.generation_began.get_or_insert(now);
        if now.duration_since(began) >= GENERATION {
            for _ in 0..self.aged {
                forgotten.extend(self.drop_oldest());
            }
            (self.aged, self.generation_began) = (self.of_executions.len(), Some(now));
        }
        let queue = if is_of_execution { &mut self.of_executions } else { &mut self.of_callers };
        queue.push_back((key, size));
        self.bytes += size;
        while self.len() > MAX_ENDED_TASKS || self.bytes > MAX_BYTES {
            forgotten.extend(self.drop_oldest());
        }
        forgotten
    }

    /// Drops the oldest task of an execution, or else of a caller.
    fn drop_oldest(&mut self) -> Option<K> {
        let (key, size) = self.of_executions.pop_front().or_else(|| self.of_callers.pop_front())?;
        self.bytes -= size;
        self.aged = self.aged.saturating_sub(1);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_executions_are_forgotten_after_two_generations() {
        let (mut ended, start) = (EndedTasks::default(), Instant::now());
        assert!(ended.push("old", 1, true, start).is_empty());
        assert!(ended.push("caller's", 1, false, start).is_empty());
        assert!(ended.push("next", 1, true, start + GENERATION).is_empty(), "it is one generation old");
        // An idle period ages nothing: only ends start a generation.
        assert_eq!(ended.push("later", 1, true, start + 9 * GENERATION), ["old"]);
        assert_eq!(ended.push("last", 1, true, start + 10 * GENERATION), ["next"]);
        assert_eq!(ended.len(), 3);
    }

    #[test]
    fn number_and_size_limit_all() {
        let (mut ended, now) = (EndedTasks::default(), Instant::now());
        for nth in 0..MAX_ENDED_TASKS {
            assert!(ended.push(nth, 1, nth % 2 == 1, now).is_empty());
        }
        assert_eq!(ended.push(MAX_ENDED_TASKS, 1, false, now), [1], "tasks of executions go first");
        let mut ended = EndedTasks::default();
        assert!(ended.push("small", 1, false, now).is_empty());
        assert!(ended.push("large", MAX_BYTES - 1, false, now).is_empty());
        assert_eq!(ended.push("next", 2, false, now), ["small", "large"]);
        assert_eq!(ended.push("too large", MAX_BYTES + 1, true, now), ["too large"]);
        assert_eq!(ended.len(), 1);
    }
}
