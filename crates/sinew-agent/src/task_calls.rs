//! The calls of other agents that one task makes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::artifacts::Artifacts;
use crate::table::Entry;
use crate::task_properties::TaskProperties;

/// The task that calls others: its properties, its end and the calls it has made.
#[derive(Clone, Copy)]
pub(crate) struct TaskCalls<'a> {
    pub(crate) about: &'a TaskProperties,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) artifacts: &'a Artifacts,
    pub(crate) calls: &'a CallCounts,
    /// Hears whether the other side waits for a person.
    pub(crate) waits: Option<&'a (dyn Fn(bool) + Send + Sync)>,
    /// The task as its caller sees it; `None` for a task without a caller.
    pub(crate) entry: Option<&'a Entry>,
}

/// Calls of a task by the agent that is called.
#[derive(Debug, Default)]
pub(crate) struct CallCounts(Mutex<HashMap<String, u32>>);

impl TaskCalls<'_> {
    /// Returns how many calls of this agent the task has made before this one.
    pub(crate) fn next_call(self, agent: &str) -> u32 {
        let mut counts = self.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(agent.to_owned()).or_default();
        let nth = *count;
        *count = count.saturating_add(1);
        nth
    }
}
