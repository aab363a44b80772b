//! Exposed agents and workflows as tools, prompts and resources of a host.

use percent_encoding::percent_decode_str;
use rmcp::model::{Prompt, PromptArgument, Resource, ResourceTemplate, Tool};
use serde_json::{Map, Value};
use sinew_protocol::a2a::{A2aError, AgentCard};
use sinew_protocol::card;
use sinew_protocol::mcp_offer::{McpOffer, OfferKind, is_resource_address};

use super::tool_list::{tool_name, tool_of};
use crate::operations::{A2aOperations, mesh_failed};

/// Maximum number of completions for a prompt argument.
const MAX_COMPLETIONS: usize = 100;

/// All offers, each kind sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OfferLists {
    pub(super) tools: Vec<Tool>,
    pub(super) prompts: Vec<Prompt>,
    pub(super) resources: Vec<Resource>,
    pub(super) templates: Vec<ResourceTemplate>,
}

/// A resource of an agent, found by its address.
#[derive(Debug)]
pub(super) struct OfferedResource {
    pub(super) card: AgentCard,
    pub(super) offer: McpOffer,
    /// Variables of the address: the agent's input.
    pub(super) variables: Map<String, Value>,
}

impl OfferLists {
    /// Returns the offers of these operations.
    pub(super) fn of(operations: &A2aOperations) -> Self {
        let mut cards = operations.listed();
        cards.sort_by_key(|card| tool_name(&card.name));
        let mut lists = Self::default();
        for card in &cards {
            let offer = McpOffer::of(card);
            match (offer.kind, &offer.uri) {
                (OfferKind::Tool, _) => lists.tools.push(tool_of(card)),
                (OfferKind::Prompt, _) => lists.prompts.push(prompt_of(card)),
                (OfferKind::Resource, Some(uri)) if !is_resource_address(uri) => {}
                (OfferKind::Resource, Some(uri)) if uri.contains('{') => {
                    let mut template = ResourceTemplate::new(uri.clone(), card.name.clone());
                    template.description = described(card);
                    template.mime_type = offer.media_type;
                    lists.templates.push(template);
                }
                (OfferKind::Resource, Some(uri)) => {
                    let mut resource = Resource::new(uri.clone(), card.name.clone());
                    resource.description = described(card);
                    resource.mime_type = offer.media_type;
                    lists.resources.push(resource);
                }
                (OfferKind::Resource, None) => {}
            }
        }
        lists
    }
}

/// Returns the card of the tool or prompt with this name.
pub(super) fn card_of(operations: &A2aOperations, kind: OfferKind, name: &str) -> Option<AgentCard> {
    operations.card_by_token(name).filter(|card| McpOffer::of(card).kind == kind)
}

/// Returns the card of the tool or prompt with this name; an error if the mesh is unreachable.
pub(super) async fn find_card(
    operations: &A2aOperations,
    kind: OfferKind,
    name: &str,
) -> Result<Option<AgentCard>, A2aError> {
    operations.find(|all| card_of(all, kind, name)).await.map_err(|error| mesh_failed(&error))
}

/// Like [`resource_at`], but returns an error if the mesh is unreachable.
pub(super) async fn find_resource(
    operations: &A2aOperations,
    address: &str,
) -> Result<Option<OfferedResource>, A2aError> {
    operations.find(|all| resource_at(all, address)).await.map_err(|error| mesh_failed(&error))
}

/// Returns the agent that offers the resource at an address; the first by name if there are
/// several.
fn resource_at(operations: &A2aOperations, address: &str) -> Option<OfferedResource> {
    let mut found: Vec<OfferedResource> = operations
        .offered()
        .into_iter()
        .filter_map(|card| {
            let offer = McpOffer::of(&card);
            let uri = offer.uri.as_deref().filter(|_| offer.kind == OfferKind::Resource)?;
            let variables = variables_of(uri, address)?;
            Some(OfferedResource { card, offer, variables })
        })
        .collect();
    found.sort_by(|a, b| a.card.name.cmp(&b.card.name));
    found.into_iter().next()
}

/// Returns the completions of a prompt argument, as its schema lists the values.
pub(super) fn completions_of(card: &AgentCard, argument: &str, begun: &str) -> Vec<String> {
    let property = card::input_schema(card).and_then(|schema| schema.get("properties")?.get(argument));
    let listed = property.into_iter().flat_map(|property| [property.get("enum"), property.get("examples")]);
    let values = listed.flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let mut values: Vec<String> =
        values.filter(|value| value.starts_with(begun)).map(str::to_owned).collect();
    values.dedup();
    values.truncate(MAX_COMPLETIONS);
    values
}

/// Parses the variables of a template from an address. Returns `None` if the address does not
/// match.
fn variables_of(template: &str, address: &str) -> Option<Map<String, Value>> {
    if !is_resource_address(template) || address.chars().any(char::is_control) {
        return None;
    }
    let mut variables = Map::new();
    let mut pieces = template.split('{');
    let mut rest = address.strip_prefix(pieces.next()?)?;
    for piece in pieces {
        let (name, after) = piece.split_once('}')?;
        let end = if after.is_empty() { rest.len() } else { rest.find(after)? };
        let (value, left) = rest.split_at(end);
        if value.is_empty() || value.contains(['/', '?', '#']) {
            return None;
        }
        let value = percent_decode_str(value).decode_utf8().ok()?;
        variables.insert(name.to_owned(), value.into_owned().into());
        rest = left.strip_prefix(after)?;
    }
    rest.is_empty().then_some(variables)
}

fn described(card: &AgentCard) -> Option<String> {
    Some(card.description.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Describes an agent as a prompt: the members of its input are the arguments.
fn prompt_of(card: &AgentCard) -> Prompt {
    let schema = card::input_schema(card);
    let required: Vec<&str> = schema
        .and_then(|schema| schema.get("required")?.as_array())
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    let arguments = properties.into_iter().flatten().map(|(name, property)| {
        let text = |member: &str| property.get(member).and_then(Value::as_str).map(str::to_owned);
        let mut argument = PromptArgument::new(name.clone()).with_required(required.contains(&name.as_str()));
        argument.title = text("title");
        argument.description = text("description");
        argument
    });
    let arguments: Vec<PromptArgument> = arguments.collect();
    let description = described(card).unwrap_or_else(|| card.name.clone());
    let arguments = Some(arguments).filter(|arguments| !arguments.is_empty());
    Prompt::new(tool_name(&card.name), Some(description), arguments).with_title(card.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sinew_protocol::card::Announcement;

    use super::*;

    #[test]
    fn addresses_fill_templates() {
        for (template, address, expected) in [
            ("notes://all", "notes://all", Some(json!({}))),
            ("notes://all", "notes://al", None),
            ("notes://{id}", "notes://7", Some(json!({"id": "7"}))),
            ("notes://{id}", "notes://a%20b", Some(json!({"id": "a b"}))),
            ("notes://{id}", "notes://", None),
            ("notes://{id}", "notes://a/b", None),
            ("t://x/{id}/data", "t://x/123/data", Some(json!({"id": "123"}))),
            ("t://x/{id}/data", "t://x/123/date", None),
            ("t://{a}-{b}", "t://1-2", Some(json!({"a": "1", "b": "2"}))),
            ("t://{a}", "t://%ff", None),
            ("file:///{a}", "file:///x", None),
        ] {
            let filled = variables_of(template, address).map(Value::Object);
            assert_eq!(filled, expected, "{template} {address}");
        }
    }

    #[test]
    fn the_input_of_a_prompt_is_its_arguments() {
        let schema = json!({
            "type": "object",
            "required": ["topic"],
            "properties": {"topic": {"description": "Subject", "enum": ["sea", "sky", "sand"]}, "tone": {}},
        });
        let card =
            Announcement { name: "poem".to_owned(), input_schema: Some(schema), ..Announcement::default() };
        let card = card.card("test");
        let shown = serde_json::to_value(prompt_of(&card)).unwrap();
        assert_eq!(
            shown["arguments"],
            json!([
                {"name": "topic", "description": "Subject", "required": true},
                {"name": "tone", "required": false},
            ])
        );
        assert_eq!(completions_of(&card, "topic", "s"), ["sea", "sky", "sand"]);
        assert_eq!(completions_of(&card, "topic", "sa"), ["sand"]);
        assert_eq!(completions_of(&card, "tone", ""), Vec::<String>::new());
    }
}
