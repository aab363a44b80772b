//! Statistics of an agent's tasks from all sources: for `/metrics`, and for `nats micro stats`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sinew_protocol::Fault;

/// Counts of the tasks that one agent of this process has ended.
#[derive(Debug, Default)]
pub(crate) struct TaskFigures(Mutex<EndedTasks>);

#[derive(Clone, Debug, Default)]
struct EndedTasks {
    tasks: u64,
    errors: u64,
    busy: Duration,
    last_error: String,
}

/// A task in progress, counted by the gauge.
pub(crate) struct TaskTimer<'a> {
    figures: &'a TaskFigures,
    agent: &'a str,
    began: Instant,
}

impl TaskFigures {
    /// Counts a task in progress until the timer is dropped.
    pub(crate) fn begin<'a>(&'a self, agent: &'a str) -> TaskTimer<'a> {
        metrics::gauge!("sinew_agent_working", "agent" => agent.to_owned()).increment(1.0);
        TaskTimer { figures: self, agent, began: Instant::now() }
    }

    /// Counts an ended task.
    pub(crate) fn ended(&self, agent: &str, took: Duration, fault: Option<&Fault>) {
        let outcome = fault.map_or("succeeded", |fault| fault.kind.as_str());
        let agent = agent.to_owned();
        metrics::counter!("sinew_agent_tasks_total", "agent" => agent.clone(), "outcome" => outcome)
            .increment(1);
        metrics::histogram!("sinew_agent_task_seconds", "agent" => agent).record(took.as_secs_f64());
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.tasks += 1;
        ended.busy = ended.busy.saturating_add(took);
        if let Some(fault) = fault {
            ended.errors += 1;
            // The message may quote the task, and everyone may read the statistics.
            ended.last_error = fault.code.to_string();
        }
    }

    /// Returns the statistics in the format of NATS endpoints.
    pub(crate) fn to_json(&self) -> Value {
        let EndedTasks { tasks, errors, busy, last_error } =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let busy = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        json!({
            "num_requests": tasks,
            "num_errors": errors,
            "processing_time": busy,
            "average_processing_time": busy.checked_div(tasks).unwrap_or_default(),
            "last_error": last_error,
        })
    }
}

impl TaskTimer<'_> {
    /// Counts the task as ended.
    pub(crate) fn end(self, fault: Option<&Fault>) {
        self.figures.ended(self.agent, self.began.elapsed(), fault);
    }
}

impl Drop for TaskTimer<'_> {
    fn drop(&mut self) {
        metrics::gauge!("sinew_agent_working", "agent" => self.agent.to_owned()).decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_tasks_are_counted_with_their_errors() {
        let figures = TaskFigures::default();
        figures.begin("one").end(None);
        figures.begin("one").end(Some(&Fault::failure("SINEW-5090", "a secret")));
        drop(figures.begin("one"));
        let told = figures.to_json();
        assert_eq!((&told["num_requests"], &told["num_errors"]), (&json!(2), &json!(1)), "{told}");
        assert_eq!(told["last_error"], "SINEW-5090");
    }
}
