//! Ended tasks in the order of their ends, and which of them a process forgets.
//!
//! Results of executions are stored: their tasks come again within minutes or never. Tasks of callers are read later, so only
//! number and size limit them.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Ended tasks that are remembered.
const MAX_ENDED_TASKS: usize = 10_000;
/// Bytes of ended tasks that are remembered, as JSON.
const MAX_BYTES: usize = 64 << 20;
/// A task of an execution is remembered between one and two such times in which tasks end. A mesh that rests, or is away, makes
/// none older: the tasks that come again are those from before its rest.
const GENERATION: Duration = Duration::from_mins(5);

/// Keys of ended tasks.
#[derive(Debug)]
pub(crate) struct EndedTasks<K> {
    of_executions: VecDeque<(K, usize)>,
    of_callers: VecDeque<(K, usize)>,
    bytes: usize,
    /// Begin of the present generation; `None` before the first task has ended.
    generation_began: Option<Instant>,
    /// Tasks of executions from the generation before.
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

    /// Takes a task that has ended; gives those that are forgotten for it.
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

    /// Drops the oldest task of an execution; of a caller, if there is none.
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
        // A rest makes nothing older: only ends begin a generation.
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
