//! Status of a mesh: executors, shards, streams, agents and their queues, open executions. For
//! `top` and `doctor`.

use std::cmp::Reverse;

use sinew_documents::mesh::{AgentStatus, ExecutorStatus, MeshStatus, StreamStatus, WaitingExecution};
use sinew_inspection::view_context::MeshPresence;
use sinew_mesh::Mesh;
use sinew_mesh::fleet::Snapshot;
use sinew_mesh::task::QueueLength;
use sinew_protocol::card::{self, AgentKind};
use sinew_protocol::query::AN_OPERATOR;
use sinew_protocol::stream::STREAMS;
use sinew_runtime::local;

use crate::agent_list::offline_cards;
use crate::failure::Failure;
use crate::mesh_operator::status_of_word;
use crate::mesh_operator::{MeshOperator, waiting_for};
use crate::traffic_figures::StreamSample;

/// Maximum number of reported waiting executions.
const MAX_WAITING: usize = 10;

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
    let offline = offline_cards(mesh, cards).await?;
    for one in offline.iter().filter(|one| card::kind(&one.card) == AgentKind::Agent) {
        let agent = agent_of(&mut status, &one.card.name);
        agent.heard_ms = Some(one.age.as_millis() as u64);
    }
    let need = |agent: &AgentStatus| (agent.online, Reverse(agent.queued), agent.name.clone());
    status.agents.sort_by_key(need);
    Ok(status)
}

/// Returns the agent with this name, and adds it if necessary.
fn agent_of<'s>(status: &'s mut MeshStatus, name: &str) -> &'s mut AgentStatus {
    let agents = &mut status.agents;
    let at = agents.iter().position(|agent| agent.name == name).unwrap_or_else(|| {
        agents.push(AgentStatus { name: name.to_owned(), ..AgentStatus::default() });
        agents.len() - 1
    });
    &mut agents[at]
}

fn executors(seen: Snapshot, now: u64) -> Vec<ExecutorStatus> {
    let Snapshot { members, owners } = seen;
    // Shards in its last heartbeat may have another owner by now.
    let still_owned = |id: &str| owners.values().filter(|(owner, _)| owner.as_deref() == Some(id)).count();
    let mut found: Vec<ExecutorStatus> = members
        .into_iter()
        .map(|(id, member)| {
            let silent_ms = member.silence_ms(now);
            let shards = if silent_ms.is_some() { still_owned(&id) } else { member.beat.shards.len() };
            ExecutorStatus { id, version: member.beat.version, place: member.beat.place, shards, silent_ms }
        })
        .collect();
    found.sort_by_key(|executor| executor.silent_ms.is_none());
    found
}

/// Adds the open executions: their number by status, and those that wait.
async fn add_executions(
    remote: &MeshOperator,
    cards: &sinew_mesh::card::Cards,
    status: &mut MeshStatus,
) -> Result<(), Failure> {
    let presence = MeshPresence { agents: Some(MeshOperator::heartbeats(cards)), has_owner: None };
    let mut summaries = remote.client.open().await?;
    // An owner still reports executions that have just ended.
    summaries.retain(|summary| !summary.status.is_terminal());
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
        *status.executions.entry(status_of_word(summary.status.as_str()).as_str().to_owned()).or_default() +=
            1;
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

/// Adds the announced agents, and removes the queues of workflows, which executors empty.
fn add_cards(cards: &sinew_mesh::card::Cards, status: &mut MeshStatus) {
    let (workflows, agents): (Vec<_>, Vec<_>) =
        cards.list().into_iter().partition(|one| card::kind(&one.card) == AgentKind::Workflow);
    status.agents.retain(|agent| workflows.iter().all(|one| one.card.name != agent.name));
    for announced in agents {
        let name = &announced.card.name;
        let heard_ms = cards.age(name).map(|age| age.as_millis() as u64);
        let agent = agent_of(status, name);
        (agent.online, agent.heard_ms) = (true, heard_ms);
    }
}
