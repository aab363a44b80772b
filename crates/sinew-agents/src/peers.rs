//! Other agents that a model can call as tools.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card::{self, AgentKind};
use sinew_protocol::catalogue::Catalogue;
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{ArtifactRef, Fault, code};

use crate::wait_clock::WaitClock;

/// An agent or workflow that can be called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerDescription {
    /// Name of the agent.
    pub name: String,
    /// Purpose of the agent.
    pub description: String,
    /// JSON Schema of its input; `None` means `{text: string}`.
    pub input_schema: Option<Value>,
    /// JSON Schema of its output.
    pub output_schema: Option<Value>,
    /// Whether its card claims that it is a workflow; never use it for trust.
    pub is_workflow: bool,
    /// Ids and tags of its skills.
    pub skills: Vec<String>,
    /// Attributes to find it by; with the example requests of its skills.
    pub catalogue: Catalogue,
}

impl PeerDescription {
    /// Returns the description of the agent or workflow that a card announces.
    pub fn of(card: &AgentCard) -> Self {
        let skills = || card.skills.iter();
        let mut catalogue = Catalogue::of(card);
        catalogue.examples.extend(skills().flat_map(|skill| skill.examples.iter().flatten()).cloned());
        Self {
            name: card.name.clone(),
            description: card.description.clone(),
            input_schema: card::input_schema(card).cloned(),
            output_schema: card::output_schema(card).cloned(),
            is_workflow: card::kind(card) == AgentKind::Workflow,
            skills: skills()
                .flat_map(|skill| [vec![skill.id.clone()], skill.tags.clone()].concat())
                .collect(),
            catalogue,
        }
    }
}

/// A call of another agent.
#[derive(Clone, Debug)]
pub struct PeerCall {
    /// Name of the agent.
    pub agent: String,
    /// Input of the agent.
    pub input: Value,
    /// The artifact of the calling task that contains the input; workflows receive a reference to
    /// it. `None` for other agents.
    pub artifact: Option<ArtifactRef>,
    /// Key of the call, identical for its repetitions.
    pub key: String,
    /// Cancels the call.
    pub cancel: tokio_util::sync::CancellationToken,
    /// Clocks of the call and of its conversation, to stop while the agent waits for a person.
    pub clocks: [WaitClock; 2],
}

/// The other agents that an agent can call.
pub trait Peers: Send + Sync {
    /// Returns the agents and workflows that are online. Fails while they cannot be determined.
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerDescription>, Fault>>;
    /// Calls an agent and waits for its output.
    fn ask(&self, call: PeerCall) -> BoxFuture<'_, PeerAnswer>;
}

/// Result of a call of another agent.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerAnswer {
    /// Output, or the fault of the call.
    pub result: Result<Value, Fault>,
    /// Model calls of the agent and of the agents that it called.
    pub usage: ModelTotals,
}

impl From<Result<Value, Fault>> for PeerAnswer {
    fn from(result: Result<Value, Fault>) -> Self {
        Self { result, usage: ModelTotals::default() }
    }
}

/// An environment without other agents.
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
