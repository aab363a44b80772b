//! Other agents, as a model's tools find them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_protocol::{Fault, code};

use crate::artifacts::Artifacts;
use crate::call::Call;
use crate::set::AgentSet;

/// How deep agents may ask agents in one process.
const MAX_CALL_DEPTH: u32 = 8;

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
    /// Whether it is a workflow.
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
}

/// The other agents that are there.
pub trait Peers: Send + Sync {
    /// Returns the agents and workflows that are there now.
    fn list(&self) -> BoxFuture<'_, Vec<PeerDescription>>;
    /// Asks an agent and waits for its output.
    fn ask(&self, call: PeerCall) -> BoxFuture<'_, Result<Value, Fault>>;
}

/// A place without other agents.
pub(crate) struct NoPeers;

impl Peers for NoPeers {
    fn list(&self) -> BoxFuture<'_, Vec<PeerDescription>> {
        std::future::ready(Vec::new()).boxed()
    }

    fn ask(&self, call: PeerCall) -> BoxFuture<'_, Result<Value, Fault>> {
        std::future::ready(Err(missing(&call.agent))).boxed()
    }
}

/// Agents of one process as each other's peers.
pub struct LocalPeers {
    agents: AgentSet,
    artifacts: Arc<dyn Artifacts>,
    depth: u32,
}

impl LocalPeers {
    /// The agents of a set. What they store goes to `artifacts`.
    pub fn new(agents: AgentSet, artifacts: Arc<dyn Artifacts>) -> Self {
        Self { agents, artifacts, depth: 0 }
    }
}

impl Peers for LocalPeers {
    fn list(&self) -> BoxFuture<'_, Vec<PeerDescription>> {
        let described = self.agents.iter().map(|agent| agent.as_peer());
        std::future::ready(described.collect()).boxed()
    }

    fn ask(&self, call: PeerCall) -> BoxFuture<'_, Result<Value, Fault>> {
        let Some(agent) = self.agents.get(&call.agent).cloned() else {
            return std::future::ready(Err(missing(&call.agent))).boxed();
        };
        if self.depth >= MAX_CALL_DEPTH {
            let text = format!(
                "agents may ask agents {MAX_CALL_DEPTH} levels deep, and agent '{}' would be deeper",
                call.agent
            );
            let fault = Fault::failure(code::MODEL_GOES_IN_CIRCLES.as_str(), text).with_retryable(false);
            return std::future::ready(Err(fault)).boxed();
        }
        let below = Self {
            agents: self.agents.clone(),
            artifacts: Arc::clone(&self.artifacts),
            depth: self.depth + 1,
        };
        async move {
            let mut task = Call::new(agent.name(), call.input, Arc::clone(&below.artifacts));
            task.peers = Arc::new(below);
            task.cancel = call.cancel;
            task.conversation = Some(call.key);
            agent.call(task).await.map(|reply| reply.output)
        }
        .boxed()
    }
}

pub(crate) fn missing(agent: &str) -> Fault {
    Fault::error(code::NO_SUCH_AGENT.as_str(), format!("agent '{agent}' is not known here"))
        .with_retryable(false)
}
