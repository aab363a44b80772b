//! Everything beside the state of an execution that decides how its nodes are shown: the time, the agents and executors of
//! the mesh, and attempts that failed and were tried again.

use std::collections::BTreeMap;

use sinew_engine::{ActivationId, Fact, Time};
use sinew_protocol::card::CARD_LATE_AFTER;
use sinew_runtime::Execution;

use crate::words::duration;

/// The word for an agent without a card.
const OFFLINE: &str = "offline";

/// Agents of a mesh and the executor of an execution, at one moment. Nothing is known of them in one process or in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeshPresence {
    /// Milliseconds since the last heartbeat of each agent.
    pub agents: Option<BTreeMap<String, Time>>,
    /// Whether an executor serves the execution.
    pub has_owner: Option<bool>,
}

impl MeshPresence {
    /// Returns why an agent may not answer; none if nothing speaks against it.
    pub fn concern(&self, agent: &str) -> Option<String> {
        let short = self.short_concern(agent)?;
        Some(match short.as_str() {
            OFFLINE => format!("no agent '{agent}' is online"),
            silent => format!("{silent} of agent '{agent}'"),
        })
    }

    /// Returns the same in words that stand behind the name of the agent.
    pub fn short_concern(&self, agent: &str) -> Option<String> {
        match self.agents.as_ref()?.get(agent) {
            None => Some(OFFLINE.to_owned()),
            Some(age) if u128::from(*age) > CARD_LATE_AFTER.as_millis() => {
                Some(format!("no heartbeat for {}", duration(*age)))
            }
            Some(_) => None,
        }
    }

    /// Tells whether no executor serves the execution, as far as it is known.
    pub fn has_no_executor(&self) -> bool {
        self.has_owner == Some(false)
    }
}

/// The latest attempt that failed and was tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetriedAttempt {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Message for people.
    pub message: String,
}

/// How an execution is looked at.
#[derive(Clone, Debug, Default)]
pub struct ViewContext {
    /// The time of the view, milliseconds since 1970 UTC.
    pub now: Time,
    /// Agents and executor at that time.
    pub presence: MeshPresence,
    /// Latest failed attempts of activations that are tried again.
    pub retried: BTreeMap<ActivationId, RetriedAttempt>,
}

impl ViewContext {
    /// Looks at an execution at a time, with all that is known of its mesh.
    pub fn of(execution: &Execution, now: Time, presence: &MeshPresence) -> Self {
        let mut retried = BTreeMap::new();
        // The journal is read only if something was tried more than once.
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
