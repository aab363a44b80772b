//! Offers of agents to hosts of the Model Context Protocol: the kind of the offer, and its
//! requirements.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::a2a::{AgentCard, AgentExtension, Message, Part, part_data};
use crate::card::extension_params;

/// URI of the extension. On a card its parameters are a [`McpOffer`]; on a message of a task it says that a data part asks
/// the client of a host ([`client_requests`]), or answers ([`client_responses`]).
pub const MCP_EXTENSION: &str = "https://github.com/sinew-mesh/sinew/a2a/extensions/mcp/v1";

/// Bytes of the longest address of a resource.
const MAX_ADDRESS_BYTES: usize = 1_024;
/// Member of a data part: requests to the client, by key.
const REQUESTS: &str = "inputRequests";
/// Member of a data part: answers of the client, by key.
const RESPONSES: &str = "inputResponses";

/// Kind of thing that an agent is for hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfferKind {
    /// A tool that models call.
    #[default]
    Tool,
    /// A prompt that users choose: the input is its arguments, the output its messages.
    Prompt,
    /// A resource that is read: the variables of its address are the input, the output is its content.
    Resource,
}

/// Ability of a client that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAbility {
    /// Its user fills forms.
    Elicitation,
    /// It lends its language model.
    Sampling,
    /// It names the folders that its user works in.
    Roots,
}

/// Whether calls become tasks of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskSupport {
    /// For clients that keep tasks.
    #[default]
    Optional,
    /// Always: clients that keep no tasks are refused.
    Required,
}

/// An offer of an agent to hosts. The usual one is a tool without further needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpOffer {
    /// Kind of thing that the agent is.
    #[serde(default, rename = "as")]
    pub kind: OfferKind,
    /// Address of a resource, or a template with variables in braces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Media type of a resource whose content does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Abilities without which clients are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<ClientAbility>,
    /// Whether calls become tasks.
    #[serde(default)]
    pub tasks: TaskSupport,
}

impl McpOffer {
    /// The offer of a card. A card without one, or with one that cannot be read, offers a tool.
    pub fn of(card: &AgentCard) -> Self {
        let params = extension_params(card, MCP_EXTENSION);
        params.and_then(|params| Self::deserialize(params).ok()).unwrap_or_default()
    }

    /// The offer as an extension of a card; `None` for the usual one.
    pub fn to_extension(&self) -> Option<AgentExtension> {
        if *self == Self::default() {
            return None;
        }
        let mut extension = AgentExtension::new(MCP_EXTENSION);
        extension.description = Some("Offer to hosts of the Model Context Protocol.".to_owned());
        extension.params = serde_json::to_value(self).ok();
        Some(extension)
    }
}

/// Requests to the client of a host that a message of a task holds, by key: each has `method` and `params`, as the protocol
/// has them. `None` for a message that asks in its own words.
pub fn client_requests(message: &Message) -> Option<&Map<String, Value>> {
    member_of(message, REQUESTS)
}

/// Answers of a client that a message to a task holds, by the keys of the requests.
pub fn client_responses(message: &Message) -> Option<&Map<String, Value>> {
    member_of(message, RESPONSES)
}

/// The part of a message to a task with a client's answers. The message names [`MCP_EXTENSION`] among its extensions.
pub fn responses_part(responses: &Map<String, Value>) -> Part {
    Part::data(json!({ RESPONSES: responses }))
}

/// The part of a message with requests to a client. The message names [`MCP_EXTENSION`] among its extensions.
pub fn requests_part(requests: &Map<String, Value>) -> Part {
    Part::data(json!({ REQUESTS: requests }))
}

/// Whether a text is the address of a resource that an agent may offer: a scheme that no other resource of a mesh has, and
/// variables that are names in braces, each for itself between other characters.
pub fn is_resource_address(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    let is_plain =
        |text: &str| !text.contains(['{', '}']) && !text.chars().any(|c| c.is_control() || c == ' ');
    let is_name = |name: &str| {
        !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut pieces = rest.split('{');
    let begins_plain = pieces.next().is_some_and(is_plain);
    let mut variables: Vec<&str> = Vec::new();
    for piece in pieces {
        let Some((name, after)) = piece.split_once('}') else { return false };
        // Two variables side by side cannot be told apart.
        let is_adjacent = after.is_empty() && !text.ends_with(&format!("{{{name}}}"));
        if !is_name(name) || !is_plain(after) || is_adjacent || variables.contains(&name) {
            return false;
        }
        variables.push(name);
    }
    let is_reserved = matches!(scheme, "sinew" | "artifact" | "file" | "http" | "https");
    text.len() <= MAX_ADDRESS_BYTES && is_scheme && !is_reserved && !rest.is_empty() && begins_plain
}

fn member_of<'a>(message: &'a Message, name: &str) -> Option<&'a Map<String, Value>> {
    let mut extensions = message.extensions.iter().flatten();
    if !extensions.any(|extension| extension == MCP_EXTENSION) {
        return None;
    }
    message.parts.iter().filter_map(part_data).find_map(|data| data.get(name)?.as_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::Announcement;

    #[test]
    fn offers_are_read_back_from_cards() {
        let prompt = McpOffer { kind: OfferKind::Prompt, ..McpOffer::default() };
        let resource = McpOffer {
            kind: OfferKind::Resource,
            uri: Some("notes://{id}".to_owned()),
            media_type: Some("text/plain".to_owned()),
            ..McpOffer::default()
        };
        let tool = McpOffer {
            needs: vec![ClientAbility::Sampling],
            tasks: TaskSupport::Required,
            ..McpOffer::default()
        };
        for offer in [McpOffer::default(), prompt, resource, tool] {
            let announced =
                Announcement { name: "a".to_owned(), offer: offer.clone(), ..Announcement::default() };
            let card = announced.card("test");
            assert_eq!(McpOffer::of(&card), offer);
            let names_it = card.capabilities.extensions.iter().flatten().any(|it| it.uri == MCP_EXTENSION);
            assert_eq!(names_it, offer != McpOffer::default());
        }
    }

    #[test]
    fn addresses_have_schemes_and_named_variables() {
        for good in ["notes://all", "notes://{id}", "test://template/{id}/data", "a+b-c.1://x/{a}-{b}"] {
            assert!(is_resource_address(good), "{good}");
        }
        let long = format!("notes://{}", "x".repeat(2_000));
        for bad in [
            "",
            "notes",
            "notes://",
            "sinew://tasks/{id}",
            "file:///etc/passwd",
            "http://a",
            "Notes://a",
            "notes://{",
            "notes://}",
            "notes://{}",
            "notes://{a}{b}",
            "notes://{a}/{a}",
            "notes://{a b}",
            "notes://a b",
            "notes://a\nb",
            "://a",
            &long,
        ] {
            assert!(!is_resource_address(bad), "{bad}");
        }
    }

    #[test]
    fn unreadable_offers_are_tools() {
        for params in [json!(null), json!({"as": "door"}), json!({"as": "prompt", "needs": ["wings"]})] {
            let mut card = Announcement::default().card("test");
            let mut extension = AgentExtension::new(MCP_EXTENSION);
            extension.params = Some(params);
            card.capabilities.extensions = Some(vec![extension]);
            assert_eq!(McpOffer::of(&card), McpOffer::default());
        }
    }

    #[test]
    fn requests_stand_in_messages_that_name_the_extension() {
        let requests = Map::from_iter([("name".to_owned(), json!({"method": "roots/list"}))]);
        let message = Message::agent("m", vec![Part::text("Who?"), requests_part(&requests)]);
        assert_eq!(client_requests(&message), None);
        let named = message.with_extensions([MCP_EXTENSION]);
        assert_eq!(client_requests(&named), Some(&requests));
        assert_eq!(client_responses(&named), None);
        let answer = Message::user("m", vec![responses_part(&requests)]).with_extensions([MCP_EXTENSION]);
        assert_eq!(client_responses(&answer), Some(&requests));
    }
}
