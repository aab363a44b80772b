//! Calls of one task to other agents.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::artifacts::Artifacts;
use crate::table::Entry;
use crate::task_properties::TaskProperties;

/// The calling task: its properties, its end and its calls.
#[derive(Clone, Copy)]
pub(crate) struct TaskCalls<'a> {
    pub(crate) about: &'a TaskProperties,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) artifacts: &'a Artifacts,
    pub(crate) calls: &'a CallCounts,
    /// Called when the callee starts or stops waiting for a person.
    pub(crate) waits: Option<&'a (dyn Fn(bool) + Send + Sync)>,
    /// The task as its caller sees it; `None` for a task without a caller.
    pub(crate) entry: Option<&'a Entry>,
}

/// Number of calls of a task, by called agent.
#[derive(Debug, Default)]
pub(crate) struct CallCounts(Mutex<HashMap<String, u32>>);

impl TaskCalls<'_> {
    /// Returns the number of earlier calls of this agent by the task.
    pub(crate) fn next_call(self, agent: &str) -> u32 {
        let mut counts = self.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(agent.to_owned()).or_default();
        let nth = *count;
        *count = count.saturating_add(1);
        nth
    }
}
