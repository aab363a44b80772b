//! Tasks of node requests, open and recently ended, so that a redelivered task is answered without
//! repeating the work.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sinew_mesh::async_nats::Subject;
use sinew_protocol::{ExecutionId, TaskId};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of remembered ended tasks.
const MAX_ENDED_TASKS: usize = 10_000;
/// Maximum bytes of remembered answers.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// An answer is remembered for one to two of these periods. Only ends of tasks start a period, so
/// an idle or unreachable mesh ages nothing: redelivered tasks are those from before.
const ANSWER_GENERATION: Duration = Duration::from_mins(5);
/// Maximum number of listeners for one open task; each delivery adds one.
const MAX_LISTENERS: usize = 64;

/// Receiver of the answer to a task.
#[derive(Debug)]
pub(crate) enum AnswerListener {
    /// An executor, at this subject.
    Reply(Subject),
    /// A delivery of the queue in this process; dropped if the task is aborted, `None` if another
    /// process works on it.
    Delivery(oneshot::Sender<Option<Bytes>>),
}

/// Result of starting a task.
#[derive(Debug)]
pub(crate) enum NodeStart {
    /// The task is new; the token fires when it is cancelled.
    New(CancellationToken),
    /// The task is open, and the listener will receive its answer.
    Open,
    /// The task has ended with this answer.
    Ended(Bytes, AnswerListener),
    /// The limit of open tasks is reached.
    Full(AnswerListener),
}

/// Result of joining a task.
#[derive(Debug)]
pub(crate) enum NodeJoin {
    /// The task is open, and the listener will receive its answer.
    Open,
    /// The task has ended with this answer.
    Ended(Bytes, AnswerListener),
    /// The task never arrived, or was forgotten.
    Unknown,
}

/// Tasks of node requests of this process.
#[derive(Default)]
pub(crate) struct NodeTasks(Mutex<NodeTaskRows>);

#[derive(Default)]
struct NodeTaskRows {
    tasks: HashMap<TaskId, NodeTaskRow>,
    /// Ended tasks, oldest first, each with the size of its answer.
    ended: VecDeque<(TaskId, usize)>,
    bytes: usize,
    /// Start of the current generation; `None` before the first task has ended.
    generation_began: Option<Instant>,
    /// Ended tasks of the previous generation.
    aged: usize,
}

enum NodeTaskRow {
    Open { execution: ExecutionId, cancel: CancellationToken, listeners: Vec<AnswerListener> },
    Ended(Bytes),
}

impl NodeTasks {
    /// Starts a task, unless it is known or `max_open` tasks are open.
    pub(crate) fn begin(
        &self,
        execution: &ExecutionId,
        task: &TaskId,
        listener: AnswerListener,
        max_open: usize,
    ) -> NodeStart {
        let mut rows = self.rows();
        let listener = match rows.join(task, listener) {
            Ok(NodeJoin::Ended(answer, listener)) => return NodeStart::Ended(answer, listener),
            Ok(_) => return NodeStart::Open,
            Err(listener) => listener,
        };
        if rows.tasks.len() - rows.ended.len() >= max_open {
            return NodeStart::Full(listener);
        }
        let cancel = CancellationToken::new();
        let row = NodeTaskRow::Open {
            execution: execution.clone(),
            cancel: cancel.clone(),
            listeners: vec![listener],
        };
        rows.tasks.insert(task.clone(), row);
        NodeStart::New(cancel)
    }

    /// Adds a listener for the answer to a task, if the task is known.
    pub(crate) fn join(&self, task: &TaskId, listener: AnswerListener) -> NodeJoin {
        self.rows().join(task, listener).unwrap_or(NodeJoin::Unknown)
    }

    /// Returns whether a task is open or has recently ended.
    pub(crate) fn knows(&self, task: &TaskId) -> bool {
        self.rows().tasks.contains_key(task)
    }

    /// Ends a task with this answer; returns its listeners.
    pub(crate) fn end(&self, task: &TaskId, answer: Bytes) -> Vec<AnswerListener> {
        let mut rows = self.rows();
        rows.age(Instant::now());
        let size = answer.len();
        let Some(row @ NodeTaskRow::Open { .. }) = rows.tasks.get_mut(task) else { return Vec::new() };
        let listeners = match std::mem::replace(row, NodeTaskRow::Ended(answer)) {
            NodeTaskRow::Open { listeners, .. } => listeners,
            NodeTaskRow::Ended(_) => Vec::new(),
        };
        rows.bytes += size;
        rows.ended.push_back((task.clone(), size));
        while rows.ended.len() > MAX_ENDED_TASKS || rows.bytes > MAX_ANSWER_BYTES {
            rows.drop_oldest();
        }
        listeners
    }

    /// Forgets an open task, as if it had never arrived; returns its listeners.
    pub(crate) fn forget(&self, task: &TaskId) -> Vec<AnswerListener> {
        let mut rows = self.rows();
        if !matches!(rows.tasks.get(task), Some(NodeTaskRow::Open { .. })) {
            return Vec::new();
        }
        match rows.tasks.remove(task) {
            Some(NodeTaskRow::Open { listeners, .. }) => listeners,
            _ => Vec::new(),
        }
    }

    /// Cancels an open task of this execution; returns false if there is none.
    pub(crate) fn cancel(&self, execution: &ExecutionId, task: &TaskId) -> bool {
        match self.rows().tasks.get(task) {
            Some(NodeTaskRow::Open { execution: of, cancel, .. }) if of == execution => {
                cancel.cancel();
                true
            }
            _ => false,
        }
    }

    fn rows(&self) -> MutexGuard<'_, NodeTaskRows> {
        // Every change is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeTaskRows {
    /// Adds a listener for the answer to a task; returns it if the task is unknown.
    fn join(&mut self, task: &TaskId, listener: AnswerListener) -> Result<NodeJoin, AnswerListener> {
        match self.tasks.get_mut(task) {
            Some(NodeTaskRow::Ended(answer)) => Ok(NodeJoin::Ended(answer.clone(), listener)),
            Some(NodeTaskRow::Open { listeners, .. }) => {
                let is_known = matches!(&listener, AnswerListener::Reply(reply)
                    if listeners.iter().any(|one| matches!(one, AnswerListener::Reply(other) if other == reply)));
                if !is_known && listeners.len() < MAX_LISTENERS {
                    listeners.push(listener);
                }
                Ok(NodeJoin::Open)
            }
            None => Err(listener),
        }
    }

    /// Starts a new generation if the current one is over, and drops the previous one.
    fn age(&mut self, now: Instant) {
        let began = *self.generation_began.get_or_insert(now);
        if now.duration_since(began) < ANSWER_GENERATION {
            return;
        }
        for _ in 0..self.aged {
            self.drop_oldest();
        }
        (self.aged, self.generation_began) = (self.ended.len(), Some(now));
    }

    fn drop_oldest(&mut self) {
        let Some((task, size)) = self.ended.pop_front() else { return };
        self.bytes -= size;
        self.aged = self.aged.saturating_sub(1);
        self.tasks.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(name: &str) -> AnswerListener {
        AnswerListener::Reply(Subject::from(name.to_owned()))
    }

    fn id(nth: usize) -> TaskId {
        TaskId::parse(&format!("task-{nth}")).unwrap()
    }

    #[test]
    fn a_task_is_begun_once_and_answered_everywhere() {
        let (tasks, execution) = (NodeTasks::default(), ExecutionId::parse("e").unwrap());
        let begin = |name: &str| tasks.begin(&execution, &id(0), reply(name), 1);
        assert!(matches!(begin("a"), NodeStart::New(_)));
        assert!(matches!(begin("a"), NodeStart::Open));
        assert!(matches!(begin("b"), NodeStart::Open));
        assert!(matches!(tasks.begin(&execution, &id(1), reply("a"), 1), NodeStart::Full(_)));
        assert_eq!(tasks.end(&id(0), "{}".into()).len(), 2, "one answer for each subject");
        assert!(tasks.end(&id(0), "other".into()).is_empty(), "a task ends once");
        assert!(matches!(begin("c"), NodeStart::Ended(answer, _) if answer == "{}"));
        assert!(matches!(tasks.begin(&execution, &id(1), reply("a"), 1), NodeStart::New(_)));
        assert_eq!(tasks.forget(&id(1)).len(), 1);
        assert!(matches!(tasks.begin(&execution, &id(1), reply("a"), 1), NodeStart::New(_)));
    }

    #[test]
    fn a_task_is_given_up_by_its_own_execution_only() {
        let (tasks, execution) = (NodeTasks::default(), ExecutionId::parse("e").unwrap());
        let NodeStart::New(cancel) = tasks.begin(&execution, &id(0), reply("a"), 1) else {
            panic!("the task is new")
        };
        assert!(!tasks.cancel(&ExecutionId::parse("other").unwrap(), &id(0)) && !cancel.is_cancelled());
        assert!(tasks.cancel(&execution, &id(0)) && cancel.is_cancelled());
        tasks.end(&id(0), "{}".into());
        assert!(!tasks.cancel(&execution, &id(0)), "a task that has ended cannot be given up");
    }

    #[test]
    fn answers_are_forgotten_oldest_first() {
        let (tasks, execution) = (NodeTasks::default(), ExecutionId::parse("e").unwrap());
        for nth in 0..=MAX_ENDED_TASKS {
            assert!(matches!(tasks.begin(&execution, &id(nth), reply("a"), 1), NodeStart::New(_)));
            tasks.end(&id(nth), "{}".into());
        }
        assert!(matches!(tasks.begin(&execution, &id(1), reply("a"), 1), NodeStart::Ended(..)));
        assert!(matches!(tasks.begin(&execution, &id(0), reply("a"), 1), NodeStart::New(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_grow_old_only_while_tasks_end() {
        let (tasks, execution) = (NodeTasks::default(), ExecutionId::parse("e").unwrap());
        let end = |nth| {
            assert!(matches!(tasks.begin(&execution, &id(nth), reply("a"), 1), NodeStart::New(_)));
            tasks.end(&id(nth), "{}".into());
        };
        let is_remembered =
            |nth| matches!(tasks.begin(&execution, &id(nth), reply("a"), 1), NodeStart::Ended(..));
        end(0);
        // After a day without the mesh, the next task causes nothing to be forgotten.
        tokio::time::advance(Duration::from_hours(24)).await;
        end(1);
        assert!(is_remembered(0) && is_remembered(1));
        tokio::time::advance(ANSWER_GENERATION).await;
        end(2);
        assert!(is_remembered(1) && is_remembered(2));
        assert!(!is_remembered(0), "it is two generations old");
    }
}
