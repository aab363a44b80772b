//! Agents of a mesh, from their cards: online ones, and offline ones that were not retired.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use sinew_documents::agent::{AgentDetails, AgentRow, AgentState};
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::words;
use sinew_inspection::list::RowFilter;
use sinew_mesh::Mesh;
use sinew_mesh::card::{AnnouncedCard, Cards, OfflineCard};
use sinew_mesh::task::QueueLength;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card::{self, AgentKind, CARD_LATE_AFTER, CARD_TTL};
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::{Token, code};

use crate::execution_list::{ListDepth, RestOfList};
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::{MeshOperator, RowDetails};

/// The mesh has no agent with this name.
pub(crate) const NO_SUCH_AGENT: &str = code::NO_SUCH_AGENT.as_str();

/// Maximum number of failed executions searched for those of an agent.
const SEARCHED_FAILURES: usize = 50;
/// Maximum number of an agent's errors.
const MAX_ERRORS: usize = 10;

/// Returns the state of an online agent. Executors announce workflows infrequently.
fn state_of_online(card: &AgentCard, age: Duration) -> AgentState {
    let is_late = age > CARD_LATE_AFTER && card::kind(card) == AgentKind::Agent;
    if is_late { AgentState::Late } else { AgentState::Online }
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
    }
}

/// Lists all agents by name, including offline ones that were not retired.
pub async fn list_agents(mesh: &Mesh, cards: &Cards) -> Result<Vec<AgentRow>, Failure> {
    let queues = queued_tasks(mesh).await?;
    let mut rows: Vec<AgentRow> = cards.list().iter().map(|one| online_row(cards, one, &queues)).collect();
    let offline = offline_cards(mesh, cards).await?;
    rows.extend(offline.iter().map(|one| agent_row(&one.card, AgentState::Offline, one.age, &queues)));
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

impl MeshOperator {
    /// Returns the latest executions that failed because of an agent, among those that match
    /// `visible`.
    pub async fn agent_errors(&self, agent: &str, visible: RowFilter) -> Result<Vec<ExecutionRow>, Failure> {
        let failed = RowFilter { status: vec![ExecutionStatus::Failure], ..visible };
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
    let (card, state, age) = match find_agent(cards, name) {
        Ok(announced) => {
            let age = cards.age(name).unwrap_or_default();
            let state = state_of_online(&announced.card, age);
            (announced.card.clone(), state, age)
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
