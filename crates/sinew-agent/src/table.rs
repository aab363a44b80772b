//! The tasks of this process, open and recently ended, so that a redelivered task is answered
//! without repeating the work.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::value::RawValue;
use sinew_protocol::a2a::{
    ContextId, Message, Task, TaskId, TaskState, TaskStatus, bound_history, is_terminal,
};
use sinew_protocol::jsonrpc::raw;
use sinew_protocol::{ExecutionId, Token};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::callee_wait::CalleeWaits;
use crate::caller_question::{AnswerFate, CallerQuestion};
use crate::ended_tasks::EndedTasks;
use crate::feed::EventFeed;
use crate::task_properties::TaskProperties;

/// Origin of a task. Only the same origin gets an existing answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// An execution: the result subject, which contains an unguessable token.
    Execution(String),
    /// A caller at the A2A endpoint.
    Caller(Token),
}

/// One task of this process.
pub(crate) struct Entry {
    origin: Origin,
    /// Caller at the A2A endpoint; no other caller may read the task there.
    caller: Option<Token>,
    execution: ExecutionId,
    pub(crate) cancel: CancellationToken,
    pub(crate) feed: EventFeed,
    state: watch::Sender<Arc<Task>>,
    /// The encoded ended task, shared by all callers.
    written: OnceLock<Box<RawValue>>,
    given_up: CancellationToken,
    taken_over: AtomicBool,
    question: CallerQuestion,
    pub(crate) callee_waits: CalleeWaits,
}

impl Entry {
    pub(crate) fn new(
        origin: Origin,
        caller: Option<Token>,
        about: &TaskProperties,
        request: Option<&Message>,
        feed: EventFeed,
    ) -> Self {
        let mut task = Task {
            id: TaskId::new(about.task.as_str()),
            context_id: ContextId::new(about.context_id()),
            status: TaskStatus::with_timestamp(TaskState::Submitted),
            artifacts: None,
            history: None,
            metadata: None,
        };
        add_to_history(&mut task, request.cloned());
        Self {
            origin,
            caller,
            execution: about.execution.clone(),
            cancel: CancellationToken::new(),
            feed,
            state: watch::Sender::new(Arc::new(task)),
            written: OnceLock::new(),
            given_up: CancellationToken::new(),
            taken_over: AtomicBool::new(false),
            question: CallerQuestion::default(),
            callee_waits: CalleeWaits::default(),
        }
    }

    /// Returns the current task.
    pub(crate) fn snapshot(&self) -> Arc<Task> {
        Arc::clone(&self.state.borrow())
    }

    /// Returns the current task as JSON.
    pub(crate) fn json(&self) -> Cow<'_, RawValue> {
        match self.written.get() {
            Some(written) => Cow::Borrowed(written),
            None => Cow::Owned(raw(&*self.snapshot())),
        }
    }

    /// Returns whether the task is final.
    pub(crate) fn has_ended(&self) -> bool {
        is_terminal(self.state.borrow().status.state)
    }

    /// Waits for the end of the task; `None` if the process aborted it.
    pub(crate) async fn ended(&self) -> Option<Arc<Task>> {
        self.once(is_terminal).await
    }

    /// Waits until the task ends or asks its caller; `None` if the process aborted it.
    pub(crate) async fn settled(&self) -> Option<Arc<Task>> {
        self.once(|state| is_terminal(state) || state == TaskState::InputRequired).await
    }

    async fn once(&self, is_enough: impl Fn(TaskState) -> bool) -> Option<Arc<Task>> {
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            found = state.wait_for(|task| is_enough(task.status.state)) => found.ok().map(|task| Arc::clone(&task)),
            () = self.given_up.cancelled() => None,
        }
    }

    /// Returns whether the task has a caller that can be asked: it is a message, not a task of an
    /// execution.
    pub(crate) fn has_caller(&self) -> bool {
        matches!(self.origin, Origin::Caller(_)) && self.caller.is_some()
    }

    /// Asks the caller. The next message to the task is the answer.
    pub(crate) fn ask_caller(&self, question: Message) -> oneshot::Receiver<Message> {
        let answer = self.question.open();
        self.change_status(TaskState::InputRequired, Some(question));
        answer
    }

    /// Passes a message of the caller as the answer to the open question.
    pub(crate) fn take_answer(&self, message: Message) -> AnswerFate {
        let answer = message.clone();
        let fate = self.question.take(message);
        if fate == AnswerFate::Taken {
            self.state.send_modify(|task| {
                let task = Arc::make_mut(task);
                let question = task.status.message.take();
                add_to_history(task, question.into_iter().chain([answer]));
            });
            self.change_status(TaskState::Working, self.callee_waits.oldest());
        }
        fate
    }

    /// Shows the call that has waited longest for a person, unless the task waits for its own
    /// caller.
    pub(crate) fn show_callee_wait(&self) {
        let mut status = TaskStatus::with_timestamp(TaskState::Working);
        status.message = self.callee_waits.oldest();
        let is_shown = self.state.send_if_modified(|task| {
            let is_working = task.status.state == TaskState::Working;
            if is_working {
                Arc::make_mut(task).status = status.clone();
            }
            is_working
        });
        if is_shown {
            self.feed.changed(status);
        }
    }

    fn change_status(&self, state: TaskState, message: Option<Message>) {
        let mut status = TaskStatus::with_timestamp(state);
        status.message = message;
        let is_open = self.state.send_if_modified(|task| {
            let is_open = !is_terminal(task.status.state);
            if is_open {
                Arc::make_mut(task).status = status.clone();
            }
            is_open
        });
        if is_open {
            self.feed.changed(status);
        }
    }

    /// Records that another process works on the task: this one does not learn its end.
    pub(crate) fn mark_taken_over(&self) {
        self.taken_over.store(true, Ordering::Release);
    }

    /// Returns whether another process works on the task.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Acquire)
    }

    /// Marks the task as working.
    pub(crate) fn working(&self) {
        self.state.send_modify(|task| {
            if !is_terminal(task.status.state) {
                Arc::make_mut(task).status = TaskStatus::with_timestamp(TaskState::Working);
            }
        });
    }

    fn end(&self, ended: Arc<Task>, written: Box<RawValue>) {
        self.state.send_if_modified(|task| {
            let first = !is_terminal(task.status.state);
            if first {
                *task = ended;
                let _ = self.written.set(written);
            }
            first
        });
    }
}

/// All tasks of this process.
#[derive(Default)]
pub(crate) struct TaskTable(Mutex<TaskRows>);

#[derive(Default)]
struct TaskRows {
    entries: BTreeMap<(Origin, String), Arc<Entry>>,
    ended: EndedTasks<(Origin, String)>,
}

/// Outcome of [`TaskTable::begin`].
pub(crate) enum Begin {
    /// The task is new.
    New(Arc<Entry>),
    /// The task is open, or has ended.
    Known(Arc<Entry>),
    /// The limit of open tasks is reached.
    Full,
}

impl TaskTable {
    /// Returns the task with this origin and id; creates it if fewer than `most_open` are open.
    pub(crate) fn begin(
        &self,
        origin: &Origin,
        id: &str,
        most_open: usize,
        make: impl FnOnce() -> Entry,
    ) -> Begin {
        let mut rows = self.rows();
        let key = (origin.clone(), id.to_owned());
        if let Some(entry) = rows.entries.get(&key) {
            return Begin::Known(Arc::clone(entry));
        }
        if rows.entries.len() - rows.ended.len() >= most_open {
            return Begin::Full;
        }
        let entry = Arc::new(make());
        rows.entries.insert(key, Arc::clone(&entry));
        Begin::New(entry)
    }

    /// Ends the task with this result.
    pub(crate) fn end(&self, entry: &Entry, mut task: Arc<Task>) {
        Arc::make_mut(&mut task).history.clone_from(&entry.snapshot().history);
        let written = raw(&*task);
        let (id, size) = (task.id.0.clone(), written.get().len());
        let mut rows = self.rows();
        entry.end(task, written);
        let is_of_execution = matches!(entry.origin, Origin::Execution(_));
        for key in rows.ended.push((entry.origin.clone(), id), size, is_of_execution, Instant::now()) {
            rows.entries.remove(&key);
        }
    }

    /// Forgets an aborted task, as if it had never arrived.
    pub(crate) fn forget(&self, entry: &Entry) {
        let id = entry.snapshot().id.0.clone();
        self.rows().entries.remove(&(entry.origin.clone(), id));
        entry.given_up.cancel();
    }

    /// Returns a caller's own task.
    pub(crate) fn find(&self, caller: &Token, id: &str) -> Option<Arc<Entry>> {
        let rows = self.rows();
        let own = (Origin::Caller(caller.clone()), id.to_owned());
        let theirs = |entry: &&Arc<Entry>| entry.caller.as_ref() == Some(caller) && entry.id_is(id);
        rows.entries.get(&own).or_else(|| rows.entries.values().find(theirs)).cloned()
    }

    /// Returns all tasks of a caller.
    pub(crate) fn of(&self, caller: &Token) -> Vec<Arc<Entry>> {
        let rows = self.rows();
        rows.entries.values().filter(|entry| entry.caller.as_ref() == Some(caller)).cloned().collect()
    }

    /// Returns open tasks of an execution, of any caller: for the control subject, whose
    /// permissions restrict publishers.
    pub(crate) fn open(&self, execution: &ExecutionId, id: &str) -> Vec<Arc<Entry>> {
        let rows = self.rows();
        let meant =
            |entry: &&Arc<Entry>| entry.execution == *execution && entry.id_is(id) && !entry.has_ended();
        rows.entries.values().filter(meant).cloned().collect()
    }

    fn rows(&self) -> std::sync::MutexGuard<'_, TaskRows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds messages to the history of a task of a caller.
fn add_to_history(task: &mut Task, messages: impl IntoIterator<Item = Message>) {
    let (id, context) = (task.id.clone(), task.context_id.clone());
    let shown = messages.into_iter().map(|mut message| {
        (message.task_id, message.context_id) = (Some(id.clone()), Some(context.clone()));
        message
    });
    let mut history = task.history.take().unwrap_or_default();
    history.extend(shown);
    bound_history(&mut history);
    task.history = Some(history).filter(|history| !history.is_empty());
}

impl Entry {
    fn id_is(&self, id: &str) -> bool {
        self.state.borrow().id.0 == id
    }
}
