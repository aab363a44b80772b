//! Converts the tools of a server to skills and schemas of an agent, within the limits of a card.
//!
//! A server may have more tools than fit on a card, and invalid schemas. Such tools remain callable;
//! only the server validates their arguments.

use std::collections::HashSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::Tool;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sinew_protocol::a2a::AgentSkill;
use sinew_source::Schema;

use super::AnnouncedTools;
use super::tool_choice::{ARGUMENTS, TOOL, is_allowed};

/// Maximum skills of a card.
const MAX_SKILLS: usize = 100;
/// Maximum bytes of the id and of the name of a skill of a card.
const MAX_WORD_BYTES: usize = 256;
/// Maximum bytes of all skills. A card has at most 64 KiB.
const MAX_SKILLS_BYTES: usize = 24 << 10;
/// Maximum bytes of skills and schemas. The rest of a card is for its description and interfaces.
const MAX_TOOLS_BYTES: usize = 56 << 10;
/// Limits of descriptions of skills, in characters, from that of a card. The first that fits is used.
const DESCRIPTION_LENGTHS: [usize; 4] = [4_096, 1_024, 256, 64];
/// Characters of a definition's name to percent-encode in a reference.
const FRAGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the allowed tools as skills and schemas.
pub(super) fn announced(tools: &[Tool], only: Option<&str>, allow: &[String]) -> AnnouncedTools {
    let mut names = HashSet::new();
    let ours = tools.iter().filter(|tool| {
        only.is_none_or(|only| tool.name == only) && is_allowed(allow, &tool.name) && names.insert(&tool.name)
    });
    let ours: Vec<&Tool> = ours.collect();
    let skills = skills_of(&ours);
    let room = MAX_TOOLS_BYTES.saturating_sub(size_of(&skills));
    let (input_schema, output_schema) = match (only, ours.as_slice()) {
        (Some(_), [tool]) => {
            let input = usable(Value::Object((*tool.input_schema).clone()), room);
            let room = room.saturating_sub(input.as_ref().map_or(0, size_of));
            let output = tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone()));
            (input, output.and_then(|output| usable(output, room)))
        }
        (Some(_), _) | (None, []) => (None, None),
        (None, ours) => (combined_schema(ours, room), None),
    };
    AnnouncedTools { skills, input_schema, output_schema }
}

/// Returns the schema if it compiles and fits into `room` bytes.
fn usable(schema: Value, room: usize) -> Option<Value> {
    (size_of(&schema) <= room && Schema::compile(&schema).is_ok()).then_some(schema)
}

/// Returns the schema of inputs that name their tool; `None` if even the names do not fit.
fn combined_schema(tools: &[&Tool], room: usize) -> Option<Value> {
    let mut unchecked: Vec<&str> = Vec::new();
    let mut checked: Vec<ToolSchema<'_>> = Vec::new();
    for (nth, tool) in tools.iter().enumerate() {
        let schema = ToolSchema::of(tool).filter(|_| nth < MAX_SKILLS);
        match schema.filter(|schema| Schema::compile(&union_of([schema], &[])).is_ok()) {
            Some(schema) => checked.push(schema),
            None => unchecked.push(&tool.name),
        }
    }
    loop {
        let is_fitting = checked.iter().map(|schema| schema.bytes).sum::<usize>() <= room;
        if let Some(union) = is_fitting.then(|| usable(union_of(&checked, &unchecked), room)).flatten() {
            return Some(union);
        }
        // Drop the largest schema first, so that as many as possible remain.
        let largest = checked.iter().enumerate().max_by_key(|(_, schema)| schema.bytes)?.0;
        unchecked.push(checked.remove(largest).tool);
    }
}

/// Schema of the arguments of one tool within the combined schema.
struct ToolSchema<'a> {
    tool: &'a str,
    arguments: Value,
    /// Schema for the definitions, if it references parts of itself.
    definition: Option<Value>,
    bytes: usize,
}

impl<'a> ToolSchema<'a> {
    /// Returns `None` if the schema cannot be part of another one.
    fn of(tool: &'a Tool) -> Option<Self> {
        let mut schema = (*tool.input_schema).clone();
        // A part must not define its own dialect and base URI.
        schema.shift_remove("$schema");
        schema.shift_remove("$id");
        let mut schema = Value::Object(schema);
        let bytes = size_of(&schema);
        let token = tool.name.replace('~', "~0").replace('/', "~1");
        let place = format!("#/$defs/{}", utf8_percent_encode(&token, FRAGMENT));
        let (arguments, definition) = if move_references(&mut schema, &place)? {
            (json!({"$ref": place}), Some(schema))
        } else {
            (schema, None)
        };
        Some(Self { tool: &tool.name, arguments, definition, bytes })
    }
}

/// Returns the combined schema of an input for these tools.
fn union_of<'a>(checked: impl IntoIterator<Item = &'a ToolSchema<'a>>, unchecked: &[&str]) -> Value {
    let branch = |tool: Value, arguments: &Value| json!({"type": "object", "required": [TOOL], "properties": {TOOL: tool, ARGUMENTS: arguments}});
    let mut definitions = Map::new();
    let mut branches = Vec::new();
    for schema in checked {
        branches.push(branch(json!({"const": schema.tool}), &schema.arguments));
        if let Some(definition) = &schema.definition {
            definitions.insert(schema.tool.to_owned(), definition.clone());
        }
    }
    if !unchecked.is_empty() {
        branches.push(branch(json!({"enum": unchecked}), &json!({"type": "object"})));
    }
    let mut union = json!({"oneOf": branches});
    if !definitions.is_empty() {
        union["$defs"] = Value::Object(definitions);
    }
    union
}

/// Rewrites the references of a schema to itself for its new location. Returns whether it has any, or
/// `None` if a part has its own base URI or a reference is not a path.
fn move_references(schema: &mut Value, place: &str) -> Option<bool> {
    let mut found = false;
    match schema {
        Value::Object(members) => {
            for (keyword, value) in members {
                match (keyword.as_str(), value) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                        let path = reference.strip_prefix('#')?;
                        if !path.is_empty() && !path.starts_with('/') {
                            return None;
                        }
                        *reference = format!("{place}{path}");
                        found = true;
                    }
                    ("$id" | "id", Value::String(_)) => return None,
                    // Values of these keywords are data, not schemas.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    (
                        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                        | "dependencies",
                        Value::Object(schemas),
                    ) => {
                        for schema in schemas.values_mut() {
                            found |= move_references(schema, place)?;
                        }
                    }
                    (_, value) => found |= move_references(value, place)?,
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                found |= move_references(item, place)?;
            }
        }
        _ => {}
    }
    Some(found)
}

/// Returns the tools as skills, as many and with as long descriptions as fit on a card.
fn skills_of(tools: &[&Tool]) -> Vec<AgentSkill> {
    let fitting =
        tools.iter().filter(|tool| !tool.name.trim().is_empty() && tool.name.len() <= MAX_WORD_BYTES);
    let mut skills: Vec<AgentSkill> = fitting.take(MAX_SKILLS).map(|tool| skill_of(tool)).collect();
    for length in DESCRIPTION_LENGTHS {
        for skill in &mut skills {
            if let Some((at, _)) = skill.description.char_indices().nth(length) {
                skill.description.truncate(at);
                skill.description.push('…');
            }
        }
        if size_of(&skills) <= MAX_SKILLS_BYTES {
            return skills;
        }
    }
    while size_of(&skills) > MAX_SKILLS_BYTES {
        skills.pop();
    }
    skills
}

fn skill_of(tool: &Tool) -> AgentSkill {
    let description = tool.description.as_deref().unwrap_or(&tool.name);
    let title = tool.title.clone().filter(|title| title.len() <= MAX_WORD_BYTES);
    AgentSkill {
        id: tool.name.to_string(),
        name: title.unwrap_or_else(|| tool.name.to_string()),
        description: description.to_owned(),
        tags: vec!["mcp".to_owned()],
        examples: None,
        input_modes: None,
        output_modes: None,
        security_requirements: None,
    }
}

/// Returns the bytes of a value as JSON.
fn size_of(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tool(name: impl Into<String>, schema: &Value) -> Tool {
        Tool::new(name.into(), "Works.", Arc::new(schema.as_object().unwrap().clone()))
    }

    /// Compiles the combined schema in the way of a served agent.
    fn compiled(tools: &[Tool]) -> Schema {
        let all = announced(tools, None, &[]);
        assert!(size_of(&all.skills) + size_of(&all.input_schema) <= MAX_TOOLS_BYTES);
        Schema::compile(&all.input_schema.unwrap()).unwrap()
    }

    fn call(name: &str, arguments: &Value) -> Value {
        json!({"tool": name, "arguments": arguments})
    }

    #[test]
    fn tools_are_skills() {
        let number = json!({"type": "object", "properties": {"a": {"type": "number"}}});
        let output = Arc::new(number.as_object().unwrap().clone());
        let tools = [
            tool("add", &number).with_raw_output_schema(output),
            tool("read", &json!({"type": "object"})),
            tool("read", &number),
        ];
        let only = announced(&tools, Some("add"), &[]);
        assert_eq!((only.input_schema, only.output_schema), (Some(number.clone()), Some(number.clone())));
        assert_eq!(only.skills.len(), 1);
        let all = announced(&tools, None, &[]);
        let ids: Vec<&str> = all.skills.iter().map(|skill| skill.id.as_str()).collect();
        assert_eq!(ids, ["add", "read"]);
        let branches = all.input_schema.unwrap()["oneOf"].take();
        let properties: Vec<&Value> =
            branches.as_array().unwrap().iter().map(|it| &it["properties"]).collect();
        let read = json!({"tool": {"const": "read"}, "arguments": {"type": "object"}});
        assert_eq!(properties, [&json!({"tool": {"const": "add"}, "arguments": number}), &read]);
        assert!(announced(&tools, Some("gone"), &[]).input_schema.is_none());
    }

    #[test]
    fn references_of_a_tool_lead_to_its_own_definitions() {
        let of = |kind: &str| {
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.com/tool",
                "type": "object",
                "properties": {
                    "tree": {"$ref": "#/$defs/Node"}, "again": {"$ref": "#"},
                    "default": {"$ref": "#/$defs/Value"}, "kept": {"const": {"$ref": "#/nowhere"}},
                },
                "$defs": {
                    "Node": {
                        "type": "object",
                        "properties": {"value": {"$ref": "#/$defs/Value"}, "next": {"$ref": "#/$defs/Node"}},
                        "additionalProperties": false,
                    },
                    "Value": {"type": kind},
                },
            })
        };
        let schema = compiled(&[tool("count", &of("number")), tool("a/b~ c", &of("string"))]);
        let check = |name: &str, arguments: Value, expected: bool| {
            assert_eq!(schema.check(&call(name, &arguments)).is_ok(), expected, "{name} {arguments}");
        };
        for (name, right, wrong) in [("count", json!(1), json!("x")), ("a/b~ c", json!("x"), json!(1))] {
            check(name, json!({"tree": {"next": {"next": {"value": right}}}}), true);
            check(name, json!({"tree": {"next": {"next": {"value": wrong}}}}), false);
            check(name, json!({"again": {"again": {"default": right}}}), true);
            check(name, json!({"again": {"again": {"default": wrong}}}), false);
            check(name, json!({"kept": {"$ref": "#/nowhere"}}), true);
        }
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_left_out() {
        let number = json!({"type": "object", "properties": {"a": {"type": "number"}}});
        for broken in [
            json!({"type": "nonsense"}),
            json!({"properties": {"a": {"$ref": "#/$defs/gone"}}}),
            json!({"properties": {"a": {"$ref": "https://example.com/schema.json"}}}),
            json!({"properties": {"a": {"$ref": "#x"}}, "$defs": {"a": {"$anchor": "x"}}}),
            json!({"properties": {"a": {"pattern": "(?=x)"}}}),
            json!({"properties": {"a": {"description": "x".repeat(100_000)}}}),
        ] {
            let tools = [tool("good", &number), tool("broken", &broken)];
            let schema = compiled(&tools);
            for (input, expected) in [
                (call("good", &json!({"a": 1})), true),
                (call("good", &json!({"a": "x"})), false),
                (call("broken", &json!({"a": [1]})), true),
                (call("broken", &json!(1)), false),
                (call("other", &json!({})), false),
            ] {
                assert_eq!(schema.check(&input).is_ok(), expected, "{input} {broken}");
            }
            let is_broken = Schema::compile(&broken).is_err() || size_of(&broken) > MAX_TOOLS_BYTES;
            let only = announced(&tools, Some("broken"), &[]);
            assert_eq!(only.input_schema.is_none(), is_broken, "{broken}");
        }
    }

    #[test]
    fn more_tools_than_a_card_takes_stay_callable() {
        let described = "é".repeat(2_000);
        let large =
            json!({"type": "object", "properties": {"a": {"type": "number", "description": described}}});
        for (schema, words) in [
            (json!({"type": "object", "properties": {"a": {"type": "number"}}}), "Works."),
            (large, described.as_str()),
        ] {
            let mut tools: Vec<Tool> = (0..150).map(|nth| tool(format!("tool-{nth}"), &schema)).collect();
            for tool in &mut tools {
                tool.description = Some(words.to_owned().into());
            }
            let all = announced(&tools, None, &[]);
            assert!(all.skills.len() <= MAX_SKILLS && all.skills.len() > 50, "{}", all.skills.len());
            let schema = compiled(&tools);
            for nth in [0, 99, 100, 149] {
                assert!(schema.check(&call(&format!("tool-{nth}"), &json!({"a": 1}))).is_ok(), "{nth}");
            }
            assert!(schema.check(&call("tool-150", &json!({"a": 1}))).is_err());
        }
    }
}
