//! Agents of a mesh, from their cards: online ones, and offline ones that were not retired.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use schemars::JsonSchema;
use serde::Serialize;
use sinew_documents::agent::{AgentDetails, AgentLoad, AgentProcess, AgentRow, AgentState};
use sinew_documents::execution_filter::ExecutionFilter;
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::words;
use sinew_mesh::Mesh;
use sinew_mesh::card::{AnnouncedCard, Cards, OfflineCard};
use sinew_mesh::task::QueueLength;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card::{self, AgentKind, CARD_LATE_AFTER, CARD_TTL};
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::{Token, code};

use crate::agent_service::{ask_processes, may_ask_processes};
use crate::catalogue::{CatalogueQuery, selected_names};
use crate::catalogue_records::RecordSet;
use crate::execution_list::{ListDepth, RestOfList};
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::{MeshOperator, RowDetails};

/// The mesh has no agent with this name.
pub(crate) const NO_SUCH_AGENT: &str = code::NO_SUCH_AGENT.as_str();

/// Maximum number of failed executions searched for those of an agent.
const SEARCHED_FAILURES: usize = 50;
/// Maximum number of an agent's errors.
const MAX_ERRORS: usize = 10;
/// Number of agents whose processes are queried concurrently.
const AT_ONCE: usize = 16;
/// Number of queries for the confirmation of a changed intake; each waits for the processes to respond.
const CONFIRMATIONS: usize = 10;

/// Returns the state of an online agent. Executors announce workflows infrequently.
fn state_of_online(card: &AgentCard, age: Duration) -> AgentState {
    let is_late = age > CARD_LATE_AFTER && card::kind(card) == AgentKind::Agent;
    if is_late { AgentState::Late } else { AgentState::Online }
}

/// Result of stopping or resuming the intake of an agent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentIntake {
    /// Name of the agent.
    pub name: String,
    /// `draining` or `resumed`.
    pub status: &'static str,
    /// Ids of the processes that confirmed it.
    pub processes: Vec<String>,
    /// Number of tasks that these processes still work on.
    pub working: u64,
}

/// Retired agent. It is removed from lists.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RetiredAgent {
    /// Name of the agent.
    pub name: String,
    /// `retired`.
    pub status: &'static str,
}

/// Returns the rows of all online agents, without their queues.
pub fn online_rows(cards: &Cards) -> Vec<AgentRow> {
    let none = BTreeMap::new();
    cards.list().iter().map(|one| online_row(cards, one, &none)).collect()
}

fn online_row(cards: &Cards, announced: &AnnouncedCard, queues: &BTreeMap<String, u64>) -> AgentRow {
    let age = cards.age(&announced.card.name).unwrap_or_default();
    agent_row(&announced.card, state_of_online(&announced.card, age), age, queues)
}

fn agent_row(card: &AgentCard, state: AgentState, age: Duration, queues: &BTreeMap<String, u64>) -> AgentRow {
    AgentRow {
        name: card.name.clone(),
        version: card.version.clone(),
        kind: card::kind(card),
        description: card.description.clone(),
        skills: card.skills.iter().map(|skill| skill.id.clone()).collect(),
        takes_text: card::takes_text(card),
        state,
        heartbeat_age_ms: age.as_millis() as u64,
        queued: queues.get(&card.name).copied(),
        work: None,
    }
}

/// Lists the agents, those that need attention first: offline, late and draining ones, then by the length
/// of the queue, then by name. Includes offline agents that were not retired, and no workflows.
pub async fn list_agents(mesh: &Mesh, cards: &Cards) -> Result<Vec<AgentRow>, Failure> {
    let queues = queued_tasks(mesh).await?;
    let online = cards.list();
    let online = online.iter().filter(|one| card::kind(&one.card) == AgentKind::Agent);
    let rows: Vec<AgentRow> = online.map(|one| online_row(cards, one, &queues)).collect();
    let working = futures_util::stream::iter(rows).map(|row| with_work(mesh, row));
    let mut rows: Vec<AgentRow> = working.buffered(AT_ONCE).collect().await;
    let offline = offline_cards(mesh, cards).await?;
    let offline = offline.iter().filter(|one| card::kind(&one.card) == AgentKind::Agent);
    rows.extend(offline.map(|one| agent_row(&one.card, AgentState::Offline, one.age, &queues)));
    rows.sort_by_key(need);
    Ok(rows)
}

/// Lists agents and workflows, which are called like agents, by name and without their work.
pub async fn list_callable(mesh: &Mesh, cards: &Cards) -> Result<Vec<AgentRow>, Failure> {
    let mut rows = online_rows(cards);
    let offline = offline_cards(mesh, cards).await?;
    let none = BTreeMap::new();
    rows.extend(offline.iter().map(|one| agent_row(&one.card, AgentState::Offline, one.age, &none)));
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// Returns the names of the agents and workflows that a query of the catalogue selects among those that the
/// caller may see, online or not.
pub async fn select_agents(
    mesh: &Mesh,
    cards: &Cards,
    (records, query): (&RecordSet, &CatalogueQuery),
    visible: impl Fn(&str) -> bool,
) -> Result<BTreeSet<String>, Failure> {
    let (online, offline) = (cards.list(), offline_cards(mesh, cards).await?);
    let all = online.iter().map(|one| one.card.clone()).chain(offline.into_iter().map(|one| one.card));
    Ok(selected_names(all.filter(|card| visible(&card.name)), records, query))
}

/// Fails unless an agent or workflow of this name is online, offline or deployed.
pub async fn find_entry(mesh: &Mesh, cards: &Cards, name: &str) -> Result<(), Failure> {
    let offline = || async {
        Ok::<_, Failure>(offline_cards(mesh, cards).await?.iter().any(|one| one.card.name == name))
    };
    if cards.get(name).is_some() || mesh.workflows().latest(name).await?.is_some() || offline().await? {
        return Ok(());
    }
    find_agent(cards, name).map(drop)
}

/// Returns the key by which lists are sorted: rows that need attention first.
fn need(row: &AgentRow) -> (u8, Reverse<u64>, String) {
    let state = match row.state {
        AgentState::Offline => 0,
        AgentState::Late => 1,
        AgentState::Draining => 2,
        AgentState::Online => 3,
    };
    (state, Reverse(row.queued.unwrap_or_default()), row.name.clone())
}

/// Adds the work that the processes of an agent report; the row stays as it is if they do not respond, or
/// the user may not query them.
async fn with_work(mesh: &Mesh, mut row: AgentRow) -> AgentRow {
    let processes = if may_ask_processes(mesh, &row.name).await {
        ask_processes(mesh, &row.name).await.unwrap_or_default()
    } else {
        Vec::new()
    };
    row.work = AgentLoad::of(&processes);
    row.state = with_draining(row.state, row.work.as_ref());
    row
}

fn with_draining(state: AgentState, work: Option<&AgentLoad>) -> AgentState {
    let drains = work.is_some_and(|work| work.draining == work.replicas);
    if drains && state == AgentState::Online { AgentState::Draining } else { state }
}

/// Stops the intake of an agent's processes, or resumes it, and waits until they confirm it: of all
/// processes, or of the one whose id begins with `process`. They finish the tasks that they have. The state is
/// not stored: a process that restarts takes tasks.
///
/// # Errors
/// Fails if the agent is offline or a workflow, no process has this id, or a process does not confirm the
/// change in time, because it is of an older version.
pub async fn set_intake(
    mesh: &Mesh,
    cards: &Cards,
    name: &str,
    process: Option<&str>,
    open: bool,
) -> Result<AgentIntake, Failure> {
    let announced = find_agent(cards, name)?;
    if card::kind(&announced.card) == AgentKind::Workflow {
        return Err(Failure::usage(format!("'{name}' is a workflow; pause it with `sinew workflow pause`")));
    }
    let found = ask_processes(mesh, name).await?;
    let is_meant = |one: &AgentProcess| process.is_none_or(|id| one.id.starts_with(id));
    let mut meant = found.iter().filter(|one| is_meant(one)).map(|one| one.id.clone());
    let one = match (process, meant.next(), meant.next()) {
        (Some(id), None, _) => {
            let ids: Vec<&str> = found.iter().map(|one| one.id.as_str()).collect();
            let text = format!("agent '{name}' has no process '{id}'");
            return Err(Failure::new(FailureKind::NotFound, NO_SUCH_AGENT, text)
                .hint(format!("processes: {}", ids.join(", "))));
        }
        (Some(id), Some(_), Some(_)) => {
            return Err(Failure::usage(format!(
                "several processes of '{name}' have an id that begins with {id}"
            )));
        }
        (Some(_), one, None) => one,
        (None, ..) => None,
    };
    mesh.tasks().control_intake(name, one.as_deref(), open).await?;
    for _ in 0..CONFIRMATIONS {
        let processes = ask_processes(mesh, name).await?;
        let meant: Vec<&AgentProcess> =
            processes.iter().filter(|process| one.as_ref().is_none_or(|id| process.id == *id)).collect();
        if !meant.is_empty() && meant.iter().all(|process| process.draining != open) {
            return Ok(AgentIntake {
                name: name.to_owned(),
                status: if open { "resumed" } else { "draining" },
                processes: meant.iter().map(|process| process.id.clone()).collect(),
                working: meant.iter().map(|process| process.working).sum(),
            });
        }
    }
    let text = format!("not all processes of agent '{name}' confirmed the change");
    Err(Failure::new(FailureKind::TimedOut, code::AGENT_INTAKE_UNCONFIRMED.as_str(), text)
        .hint("processes of older versions do not; see the processes with `sinew agent describe`"))
}

impl MeshOperator {
    /// Returns the latest executions that failed because of an agent, among those that match
    /// `visible`.
    pub async fn agent_errors(
        &self,
        agent: &str,
        visible: ExecutionFilter,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let failed = ExecutionFilter { status: vec![ExecutionStatus::Failure], ..visible };
        let depth = ListDepth {
            limit: SEARCHED_FAILURES,
            details: RowDetails::All,
            after: None,
            counts_rest: RestOfList::Dropped,
        };
        let mut errors = self.list(&failed, depth).await?;
        let call = card::agent_call(agent);
        errors.retain(|row| {
            let failed = row.fault.as_ref().and_then(|fault| fault.agent.as_deref());
            failed == Some(agent) || row.workflow == call
        });
        errors.truncate(MAX_ERRORS);
        Ok(errors)
    }
}

/// Describes a listed agent: online, or offline and not retired.
pub async fn describe_agent(mesh: &Mesh, cards: &Cards, name: &str) -> Result<AgentDetails, Failure> {
    let mut work = None;
    let (card, state, age) = match find_agent(cards, name) {
        Ok(announced) => {
            let age = cards.age(name).unwrap_or_default();
            let row = with_work(mesh, online_row(cards, &announced, &BTreeMap::new())).await;
            work = row.work;
            (announced.card.clone(), row.state, age)
        }
        Err(unknown) => {
            let offline = offline_card(mesh, cards, name).await?.ok_or(unknown)?;
            (offline.card, AgentState::Offline, offline.age)
        }
    };
    Ok(AgentDetails {
        kind: card::kind(&card),
        input_schema: card::input_schema(&card).cloned(),
        output_schema: card::output_schema(&card).cloned(),
        delivery: format!("{:?}", card::delivery(&card)).to_lowercase(),
        state,
        heartbeat_age_ms: age.as_millis() as u64,
        queued: queued_tasks(mesh).await?.remove(&card.name),
        name: card.name,
        version: card.version,
        description: card.description,
        skills: card.skills,
        work,
        last_errors: None,
    })
}

/// Removes an offline agent from the lists. It is listed again when it is announced again.
pub async fn retire_agent(mesh: &Mesh, cards: &Cards, name: &str) -> Result<RetiredAgent, Failure> {
    if let Ok(announced) = find_agent(cards, name) {
        let age = words::duration(cards.age(&announced.card.name).unwrap_or_default().as_millis() as u64);
        let text = format!("agent '{name}' is online: its last heartbeat was {age} ago");
        return Err(Failure::new(FailureKind::Conflict, code::AGENT_ONLINE.as_str(), text).hint(format!(
            "stop its processes; an agent that was killed is offline {} after its last heartbeat",
            words::duration(CARD_TTL.as_millis() as u64)
        )));
    }
    let offline = offline_card(mesh, cards, name).await?;
    let Some(OfflineCard { card, .. }) = offline else {
        let text = format!("no agent '{name}' is listed as offline");
        return Err(Failure::new(FailureKind::NotFound, NO_SUCH_AGENT, text)
            .hint("see `sinew agent list --mesh`; an agent that was shut down is not listed"));
    };
    mesh.cards().retire(&Token::of(&card.name)).await?;
    Ok(RetiredAgent { name: card.name, status: "retired" })
}

async fn offline_card(mesh: &Mesh, cards: &Cards, name: &str) -> Result<Option<OfflineCard>, Failure> {
    Ok(offline_cards(mesh, cards).await?.into_iter().find(|one| one.card.name == name))
}

/// Returns the offline agents; an empty list if the user may not read them.
pub(crate) async fn offline_cards(mesh: &Mesh, cards: &Cards) -> Result<Vec<OfflineCard>, Failure> {
    Ok(mesh.cards().offline(cards).await?)
}

/// Returns the number of queued tasks by agent; empty if the user may not see queues.
async fn queued_tasks(mesh: &Mesh) -> Result<BTreeMap<String, u64>, Failure> {
    if !mesh.tasks().may_see_queues().await? {
        return Ok(BTreeMap::new());
    }
    let lengths = mesh.tasks().queue_lengths(usize::MAX).await?;
    let named = |length: QueueLength| Some((length.agent.name()?, length.queued));
    Ok(lengths.into_iter().filter_map(named).collect())
}

/// Finds the card of an online agent by its exact name.
pub fn find_agent(cards: &Cards, name: &str) -> Result<Arc<AnnouncedCard>, Failure> {
    cards.get(name).ok_or_else(|| {
        let all = cards.list();
        let text = format!("no agent '{name}' is online");
        let failure = Failure::new(FailureKind::NotFound, NO_SUCH_AGENT, text);
        match sinew_source::did_you_mean(name, all.iter().map(|one| one.card.name.as_str())) {
            Some(near) => failure.hint(format!("did you mean '{near}'?")),
            None => failure.hint("see `sinew agent list --mesh`"),
        }
    })
}
