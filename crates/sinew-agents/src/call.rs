//! One call of an agent: what goes in and what comes back.

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
    /// Words for the agent, if the node has some.
    pub instruction: Option<String>,
    /// The request around the input: workflow, node id, activation key, attempt, tools, model.
    pub context: Value,
    /// Overrides the agent's output schema.
    pub output_schema: Option<Value>,
    /// Overrides the agent's input schema.
    pub input_schema: Option<Value>,
    /// Time for the whole call; the agent file may allow less.
    pub timeout: Option<Duration>,
    /// Where artifacts are kept.
    pub artifacts: Arc<dyn Artifacts>,
    /// Progress of the agent: objects with a `message`.
    pub progress: tokio::sync::mpsc::UnboundedSender<Value>,
    /// Other agents that the agent may ask.
    pub peers: Arc<dyn Peers>,
    /// People whom the agent may ask.
    pub people: Arc<dyn People>,
    /// Functions of the program around the agent that a model may call.
    pub tools: Option<Arc<dyn HostTools>>,
    /// Hears a conversation with a model, for a case that replays it.
    pub recording: Option<Arc<ConversationRecording>>,
    /// Log of a conversation with a model; in memory if none.
    pub steps: Option<Arc<dyn Steps>>,
    /// Session of a conversation with a model; none if it stands alone.
    pub session: Option<Arc<dyn Sessions>>,
    /// Key of a conversation with a model; the activation of the context, or one of its own, if none.
    pub conversation: Option<String>,
    /// How often a queue has delivered the task, this time included; 0 if it came otherwise.
    pub delivery: u64,
    /// Tokens and cost of the call so far, for callers that want to know them of failed calls too; null if it has none.
    pub usage: Arc<Mutex<Value>>,
    /// Whether the caller limits how many calls run at the same time, instead of the agent.
    pub limited_by_caller: bool,
    /// Ends the call gracefully; dropping the call's future ends it too.
    pub cancel: CancellationToken,
}

/// An agent's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The output; fits the output schema.
    pub output: Value,
    /// Artifacts stored during the call.
    pub artifacts: Vec<ArtifactRef>,
    /// Tokens, cost and turns of a conversation with a model; null for other agents.
    pub usage: Value,
    /// Calls of tools during a conversation with a model.
    pub events: Vec<Value>,
}

impl Call {
    /// A call with nothing but an input; the other fields are there to be set. Progress goes nowhere.
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

    /// Takes the tokens and cost of the call so far; null if it has none.
    pub fn take_usage(&self) -> Value {
        std::mem::take(&mut *self.usage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The request as one object: what a command with `stdin: request` reads.
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
        // Payloads stay out of logs.
        f.debug_struct("Call")
            .field("agent", &self.agent)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
