//! Ledger of requests to provider and tools, in a process that is never killed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::mpsc;

use super::kill_plan::{KillMoment, KillPlan, ProcessLife};
use super::script::WorkId;

/// Maximum random delay of a kill, so that it also hits the steps after its moment.
const MAX_KILL_DELAY: Duration = Duration::from_millis(30);

/// An order to kill a process after a delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KillOrder {
    pub(crate) process: ProcessLife,
    pub(crate) after: Duration,
}

/// Requests of a turn of a conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnRequests {
    pub(crate) count: u32,
    /// The first request, to which all others must be equal.
    pub(crate) body: Vec<u8>,
}

/// All requests to provider and tools.
#[derive(Debug)]
pub(crate) struct RequestLedger {
    state: Mutex<LedgerState>,
    killer: mpsc::UnboundedSender<KillOrder>,
}

#[derive(Debug)]
pub(crate) struct LedgerState {
    /// Model calls by conversation and turn.
    pub(crate) asked: BTreeMap<(u32, usize), TurnRequests>,
    /// Number of runs by tool and call.
    pub(crate) done: BTreeMap<(&'static str, WorkId), u32>,
    /// Prompts that are invalid, or that changed when they were repeated.
    pub(crate) problems: Vec<String>,
    pub(crate) plan: KillPlan,
    random: StdRng,
}

impl RequestLedger {
    /// Creates an empty ledger that sends kill orders to `killer`.
    pub(crate) fn new(plan: KillPlan, seed: u64, killer: mpsc::UnboundedSender<KillOrder>) -> Self {
        let state = LedgerState {
            asked: BTreeMap::new(),
            done: BTreeMap::new(),
            problems: Vec::new(),
            plan,
            random: StdRng::seed_from_u64(seed),
        };
        Self { state: Mutex::new(state), killer }
    }

    /// Returns the entries.
    pub(crate) fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a model call. Returns the duration of the model.
    pub(crate) fn note_ask(
        &self,
        process: ProcessLife,
        conversation: u32,
        turn: usize,
        body: &[u8],
    ) -> Duration {
        let mut state = self.state();
        state.plan.held_by(conversation, process);
        let requests = state.asked.entry((conversation, turn)).or_default();
        requests.count += 1;
        if requests.body.is_empty() {
            requests.body = body.to_vec();
        } else if requests.body != body {
            state.problems.push(format!("turn {turn} of c{conversation} is asked for with another prompt"));
        }
        state.random.random_range(Duration::ZERO..Duration::from_millis(40))
    }

    /// Records a run of a tool. Returns its duration.
    pub(crate) fn note_work(&self, tool: &'static str, id: WorkId) -> Duration {
        let mut state = self.state();
        *state.done.entry((tool, id)).or_default() += 1;
        state.random.random_range(Duration::ZERO..Duration::from_millis(40))
    }

    /// Kills the process of a conversation if the plan requires it.
    pub(crate) fn pass(&self, conversation: u32, turn: usize, moment: KillMoment) {
        let mut state = self.state();
        let LedgerState { plan, random, .. } = &mut *state;
        if let Some(process) = plan.victim(conversation, turn, moment, random) {
            let after = random.random_range(Duration::ZERO..MAX_KILL_DELAY);
            // Fails only at the end of the run.
            let _ = self.killer.send(KillOrder { process, after });
        }
    }
}
