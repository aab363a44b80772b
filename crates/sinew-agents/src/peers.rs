//! Other agents, as a model's tools find them.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{Fault, code};

use crate::wait_clock::WaitClock;

/// An agent or workflow that may be asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerDescription {
    /// Name of the agent.
    pub name: String,
    /// Purpose of the agent.
    pub description: String,
    /// JSON Schema of its input; none means `{text: string}`.
    pub input_schema: Option<Value>,
    /// JSON Schema of its output.
    pub output_schema: Option<Value>,
    /// Whether its card claims that it is a workflow. Nothing is trusted because of it.
    pub is_workflow: bool,
    /// Ids and tags of its skills.
    pub skills: Vec<String>,
}

/// A question to another agent.
#[derive(Clone, Debug)]
pub struct PeerCall {
    /// Name of the agent.
    pub agent: String,
    /// Input of the agent.
    pub input: Value,
    /// Key of the call: the same for a repeated call.
    pub key: String,
    /// Ends the call.
    pub cancel: tokio_util::sync::CancellationToken,
    /// Clocks of the call and of the conversation around it, to be stopped while the agent waits for a person.
    pub clocks: [WaitClock; 2],
}

/// The other agents that are there.
pub trait Peers: Send + Sync {
    /// Returns the agents and workflows that are online now. Fails while that cannot be known.
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerDescription>, Fault>>;
    /// Asks an agent and waits for its output.
    fn ask(&self, call: PeerCall) -> BoxFuture<'_, PeerAnswer>;
}

/// Answer of another agent.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerAnswer {
    /// The output.
    pub result: Result<Value, Fault>,
    /// Model calls of the agent and of those that it asked.
    pub usage: ModelTotals,
}

impl From<Result<Value, Fault>> for PeerAnswer {
    fn from(result: Result<Value, Fault>) -> Self {
        Self { result, usage: ModelTotals::default() }
    }
}

/// A place without other agents.
pub(crate) struct NoPeers;

impl Peers for NoPeers {
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerDescription>, Fault>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn ask(&self, call: PeerCall) -> BoxFuture<'_, PeerAnswer> {
        std::future::ready(Err(missing(&call.agent)).into()).boxed()
    }
}

pub(crate) fn missing(agent: &str) -> Fault {
    Fault::error(code::NO_SUCH_AGENT.as_str(), format!("agent '{agent}' is not known here"))
        .with_retryable(false)
}
