//! Context of views besides the state of the execution: the time, agents and executors of the mesh,
//! and failed attempts that were retried.

use std::collections::BTreeMap;

use sinew_documents::words::duration;
use sinew_engine::{ActivationId, Fact, Time};
use sinew_execution::Execution;
use sinew_protocol::card::CARD_LATE_AFTER;

/// State of an agent without a valid card.
const OFFLINE: &str = "offline";

/// Known agents and executor of an execution. Unknown for in-process executions and files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeshPresence {
    /// Milliseconds since the last heartbeat of each agent.
    pub agents: Option<BTreeMap<String, Time>>,
    /// Whether an executor serves the execution.
    pub has_owner: Option<bool>,
}

impl MeshPresence {
    /// Returns why an agent may not respond, if there is a reason.
    pub fn concern(&self, agent: &str) -> Option<String> {
        let short = self.short_concern(agent)?;
        Some(match short.as_str() {
            OFFLINE => format!("no agent '{agent}' is online"),
            silent => format!("{silent} from agent '{agent}'"),
        })
    }

    /// Returns the reason without the name of the agent.
    pub fn short_concern(&self, agent: &str) -> Option<String> {
        match self.agents.as_ref()?.get(agent) {
            None => Some(OFFLINE.to_owned()),
            Some(age) if u128::from(*age) > CARD_LATE_AFTER.as_millis() => {
                Some(format!("no heartbeat for {}", duration(*age)))
            }
            Some(_) => None,
        }
    }

    /// Returns true if it is known that no executor serves the execution.
    pub fn has_no_executor(&self) -> bool {
        self.has_owner == Some(false)
    }
}

/// The latest failed attempt that was retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetriedAttempt {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Message for people.
    pub message: String,
}

/// Context of a view.
#[derive(Clone, Debug, Default)]
pub struct ViewContext {
    /// The time of the view, milliseconds since 1970 UTC.
    pub now: Time,
    /// Agents and executor at that time.
    pub presence: MeshPresence,
    /// Latest failed attempts of activations that were retried.
    pub retried: BTreeMap<ActivationId, RetriedAttempt>,
}

impl ViewContext {
    /// Creates the context of an execution at a time, with known agents and executors.
    pub fn of(execution: &Execution, now: Time, presence: &MeshPresence) -> Self {
        let mut retried = BTreeMap::new();
        // Only read the journal if there was more than one attempt.
        if execution.state().acts.iter().any(|one| one.attempt > 1 || one.tries > 0) {
            for fact in execution.journal().iter().flat_map(|round| &round.facts) {
                if let Fact::Replied { act, attempt, result: Err(fault), retried: true, .. } = fact {
                    let message = fault.message.lines().next().unwrap_or_default().to_owned();
                    retried.insert(*act, RetriedAttempt { attempt: *attempt, message });
                }
            }
        }
        Self { now, presence: presence.clone(), retried }
    }
}
