//! How a mesh stands: executors, shards, streams, agents and their queues, open executions. For `top` and `doctor`.

use sinew_protocol::code;
use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use serde::Serialize;
use sinew_executor::local;
use sinew_mesh::fleet::Snapshot;
use sinew_mesh::task::queue_name;
use sinew_protocol::Token;
use sinew_protocol::query::AN_OPERATOR;
use sinew_protocol::stream::STREAMS;

use crate::exit::{Exit, Failure};
use crate::remote::{Remote, waiting_for};
use crate::status_words::status_of_word;
use sinew_inspection::view_context::MeshPresence;

/// All of it, at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Status {
    pub(crate) namespace: String,
    pub(crate) shards: u32,
    /// Shards that some executor owns.
    pub(crate) owned: u32,
    pub(crate) executors: Vec<Executor>,
    /// Open executions by status.
    pub(crate) executions: BTreeMap<&'static str, usize>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) agents: Vec<Agent>,
    /// Cards that are refused.
    pub(crate) refused_cards: usize,
    /// Messages that were set aside.
    pub(crate) quarantined: u64,
    /// Open executions that wait for something, those that were started first; not all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waiting: Vec<WaitingExecution>,
    /// Open executions that no executor works on until an operator has looked at them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) set_aside: Vec<String>,
}

/// Waiting executions that are told.
const MAX_WAITING: usize = 10;

/// An open execution and what it waits for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WaitingExecution {
    pub(crate) execution: String,
    pub(crate) workflow: String,
    /// Milliseconds since it was started.
    pub(crate) age_ms: u64,
    pub(crate) waiting: String,
}

/// An executor.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Executor {
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) place: String,
    pub(crate) shards: usize,
}

/// A stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// An agent: its card, its queue, or both.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) online: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heard_ms: Option<u64>,
    /// Tasks that nobody has taken.
    pub(crate) queued: u64,
    /// Tasks that were taken and not answered.
    pub(crate) working: usize,
    /// Tasks that were taken more than once.
    pub(crate) redelivered: usize,
}

/// Looks at everything.
pub(crate) async fn status(remote: &Remote, cards: &sinew_mesh::card::Cards) -> Result<Status, Failure> {
    let mesh = remote.mesh();
    let layout = mesh.admin().layout().await?;
    let seen: Snapshot = mesh.fleet().look().await?;
    let mut status = Status {
        namespace: mesh.namespace().to_owned(),
        shards: layout.shards.get(),
        owned: seen.owners.values().filter(|(owner, _)| owner.is_some()).count() as u32,
        refused_cards: cards.refused().len(),
        ..Status::default()
    };
    status.executors = seen
        .members
        .into_iter()
        .map(|(id, member)| Executor {
            id,
            version: member.beat.version,
            place: member.beat.place,
            shards: member.beat.shards.len(),
        })
        .collect();
    let presence = MeshPresence { agents: Some(Remote::heartbeats(cards)), has_owner: None };
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
            });
        }
        if summary.waiting.as_deref().is_some_and(|waiting| waiting.starts_with(AN_OPERATOR)) {
            status.set_aside.push(summary.execution.to_string());
        }
        *status.executions.entry(status_of_word(summary.status.as_str()).as_str()).or_default() += 1;
    }
    let unseen = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(
            Exit::Failed,
            code::NATS_SERVER_REFUSED.as_str(),
            format!("cannot look at {what}: {error}"),
        )
    };
    let keeps_events = mesh.admin().layout().await?.keeps_events;
    for kind in STREAMS.into_iter().filter(|kind| kind.kind != "EVENTS" || keeps_events) {
        let name = kind.name(mesh.namespace());
        let stream =
            mesh.admin().jetstream().get_stream(&name).await.map_err(|error| unseen(&name, &error))?;
        let state = stream.cached_info().state.clone();
        if kind.kind == "QUARANTINE" {
            status.quarantined = state.messages;
        }
        if kind.kind == "TASKS" {
            let mut consumers = stream.consumers();
            while let Some(found) = consumers.next().await {
                let queue = found.map_err(|error| unseen(&name, &error))?;
                if let Some(token) =
                    queue.name.strip_prefix("agent-").and_then(|token| Token::parse(token).ok())
                    && queue_name(&token) == queue.name
                {
                    status.agents.push(Agent {
                        name: token.name().unwrap_or_else(|| token.to_string()),
                        queued: queue.num_pending,
                        working: queue.num_ack_pending,
                        redelivered: queue.num_redelivered,
                        ..Agent::default()
                    });
                }
            }
        }
        status.streams.push(Stream { name, messages: state.messages, bytes: state.bytes });
    }
    for announced in cards.list() {
        let name = &announced.card.name;
        let heard_ms = cards.age(name).map(|age| age.as_millis() as u64);
        match status.agents.iter_mut().find(|agent| agent.name == *name) {
            Some(agent) => (agent.online, agent.heard_ms) = (true, heard_ms),
            None => {
                status.agents.push(Agent { name: name.clone(), online: true, heard_ms, ..Agent::default() });
            }
        }
    }
    status.agents.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(status)
}
