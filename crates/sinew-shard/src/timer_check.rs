//! Selection of the due timers of a shard that may fire.
//!
//! A message that was stored before a timer was due takes precedence over the timer, even if its
//! owner reads it later: after a takeover, a lost connection, or a halted process. Timers therefore
//! wait for the inbox.

use sinew_engine::{ActivationId, Time};
use sinew_protocol::journal::Positions;
use sinew_protocol::{ExecutionId, TaskId};

use crate::bug::seeded_bug;

/// Period after an outage in which agents deliver the results that they could not store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandInTime {
    /// End of the outage. Tasks sent later are not affected.
    pub(crate) from: Time,
    /// End of the period.
    pub(crate) until: Time,
}

/// A task of an agent whose deadline has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTask {
    /// The execution.
    pub execution: ExecutionId,
    /// The task.
    pub task: TaskId,
    /// The agent.
    pub agent: String,
    pub(crate) act: ActivationId,
    pub(crate) attempt: u32,
}

/// Ends of a shard's inbox at one time, as the streams' leader reported them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxEnds {
    /// Time of the request to the leader, by the broker's clock.
    pub at: Time,
    /// Sequence of the last command that the owner received, or of a later one that the leader had
    /// stored by then.
    pub commands: u64,
    /// The same for results.
    pub results: u64,
}

impl InboxEnds {
    /// Returns true if everything up to these ends was handled.
    pub fn are_reached(&self, positions: &Positions) -> bool {
        let is_read = positions.commands >= self.commands && positions.results >= self.results;
        is_read || seeded_bug!(TimersBeforeInbox)
    }
}
