//! The rules that a card must satisfy before it is shown.
//!
//! A card is text from a peer that reaches terminals, logs and prompts of language models. Its name
//! must be the one that its publisher is permitted to use, and its schemas must be usable; its
//! texts are truncated and stripped of control characters.

use std::collections::HashSet;

use serde_json::Value;
use sinew_protocol::Token;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card::{SCHEMAS, extension_params};
use sinew_protocol::unique_keys::read_unique;
use sinew_source::Schema;

/// Maximum size of a card, in bytes.
pub const LARGEST_CARD: usize = 64 << 10;
/// Maximum number of skills on a card.
pub const MOST_SKILLS: usize = 100;
/// Maximum number of extensions, interfaces, tags of a skill, examples and modes, each.
pub const MOST_ENTRIES: usize = 64;
/// Maximum length of an agent name, in bytes.
pub const LONGEST_NAME: usize = 255;
/// Maximum length of a version, id, tag, mode or binding, in bytes.
const LONGEST_WORD: usize = 256;
/// Maximum length of an address, in bytes.
const LONGEST_ADDRESS: usize = 2048;
/// Descriptions are truncated to this many characters, because prompts and tables include them.
pub const LONGEST_TEXT: usize = 4096;

/// The rule that a card breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCard {
    /// The card exceeds the maximum size.
    #[error("it has {0} bytes; the limit is {LARGEST_CARD}")]
    Size(usize),
    /// The card is not valid JSON, repeats a member, or is nested too deeply.
    #[error("it is not valid JSON: {0}")]
    Json(String),
    /// The JSON is not an A2A agent card.
    #[error("it is not an A2A agent card: {0}")]
    Form(String),
    /// The card was published under another agent's subject.
    #[error("it names {name:?}, whose token is {token}, but the subject belongs to another agent")]
    Name {
        /// The name on the card.
        name: String,
        /// Its token.
        token: String,
    },
    /// A required field is empty.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// A list exceeds its limit.
    #[error("{field} has {found} entries; the limit is {limit}")]
    Many {
        /// The list.
        field: &'static str,
        /// Its length.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A text exceeds its maximum length.
    #[error("{field} has {found} bytes; the limit is {limit}")]
    Long {
        /// The field.
        field: &'static str,
        /// Its length.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// An identifier contains control characters; it cannot be cleaned, because it is compared.
    #[error("{0} contains control characters")]
    Control(&'static str),
    /// Two entries that must differ are equal.
    #[error("duplicate {field} {value:?}")]
    Twice {
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// A schema is unusable.
    #[error("{which} cannot be used: {reason}")]
    Schema {
        /// `input_schema` or `output_schema`.
        which: &'static str,
        /// The reason.
        reason: String,
    },
}

/// Parses, checks and cleans a card; `agent` is the token of the subject that it was published on.
pub fn check(agent: &Token, body: &[u8]) -> Result<AgentCard, BadCard> {
    if body.len() > LARGEST_CARD {
        return Err(BadCard::Size(body.len()));
    }
    let mut value: Value = read_unique(body).map_err(|error| BadCard::Json(error.to_string()))?;
    if value.get("name").and_then(Value::as_str).is_some_and(|name| name.chars().any(steers)) {
        return Err(BadCard::Control("name"));
    }
    clean(&mut value)?;
    let mut card: AgentCard =
        serde_json::from_value(value).map_err(|error| BadCard::Form(brief(&error.to_string())))?;
    named(agent, &card)?;
    limits(&card)?;
    schemas(&card)?;
    shorten(&mut card);
    Ok(card)
}

fn named(agent: &Token, card: &AgentCard) -> Result<(), BadCard> {
    if card.name.trim().is_empty() {
        return Err(BadCard::Empty("name"));
    }
    long("name", &card.name, LONGEST_NAME)?;
    let token = Token::of(&card.name);
    if token == *agent {
        return Ok(());
    }
    Err(BadCard::Name { name: card.name.clone(), token: token.to_string() })
}

fn limits(card: &AgentCard) -> Result<(), BadCard> {
    if card.version.trim().is_empty() {
        return Err(BadCard::Empty("version"));
    }
    long("version", &card.version, LONGEST_WORD)?;
    if card.supported_interfaces.is_empty() && card.url.is_none() {
        return Err(BadCard::Empty("supportedInterfaces"));
    }
    many("supportedInterfaces", card.supported_interfaces.len(), MOST_ENTRIES)?;
    for interface in &card.supported_interfaces {
        long("supportedInterfaces.url", &interface.url, LONGEST_ADDRESS)?;
        long("supportedInterfaces.protocolBinding", &interface.protocol_binding, LONGEST_WORD)?;
        long("supportedInterfaces.protocolVersion", &interface.protocol_version, LONGEST_WORD)?;
    }
    let addresses =
        [("url", &card.url), ("documentationUrl", &card.documentation_url), ("iconUrl", &card.icon_url)];
    for (field, address) in addresses {
        long(field, address.as_deref().unwrap_or_default(), LONGEST_ADDRESS)?;
    }
    modes("defaultInputModes", &card.default_input_modes)?;
    modes("defaultOutputModes", &card.default_output_modes)?;
    let extensions = card.capabilities.extensions.as_deref().unwrap_or_default();
    many("capabilities.extensions", extensions.len(), MOST_ENTRIES)?;
    let mut uris = HashSet::new();
    for extension in extensions {
        long("capabilities.extensions.uri", &extension.uri, LONGEST_ADDRESS)?;
        // Readers use the first extension with a URI, so a duplicate would show different content
        // to others.
        if !uris.insert(extension.uri.as_str()) {
            return Err(BadCard::Twice { field: "extension", value: extension.uri.clone() });
        }
    }
    skills(card)
}

fn skills(card: &AgentCard) -> Result<(), BadCard> {
    many("skills", card.skills.len(), MOST_SKILLS)?;
    let mut ids = HashSet::new();
    for skill in &card.skills {
        if skill.id.trim().is_empty() {
            return Err(BadCard::Empty("skills.id"));
        }
        long("skills.id", &skill.id, LONGEST_WORD)?;
        long("skills.name", &skill.name, LONGEST_WORD)?;
        modes("skills.tags", &skill.tags)?;
        modes("skills.inputModes", skill.input_modes.as_deref().unwrap_or_default())?;
        modes("skills.outputModes", skill.output_modes.as_deref().unwrap_or_default())?;
        many("skills.examples", skill.examples.as_ref().map_or(0, Vec::len), MOST_ENTRIES)?;
        if !ids.insert(skill.id.as_str()) {
            return Err(BadCard::Twice { field: "skill", value: skill.id.clone() });
        }
    }
    Ok(())
}

fn schemas(card: &AgentCard) -> Result<(), BadCard> {
    let Some(params) = extension_params(card, SCHEMAS) else { return Ok(()) };
    if !params.is_object() {
        return Err(BadCard::Form("the parameters of the schema extension are not an object".to_owned()));
    }
    for which in ["input_schema", "output_schema"] {
        let Some(schema) = params.get(which).filter(|schema| !schema.is_null()) else { continue };
        if !schema.is_object() {
            return Err(BadCard::Schema { which, reason: "it is not an object".to_owned() });
        }
        Schema::compile(schema).map_err(|error| BadCard::Schema {
            which,
            reason: brief(&format!("{error} ({})", error.code())),
        })?;
    }
    Ok(())
}

fn modes(field: &'static str, words: &[String]) -> Result<(), BadCard> {
    many(field, words.len(), MOST_ENTRIES)?;
    words.iter().try_for_each(|word| long(field, word, LONGEST_WORD))
}

fn many(field: &'static str, found: usize, limit: usize) -> Result<(), BadCard> {
    if found > limit { Err(BadCard::Many { field, found, limit }) } else { Ok(()) }
}

fn long(field: &'static str, text: &str, limit: usize) -> Result<(), BadCard> {
    if text.len() > limit { Err(BadCard::Long { field, found: text.len(), limit }) } else { Ok(()) }
}

/// Truncates texts for people and models; texts that are compared were already checked.
fn shorten(card: &mut AgentCard) {
    cut(&mut card.description);
    for skill in &mut card.skills {
        cut(&mut skill.description);
        skill.examples.iter_mut().flatten().for_each(cut);
    }
    for extension in card.capabilities.extensions.iter_mut().flatten() {
        extension.description.iter_mut().for_each(cut);
    }
}

fn cut(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(at);
        text.push('…');
    }
}

/// Removes control characters from every text; rejects member names that contain them.
fn clean(value: &mut Value) -> Result<(), BadCard> {
    match value {
        Value::String(text) if text.chars().any(steers) => text.retain(|c| !steers(c)),
        Value::Array(items) => items.iter_mut().try_for_each(clean)?,
        Value::Object(members) => {
            for (key, member) in members {
                if key.chars().any(steers) {
                    return Err(BadCard::Control("the name of a member"));
                }
                clean(member)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns whether a character is a control character (except line break and tab), a bidirectional
/// control or invisible.
fn steers(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
        || matches!(c, '\u{E0000}'..='\u{E007F}')
}

fn brief(text: &str) -> String {
    text.chars().filter(|c| !steers(*c)).take(300).collect()
}
