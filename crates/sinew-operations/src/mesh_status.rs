//! Status of a mesh: executors, shards, streams, agents and their queues, open executions. For
//! `top` and `doctor`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sinew_documents::words;
use sinew_inspection::view_context::MeshPresence;
use sinew_mesh::Mesh;
use sinew_mesh::fleet::Snapshot;
use sinew_mesh::task::QueueLength;
use sinew_protocol::query::AN_OPERATOR;
use sinew_protocol::stream::STREAMS;
use sinew_protocol::usage::ModelTotals;
use sinew_runtime::local;

use crate::agent_list::offline_cards;
use crate::failure::Failure;
use crate::mesh_operator::status_of_word;
use crate::mesh_operator::{MeshOperator, waiting_for};
use crate::traffic_figures::StreamSample;

/// All of it, at one time.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct MeshStatus {
    /// Name of the mesh.
    pub namespace: String,
    /// Shards of the mesh.
    pub shards: u32,
    /// Shards whose owner is an executor that lives.
    pub owned: u32,
    /// Executors, those that fell silent too: they are forgotten a day after their last heartbeat.
    pub executors: Vec<ExecutorStatus>,
    /// Open executions by status.
    pub executions: BTreeMap<&'static str, usize>,
    /// Streams of the mesh.
    pub streams: Vec<StreamStatus>,
    /// Agents that are online, died and were not retired, or have a queue, by name.
    pub agents: Vec<AgentStatus>,
    /// Cards that are refused.
    pub refused_cards: usize,
    /// Messages that were set aside.
    pub quarantined: u64,
    /// Open executions that wait for something, those that were started first; not all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingExecution>,
    /// Model calls behind the open executions, as far as their agents have told with results.
    #[serde(skip_serializing_if = "ModelTotals::is_empty")]
    pub models: ModelTotals,
    /// Agents that open executions wait for and that are not online, each with the number of those
    /// executions.
    #[serde(skip)]
    pub missing_agents: BTreeMap<String, usize>,
    /// Open executions that no executor works on until an operator has looked at them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<String>,
}

/// Maximum number of reported waiting executions.
const MAX_WAITING: usize = 10;

/// An open execution and what it waits for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WaitingExecution {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Milliseconds since it was started.
    pub age_ms: u64,
    /// The wait, in words.
    pub waiting: String,
    /// Model calls behind it, as far as its agents have told with results.
    #[serde(skip_serializing_if = "ModelTotals::is_empty")]
    pub models: ModelTotals,
}

/// An executor.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExecutorStatus {
    /// Id of the executor.
    pub id: String,
    /// Version of Sinew.
    pub version: String,
    /// Host and process.
    pub place: String,
    /// Shards that the executor owns.
    pub shards: usize,
    /// Milliseconds since the last heartbeat of an executor that fell silent; `None` while the executor lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

impl MeshStatus {
    /// Returns the agent with this name, and adds it if necessary.
    fn agent(&mut self, name: &str) -> &mut AgentStatus {
        let at = self.agents.iter().position(|agent| agent.name == name).unwrap_or_else(|| {
            self.agents.push(AgentStatus { name: name.to_owned(), ..AgentStatus::default() });
            self.agents.len() - 1
        });
        &mut self.agents[at]
    }

    /// Returns the number of live executors.
    pub fn living_executors(&self) -> usize {
        self.executors.iter().filter(|executor| executor.silent_ms.is_none()).count()
    }

    /// Describes executors without a heartbeat, as `3 unreachable, last heartbeat 12.0s ago`, or
    /// returns `None` if there are none.
    pub fn silence(&self) -> Option<String> {
        let silences = self.executors.iter().filter_map(|executor| executor.silent_ms);
        let shortest = silences.clone().min()?;
        Some(format!("{} unreachable, last heartbeat {} ago", silences.count(), words::duration(shortest)))
    }
}

/// A stream.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamStatus {
    /// Name on the server.
    pub name: String,
    /// Messages in the stream.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// An agent: its card, its last card if it died and was not retired, its queue, or several of them.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct AgentStatus {
    /// Name of the agent.
    pub name: String,
    /// Whether the card of the agent is announced.
    pub online: bool,
    /// Milliseconds since the last heartbeat; `None` if no card of the agent is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// Tasks that nobody has taken.
    pub queued: u64,
    /// Tasks that were taken and not answered.
    pub working: usize,
    /// Tasks that were taken more than once.
    pub redelivered: usize,
}

/// Reads the complete status.
pub async fn read_status(
    remote: &MeshOperator,
    cards: &sinew_mesh::card::Cards,
) -> Result<MeshStatus, Failure> {
    let mesh = remote.mesh();
    let layout = mesh.admin().layout().await?;
    // Read first, so that a slow read of the bucket does not make its heartbeats look old.
    let now = mesh.admin().server_clock().await?.now();
    let seen: Snapshot = mesh.fleet().look().await?;
    let mut status = MeshStatus {
        namespace: mesh.namespace().to_owned(),
        shards: layout.shards.get(),
        owned: seen.served_shards(now) as u32,
        refused_cards: cards.refused().len(),
        ..MeshStatus::default()
    };
    status.executors = executors(seen, now);
    add_executions(remote, cards, &mut status).await?;
    add_streams(mesh, layout.keeps_events, &mut status).await?;
    add_cards(cards, &mut status);
    for one in offline_cards(mesh, cards).await? {
        let agent = status.agent(&one.card.name);
        agent.heard_ms = Some(one.age.as_millis() as u64);
    }
    status.agents.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(status)
}

fn executors(seen: Snapshot, now: u64) -> Vec<ExecutorStatus> {
    let Snapshot { members, owners } = seen;
    // Shards in its last heartbeat may have another owner by now.
    let still_owned = |id: &str| owners.values().filter(|(owner, _)| owner.as_deref() == Some(id)).count();
    members
        .into_iter()
        .map(|(id, member)| {
            let silent_ms = member.silence_ms(now);
            let shards = if silent_ms.is_some() { still_owned(&id) } else { member.beat.shards.len() };
            ExecutorStatus { id, version: member.beat.version, place: member.beat.place, shards, silent_ms }
        })
        .collect()
}

/// Adds the open executions: their number by status, and those that wait.
async fn add_executions(
    remote: &MeshOperator,
    cards: &sinew_mesh::card::Cards,
    status: &mut MeshStatus,
) -> Result<(), Failure> {
    let presence = MeshPresence { agents: Some(MeshOperator::heartbeats(cards)), has_owner: None };
    let mut summaries = remote.client.open().await?;
    summaries.sort_by_key(|summary| summary.started);
    for summary in summaries {
        if let Some(waiting) = waiting_for(&summary, &presence)
            && status.waiting.len() < MAX_WAITING
        {
            status.waiting.push(WaitingExecution {
                execution: summary.execution.to_string(),
                workflow: summary.workflow.clone(),
                age_ms: local::now().saturating_sub(summary.started),
                waiting,
                models: summary.usage,
            });
        }
        for agent in summary.agents.iter().filter(|agent| cards.get(agent).is_none()) {
            *status.missing_agents.entry(agent.clone()).or_default() += 1;
        }
        status.models.add(summary.usage);
        if summary.waiting.as_deref().is_some_and(|waiting| waiting.starts_with(AN_OPERATOR)) {
            status.set_aside.push(summary.execution.to_string());
        }
        *status.executions.entry(status_of_word(summary.status.as_str()).as_str()).or_default() += 1;
    }
    Ok(())
}

/// Adds the streams, and the queues of agents in one of them.
async fn add_streams(mesh: &Mesh, keeps_events: bool, status: &mut MeshStatus) -> Result<(), Failure> {
    for kind in STREAMS.into_iter().filter(|kind| kind.kind != "EVENTS" || keeps_events) {
        let name = kind.name(mesh.namespace());
        let state = mesh.admin().stream_info(&name).await?.state;
        if kind.kind == "QUARANTINE" {
            status.quarantined = state.messages;
        }
        if kind.kind == "TASKS" {
            for QueueLength { agent, queued, working, redelivered } in
                mesh.tasks().queue_lengths(usize::MAX).await?
            {
                let name = agent.name().unwrap_or_else(|| agent.to_string());
                status.agents.push(AgentStatus {
                    name,
                    queued,
                    working,
                    redelivered,
                    ..AgentStatus::default()
                });
            }
        }
        status.streams.push(StreamStatus { name, messages: state.messages, bytes: state.bytes });
    }
    Ok(())
}

/// Reads the streams of a mesh, with the number of messages stored so far.
pub async fn read_streams(mesh: &Mesh) -> Result<Vec<StreamSample>, Failure> {
    let keeps_events = mesh.admin().layout().await?.keeps_events;
    let mut found = Vec::new();
    for kind in STREAMS.into_iter().filter(|kind| kind.kind != "EVENTS" || keeps_events) {
        let name = kind.name(mesh.namespace());
        let state = mesh.admin().stream_info(&name).await?.state;
        found.push(StreamSample {
            stream: kind.kind.to_lowercase(),
            last_sequence: state.last_sequence,
            bytes: state.bytes,
            messages: state.messages,
        });
    }
    Ok(found)
}

/// Adds the announced agents.
fn add_cards(cards: &sinew_mesh::card::Cards, status: &mut MeshStatus) {
    for announced in cards.list() {
        let name = &announced.card.name;
        let heard_ms = cards.age(name).map(|age| age.as_millis() as u64);
        let agent = status.agent(name);
        (agent.online, agent.heard_ms) = (true, heard_ms);
    }
}
