//! Queue of waiting requests, in lanes by the history of their owners.
//!
//! Owners with short evaluations wait in the quick lane, owners with a recent long one in the slow
//! lane, and unknown owners in a lane between them. A worker of a lane takes no request of a slower
//! lane, so a long script delays only requests of its own lane and of slower ones. Each lane has
//! its own workers, so no lane starves. Within a lane, owners take turns.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{error::ScriptError, printed_text::PrintedText, request::EvaluationRequest};

/// Maximum number of waiting requests.
const MAX_WAITING: usize = 10_000;
/// Maximum total size of the values of waiting requests, in bytes.
const MAX_WAITING_BYTES: usize = 256 << 20;
/// Fraction of a script's time limit (1/n) above which its evaluation counts as long.
const LONG_FRACTION: u32 = 5;
/// Number of consecutive short evaluations that move an unknown owner to the quick lane.
const QUICK_STREAK: i32 = 3;
/// Number of consecutive short evaluations after a long one until its owner counts as unknown
/// again.
const PROBATION: i32 = 16;
/// Maximum number of owner records in each of two generations.
const MAX_RECORDS: usize = 10_000;

pub(crate) type EvaluationResult = Result<Value, ScriptError>;

/// Request that waits for a worker.
pub(crate) struct WaitingRequest {
    /// Builds the request when a worker is available, so that arguments of waiting requests use no
    /// memory.
    pub(crate) build: Box<dyn FnOnce() -> Result<EvaluationRequest, ScriptError> + Send>,
    /// Size of the values that the request keeps while it waits, in bytes.
    pub(crate) held_bytes: usize,
    /// Time limit of the script.
    pub(crate) max_duration: Duration,
    pub(crate) submitted: Instant,
    /// Receives the text that the script prints.
    pub(crate) printed: PrintedText,
    /// Receives the result and the time of the evaluation, excluding the wait for a worker.
    pub(crate) done: Box<dyn FnOnce(EvaluationResult, Duration) + Send>,
}

/// Lane of the queue, quickest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueLane {
    Quick,
    Unknown,
    Slow,
}

impl QueueLane {
    pub(crate) const ALL: [Self; 3] = [Self::Quick, Self::Unknown, Self::Slow];

    /// Returns the name of the lane in the arguments of a worker.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Unknown => "unknown",
            Self::Slow => "slow",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.name() == name)
    }
}

/// Requests of one owner.
struct OwnerRequests {
    lane: QueueLane,
    requests: VecDeque<WaitingRequest>,
    held_bytes: usize,
}

/// Waiting requests in the order of their evaluation.
#[derive(Default)]
pub(crate) struct FairQueue {
    /// Owners with requests, in the order of their turns in each lane.
    turns: [VecDeque<u64>; 3],
    owners: BTreeMap<u64, OwnerRequests>,
    records: OwnerRecords,
    length: usize,
    held_bytes: usize,
}

impl FairQueue {
    pub(crate) fn push(&mut self, owner: u64, request: WaitingRequest) {
        self.length += 1;
        self.held_bytes += request.held_bytes;
        let own = self.owners.entry(owner).or_insert_with(|| {
            let lane = self.records.lane_of(owner);
            self.turns[lane as usize].push_back(owner);
            OwnerRequests { lane, requests: VecDeque::new(), held_bytes: 0 }
        });
        own.held_bytes += request.held_bytes;
        own.requests.push_back(request);
    }

    /// Removes the next request for a worker of this lane, with its owner: from its own lane,
    /// otherwise from the nearest quicker lane.
    pub(crate) fn pop(&mut self, worker: QueueLane) -> Option<(u64, WaitingRequest)> {
        let mut lanes = QueueLane::ALL.into_iter().rev().filter(|lane| *lane <= worker);
        let owner = lanes.find_map(|lane| self.turns[lane as usize].front().copied())?;
        self.take(owner, VecDeque::pop_front, true).map(|request| (owner, request))
    }

    /// Removes the requests over the limits: the newest ones of the owners with the most.
    pub(crate) fn refuse(&mut self, newcomer: u64) -> Vec<WaitingRequest> {
        let mut refused = Vec::new();
        // A single request may be of any size, because nothing else is waiting.
        while self.length > MAX_WAITING || (self.held_bytes > MAX_WAITING_BYTES && self.length > 1) {
            refused.extend(self.refuse_newest(newcomer, self.length <= MAX_WAITING));
        }
        refused
    }

    /// Removes the newest request of the owner with the most, by bytes or by number; among equals,
    /// of the newcomer.
    fn refuse_newest(&mut self, newcomer: u64, by_bytes: bool) -> Option<WaitingRequest> {
        let weight = |own: &OwnerRequests| if by_bytes { own.held_bytes } else { own.requests.len() };
        let most = self.owners.iter().max_by_key(|(owner, own)| (weight(own), **owner == newcomer));
        let owner = most.map(|(owner, _)| *owner)?;
        self.take(owner, VecDeque::pop_back, false)
    }

    /// Removes a request of an owner. Ends the owner's turn if `takes_turn`.
    fn take(
        &mut self,
        owner: u64,
        pop: impl FnOnce(&mut VecDeque<WaitingRequest>) -> Option<WaitingRequest>,
        takes_turn: bool,
    ) -> Option<WaitingRequest> {
        let own = self.owners.get_mut(&owner)?;
        let taken = pop(&mut own.requests)?;
        self.length -= 1;
        self.held_bytes -= taken.held_bytes;
        own.held_bytes -= taken.held_bytes;
        let turns = &mut self.turns[own.lane as usize];
        let is_last = own.requests.is_empty();
        if takes_turn && turns.front() == Some(&owner) {
            turns.pop_front();
            if !is_last {
                turns.push_back(owner);
            }
        } else if is_last {
            turns.retain(|turn| *turn != owner);
        }
        if is_last {
            self.owners.remove(&owner);
        }
        Some(taken)
    }

    /// Records an evaluation of an owner, and moves the owner's waiting requests to the resulting
    /// lane.
    pub(crate) fn record(&mut self, owner: u64, max_duration: Duration, cost: Duration) {
        let lane = self.records.enter(owner, cost > max_duration / LONG_FRACTION);
        if let Some(own) = self.owners.get_mut(&owner).filter(|own| own.lane != lane) {
            self.turns[own.lane as usize].retain(|turn| *turn != owner);
            self.turns[lane as usize].push_back(owner);
            own.lane = lane;
        }
    }
}

/// Results of the latest evaluations of owners. Inactive owners are removed.
#[derive(Default)]
struct OwnerRecords {
    /// Number of consecutive short evaluations, up to [`QUICK_STREAK`]; negative after a long one.
    recent: HashMap<u64, i32>,
    /// Records that were not changed since `recent` was last emptied.
    older: HashMap<u64, i32>,
}

impl OwnerRecords {
    fn streak(&self, owner: u64) -> i32 {
        self.recent.get(&owner).or_else(|| self.older.get(&owner)).copied().unwrap_or_default()
    }

    fn lane_of(&self, owner: u64) -> QueueLane {
        match self.streak(owner) {
            ..0 => QueueLane::Slow,
            QUICK_STREAK.. => QueueLane::Quick,
            _ => QueueLane::Unknown,
        }
    }

    fn enter(&mut self, owner: u64, is_long: bool) -> QueueLane {
        let streak = if is_long { -PROBATION } else { (self.streak(owner) + 1).min(QUICK_STREAK) };
        if self.recent.len() >= MAX_RECORDS && !self.recent.contains_key(&owner) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(owner, streak);
        self.lane_of(owner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::QueueLane::{Quick, Slow, Unknown};
    use super::*;

    const LIMIT: Duration = Duration::from_millis(250);

    /// A queue, and the names of the requests that left it.
    #[derive(Default)]
    struct Bench {
        queue: FairQueue,
        left: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Bench {
        fn of(requests: &[(u64, &'static str)]) -> Self {
            let mut bench = Self::default();
            for &(owner, name) in requests {
                bench.push(owner, name, 0);
            }
            bench
        }

        fn push(&mut self, owner: u64, name: &'static str, held_bytes: usize) {
            let left = Arc::clone(&self.left);
            let done = Box::new(move |_: EvaluationResult, _| left.lock().unwrap().push(name));
            let build = Box::new(|| unreachable!("no worker builds it"));
            let (max_duration, submitted, printed) = (LIMIT, Instant::now(), PrintedText::default());
            self.queue
                .push(owner, WaitingRequest { build, held_bytes, max_duration, submitted, printed, done });
        }

        fn evaluations(&mut self, owner: u64, short: usize) {
            for _ in 0..short {
                self.queue.record(owner, LIMIT, LIMIT / 10);
            }
        }

        fn pop_all(&mut self, worker: QueueLane) -> Vec<&'static str> {
            while let Some((_, request)) = self.queue.pop(worker) {
                (request.done)(Ok(Value::Null), Duration::ZERO);
            }
            std::mem::take(&mut *self.left.lock().unwrap())
        }

        fn refuse(&mut self, newcomer: u64, by_bytes: bool) -> &'static str {
            let request = self.queue.refuse_newest(newcomer, by_bytes).unwrap();
            (request.done)(Ok(Value::Null), Duration::ZERO);
            self.left.lock().unwrap().pop().unwrap()
        }

        fn assert_empty(&self) {
            let turns: usize = self.queue.turns.iter().map(VecDeque::len).sum();
            let queue = &self.queue;
            assert_eq!((queue.length, queue.held_bytes, queue.owners.len(), turns), (0, 0, 0, 0));
        }
    }

    #[test]
    fn owners_take_turns_however_much_one_of_them_asks_for() {
        let mut bench = Bench::of(&[(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")]);
        assert_eq!(bench.pop_all(Slow), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        bench.assert_empty();
    }

    #[test]
    fn the_owner_with_the_most_requests_loses_its_newest() {
        let mut bench = Bench::of(&[(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1")]);
        let refused = [(); 3].map(|()| bench.refuse(3, false));
        assert_eq!(refused, ["a3", "a2", "c1"], "the last one is the newcomer among equals");
        assert_eq!(bench.pop_all(Slow), ["a1", "b1"]);
        bench.assert_empty();
    }

    #[test]
    fn waiting_requests_hold_a_limited_number_of_bytes() {
        let mut bench = Bench::default();
        for (owner, name) in [(1, "a1"), (2, "b1"), (1, "a2")] {
            bench.push(owner, name, MAX_WAITING_BYTES / 2);
        }
        bench.push(3, "c1", 1);
        let refused = bench.queue.refuse(3);
        assert_eq!(refused.len(), 2);
        assert_eq!(bench.pop_all(Slow), ["a1", "c1"], "owners with the most bytes have lost one each");
        bench.push(1, "large", MAX_WAITING_BYTES * 2);
        assert!(bench.queue.refuse(1).is_empty(), "a request that waits alone stays");
        assert_eq!(bench.pop_all(Slow), ["large"]);
        bench.assert_empty();
    }

    #[test]
    fn no_worker_takes_a_request_of_a_slower_lane_and_each_prefers_its_own() {
        let fill = || {
            let mut bench = Bench::of(&[]);
            bench.evaluations(1, 3);
            bench.queue.record(2, LIMIT, LIMIT);
            for (owner, name) in [(2, "slow"), (3, "unknown"), (1, "quick"), (2, "slow2"), (1, "quick2")] {
                bench.push(owner, name, 0);
            }
            bench
        };
        for (worker, taken) in [
            (Quick, &["quick", "quick2"][..]),
            (Unknown, &["unknown", "quick", "quick2"]),
            (Slow, &["slow", "slow2", "unknown", "quick", "quick2"]),
        ] {
            let mut bench = fill();
            assert_eq!(bench.pop_all(worker), taken, "{worker:?}");
            bench.pop_all(Slow);
            bench.assert_empty();
        }
    }

    #[test]
    fn requests_change_lanes_with_the_record_of_their_owner() {
        let mut bench = Bench::of(&[(1, "a1"), (2, "b1"), (1, "a2"), (2, "b2")]);
        bench.evaluations(1, 2);
        assert_eq!(bench.pop_all(Quick), [""; 0], "two short evaluations are not a record yet");
        bench.evaluations(1, 1);
        assert_eq!(bench.pop_all(Quick), ["a1", "a2"]);
        bench.queue.record(2, LIMIT, LIMIT);
        assert_eq!(bench.pop_all(Unknown), [""; 0], "one long evaluation is enough");
        bench.evaluations(2, 15);
        assert_eq!(bench.pop_all(Unknown), [""; 0]);
        bench.evaluations(2, 1);
        assert_eq!(bench.pop_all(Unknown), ["b1", "b2"]);
        bench.evaluations(2, 3);
        bench.push(2, "b3", 0);
        assert_eq!(bench.pop_all(Quick), ["b3"]);
        bench.assert_empty();
    }

    #[test]
    fn records_are_limited_and_those_in_use_are_kept() {
        let mut records = OwnerRecords::default();
        let owners = 3 * MAX_RECORDS as u64;
        for owner in 1..=owners {
            records.enter(owner, false);
            if owner % (MAX_RECORDS as u64 / 2) == 0 {
                records.enter(0, false);
            }
        }
        assert!(records.recent.len() + records.older.len() <= 2 * MAX_RECORDS);
        assert_eq!((records.lane_of(0), records.streak(1), records.streak(owners)), (Quick, 0, 1));
    }
}
