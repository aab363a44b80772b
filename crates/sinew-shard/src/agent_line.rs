//! Adaptive concurrency limit of a shard per agent: unlimited until the first refusal, then the
//! number of accepted calls, plus one more from time to time. A wide fan-out therefore queues
//! instead of causing refusals.

use std::collections::VecDeque;

use sinew_protocol::ResultToken;

/// Minimum limit: a refusal may be caused by calls of other clients.
const MIN_WIDTH: usize = 64;
/// Completed calls after which the limit grows by one.
const CALLS_PER_WIDENING: usize = 32;

/// Concurrent and queued calls to one agent.
#[derive(Debug, Default)]
pub struct AgentLine {
    /// Concurrency limit; `None` means unlimited.
    width: Option<usize>,
    inside: usize,
    /// Calls completed since the limit last grew.
    ended: usize,
    waiting: VecDeque<ResultToken>,
}

impl AgentLine {
    /// Starts a call and returns true, or queues it.
    pub fn enter(&mut self, token: &ResultToken) -> bool {
        if self.waiting.is_empty() && self.has_room() {
            self.inside += 1;
            return true;
        }
        self.waiting.push_back(token.clone());
        false
    }

    /// Starts the oldest queued call if the limit allows it.
    pub fn admit_next(&mut self) -> Option<ResultToken> {
        if !self.has_room() {
            return None;
        }
        let token = self.waiting.pop_front()?;
        self.inside += 1;
        Some(token)
    }

    /// Releases an unused slot.
    pub fn leave(&mut self) {
        self.inside = self.inside.saturating_sub(1);
    }

    /// Releases the slot of a completed call that the agent accepted.
    pub fn end(&mut self) {
        self.leave();
        if let Some(width) = &mut self.width {
            self.ended += 1;
            if self.ended >= CALLS_PER_WIDENING {
                (self.ended, *width) = (0, *width + 1);
            }
        }
    }

    /// Releases the slot of a call that the agent refused for lack of capacity, and limits
    /// concurrency to the remaining calls.
    pub fn refuse(&mut self) {
        self.leave();
        self.width = Some(self.inside.max(MIN_WIDTH));
    }

    /// Returns whether no limit, running call or queued call exists.
    pub fn is_idle(&self) -> bool {
        self.width.is_none() && self.inside == 0 && self.waiting.is_empty()
    }

    fn has_room(&self) -> bool {
        self.width.is_none_or(|width| self.inside < width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(count: usize) -> Vec<ResultToken> {
        (0..count).map(|nth| ResultToken::parse(&format!("t{nth}")).unwrap()).collect()
    }

    /// Starts or queues `count` calls; returns how many started.
    fn enter(line: &mut AgentLine, count: usize) -> usize {
        tokens(count).iter().filter(|token| line.enter(token)).count()
    }

    #[test]
    fn as_many_as_were_taken() {
        let mut line = AgentLine::default();
        assert_eq!(enter(&mut line, 300), 300, "no call is held back before a refusal");
        for _ in 0..100 {
            line.refuse();
        }
        assert_eq!(enter(&mut line, 50), 0, "the agent has as many as it takes");
        for _ in 0..CALLS_PER_WIDENING {
            line.end();
        }
        let let_in = std::iter::from_fn(|| line.admit_next()).count();
        assert_eq!(let_in, CALLS_PER_WIDENING + 1, "for each that ended another, and one more is tried");
    }

    #[test]
    fn a_few_are_never_held_back() {
        let mut line = AgentLine::default();
        for _ in 0..200 {
            assert_eq!(enter(&mut line, 1), 1);
            line.refuse();
        }
        assert_eq!(enter(&mut line, 300), MIN_WIDTH);
    }

    #[test]
    fn the_line_keeps_its_order() {
        let mut line = AgentLine::default();
        enter(&mut line, MIN_WIDTH);
        line.refuse();
        line.enter(&tokens(1)[0]);
        let late: Vec<_> = (0..3).map(|nth| ResultToken::parse(&format!("late{nth}")).unwrap()).collect();
        assert!(late.iter().all(|token| !line.enter(token)));
        for token in &late {
            line.end();
            assert_eq!(line.admit_next().as_ref(), Some(token));
            assert_eq!(line.admit_next(), None);
        }
    }
}
