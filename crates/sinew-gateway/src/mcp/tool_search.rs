//! Search instead of long tool lists: `find_tools`, `describe_tool` and `call_tool`.
//!
//! A host pays for every tool of a list in every prompt. Above [`MAX_LISTED_TOOLS`] tools a list has
//! these three tools instead, which contain neither names nor numbers of the mesh, so the list, and
//! with it the prompt cache of the host, stays the same. Tools that are not listed can be called by
//! their names, with the same checks.

use std::sync::Arc;

use axum::http::Uri;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_operations::catalogue::{CatalogueKind, CatalogueQuery};
use sinew_protocol::access::matches_pattern;
use sinew_protocol::catalogue::Stage;
use sinew_protocol::catalogue_record::MAX_PINNED;
use sinew_protocol::mcp_offer::OfferKind;

use super::offers::card_of;
use super::tool_list::{tool_name, tool_of};
use crate::operations::{A2aOperations, short};
use crate::tool_mode::ToolMode;

/// Number of tools up to which a list contains them all.
const MAX_LISTED_TOOLS: usize = 40;
/// Size of the tools of a list, in bytes of JSON, up to which it contains them all.
const MAX_LISTED_BYTES: usize = 48 << 10;
/// Size of the schemas in the result of a search; further tools have none.
pub(crate) const MAX_SCHEMA_BYTES: usize = 8 << 10;
/// Hits of a search, unless the model asks for another number.
const HITS: usize = 5;
/// Maximum number of hits.
const MAX_HITS: usize = 10;
/// Entries that a refused name is compared with.
const SUGGESTIONS: usize = 3;
/// Maximum length of a name in an error.
const MAX_NAME: usize = 64;
/// Parameter of the endpoint's address with the mode.
const PARAMETER: &str = "tools";

const FIND: &str = "find_tools";
const DESCRIBE: &str = "describe_tool";
const CALL: &str = "call_tool";

impl ToolMode {
    /// Returns the mode in the address of a request, `/mcp?tools=MODE`; `None` without one.
    pub(super) fn of_address(address: &Uri) -> Option<Self> {
        let mut pairs = url::form_urlencoded::parse(address.query()?.as_bytes());
        let mode = pairs.find(|(name, _)| name == PARAMETER)?.1;
        mode.parse().ok()
    }

    /// Returns the list of a client that may see these tools. Every list contains the pinned ones.
    pub(super) fn list(&self, tools: Vec<Tool>, is_pinned: impl Fn(&Tool) -> bool) -> Vec<Tool> {
        let patterns = match self {
            Self::All => return tools,
            Self::Auto if is_short(&tools) => return tools,
            Self::Auto | Self::Find => &[][..],
            Self::Named(patterns) => patterns,
        };
        let named = |tool: &Tool| patterns.iter().any(|pattern| matches_pattern(pattern, &tool.name));
        let mut pins = MAX_PINNED;
        let mut pinned = |tool: &Tool| {
            let counts = pins > 0 && is_pinned(tool);
            pins -= usize::from(counts);
            counts
        };
        let mut listed = search_tools();
        listed.extend(tools.into_iter().filter(|tool| named(tool) || pinned(tool)));
        listed
    }
}

/// Returns whether a list is short enough for every prompt of a host.
fn is_short(tools: &[Tool]) -> bool {
    let bytes = |tool: &Tool| serde_json::to_vec(tool).map_or(0, |bytes| bytes.len());
    tools.len() <= MAX_LISTED_TOOLS && tools.iter().map(bytes).sum::<usize>() <= MAX_LISTED_BYTES
}

/// Returns the declarations of the three tools.
fn search_tools() -> Vec<Tool> {
    let tool = |name: &'static str, description: &'static str, schema: Value| {
        let schema = schema.as_object().cloned().unwrap_or_default();
        Tool::new(name, description, Arc::new(schema))
    };
    let find = tool(
        FIND,
        "Searches the tools of this mesh by what they do. Call this before you answer that a task is impossible.",
        json!({
            "type": "object",
            "required": ["query"],
            "properties": {
                "query": {"type": "string", "maxLength": 400, "description": "What you want to do"},
                "kind": {"enum": ["workflow", "agent"]},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS},
            },
        }),
    );
    let describe = tool(
        DESCRIBE,
        "Returns the description and the schemas of a tool that find_tools found.",
        json!({"type": "object", "required": ["tool"], "properties": {"tool": {"type": "string"}}}),
    );
    let call = tool(
        CALL,
        "Calls a tool that find_tools found, with arguments that fit its inputSchema.",
        json!({
            "type": "object",
            "required": ["tool"],
            "properties": {"tool": {"type": "string"}, "arguments": {"type": "object"}},
        }),
    );
    let reads = ToolAnnotations::new().read_only(true);
    vec![find.with_annotations(reads.clone()), describe.with_annotations(reads), call]
}

/// What a call asks for.
#[derive(Debug)]
pub(super) enum ToolRequest {
    /// A tool of the mesh, called by its name or through `call_tool`.
    Call(Box<CallToolRequestParams>),
    /// A search or a description, with its result.
    Answer(Box<CallToolResult>),
}

/// Arguments of `find_tools`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FindArguments {
    query: String,
    #[serde(default)]
    kind: Option<CatalogueKind>,
    #[serde(default)]
    limit: Option<usize>,
}

/// Arguments of `describe_tool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribeArguments {
    tool: String,
}

/// Arguments of `call_tool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallArguments {
    tool: String,
    #[serde(default)]
    arguments: Option<JsonObject>,
}

impl ToolRequest {
    /// Resolves a call: an agent or workflow whose name is one of the three is called only where the
    /// list contains it, in the mode [`ToolMode::All`].
    pub(super) fn of(operations: &A2aOperations, mode: &ToolMode, request: CallToolRequestParams) -> Self {
        if *mode == ToolMode::All {
            return Self::Call(Box::new(request));
        }
        match &*request.name {
            FIND => Self::answer(arguments(&request).map(|wanted| find(operations, wanted))),
            DESCRIBE => Self::answer(arguments(&request).and_then(|wanted| describe(operations, &wanted))),
            CALL => match arguments::<CallArguments>(&request) {
                Ok(wanted) => Self::through(operations, request, wanted),
                Err(text) => Self::answer(Err(text)),
            },
            _ => Self::Call(Box::new(request)),
        }
    }

    /// Resolves `call_tool`: the same request, with the name and arguments of the called tool.
    fn through(operations: &A2aOperations, request: CallToolRequestParams, wanted: CallArguments) -> Self {
        let Some(card) = card_of(operations, OfferKind::Tool, &wanted.tool) else {
            return Self::answer(Err(unknown(operations, &wanted.tool)));
        };
        if operations.records().attributes(&card).side_effects {
            // The permission of the host applies to tools by their names.
            let name = tool_name(&card.name);
            return Self::answer(Err(format!(
                "{name} changes something outside the mesh, so it is not called through {CALL}: add it to the list of \
                 the host with /mcp?{PARAMETER}={name} (`sinew mcp --{PARAMETER} {name}`), and call it by its name"
            )));
        }
        let mut call = request;
        call.name = wanted.tool.into();
        call.arguments = wanted.arguments;
        Self::Call(Box::new(call))
    }

    fn answer(result: Result<Value, String>) -> Self {
        Self::Answer(Box::new(match result {
            Ok(value) => CallToolResult::structured(value),
            Err(text) => CallToolResult::error(vec![ContentBlock::text(text)]),
        }))
    }
}

/// Reads the arguments of a call. Fails with a text for the model.
fn arguments<T: for<'de> Deserialize<'de>>(request: &CallToolRequestParams) -> Result<T, String> {
    let given = Value::Object(request.arguments.clone().unwrap_or_default());
    T::deserialize(given).map_err(|error| format!("arguments of {}: {error}", request.name))
}

/// Answers `find_tools`.
fn find(operations: &A2aOperations, wanted: FindArguments) -> Value {
    let limit = wanted.limit.unwrap_or(HITS).clamp(1, MAX_HITS);
    let query = CatalogueQuery {
        q: Some(wanted.query),
        kind: wanted.kind,
        limit: Some(limit),
        ..CatalogueQuery::default()
    };
    let page = operations.find_entries(&query);
    let mut left = MAX_SCHEMA_BYTES;
    let mut tools = Vec::new();
    for entry in page.entries {
        let name = tool_name(&entry.name);
        let Some(card) = card_of(operations, OfferKind::Tool, &name) else { continue };
        let schema = Value::Object((*tool_of(&card).input_schema).clone());
        let mut found = json!({
            "name": name,
            "description": entry.description,
            "score": entry.found.map(|found| found.score),
        });
        let size = schema.to_string().len();
        if size <= left {
            left -= size;
            found["inputSchema"] = schema;
        } else {
            found["note"] = format!("{DESCRIBE} returns its inputSchema").into();
        }
        if entry.stage != Stage::Stable {
            found["stage"] = entry.stage.name().into();
        }
        if let Some(name) = entry.replaced_by {
            found["replaced_by"] = tool_name(&name).into();
        }
        if let Some(name) = entry.resembles {
            found["resembles"] = tool_name(&name).into();
        }
        tools.push(found);
    }
    let mut result = json!({"tools": tools, "total": page.total});
    if !page.corrections.is_empty() {
        result["corrections"] = json!(page.corrections);
    }
    result
}

/// Answers `describe_tool`.
fn describe(operations: &A2aOperations, wanted: &DescribeArguments) -> Result<Value, String> {
    let Some(card) = card_of(operations, OfferKind::Tool, &wanted.tool) else {
        return Err(unknown(operations, &wanted.tool));
    };
    let mut tool = serde_json::to_value(tool_of(&card)).unwrap_or_default();
    let catalogue = operations.records().attributes(&card);
    tool["stage"] = catalogue.stage.name().into();
    tool["side_effects"] = catalogue.side_effects.into();
    Ok(tool)
}

/// Returns a text about an unknown name, with the tools that fit it best.
fn unknown(operations: &A2aOperations, name: &str) -> String {
    let query =
        CatalogueQuery { q: Some(name.to_owned()), limit: Some(SUGGESTIONS), ..CatalogueQuery::default() };
    let similar: Vec<String> =
        operations.find_entries(&query).entries.iter().map(|entry| tool_name(&entry.name)).collect();
    let text = format!("no tool {:?} is available to you", short(name, MAX_NAME));
    if similar.is_empty() { text } else { format!("{text}; similar: {}", similar.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(count: usize, description: &str) -> Vec<Tool> {
        let tool = |at| Tool::new(format!("tool{at}"), description.to_owned(), Arc::new(JsonObject::new()));
        (0..count).map(tool).collect()
    }

    fn names(tools: &[Tool]) -> Vec<&str> {
        tools.iter().map(|tool| &*tool.name).collect()
    }

    #[test]
    fn long_lists_become_a_search() {
        let listed = |mode: &str, tools: Vec<Tool>| {
            let mode: ToolMode = mode.parse().unwrap_or_default();
            mode.list(tools, |_| false)
        };
        assert_eq!(listed("auto", tools(40, "x")).len(), 40);
        let search = [FIND, DESCRIBE, CALL];
        assert_eq!(names(&listed("auto", tools(41, "x"))), search);
        assert_eq!(names(&listed("auto", tools(3, &"x".repeat(20_000)))), search);
        assert_eq!(listed("all", tools(300, "x")).len(), 300);
        assert_eq!(names(&listed("find", tools(1, "x"))), search);
        // Pinned tools are on every short list, up to their maximum.
        let pins = |mode: &str, count: usize| {
            let mode: ToolMode = mode.parse().unwrap_or_default();
            mode.list(tools(count, "x"), |tool| tool.name.ends_with('7') || tool.name == "tool12")
        };
        assert_eq!(
            names(&pins("find", 41)),
            [FIND, DESCRIBE, CALL, "tool7", "tool12", "tool17", "tool27", "tool37"]
        );
        assert_eq!(pins("auto", 400).len(), 3 + MAX_PINNED);
        assert_eq!(pins("all", 400).len(), 400);
        let named = listed("tool7, *12", tools(41, "x"));
        assert_eq!(names(&named), [FIND, DESCRIBE, CALL, "tool7", "tool12"]);
    }

    #[test]
    fn the_declarations_are_small_and_the_same_on_every_mesh() {
        let bytes = serde_json::to_vec(&search_tools()).unwrap_or_default().len();
        assert!(bytes < 2_000, "{bytes}");
    }

    #[test]
    fn the_address_selects_the_mode() {
        let mode = |address: &str| ToolMode::of_address(&address.parse().unwrap_or_default());
        assert_eq!(mode("/mcp"), None);
        assert_eq!(mode("/mcp?tools=all"), Some(ToolMode::All));
        assert_eq!(
            mode("/mcp?a=b&tools=orders%2A,refund"),
            Some(ToolMode::Named(vec!["orders*".into(), "refund".into()]))
        );
    }
}
