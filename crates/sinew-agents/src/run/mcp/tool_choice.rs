//! The tool that an input means, and the tools of a server as skills.

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};
use sinew_protocol::a2a::AgentSkill;

use super::AnnouncedTools;
use crate::error::AgentError;

/// Members of an input that names its tool.
const TOOL: &str = "tool";
const ARGUMENTS: &str = "arguments";
/// Skills of one agent.
const MAX_SKILLS: usize = 256;

/// The tool that an input means, and its arguments.
#[derive(Debug, PartialEq)]
pub(super) struct ToolChoice {
    pub(super) tool: String,
    pub(super) arguments: JsonObject,
}

impl ToolChoice {
    /// Reads an input: arguments of the only tool, or an object with a tool and its arguments.
    pub(super) fn of(input: &Value, only: Option<&str>, allow: &[String]) -> Result<Self, AgentError> {
        let wrong = |text: String| AgentError::Input(vec![text]);
        let (tool, arguments) = if let Some(only) = only {
            (only.to_owned(), Some(input))
        } else {
            let named = input.get(TOOL).and_then(Value::as_str);
            let named = named.ok_or_else(|| wrong(format!("/{TOOL}: expected the name of a tool")))?;
            (named.to_owned(), input.get(ARGUMENTS))
        };
        if !is_allowed(allow, &tool) {
            return Err(wrong(format!("/{TOOL}: {tool:?} is not a tool of this agent")));
        }
        let arguments = match arguments {
            None | Some(Value::Null) => JsonObject::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            Some(_) => return Err(wrong("arguments of a tool are a JSON object".to_owned())),
        };
        Ok(Self { tool, arguments })
    }
}

/// The tools that may be called, as an agent announces them.
pub(super) fn announced(tools: &[Tool], only: Option<&str>, allow: &[String]) -> AnnouncedTools {
    let is_ours = |tool: &&Tool| only.is_none_or(|only| tool.name == only) && is_allowed(allow, &tool.name);
    let ours: Vec<&Tool> = tools.iter().filter(is_ours).take(MAX_SKILLS).collect();
    let schema = |tool: &Tool| Value::Object((*tool.input_schema).clone());
    let output = |tool: &Tool| tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone()));
    let (input_schema, output_schema) = match (only, ours.as_slice()) {
        (Some(_), [tool]) => (Some(schema(tool)), output(tool)),
        (Some(_), _) | (None, []) => (None, None),
        (None, ours) => {
            let one = |tool: &&Tool| {
                json!({
                    "type": "object",
                    "required": [TOOL],
                    "properties": {TOOL: {"const": tool.name}, ARGUMENTS: schema(tool)},
                })
            };
            (Some(json!({"oneOf": ours.iter().map(one).collect::<Vec<_>>()})), None)
        }
    };
    AnnouncedTools { skills: ours.iter().map(|tool| skill_of(tool)).collect(), input_schema, output_schema }
}

fn skill_of(tool: &Tool) -> AgentSkill {
    let description = tool.description.as_deref().unwrap_or(&tool.name);
    AgentSkill {
        id: tool.name.to_string(),
        name: tool.title.clone().unwrap_or_else(|| tool.name.to_string()),
        description: description.to_owned(),
        tags: vec!["mcp".to_owned()],
        examples: None,
        input_modes: None,
        output_modes: None,
        security_requirements: None,
    }
}

fn is_allowed(allow: &[String], tool: &str) -> bool {
    allow.is_empty() || allow.iter().any(|pattern| matches(pattern, tool))
}

/// Whether a name matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(first) else { return false };
    rest.is_empty() || name.char_indices().any(|(at, _)| matches(rest, &name[at..])) || matches(rest, "")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn inputs_choose_tools() {
        let check = |input: Value, only: Option<&str>, allow: &[&str], expected: Option<(&str, Value)>| {
            let allow: Vec<String> = allow.iter().map(|&it| it.to_owned()).collect();
            let read = ToolChoice::of(&input, only, &allow).ok();
            let read = read.map(|choice| (choice.tool, Value::Object(choice.arguments)));
            assert_eq!(read, expected.map(|(tool, it)| (tool.to_owned(), it)), "{input} {only:?} {allow:?}");
        };
        check(json!({"a": 1}), Some("add"), &[], Some(("add", json!({"a": 1}))));
        check(json!({"tool": "add", "arguments": {"a": 1}}), None, &[], Some(("add", json!({"a": 1}))));
        check(json!({"tool": "add"}), None, &["a*"], Some(("add", json!({}))));
        check(json!({"tool": "add"}), None, &["read", "*d"], Some(("add", json!({}))));
        check(json!({"tool": "add"}), None, &["read", "b*"], None);
        check(json!({"tool": 1}), None, &[], None);
        check(json!({"tool": "add", "arguments": [1]}), None, &[], None);
        check(json!("text"), Some("add"), &[], None);
        check(Value::Null, Some("add"), &[], Some(("add", json!({}))));
    }

    #[test]
    fn tools_are_skills() {
        let schema = |value: Value| Arc::new(value.as_object().unwrap().clone());
        let number = json!({"type": "object", "properties": {"a": {"type": "number"}}});
        let add =
            Tool::new("add", "Adds.", schema(number.clone())).with_raw_output_schema(schema(number.clone()));
        let tools = [add, Tool::new("read", "Reads.", schema(json!({"type": "object"})))];
        let only = announced(&tools, Some("add"), &[]);
        assert_eq!((only.input_schema, only.output_schema), (Some(number.clone()), Some(number.clone())));
        assert_eq!(only.skills.len(), 1);
        let all = announced(&tools, None, &[]);
        let ids: Vec<&str> = all.skills.iter().map(|skill| skill.id.as_str()).collect();
        assert_eq!(ids, ["add", "read"]);
        let first = &all.input_schema.unwrap()["oneOf"][0];
        assert_eq!(first["properties"], json!({"tool": {"const": "add"}, "arguments": number}));
        assert!(announced(&tools, Some("gone"), &[]).input_schema.is_none());
    }
}
