//! Offers of agents to MCP hosts: the kind of the offer, and its requirements.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::a2a::{AgentCard, AgentExtension, Message, Part, part_data};
use crate::card::extension_params;

/// URI of the extension. On a card, its parameters are a [`McpOffer`]. On a message of a task, it
/// marks a data part with requests to the client of a host ([`client_requests`]) or responses
/// ([`client_responses`]).
pub const MCP_EXTENSION: &str = "https://github.com/sinew-mesh/sinew/a2a/extensions/mcp/v1";

/// Maximum length of a resource address, in bytes.
const MAX_ADDRESS_BYTES: usize = 1_024;
/// Field of a data part: requests to the client, by key.
const REQUESTS: &str = "inputRequests";
/// Field of a data part: responses of the client, by key.
const RESPONSES: &str = "inputResponses";

/// Kind of offer of an agent to hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfferKind {
    /// A tool that models call.
    #[default]
    Tool,
    /// A prompt that users choose: its arguments are the input, its messages the output.
    Prompt,
    /// A resource: the variables of its address are the input, its content is the output.
    Resource,
}

/// Ability of a client that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAbility {
    /// The client shows forms to its user.
    Elicitation,
    /// The client provides its language model.
    Sampling,
    /// The client lists the folders that its user works in.
    Roots,
}

/// When calls become tasks of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskSupport {
    /// For clients that support tasks.
    #[default]
    Optional,
    /// Always: clients without support for tasks are rejected.
    Required,
}

/// Offer of an agent to hosts. The default is a tool without requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpOffer {
    /// Kind of the offer.
    #[serde(default, rename = "as")]
    pub kind: OfferKind,
    /// Address of a resource, or a URI template with variables in braces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Media type of a resource whose content has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Abilities that a client must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<ClientAbility>,
    /// When calls become tasks.
    #[serde(default)]
    pub tasks: TaskSupport,
}

impl McpOffer {
    /// Returns the offer of a card. A card without a valid offer offers a tool.
    pub fn of(card: &AgentCard) -> Self {
        let params = extension_params(card, MCP_EXTENSION);
        params.and_then(|params| Self::deserialize(params).ok()).unwrap_or_default()
    }

    /// Returns the offer as an extension of a card; `None` for the default.
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

/// Returns the requests to the client of a host in a message of a task, by key: each has `method`
/// and `params` as in MCP. Returns `None` if the message has no such requests.
pub fn client_requests(message: &Message) -> Option<&Map<String, Value>> {
    member_of(message, REQUESTS)
}

/// Returns the responses of a client in a message to a task, by the keys of the requests.
pub fn client_responses(message: &Message) -> Option<&Map<String, Value>> {
    member_of(message, RESPONSES)
}

/// Creates the part with a client's responses. The message must list [`MCP_EXTENSION`] among its
/// extensions.
pub fn responses_part(responses: &Map<String, Value>) -> Part {
    Part::data(json!({ RESPONSES: responses }))
}

/// Creates the part with requests to a client. The message must list [`MCP_EXTENSION`] among its
/// extensions.
pub fn requests_part(requests: &Map<String, Value>) -> Part {
    Part::data(json!({ REQUESTS: requests }))
}

/// Returns whether a string is a valid address of an agent's resource: a scheme that no other
/// resource of a mesh has, and variables that are names in braces, separated by other characters.
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
        // Two adjacent variables cannot be distinguished.
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
