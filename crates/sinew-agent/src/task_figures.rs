//! Statistics of an agent's tasks from all sources: for `/metrics`, and for `nats micro stats`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sinew_protocol::Fault;

/// Number of latest tasks whose times are kept for percentiles.
const MAX_TIMES: usize = 512;

/// Tasks of one agent of this process.
#[derive(Debug, Default)]
pub(crate) struct TaskFigures {
    working: AtomicUsize,
    ended: Mutex<EndedTasks>,
}

#[derive(Clone, Debug, Default)]
struct EndedTasks {
    tasks: u64,
    errors: u64,
    busy: Duration,
    last_error: String,
    /// Times of the latest tasks, oldest first.
    times: VecDeque<TaskTimes>,
}

/// Times of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TaskTimes {
    /// In the queue, and waiting for a slot of this process.
    queued: Duration,
    worked: Duration,
}

impl TaskTimes {
    /// Times of a task that did not wait.
    pub(crate) fn worked(worked: Duration) -> Self {
        Self { queued: Duration::ZERO, worked }
    }
}

/// A task in progress, counted by the gauge.
pub(crate) struct TaskTimer<'a> {
    figures: &'a TaskFigures,
    agent: &'a str,
    began: Instant,
    queued: Duration,
}

impl TaskFigures {
    /// Counts a task in progress until the timer is dropped. `queued` is its time in the queue.
    pub(crate) fn begin<'a>(&'a self, agent: &'a str, queued: Duration) -> TaskTimer<'a> {
        metrics::gauge!("sinew_agent_working", "agent" => agent.to_owned()).increment(1.0);
        self.working.fetch_add(1, Ordering::Relaxed);
        TaskTimer { figures: self, agent, began: Instant::now(), queued }
    }

    /// Counts an ended task.
    pub(crate) fn ended(&self, agent: &str, times: TaskTimes, fault: Option<&Fault>) {
        self.add(agent, times.worked, times, fault);
    }

    fn add(&self, agent: &str, took: Duration, times: TaskTimes, fault: Option<&Fault>) {
        let outcome = fault.map_or("succeeded", |fault| fault.kind.as_str());
        let agent = agent.to_owned();
        metrics::counter!("sinew_agent_tasks_total", "agent" => agent.clone(), "outcome" => outcome)
            .increment(1);
        metrics::histogram!("sinew_agent_task_seconds", "agent" => agent).record(took.as_secs_f64());
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.tasks += 1;
        ended.busy = ended.busy.saturating_add(took);
        if ended.times.len() == MAX_TIMES {
            ended.times.pop_front();
        }
        ended.times.push_back(times);
        if let Some(fault) = fault {
            ended.errors += 1;
            // The message may quote the task, and everyone may read the statistics.
            ended.last_error = fault.code.to_string();
        }
    }

    /// Returns the statistics in the format of NATS endpoints, with the number of tasks in progress and
    /// percentiles of the times of the latest tasks.
    pub(crate) fn to_json(&self) -> Value {
        let EndedTasks { tasks, errors, busy, last_error, times } =
            self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let busy = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        json!({
            "num_requests": tasks,
            "num_errors": errors,
            "processing_time": busy,
            "average_processing_time": busy.checked_div(tasks).unwrap_or_default(),
            "last_error": last_error,
            "working": self.working.load(Ordering::Relaxed),
            "work_ms": percentiles(times.iter().map(|times| times.worked)),
            "queue_ms": percentiles(times.iter().map(|times| times.queued)),
        })
    }
}

/// Returns the median and the 95th percentile in milliseconds, or null without times.
fn percentiles(times: impl Iterator<Item = Duration>) -> Value {
    let mut sorted: Vec<u64> =
        times.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).collect();
    sorted.sort_unstable();
    let at = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1));
    if sorted.is_empty() { Value::Null } else { json!({ "p50": at(50), "p95": at(95) }) }
}

impl TaskTimer<'_> {
    /// Counts the task as ended after `worked`; the rest of its time it waited for a slot.
    pub(crate) fn end(self, worked: Duration, fault: Option<&Fault>) {
        let took = self.began.elapsed();
        let queued = self.queued + took.saturating_sub(worked);
        self.figures.add(self.agent, took, TaskTimes { queued, worked }, fault);
    }
}

impl Drop for TaskTimer<'_> {
    fn drop(&mut self) {
        metrics::gauge!("sinew_agent_working", "agent" => self.agent.to_owned()).decrement(1.0);
        self.figures.working.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_tasks_are_counted_with_their_errors_and_times() {
        let figures = TaskFigures::default();
        assert_eq!(figures.to_json()["work_ms"], Value::Null);
        for ms in 1..=100 {
            figures.ended("one", TaskTimes::worked(Duration::from_millis(ms)), None);
        }
        let refused = Fault::failure("SINEW-5090", "a secret");
        figures.begin("one", Duration::from_mins(1)).end(Duration::ZERO, Some(&refused));
        drop(figures.begin("one", Duration::ZERO));
        let open = figures.begin("one", Duration::ZERO);
        let found = figures.to_json();
        assert_eq!((&found["num_requests"], &found["num_errors"]), (&json!(101), &json!(1)), "{found}");
        assert_eq!((&found["last_error"], &found["working"]), (&json!("SINEW-5090"), &json!(1)), "{found}");
        assert_eq!(found["work_ms"], json!({"p50": 50, "p95": 95}), "{found}");
        assert_eq!(found["queue_ms"], json!({"p50": 0, "p95": 0}), "{found}");
        drop(open);
        for _ in 0..MAX_TIMES {
            figures.ended("one", TaskTimes::worked(Duration::from_millis(7)), None);
        }
        assert_eq!(figures.to_json()["work_ms"], json!({"p50": 7, "p95": 7}));
    }
}
