//! Properties of a task, from its request.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use sinew_mesh::steps::StepLogId;
use sinew_protocol::artifact::sha256;
use sinew_protocol::behalf::CallingTask;
use sinew_protocol::{ActivationKey, ExecutionId, ResultToken, TaskId, Token, Vocabulary};

use crate::task_clock::TaskClock;

/// Properties of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskProperties {
    pub(crate) agent: String,
    pub(crate) execution: ExecutionId,
    pub(crate) task: TaskId,
    pub(crate) activation: String,
    pub(crate) attempt: u32,
    pub(crate) workflow: String,
    pub(crate) node: String,
    /// A2A context of the task: for a task of an execution, the execution.
    pub(crate) session: String,
    /// The context in which the task's execution was started.
    pub(crate) caller_context: Option<CallerContext>,
    /// Token of the caller at the A2A endpoint; empty for tasks of executions.
    pub(crate) caller: String,
    pub(crate) deadline: Option<SystemTime>,
    /// Time that counts towards the deadline and the agent's own limit.
    pub(crate) clock: Arc<TaskClock>,
    pub(crate) instruction: Option<String>,
    pub(crate) context: Value,
    pub(crate) input_schema: Option<Value>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) output_name: Option<String>,
    /// Vocabulary of the request and its answer.
    pub(crate) vocabulary: Vocabulary,
    pub(crate) trace_parent: Option<String>,
    pub(crate) depth: u32,
    /// Number of queue deliveries of the task, including this one; 0 if it arrived otherwise.
    pub(crate) delivery: u64,
    /// How long the task was in the queue; zero if it arrived otherwise.
    pub(crate) queued: Duration,
    /// The execution's task that this is, or is part of: proof for calls.
    pub(crate) calling: Option<CallingTask>,
    /// Result token of a task from a node request: proof for calls.
    pub(crate) result_token: Option<ResultToken>,
    /// The context of the input, if the task is from a node request; `context` is null then.
    pub(crate) surroundings: Option<Arc<Surroundings>>,
}

/// A2A context that the caller of an execution named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerContext {
    /// The context; other callers can name the same one.
    pub(crate) id: String,
    /// Token of the caller.
    pub(crate) caller: String,
}

/// The context of the input in a node request; encoded when the handler requests it.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// Id of the node, if it differs from the activation's label.
    pub(crate) node: Option<String>,
    pub(crate) path: Vec<(String, u32)>,
    /// User on whose behalf the execution runs; empty if the request names none.
    pub(crate) user: String,
    /// Settings of that user; null if there are none.
    pub(crate) user_config: Value,
    pub(crate) purpose: String,
    pub(crate) request: Value,
}

impl Surroundings {
    /// Encodes the context of the input like A2A requests.
    pub(crate) fn value(&self, about: &TaskProperties) -> Value {
        let mut value = json!({
            "user": self.user,
            "workflow": about.workflow,
            "execution": about.execution.as_str(),
            "node": self.node.as_ref().unwrap_or(&about.node),
            "path": self.path,
            "task": about.task.as_str(),
            "activation": about.activation,
            "attempt": about.attempt,
            "purpose": self.purpose,
            "request": self.request,
        });
        if let Some(context) = &about.caller_context {
            value["caller"] = context.caller.as_str().into();
        }
        if !self.user_config.is_null() {
            value["user_config"] = self.user_config.clone();
        }
        value
    }
}

impl TaskProperties {
    /// Creates a task of which only the ids are known.
    pub(crate) fn new(agent: &str, execution: ExecutionId, task: TaskId) -> Self {
        Self {
            agent: agent.to_owned(),
            activation: task.as_str().to_owned(),
            execution,
            task,
            attempt: 1,
            workflow: String::new(),
            node: String::new(),
            session: String::new(),
            caller_context: None,
            caller: String::new(),
            deadline: None,
            clock: Arc::default(),
            instruction: None,
            context: Value::Null,
            input_schema: None,
            output_schema: None,
            output_name: None,
            vocabulary: Vocabulary::default(),
            trace_parent: None,
            depth: 0,
            delivery: 0,
            queued: Duration::ZERO,
            calling: None,
            result_token: None,
            surroundings: None,
        }
    }

    /// Returns the A2A context: that of the execution's caller, if it named one.
    pub(crate) fn context_id(&self) -> &str {
        self.caller_context.as_ref().map_or(&self.session, |context| &context.id)
    }

    /// Returns the A2A context of calls by this task. Outside an execution, it is derived from caller
    /// and context: the called agent only sees this agent as its caller, and would otherwise mix the
    /// sessions of two callers with equal contexts.
    pub(crate) fn call_context(&self) -> Cow<'_, str> {
        if self.caller.is_empty() || self.session.is_empty() {
            return Cow::Borrowed(&self.session);
        }
        let owner = format!("{}:{}:{}", self.caller.len(), self.caller, self.session);
        Cow::Owned(sha256(owner.as_bytes())[..32].to_owned())
    }

    /// Returns the log of the activation's steps; `None` if the activation has no valid key.
    pub(crate) fn step_log(&self) -> Option<StepLogId> {
        let activation = ActivationKey::parse(&self.activation).ok()?;
        Some(StepLogId { agent: Token::of(&self.agent), execution: self.execution.clone(), activation })
    }

    /// Returns the execution's task that proves calls.
    pub(crate) fn calling(&self) -> Option<CallingTask> {
        let of_token = |token| CallingTask::of_task(self.execution.clone(), self.task.clone(), token);
        self.calling.clone().or_else(|| self.result_token.as_ref().map(of_token))
    }
}

/// Returns the ids of a caller's own task. They are derived from the message, so that a repeated
/// message is one task, and a caller knows the progress subject before the call.
pub(crate) fn own_ids(
    namespace: &str,
    agent: &Token,
    caller: &Token,
    message: &str,
) -> (ExecutionId, TaskId) {
    let execution = ExecutionId::of(namespace, caller.as_str(), message);
    let activation = ActivationKey::of::<&str>(&execution, agent.as_str(), &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    (execution, task)
}
