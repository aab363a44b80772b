//! What is indexed of an entry, and within which limits.

use serde_json::Value;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card;
use sinew_protocol::catalogue::{Catalogue, Stage};

/// Maximum length of an indexed text in characters.
const MAX_TEXT_CHARS: usize = 1_024;
/// Maximum number of examples.
const MAX_EXAMPLES: usize = 5;
/// Maximum number of tags and aliases.
const MAX_TAGS: usize = 16;
/// Maximum number of skills whose texts are indexed.
const MAX_SKILLS: usize = 32;
/// Depth to which properties of the input are indexed.
const PARAMETER_DEPTH: usize = 3;
/// Maximum number of parameters.
const MAX_PARAMETERS: usize = 64;

/// Part of an entry in which a word was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Name of the entry and of its skills.
    Name,
    /// Example requests.
    Example,
    /// Tags and aliases.
    Tag,
    /// Descriptions.
    Description,
    /// Names and descriptions of the input's properties.
    Parameter,
}

impl Field {
    /// Every field, in the order of their indices.
    pub(crate) const ALL: [Self; 5] =
        [Self::Name, Self::Example, Self::Tag, Self::Description, Self::Parameter];

    /// Weight of an occurrence.
    pub(crate) const fn weight(self) -> f64 {
        match self {
            Self::Name => 2.5,
            Self::Example | Self::Tag => 0.8,
            Self::Description => 1.0,
            Self::Parameter => 0.4,
        }
    }

    /// Name of the field in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Example => "example",
            Self::Tag => "tag",
            Self::Description => "description",
            Self::Parameter => "parameter",
        }
    }
}

/// A skill of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillText {
    /// Identifier of the skill, by which hits name it.
    pub id: String,
    /// Name of the skill.
    pub name: String,
    /// Purpose of the skill.
    pub description: String,
}

/// An agent or a workflow, as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchDocument {
    /// Name of the agent, unique in an index.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// Keywords.
    pub tags: Vec<String>,
    /// Example requests.
    pub examples: Vec<String>,
    /// Purpose of the entry.
    pub description: String,
    /// Skills of the entry.
    pub skills: Vec<SkillText>,
    /// Names and descriptions of the properties of its input.
    pub parameters: Vec<(String, String)>,
    /// Maturity of the entry.
    pub stage: Stage,
    /// Whether the entry precedes others of the same score.
    pub pinned: bool,
}

impl SearchDocument {
    /// Returns the texts of a card: its name, skills, catalogue attributes and the properties of its
    /// input.
    pub fn of(card: &AgentCard) -> Self {
        let Catalogue { aliases, examples, stage, .. } = Catalogue::of(card);
        let skills = || card.skills.iter();
        let of_skills = skills().flat_map(|skill| skill.examples.iter().flatten()).cloned();
        Self {
            name: card.name.clone(),
            aliases,
            tags: skills().flat_map(|skill| skill.tags.iter()).cloned().collect(),
            examples: examples.into_iter().chain(of_skills).collect(),
            description: card.description.clone(),
            skills: skills()
                .map(|skill| SkillText {
                    id: skill.id.clone(),
                    name: skill.name.clone(),
                    description: skill.description.clone(),
                })
                .collect(),
            parameters: card::input_schema(card).map(parameters_of).unwrap_or_default(),
            stage,
            pinned: false,
        }
    }

    /// Returns the indexed texts of the entry, each with its field.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (Field, &str)> {
        let skills = || self.skills.iter().take(MAX_SKILLS);
        let name = std::iter::once(self.name.as_str()).chain(
            skills().flat_map(|skill| [skill.id.as_str(), &skill.name]).filter(|name| *name != self.name),
        );
        let tags = self.aliases.iter().take(MAX_TAGS).chain(self.tags.iter().take(MAX_TAGS));
        let description = std::iter::once(self.description.as_str())
            .chain(skills().map(|skill| skill.description.as_str()).filter(|text| *text != self.description));
        let parameters = self.parameters.iter().take(MAX_PARAMETERS);
        name.map(|text| (Field::Name, text))
            .chain(self.examples.iter().take(MAX_EXAMPLES).map(|text| (Field::Example, text.as_str())))
            .chain(tags.map(|text| (Field::Tag, text.as_str())))
            .chain(description.map(|text| (Field::Description, text)))
            .chain(
                parameters
                    .flat_map(|(name, text)| [(Field::Parameter, name.as_str()), (Field::Parameter, text)]),
            )
            .map(|(field, text)| (field, shortened(text)))
    }

    /// Returns the skills of an entry that has several; a single skill needs no name in a hit.
    pub(crate) fn several_skills(&self) -> &[SkillText] {
        if self.skills.len() < 2 { &[] } else { &self.skills[..self.skills.len().min(MAX_SKILLS)] }
    }
}

/// Returns the names and descriptions of the properties of an input schema, nested ones included.
pub fn parameters_of(schema: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    add_parameters(schema, PARAMETER_DEPTH, &mut found);
    found
}

/// Adds the properties of a schema, with those of its members down to a depth.
fn add_parameters(schema: &Value, depth: usize, found: &mut Vec<(String, String)>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if found.len() >= MAX_PARAMETERS {
            return;
        }
        let description = property.get("description").and_then(Value::as_str).unwrap_or_default();
        found.push((name.clone(), description.to_owned()));
        if depth > 1 {
            add_parameters(property, depth - 1, found);
        }
    }
}

/// Returns the indexed part of a text.
pub(crate) fn shortened(text: &str) -> &str {
    text.char_indices().nth(MAX_TEXT_CHARS).map_or(text, |(end, _)| &text[..end])
}
