//! Executions in real time, with agents and people outside the engine's control. No state outlives
//! the process.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_engine::{EngineInput, ExecutionMode, Fact, InputRefusal, OpenWait, TaskReply, Time, WaitingFor};
use sinew_protocol::person_wait::PersonWait;
use sinew_protocol::{ExecutionId, Fault};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

pub use crate::clock::now;
use crate::evaluation::{evaluate, evaluation_owner};
use crate::execution_tree::{ExecutionTree, Outside};
use sinew_execution::{Call, Execution, Library, Program, TaskKey};

/// Timeout for agents to return after their cancellation.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Agents of the in-process driver.
pub trait Agents: Send + Sync + 'static {
    /// Performs the work of one task. `cancel` fires when the task is cancelled; a later result is
    /// discarded.
    fn call(
        &self,
        call: Call,
        progress: Progress,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<TaskReply, Fault>>;
}

/// Channel on which an agent reports its progress.
#[derive(Clone, Debug)]
pub struct Progress {
    key: TaskKey,
    sender: mpsc::UnboundedSender<Message>,
}

impl Progress {
    /// Reports progress; ignored after the end of the task.
    pub fn say(&self, value: Value) {
        let _ = self.sender.send(Message::Progress(self.key, value));
    }

    /// Reports a chunk of a streamed answer, which is shown to the observer and not stored.
    pub fn stream(&self, chunk: Value) {
        let _ = self.sender.send(Message::Chunk(self.key, chunk));
    }

    /// Reports that a question to a person is open, until the guard is dropped; deadlines above the
    /// task are suspended meanwhile.
    #[must_use]
    pub fn wait_for_person(&self, question: String, wait: PersonWait) -> OpenPersonWait {
        let _ = self.sender.send(Message::Wait(self.key, question.clone(), 1, Some(Arc::new(wait))));
        OpenPersonWait { progress: self.clone(), question }
    }

    /// Reports the tokens and cost of an attempt that is about to fail; a result contains its own.
    pub fn tell_usage(&self, usage: Value) {
        let _ = self.sender.send(Message::Usage(self.key, usage));
    }
}

/// Open question of an agent to a person at the agent's own terminal.
#[derive(Debug)]
pub struct OpenPersonWait {
    progress: Progress,
    question: String,
}

impl Drop for OpenPersonWait {
    fn drop(&mut self) {
        let question = std::mem::take(&mut self.question);
        let _ = self.progress.sender.send(Message::Wait(self.progress.key, question, 2, None));
    }
}

/// Observer that is called after each round of facts, with the index of its execution (0 = the
/// requested one). It also receives each chunk of a streamed answer, as progress that is not part of
/// the journal.
pub type Observer = Box<dyn FnMut(usize, &Execution, &[Fact]) + Send>;

/// Handle that controls a running execution.
#[derive(Clone, Debug)]
pub struct Control {
    sender: mpsc::UnboundedSender<Message>,
}

impl Control {
    /// Calls a function with the current execution, and returns its result. Returns `None` once the
    /// execution has ended.
    pub async fn inspect<T: Send + 'static>(
        &self,
        inspect: impl FnOnce(&Execution) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let inspection = Inspection(Box::new(move |execution| drop(sender.send(inspect(execution)))));
        self.sender.send(Message::Inspect(inspection)).ok()?;
        receiver.await.ok()
    }

    /// Passes an input to the execution and waits for its response. Returns `None` once it has
    /// ended.
    pub async fn input(&self, input: EngineInput) -> Option<Result<(), InputRefusal>> {
        self.send(None, input).await
    }

    /// Passes an input to this execution or to one of its sub-workflows.
    pub async fn input_to(&self, id: &ExecutionId, input: EngineInput) -> Option<Result<(), InputRefusal>> {
        self.send(Some(id.clone()), input).await
    }

    async fn send(&self, id: Option<ExecutionId>, input: EngineInput) -> Option<Result<(), InputRefusal>> {
        let (sender, receiver) = oneshot::channel();
        self.sender.send(Message::Command(id, input, sender)).ok()?;
        receiver.await.ok()
    }
}

/// Function to call with the execution.
struct Inspection(Box<dyn FnOnce(&Execution) + Send>);

impl std::fmt::Debug for Inspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inspection")
    }
}

#[derive(Debug)]
enum Message {
    Done(TaskKey, Result<TaskReply, Fault>),
    Progress(TaskKey, Value),
    Chunk(TaskKey, Value),
    Usage(TaskKey, Value),
    /// Report of a question at the agent's own terminal: its name, its number, and the question
    /// while it is open.
    Wait(TaskKey, String, u64, Option<Arc<PersonWait>>),
    Command(Option<ExecutionId>, EngineInput, oneshot::Sender<Result<(), InputRefusal>>),
    Inspect(Inspection),
}

/// Driver that runs one execution and its sub-workflows to the end.
pub struct Local {
    tree: ExecutionTree,
    world: World,
    inbox: mpsc::UnboundedReceiver<Message>,
}

struct World {
    agents: Arc<dyn Agents>,
    observer: Observer,
    sender: mpsc::UnboundedSender<Message>,
    tasks: BTreeMap<TaskKey, CancellationToken>,
    /// Usage of attempts that are about to fail.
    usages: BTreeMap<TaskKey, Value>,
    /// Running calls of agents.
    calls: TaskTracker,
}

impl Local {
    /// Creates a driver with these workflows and agents.
    pub fn new(library: Arc<Library>, agents: Arc<dyn Agents>, observer: Observer) -> Self {
        let (sender, inbox) = mpsc::unbounded_channel();
        let world = World {
            agents,
            observer,
            sender,
            tasks: BTreeMap::new(),
            usages: BTreeMap::new(),
            calls: TaskTracker::new(),
        };
        Self { tree: ExecutionTree::new(library), world, inbox }
    }

    /// Returns a handle that controls it.
    pub fn control(&self) -> Control {
        Control { sender: self.world.sender.clone() }
    }

    /// Runs to the end and returns the execution. Calls `idle` when only people are waited for,
    /// with the execution and the waiting one, which may be a sub-workflow; it returns whether to
    /// continue waiting.
    pub async fn run(
        mut self,
        id: ExecutionId,
        program: Program,
        input: Value,
        mode: ExecutionMode,
        mut idle: impl FnMut(&Execution, &Execution) -> bool + Send,
    ) -> Execution {
        self.tree.start(now(), id, program, input, mode, &mut self.world);
        while !self.root().state().ended {
            if self.waits_for_people() {
                let (root, runs) = (self.root(), self.tree.runs());
                if !self.tree.asking().any(|(run, _)| idle(root, &runs[run].execution)) {
                    break;
                }
            }
            let wake = self.tree.next_deadline().map(|at| Duration::from_millis(at.saturating_sub(now())));
            tokio::select! {
                biased;
                message = self.inbox.recv() => match message {
                    Some(message) => self.take(message),
                    None => break,
                },
                () = sleep(wake) => self.tree.tick(now(), &mut self.world),
            }
        }
        for token in self.world.tasks.values() {
            token.cancel();
        }
        // Cancelled agents clean up, because their programs must not outlive the caller.
        self.world.calls.close();
        let _ = tokio::time::timeout(STOP_TIMEOUT, self.world.calls.wait()).await;
        self.root().clone()
    }

    /// Returns whether no agent is running, and the only timers are those of a person or of the
    /// execution itself.
    fn waits_for_people(&self) -> bool {
        let only_people =
            |(_, waiting): (Time, OpenWait)| matches!(waiting.what, WaitingFor::Person(_) | WaitingFor::Wall);
        self.world.tasks.is_empty()
            && self.tree.asking().next().is_some()
            && self.tree.runs().iter().all(|run| run.execution.next_deadline().is_none_or(only_people))
    }

    fn root(&self) -> &Execution {
        &self.tree.runs()[0].execution
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Done(key, result) => {
                self.world.tasks.remove(&key);
                let (act, attempt) = (key.act, key.attempt);
                let input = match (result, self.world.usages.remove(&key)) {
                    (Err(fault), Some(usage)) => {
                        EngineInput::Failed { act, attempt, fault, usage, worked_ms: None }
                    }
                    (result, _) => EngineInput::Done { act, attempt, result },
                };
                if let Err(refused) = self.tree.input(now(), key.run, input, &mut self.world) {
                    debug!(%refused, "a result was not taken");
                }
            }
            Message::Progress(key, value) => {
                let input = EngineInput::Progress { act: key.act, attempt: key.attempt, value };
                let _ = self.tree.input(now(), key.run, input, &mut self.world);
            }
            Message::Chunk(TaskKey { run, act, attempt }, value) => {
                let Some(owner) = self.tree.runs().get(run) else { return };
                if owner.execution.state().act(act).running == Some(attempt) {
                    let chunk = Fact::Progressed { act, attempt, value };
                    self.world.observe(run, &owner.execution, &[chunk]);
                }
            }
            Message::Usage(key, usage) => {
                // The result follows, even of a cancelled attempt.
                self.world.usages.insert(key, usage);
            }
            Message::Wait(TaskKey { run, act, attempt }, callee, number, wait) => {
                let input = EngineInput::CalleeWait { act, attempt, callee, number, wait };
                let _ = self.tree.input(now(), run, input, &mut self.world);
            }
            Message::Command(id, input, reply) => {
                let mut runs = self.tree.runs().iter();
                let run = id.and_then(|id| runs.position(|run| *run.execution.id() == id)).unwrap_or(0);
                let _ = reply.send(self.tree.input(now(), run, input, &mut self.world));
            }
            Message::Inspect(Inspection(inspect)) => inspect(self.root()),
        }
    }
}

impl Outside for World {
    fn send(&mut self, _now: Time, call: Call) {
        let key = call.key;
        let cancel = CancellationToken::new();
        self.tasks.insert(key, cancel.clone());
        if call.ask.is_evaluation() {
            let sender = self.sender.clone();
            let owner = evaluation_owner("", &call.workflow);
            tokio::spawn(async move {
                tokio::select! {
                    reply = evaluate(owner, &call.ask) => {
                        let logs = reply.logs.iter().map(|line| Message::Progress(key, line.to_progress()));
                        logs.chain([Message::Done(key, reply.result)]).for_each(|said| drop(sender.send(said)));
                    }
                    () = cancel.cancelled() => {}
                    () = sender.closed() => {}
                }
            });
            return;
        }
        let progress = Progress { key, sender: self.sender.clone() };
        let agent = call.ask.target.name().to_owned();
        let work = self.calls.spawn(self.agents.call(call, progress, cancel.clone()));
        let sender = self.sender.clone();
        // A second task waits for the first, so that an agent that panics still returns a result.
        tokio::spawn(async move {
            let result = work.await.unwrap_or_else(|error| {
                warn!(%agent, %error, "the agent's task died");
                Err(Fault::error(
                    code::AGENT_DIED.as_str(),
                    format!("agent '{agent}' exited during its task"),
                ))
            });
            let _ = sender.send(Message::Done(key, result));
        });
    }

    fn cancel(&mut self, key: TaskKey) {
        if let Some(token) = self.tasks.remove(&key) {
            token.cancel();
        }
    }

    fn observe(&mut self, run: usize, execution: &Execution, facts: &[Fact]) {
        (self.observer)(run, execution, facts);
    }
}

async fn sleep(wake: Option<Duration>) {
    match wake {
        Some(wake) => tokio::time::sleep(wake).await,
        None => std::future::pending().await,
    }
}
