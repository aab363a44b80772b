//! The other side of a chat: an agent file in this process, or an agent of a mesh.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};
use sinew_agents::{
    Agent, AgentSet, Call, CancellationToken, LocalPeers, MemorySession, MemorySteps, StepRecord, Steps as _,
};
use sinew_documents::words;
use sinew_mesh::Mesh;
use sinew_mesh::steps::StepLogId;
use sinew_operations::agent_calls::{AgentQuestion, ask_agent, fault_failure, fetch_card};
use sinew_operations::agent_list::find_agent;
use sinew_operations::artifact_folder::KeptArtifacts;
use sinew_operations::conversation_view::conversation_lines;
use sinew_operations::failure::Failure;
use sinew_operations::file_agents;
use sinew_operations::mesh_operator::MeshOperator;
use sinew_protocol::{ActivationKey, ExecutionId, Fault, TaskId, Token};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::mesh_questions::answer_questions;
use super::terminal::AskedPeople;
use crate::agent_trust::TrustArgs;
use crate::cmd::agent::files::{check_trust, find_file};
use crate::connect::Connection;
use crate::output::Output;

/// Longest time for an agent's card.
const CARD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
/// Longest time for one answer.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_hours(1);

/// An answer, and what it cost.
pub(super) struct ChatTurn {
    pub(super) output: Result<Value, Fault>,
    pub(super) usage: Value,
}

/// The other side of a chat.
pub(super) enum ChatPartner {
    Local(Box<LocalPartner>),
    Mesh(Box<MeshPartner>),
}

pub(super) struct LocalPartner {
    agent: Arc<Agent>,
    around: AgentSet,
    kept: KeptArtifacts,
    people: Arc<AskedPeople>,
    session: Arc<MemorySession>,
    /// Records of the last conversation.
    steps: Arc<MemorySteps>,
    turns: u64,
}

pub(super) struct MeshPartner {
    mesh: Mesh,
    operator: MeshOperator,
    people: AskedPeople,
    agent: String,
    session: String,
    /// The last task, and its execution.
    last: Option<(ExecutionId, TaskId)>,
}

impl ChatPartner {
    /// An agent from a file.
    pub(super) fn in_process(
        name: &str,
        (places, trust): (&[PathBuf], TrustArgs),
        model: Option<&str>,
        people: AskedPeople,
        output: &Output,
    ) -> Result<Self, Failure> {
        let agent = find_file(name, places)?;
        let around = file_agents::load(places, Path::new("./workflow.yaml")).unwrap_or_default();
        check_trust(trust, &agent, &around, (name, places), output)?;
        if let Some(alias) = model {
            file_agents::choose_model([&agent], alias)?;
            for peer in around.iter() {
                peer.choose_model(alias);
            }
        }
        Ok(Self::Local(Box::new(LocalPartner {
            agent,
            around,
            kept: KeptArtifacts::open(PathBuf::from(".sinew/calls"))?,
            people: Arc::new(people),
            session: Arc::default(),
            steps: Arc::default(),
            turns: 0,
        })))
    }

    /// An agent of a mesh.
    pub(super) async fn on_mesh(
        connection: &Connection,
        name: &str,
        session: Option<&str>,
        people: AskedPeople,
    ) -> Result<Self, Failure> {
        let operator = connection.operator().await?;
        let mesh = operator.mesh().clone();
        mesh.admin().layout().await?;
        find_agent(&operator.online().await?, name)?;
        let session = session.map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned);
        let agent = name.to_owned();
        Ok(Self::Mesh(Box::new(MeshPartner { mesh, operator, people, agent, session, last: None })))
    }

    /// Sends a message and waits for the answer.
    pub(super) async fn ask(
        &mut self,
        text: &str,
        said: UnboundedSender<Value>,
        cancel: CancellationToken,
    ) -> Result<ChatTurn, Failure> {
        let input = json!({ "text": text });
        match self {
            Self::Local(local) => Ok(local.ask(input, said, cancel).await),
            Self::Mesh(there) => {
                let (heard, mut hearing) = unbounded_channel();
                let (waits, waiting) = unbounded_channel();
                // Ends with the channel of the question.
                tokio::spawn(async move {
                    while let Some(value) = hearing.recv().await {
                        if is_waiting(&value) {
                            let _ended = waits.send(());
                        }
                        // Fails if the chat is over.
                        let _unheard = said.send(value);
                    }
                });
                let question = AgentQuestion {
                    agent: &there.agent,
                    input,
                    instruction: None,
                    context: Some(&there.session),
                    timeout: Some(ANSWER_TIMEOUT),
                    progress: Some(heard),
                    cancel,
                };
                let answering = answer_questions(&there.operator, &there.people, &there.session, waiting);
                let mut asked = std::pin::pin!(ask_agent(&there.mesh, question));
                let answer = tokio::select! {
                    biased;
                    answer = &mut asked => answer?,
                    answered = answering => {
                        answered?;
                        asked.await?
                    }
                };
                there.last = Some((answer.execution, answer.task));
                Ok(ChatTurn { output: answer.output, usage: answer.usage })
            }
        }
    }

    /// Returns the tools of the agent as text.
    pub(super) async fn tools(&self) -> Result<String, Failure> {
        match self {
            Self::Local(local) => {
                let peers: Vec<_> = local.around.iter().map(|agent| agent.as_peer()).collect();
                let Some(tools) = local.agent.tools(&peers).await else {
                    return Ok("the agent calls no language model, so it has no tools".to_owned());
                };
                let tools = tools.map_err(|fault| fault_failure(&fault))?.tools;
                let line = |tool: &sinew_agents::PinnedTool| {
                    format!("{}  {}", words::name(&tool.name), words::one_line(&tool.description, 120))
                };
                Ok(tools.iter().map(line).collect::<Vec<_>>().join("\n"))
            }
            Self::Mesh(there) => {
                let card = fetch_card(&there.mesh, &there.agent, CARD_TIMEOUT).await?;
                let skills = card.skills.iter().map(|skill| words::one_line(&skill.name, 60));
                Ok(format!("skills: {}", skills.collect::<Vec<_>>().join(", ")))
            }
        }
    }

    /// Returns the records of the last conversation as text.
    pub(super) async fn log(&self) -> Result<String, Failure> {
        let records = match self {
            Self::Local(local) => local.steps.read().await.map_err(|fault| fault_failure(&fault))?,
            Self::Mesh(there) => there.records().await?,
        };
        Ok(if records.is_empty() { "no records".to_owned() } else { conversation_lines(&records, false) })
    }
}

/// Returns whether an agent reports that it waits for a person.
fn is_waiting(value: &Value) -> bool {
    value.get("type").is_some_and(|kind| kind == "waiting")
}

impl LocalPartner {
    async fn ask(
        &mut self,
        input: Value,
        said: UnboundedSender<Value>,
        cancel: CancellationToken,
    ) -> ChatTurn {
        self.turns += 1;
        self.steps = Arc::default();
        let mut call = Call::new(self.agent.name(), input, Arc::clone(&self.kept.artifacts));
        call.progress = said;
        call.cancel = cancel;
        call.people = self.people.clone();
        call.session = Some(self.session.clone());
        call.steps = Some(self.steps.clone());
        call.conversation = Some(format!("chat-{}-{}", std::process::id(), self.turns));
        let peers = LocalPeers::new(self.around.clone(), Arc::clone(&self.kept.artifacts));
        call.peers = Arc::new(peers.with_people(Arc::clone(&call.people)));
        let used = Arc::clone(&call.usage);
        match self.agent.call(call).await {
            Ok(reply) => ChatTurn { output: Ok(reply.output), usage: reply.usage },
            // A failed conversation has a cost, too.
            Err(fault) => {
                let usage = std::mem::take(&mut *used.lock().unwrap_or_else(PoisonError::into_inner));
                ChatTurn { output: Err(fault), usage }
            }
        }
    }
}

impl MeshPartner {
    async fn records(&self) -> Result<Vec<StepRecord>, Failure> {
        let Some((execution, task)) = &self.last else { return Ok(Vec::new()) };
        // A task without an execution is its own activation.
        let Ok(activation) = ActivationKey::parse(task.as_str()) else { return Ok(Vec::new()) };
        let id = StepLogId { agent: Token::of(&self.agent), execution: execution.clone(), activation };
        let records = self.mesh.tasks().steps().read(&id, 0).await?;
        Ok(records.iter().map_while(|record| serde_json::from_slice(record).ok()).collect())
    }
}
