//! Agents that are online, as their cards announce them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_mesh::card::{AnnouncedCard, Cards};
use sinew_protocol::a2a::AgentSkill;
use sinew_protocol::card;
use sinew_protocol::code;

use crate::failure::{Failure, FailureKind};

/// No agent of this name is on the mesh.
const NO_SUCH_AGENT: &str = code::NO_SUCH_AGENT.as_str();

/// One agent in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentRow {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `agent` or `workflow`.
    pub kind: &'static str,
    /// Purpose of the agent.
    pub description: String,
    /// Ids of its skills.
    pub skills: Vec<String>,
    /// Milliseconds since its last heartbeat.
    pub heartbeat_age_ms: u64,
}

/// One agent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentDetails {
    /// Its name.
    pub name: String,
    /// `agent` or `workflow`.
    pub kind: &'static str,
    /// Its version.
    pub version: String,
    /// Purpose of the agent.
    pub description: String,
    /// Its skills.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub skills: Vec<AgentSkill>,
    /// JSON Schema of its input; `None` for any JSON.
    pub input_schema: Option<Value>,
    /// JSON Schema of its output; `None` for any JSON.
    pub output_schema: Option<Value>,
    /// How tasks reach it: `queue` or `direct`.
    pub delivery: String,
    /// Milliseconds since its last heartbeat.
    pub heartbeat_age_ms: u64,
}

impl AgentRow {
    /// The rows of all agents that are online.
    pub fn all(cards: &Cards) -> Vec<Self> {
        cards.list().iter().map(|one| Self::of(cards, one)).collect()
    }

    fn of(cards: &Cards, announced: &AnnouncedCard) -> Self {
        let card = &announced.card;
        Self {
            name: card.name.clone(),
            version: card.version.clone(),
            kind: card::kind(card).word(),
            description: card.description.clone(),
            skills: card.skills.iter().map(|skill| skill.id.clone()).collect(),
            heartbeat_age_ms: heartbeat_age_ms(cards, &card.name),
        }
    }
}

impl AgentDetails {
    /// Details of an agent that is online.
    pub fn of(cards: &Cards, name: &str) -> Result<Self, Failure> {
        let announced = find_agent(cards, name)?;
        let card = &announced.card;
        Ok(Self {
            name: card.name.clone(),
            kind: card::kind(card).word(),
            version: card.version.clone(),
            description: card.description.clone(),
            skills: card.skills.clone(),
            input_schema: card::input_schema(card).cloned(),
            output_schema: card::output_schema(card).cloned(),
            delivery: format!("{:?}", card::delivery(card)).to_lowercase(),
            heartbeat_age_ms: heartbeat_age_ms(cards, name),
        })
    }
}

fn heartbeat_age_ms(cards: &Cards, name: &str) -> u64 {
    cards.age(name).unwrap_or_default().as_millis() as u64
}

/// Finds the card of an agent that is online. Nothing ever stands in for another.
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
