//! Calls between agents of one process.

use std::sync::{Arc, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sinew_protocol::usage::TaskUsage;
use sinew_protocol::{Fault, code};

use crate::artifacts::Artifacts;
use crate::call::Call;
use crate::peers::{PeerAnswer, PeerCall, PeerDescription, Peers, missing};
use crate::people::{NoPeople, People, PersonPrompt, PersonReply};
use crate::set::AgentSet;
use crate::wait_clock::WaitClock;

/// Maximum depth of nested calls between agents of one process.
const MAX_CALL_DEPTH: u32 = 8;

/// Calls agents of the same process.
pub struct LocalPeers {
    agents: AgentSet,
    artifacts: Arc<dyn Artifacts>,
    people: Arc<dyn People>,
    depth: u32,
}

impl LocalPeers {
    /// Creates peers from a set. They store artifacts in `artifacts`, and their questions to people
    /// are refused.
    pub fn new(agents: AgentSet, artifacts: Arc<dyn Artifacts>) -> Self {
        Self { agents, artifacts, people: Arc::new(NoPeople), depth: 0 }
    }

    /// Sends questions of the agents to these people.
    #[must_use]
    pub fn with_people(self, people: Arc<dyn People>) -> Self {
        Self { people, ..self }
    }
}

/// People for a called agent: prefixes each question with the agent's name.
struct PeopleOfPeer {
    agent: String,
    people: Arc<dyn People>,
    /// Clocks of the callers, stopped while the agent waits for a person.
    clocks: [WaitClock; 2],
}

impl People for PeopleOfPeer {
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        let text = format!("{}: {}", self.agent, prompt.text);
        let stopped = self.clocks.each_ref().map(WaitClock::stop);
        let asked = self.people.ask(PersonPrompt { text, ..prompt });
        async move {
            let reply = asked.await;
            drop(stopped);
            reply
        }
        .boxed()
    }
}

impl Peers for LocalPeers {
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerDescription>, Fault>> {
        let described = self.agents.iter().map(|agent| agent.as_peer());
        std::future::ready(Ok(described.collect())).boxed()
    }

    fn ask(&self, call: PeerCall) -> BoxFuture<'_, PeerAnswer> {
        let Some(agent) = self.agents.get(&call.agent).cloned() else {
            return std::future::ready(Err(missing(&call.agent)).into()).boxed();
        };
        if self.depth >= MAX_CALL_DEPTH {
            let text = format!(
                "calls between agents can be nested {MAX_CALL_DEPTH} levels deep; the call of agent '{}' exceeds this limit",
                call.agent
            );
            let fault = Fault::failure(code::MODEL_GOES_IN_CIRCLES.as_str(), text).with_retryable(false);
            return std::future::ready(Err(fault).into()).boxed();
        }
        let below = Self {
            agents: self.agents.clone(),
            artifacts: Arc::clone(&self.artifacts),
            people: Arc::clone(&self.people),
            depth: self.depth + 1,
        };
        async move {
            let mut task = Call::new(agent.name(), call.input, Arc::clone(&below.artifacts));
            task.people = Arc::new(PeopleOfPeer {
                agent: agent.name().to_owned(),
                people: Arc::clone(&below.people),
                clocks: call.clocks,
            });
            task.peers = Arc::new(below);
            task.cancel = call.cancel;
            task.conversation = Some(call.key);
            let used = Arc::clone(&task.usage);
            match agent.call(task).await {
                Ok(reply) => {
                    let usage = TaskUsage::of(&reply.usage).unwrap_or_default().total();
                    PeerAnswer { result: Ok(reply.output), usage }
                }
                Err(fault) => {
                    let used = used.lock().unwrap_or_else(PoisonError::into_inner);
                    let usage = TaskUsage::of(&used).unwrap_or_default().total();
                    PeerAnswer { result: Err(fault), usage }
                }
            }
        }
        .boxed()
    }
}
