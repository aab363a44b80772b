//! Suggestions of conversion functions for connections without one.

use std::fmt::Write as _;

use serde_json::Value;
use sinew_source::Document;

use super::model::{self, TeamConnection, TeamFile, TeamNode};
use super::spec::{self, NodeSpec, SpecRegistry};

/// Synonyms of field names, by the required field.
const SYNONYMS: [(&str, &[&str]); 5] = [
    ("message", &["message", "content", "text", "response", "output", "trigger_message", "data"]),
    ("user_prompt", &["user_prompt", "message", "content", "text", "trigger_message", "response", "data"]),
    ("content", &["content", "message", "text", "response", "output"]),
    ("subject", &["subject", "title"]),
    ("query", &["query", "message", "content", "text"]),
];

/// A conversion function that a connection could have.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ConversionSuggestion {
    /// Id of the connection.
    pub connection: String,
    /// Source node.
    pub from: String,
    /// Target node.
    pub to: String,
    /// The function, for `conversion_function`.
    pub function: String,
    /// Fields that the node requires and that resemble no field of the source.
    pub open: Vec<String>,
}

/// Suggests a function for each connection without one whose target declares its input. `wanted` is
/// the id of one connection, which gets a suggestion even if it has a function.
pub fn suggest_conversions(
    document: &Document,
    wanted: Option<&str>,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> Vec<ConversionSuggestion> {
    let mut ignored = Vec::new();
    let registry = spec::registry(&document.root, read, &mut ignored);
    let file = model::read(&document.root, &mut ignored);
    let fits = |connection: &&TeamConnection| match wanted {
        Some(id) => connection.id == id,
        None => connection.conversion.is_none(),
    };
    let connections = file.connections.iter().filter(fits);
    connections.filter_map(|connection| suggestion(&file, &registry, connection)).collect()
}

fn suggestion(
    file: &TeamFile,
    registry: &SpecRegistry,
    connection: &TeamConnection,
) -> Option<ConversionSuggestion> {
    let node = |id: &str| file.nodes.iter().find(|node| node.id == id);
    let (from, to): (&TeamNode, &TeamNode) = (node(&connection.from)?, node(&connection.to)?);
    let takes = &registry.get(&to.spec_name())?.input_params;
    if takes.is_empty() {
        return None;
    }
    let gives = registry.get(&from.spec_name()).and_then(NodeSpec::shape).unwrap_or_default();
    let required: Vec<&str> = NodeSpec::required(takes).collect();
    let mut open = Vec::new();
    let mut function =
        String::from("def convert(input_data: Dict[str, Any]) -> Dict[str, Any]:\n    return {\n");
    for (key, entry) in takes {
        let configured = to.configurations.contains_key(key) || to.input_params.contains_key(key);
        let synonyms = SYNONYMS.iter().find(|(name, _)| name == key).map_or(&[][..], |(_, names)| names);
        let direct = gives.contains_key(key).then_some(key.as_str());
        let source = direct.or_else(|| synonyms.iter().copied().find(|name| gives.contains_key(*name)));
        let value = match source {
            Some(name) => format!("input_data.get({})", quoted(name)),
            None if configured || !required.contains(&key.as_str()) => continue,
            None => {
                open.push(key.clone());
                format!("{},  # '{}' has no similar member", spec::default_of(entry), from.id)
            }
        };
        let comma = if value.contains('#') { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = writeln!(function, "        {}: {value}{comma}", quoted(key));
    }
    function.push_str("    }\n");
    (function.matches('\n').count() > 3).then(|| ConversionSuggestion {
        connection: connection.id.clone(),
        from: from.id.clone(),
        to: to.id.clone(),
        function,
        open,
    })
}

/// Formats a name as a Python string literal.
fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}
