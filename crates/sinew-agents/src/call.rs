//! One call of an agent: its request and its reply.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sinew_protocol::ArtifactRef;
use tokio_util::sync::CancellationToken;

use crate::artifacts::Artifacts;
use crate::conversation_recording::ConversationRecording;
use crate::host_tools::HostTools;
use crate::peers::{NoPeers, Peers};
use crate::people::{NoPeople, People};
use crate::sessions::Sessions;
use crate::steps::Steps;
use crate::template::Scope;

/// A task for an agent.
#[derive(Clone)]
pub struct Call {
    /// Name of the agent.
    pub agent: String,
    /// Input of the agent.
    pub input: Value,
    /// Instruction of the node.
    pub instruction: Option<String>,
    /// Context of the request: workflow, node id, activation key, attempt, tools, model.
    pub context: Value,
    /// Overrides the agent's output schema.
    pub output_schema: Option<Value>,
    /// Overrides the agent's input schema.
    pub input_schema: Option<Value>,
    /// Time limit of the whole call; the agent file can set a lower one.
    pub timeout: Option<Duration>,
    /// Store of the call's artifacts.
    pub artifacts: Arc<dyn Artifacts>,
    /// Receiver of progress reports: objects with a `message`.
    pub progress: tokio::sync::mpsc::UnboundedSender<Value>,
    /// Agents that the agent can call.
    pub peers: Arc<dyn Peers>,
    /// People to whom the agent can send questions.
    pub people: Arc<dyn People>,
    /// Functions of the host program that a model can call.
    pub tools: Option<Arc<dyn HostTools>>,
    /// Records a conversation with a model, for a case that replays it.
    pub recording: Option<Arc<ConversationRecording>>,
    /// Log of a conversation with a model; in memory if `None`.
    pub steps: Option<Arc<dyn Steps>>,
    /// Session of a conversation with a model; `None` for a conversation without a session.
    pub session: Option<Arc<dyn Sessions>>,
    /// Key of a conversation with a model; if `None`, the activation of the context or a new key.
    pub conversation: Option<String>,
    /// Deliveries of the task by a queue, including this one; 0 if it did not come from a queue.
    pub delivery: u64,
    /// Tokens and cost of the call so far, available for failed calls too; null if there are none.
    pub usage: Arc<Mutex<Value>>,
    /// Whether the caller, instead of the agent, limits concurrent calls.
    pub limited_by_caller: bool,
    /// Cancels the call gracefully. Dropping the call's future ends it immediately.
    pub cancel: CancellationToken,
}

/// Reply of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Output, valid against the output schema.
    pub output: Value,
    /// Artifacts stored during the call.
    pub artifacts: Vec<ArtifactRef>,
    /// Tokens, cost and turns of a conversation with a model; null for other agents.
    pub usage: Value,
    /// Tool calls of a conversation with a model.
    pub events: Vec<Value>,
}

impl Call {
    /// Creates a call with defaults for all fields but the input. Discards progress reports.
    pub fn new(agent: impl Into<String>, input: Value, artifacts: Arc<dyn Artifacts>) -> Self {
        Self {
            agent: agent.into(),
            input,
            instruction: None,
            context: Value::Null,
            output_schema: None,
            input_schema: None,
            timeout: None,
            artifacts,
            progress: tokio::sync::mpsc::unbounded_channel().0,
            peers: Arc::new(NoPeers),
            people: Arc::new(NoPeople),
            tools: None,
            recording: None,
            steps: None,
            session: None,
            conversation: None,
            delivery: 0,
            usage: Arc::default(),
            limited_by_caller: false,
            cancel: CancellationToken::new(),
        }
    }

    /// Takes the tokens and cost of the call so far; null if there are none.
    pub fn take_usage(&self) -> Value {
        std::mem::take(&mut *self.usage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the request as one object, which a command with `stdin: request` reads.
    pub(crate) fn request(&self) -> Value {
        json!({ "input": self.input, "instruction": self.instruction, "context": self.context })
    }

    pub(crate) fn instruction_value(&self) -> Option<Value> {
        self.instruction.clone().map(Value::String)
    }

    pub(crate) fn scope<'a>(&'a self, instruction: Option<&'a Value>) -> Scope<'a> {
        Scope { input: &self.input, instruction, context: &self.context }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Payloads must not appear in logs.
        f.debug_struct("Call")
            .field("agent", &self.agent)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
