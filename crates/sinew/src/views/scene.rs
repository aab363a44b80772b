//! Everything beside the state of an execution that decides how its nodes are shown: the time, the agents and executors of
//! the mesh, and attempts that failed and were tried again.

use std::collections::BTreeMap;

use sinew_engine::{ActId, Fact, Time};
use sinew_executor::Execution;
use sinew_protocol::card::CARD_LATE_AFTER;

use crate::tree::duration;

/// The word for an agent without a card.
const OFFLINE: &str = "offline";

/// Agents of a mesh and the executor of an execution, at one moment. Nothing is known of them in one process or in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeshPresence {
    /// Milliseconds since the last heartbeat of each agent.
    pub(crate) agents: Option<BTreeMap<String, Time>>,
    /// Whether an executor serves the execution.
    pub(crate) has_owner: Option<bool>,
}

impl MeshPresence {
    /// Returns why an agent may not answer; none if nothing speaks against it.
    pub(crate) fn concern(&self, agent: &str) -> Option<String> {
        let short = self.short_concern(agent)?;
        Some(match short.as_str() {
            OFFLINE => format!("no agent '{agent}' is online"),
            silent => format!("{silent} of agent '{agent}'"),
        })
    }

    /// Returns the same in words that stand behind the name of the agent.
    pub(crate) fn short_concern(&self, agent: &str) -> Option<String> {
        match self.agents.as_ref()?.get(agent) {
            None => Some(OFFLINE.to_owned()),
            Some(age) if u128::from(*age) > CARD_LATE_AFTER.as_millis() => {
                Some(format!("no heartbeat for {}", duration(*age)))
            }
            Some(_) => None,
        }
    }

    /// Tells whether no executor serves the execution, as far as it is known.
    pub(crate) fn has_no_executor(&self) -> bool {
        self.has_owner == Some(false)
    }
}

/// The latest attempt that failed and was tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetriedAttempt {
    pub(crate) attempt: u32,
    pub(crate) message: String,
}

/// How an execution is looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    pub(crate) now: Time,
    pub(crate) presence: MeshPresence,
    pub(crate) retried: BTreeMap<ActId, RetriedAttempt>,
}

impl Scene {
    /// Looks at an execution at a time, with all that is known of its mesh.
    pub(crate) fn of(execution: &Execution, now: Time, presence: &MeshPresence) -> Self {
        let mut retried = BTreeMap::new();
        // The journal is read only if something was tried more than once.
        if execution.state().acts.iter().any(|one| one.attempt > 1 || one.tries > 0) {
            for fact in execution.journal().iter().flat_map(|round| &round.facts) {
                if let Fact::Replied { act, attempt, result: Err(fault), retried: true } = fact {
                    let message = fault.message.lines().next().unwrap_or_default().to_owned();
                    retried.insert(*act, RetriedAttempt { attempt: *attempt, message });
                }
            }
        }
        Self { now, presence: presence.clone(), retried }
    }
}
