//! The crash points of processes, and counts of their crashes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// Writes of an executor, each with the maximum passes before the crash. Each has three crash points.
const EXECUTOR_WRITES: [(&str, u32); 7] = [
    ("journal", 30),
    ("task", 30),
    ("command", 5),
    ("history", 6),
    ("result", 4),
    ("artifact", 2),
    ("quarantine", 2),
];
/// Crash points of an executor between writes.
const EXECUTOR_PLACES: [(&str, u32); 15] = [
    ("open.replayed", 2),
    ("open.claimed", 2),
    ("round.understood", 40),
    ("task.queued", 20),
    ("start.committed", 5),
    ("start.answered", 5),
    ("node.before", 5),
    ("node.sent", 5),
    ("rpc.before", 5),
    ("rpc.after", 5),
    ("event.before", 60),
    ("finish.archived", 6),
    ("finish.answered", 6),
    ("executor.before", 2),
    ("executor.after", 2),
];
/// Writes of an agent.
const AGENT_WRITES: [(&str, u32); 4] = [("result", 15), ("ack", 15), ("artifact", 2), ("card", 3)];
/// Crash points of an agent between writes.
const AGENT_PLACES: [(&str, u32); 3] = [("work.taken", 15), ("work.done", 15), ("reply.before", 5)];

/// Writes of an agent with a language model.
const CONVERSATION_WRITES: [(&str, u32); 3] = [("step", 30), ("result", 4), ("ack", 4)];
/// Crash points of such an agent between writes: before it takes over a conversation, after each kind
/// of record, and while it waits for a call through the mesh.
const CONVERSATION_PLACES: [(&str, u32); 13] = [
    ("work.taken", 6),
    ("work.done", 4),
    ("conversation.begin", 6),
    ("conversation.ask", 10),
    ("conversation.turn", 10),
    ("conversation.call", 8),
    ("conversation.done", 12),
    ("conversation.end", 4),
    ("peer.parked", 12),
    ("peer.answered", 12),
    ("peer.resumed", 12),
    ("rpc.before", 12),
    ("rpc.after", 12),
];

/// Writes of a gateway: the records of webhooks.
const GATEWAY_WRITES: [(&str, u32); 1] = [("push", 6)];
/// Crash points of a gateway between writes: before and after calls of agents.
const GATEWAY_PLACES: [(&str, u32); 2] = [("rpc.before", 4), ("rpc.after", 4)];
/// Writes of a bridge.
const BRIDGE_WRITES: [(&str, u32); 4] = [("step", 8), ("result", 3), ("ack", 3), ("card", 1)];
/// Crash points of a bridge between writes: after sending a message, before and after recording it.
const BRIDGE_PLACES: [(&str, u32); 4] =
    [("work.taken", 4), ("work.done", 3), ("bridge.unrecorded", 4), ("bridge.sent", 4)];

/// A crash: its point, and the pass at which it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Killing {
    role: &'static str,
    point: String,
    nth: u32,
    tries: u32,
}

impl fmt::Display for Killing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.point, self.nth)
    }
}

/// The remaining crashes.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    rest: Mutex<VecDeque<Killing>>,
    died: Mutex<BTreeMap<String, u64>>,
    failed: Mutex<Vec<String>>,
    /// Number of crashes that are neither done nor failed.
    open: AtomicUsize,
}

/// Maximum attempts of a crash whose process does not reach its point.
const TRIES: u32 = 3;

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// Returns `kills` crashes at each point of an executor.
    pub(crate) fn of_executors(kills: u32, without: &[String], seed: u64) -> Self {
        Self::of("executor", &EXECUTOR_WRITES, &EXECUTOR_PLACES, kills, without, seed)
    }

    /// Returns `kills` crashes at each point of an agent.
    pub(crate) fn of_agents(kills: u32, without: &[String], seed: u64) -> Self {
        Self::of("agent", &AGENT_WRITES, &AGENT_PLACES, kills, without, seed)
    }

    /// Returns `kills` crashes at each point of an agent with a language model.
    pub(crate) fn of_conversations(kills: u32, without: &[String], seed: u64) -> Self {
        Self::of("clerk", &CONVERSATION_WRITES, &CONVERSATION_PLACES, kills, without, seed)
    }

    /// Returns `kills` crashes at each point of a gateway.
    pub(crate) fn of_gateways(kills: u32, without: &[String], seed: u64) -> Self {
        Self::of("gateway", &GATEWAY_WRITES, &GATEWAY_PLACES, kills, without, seed)
    }

    /// Returns `kills` crashes at each point of a bridge.
    pub(crate) fn of_bridges(kills: u32, without: &[String], seed: u64) -> Self {
        Self::of("bridge", &BRIDGE_WRITES, &BRIDGE_PLACES, kills, without, seed)
    }

    fn of(
        role: &'static str,
        writes: &[(&str, u32)],
        places: &[(&str, u32)],
        kills: u32,
        without: &[String],
        seed: u64,
    ) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ role.len() as u64);
        let written = writes.iter().flat_map(|(write, most)| {
            ["before", "sent", "after"].map(|place| (format!("{write}.{place}"), *most))
        });
        let points = written.chain(places.iter().map(|(place, most)| ((*place).to_owned(), *most)));
        let left_out = |point: &str| without.iter().any(|begin| point.starts_with(begin.as_str()));
        let mut all = Vec::new();
        for (point, most) in points.filter(|(point, _)| !left_out(point)) {
            for _ in 0..kills {
                all.push(Killing {
                    role,
                    point: point.clone(),
                    nth: random.random_range(1..=most),
                    tries: 0,
                });
            }
        }
        all.shuffle(&mut random);
        Self { open: AtomicUsize::new(all.len()), rest: Mutex::new(all.into()), ..Self::default() }
    }

    /// Returns the next crash; `None` if all remaining ones are in progress.
    pub(crate) fn next(&self) -> Option<Killing> {
        locked(&self.rest).pop_front()
    }

    /// Notes that the process did not reach its point, and retries the crash.
    pub(crate) fn missed(&self, killing: Killing) {
        if killing.tries + 1 < TRIES {
            let again = Killing { nth: 1, tries: killing.tries + 1, ..killing };
            return locked(&self.rest).push_back(again);
        }
        locked(&self.failed).push(format!("{killing} was not reached"));
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that the process ended, at its point or elsewhere.
    pub(crate) fn ended(&self, killing: Killing, there: bool, after: Duration) {
        if there {
            *locked(&self.died).entry(format!("{}: {}", killing.role, killing.point)).or_default() += 1;
            self.open.fetch_sub(1, Ordering::Relaxed);
        } else if killing.tries + 1 < TRIES {
            locked(&self.rest).push_back(Killing { tries: killing.tries + 1, ..killing });
        } else {
            locked(&self.failed).push(format!("{killing}: ended elsewhere after {} ms", after.as_millis()));
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether no crash remains.
    pub(crate) fn is_done(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of remaining crashes.
    pub(crate) fn left(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the crashes by point.
    pub(crate) fn died(&self) -> BTreeMap<String, u64> {
        locked(&self.died).clone()
    }

    /// Returns the failed crashes.
    pub(crate) fn failed(&self) -> Vec<String> {
        locked(&self.failed).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_died_at_so_often() {
        for queue in [
            Queue::of_executors(20, &[], 1),
            Queue::of_agents(20, &[], 1),
            Queue::of_conversations(20, &[], 1),
            Queue::of_gateways(20, &[], 1),
            Queue::of_bridges(20, &[], 1),
        ] {
            let mut places = BTreeMap::<_, u32>::new();
            while let Some(killing) = queue.next() {
                *places.entry(killing.point.clone()).or_default() += 1;
                queue.ended(killing, true, Duration::ZERO);
            }
            assert!(queue.is_done() && places.values().all(|kills| *kills == 20), "{places:?}");
            assert!(places.len() >= 5);
        }
    }

    #[test]
    fn a_place_that_is_never_reached_is_a_failure() {
        let queue = Queue::of_agents(1, &["card".to_owned()], 1);
        let all = queue.left();
        while let Some(killing) = queue.next() {
            queue.missed(killing);
        }
        assert_eq!((queue.failed().len(), queue.died().len()), (all, 0));
    }
}
