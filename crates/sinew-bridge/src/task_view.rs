//! State of an external agent's task according to its events.

use sinew_protocol::a2a::{Artifact, ContextId, StreamResponse, Task, TaskState, TaskStatus, is_terminal};

/// Maximum number of processed events of one task.
const MAX_EVENTS: u32 = 200_000;
/// Maximum number of artifacts of one task.
const MAX_ARTIFACTS: usize = 200;
/// Maximum number of parts of one task's artifacts.
const MAX_PARTS: usize = 20_000;

/// Reason why an event is not valid for this task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventDefect {
    /// The event is about another task.
    #[error("an event belongs to another task, {0:?}")]
    ForeignTask(String),
    /// The stream of a task contains a message instead of an event.
    #[error("received a message instead of an update of task {0:?}")]
    Message(String),
    /// The task exceeds a limit.
    #[error("the task has more than {limit} {what}")]
    TooMany {
        /// Counted items.
        what: &'static str,
        /// Maximum number of items.
        limit: usize,
    },
    /// A state that A2A does not define.
    #[error("the task has a state that A2A does not define")]
    State,
}

/// Known state of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskView {
    pub(crate) task: Task,
    events: u32,
}

impl TaskView {
    /// Creates a task of which only the id is known.
    pub(crate) fn new(id: &str, context: &str) -> Self {
        let task = Task {
            id: sinew_protocol::a2a::TaskId::new(id),
            context_id: ContextId::new(context),
            status: TaskStatus::new(TaskState::Submitted),
            artifacts: None,
            history: None,
            metadata: None,
        };
        Self { task, events: 0 }
    }

    /// Returns whether the task has ended, or waits for input.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.task.status.state;
        is_terminal(state) || matches!(state, TaskState::InputRequired | TaskState::AuthRequired)
    }

    /// Applies a snapshot.
    pub(crate) fn replace(&mut self, task: Task) -> Result<(), EventDefect> {
        self.check(&task.id.0)?;
        if task.status.state == TaskState::Unspecified {
            return Err(EventDefect::State);
        }
        self.task = task;
        self.check_sizes()
    }

    /// Applies the next event of a stream.
    pub(crate) fn apply(&mut self, event: StreamResponse) -> Result<(), EventDefect> {
        self.events += 1;
        if self.events > MAX_EVENTS {
            return Err(EventDefect::TooMany { what: "events", limit: MAX_EVENTS as usize });
        }
        match event {
            StreamResponse::Task(task) => self.replace(task),
            StreamResponse::StatusUpdate(update) => {
                self.check(&update.task_id.0)?;
                if update.status.state == TaskState::Unspecified {
                    return Err(EventDefect::State);
                }
                self.task.status = update.status;
                Ok(())
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.check(&update.task_id.0)?;
                self.take_artifact(update.artifact, update.append == Some(true));
                self.check_sizes()
            }
            _ => Err(EventDefect::Message(self.task.id.0.clone())),
        }
    }

    fn take_artifact(&mut self, artifact: Artifact, appends: bool) {
        let all = self.task.artifacts.get_or_insert_default();
        match all.iter_mut().find(|known| known.id == artifact.id) {
            Some(known) if appends => known.parts.extend(artifact.parts),
            Some(known) => *known = artifact,
            None => all.push(artifact),
        }
    }

    fn check(&self, id: &str) -> Result<(), EventDefect> {
        if id == self.task.id.0 { Ok(()) } else { Err(EventDefect::ForeignTask(crate::error::quoted(id))) }
    }

    fn check_sizes(&self) -> Result<(), EventDefect> {
        let artifacts = self.task.artifacts.as_deref().unwrap_or_default();
        if artifacts.len() > MAX_ARTIFACTS {
            return Err(EventDefect::TooMany { what: "artifacts", limit: MAX_ARTIFACTS });
        }
        if artifacts.iter().map(|artifact| artifact.parts.len()).sum::<usize>() > MAX_PARTS {
            return Err(EventDefect::TooMany { what: "parts", limit: MAX_PARTS });
        }
        Ok(())
    }
}

/// Returns the name of a state.
pub(crate) fn state_word(state: TaskState) -> &'static str {
    match state {
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::Rejected => "rejected",
        TaskState::InputRequired => "input-required",
        TaskState::AuthRequired => "auth-required",
        _ => "unspecified",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn events_of_this_task_only_change_it() {
        let status = |task: &str, state: &str| json!({"statusUpdate": {"taskId": task, "contextId": "c", "status": {"state": state}}});
        let artifact = |append: bool, text: &str| {
            json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": append,
                "artifact": {"artifactId": "a", "parts": [{"text": text}]}}})
        };
        let check = |events: &[Value], expected: &str| {
            let mut view = TaskView::new("t", "c");
            let mut outcome = String::new();
            for event in events {
                let event: StreamResponse = serde_json::from_value(event.clone()).unwrap();
                if let Err(defect) = view.apply(event) {
                    outcome = defect.to_string();
                    break;
                }
            }
            if outcome.is_empty() {
                let parts: Vec<&str> = view
                    .task
                    .artifacts
                    .iter()
                    .flatten()
                    .flat_map(|it| &it.parts)
                    .filter_map(|part| part.text_content())
                    .collect();
                outcome = format!(
                    "{} {} {}",
                    state_word(view.task.status.state),
                    view.is_settled(),
                    parts.join("+")
                );
            }
            assert_eq!(outcome, expected, "{events:?}");
        };
        check(&[status("t", "TASK_STATE_WORKING")], "working false ");
        check(
            &[artifact(false, "a"), artifact(true, "b"), status("t", "TASK_STATE_COMPLETED")],
            "completed true a+b",
        );
        check(&[artifact(false, "a"), artifact(false, "b")], "submitted false b");
        check(&[status("t", "TASK_STATE_INPUT_REQUIRED")], "input-required true ");
        check(&[status("other", "TASK_STATE_COMPLETED")], "an event belongs to another task, \"other\"");
        let message = json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}});
        check(&[message], "received a message instead of an update of task \"t\"");
    }
}
