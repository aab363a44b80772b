//! The tool that an input selects.

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::error::AgentError;

/// Members of an input that names its tool.
pub(super) const TOOL: &str = "tool";
pub(super) const ARGUMENTS: &str = "arguments";

/// The tool that an input selects, and its arguments.
#[derive(Debug, PartialEq)]
pub(super) struct ToolChoice {
    pub(super) tool: String,
    pub(super) arguments: JsonObject,
}

impl ToolChoice {
    /// Parses an input: the arguments of the only tool, or an object with a tool and its arguments.
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

/// Returns whether the file allows calls of a tool.
pub(super) fn is_allowed(allow: &[String], tool: &str) -> bool {
    allow.is_empty() || allow.iter().any(|pattern| matches(pattern, tool))
}

/// Returns whether a name matches a pattern in which `*` matches any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(first) else { return false };
    rest.is_empty() || name.char_indices().any(|(at, _)| matches(rest, &name[at..])) || matches(rest, "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
}
