//! Unknown keys and operators of a file that resemble known ones.

use sinew_protocol::code;
use sinew_source::{Diagnostic, Member, Node, Sources, Span, hint_for, token_span};

use super::text::PREVIOUS;
use crate::near_members::{KnownMembers, near_members};

/// Operators of conditions.
const OPERATORS: [&str; 2] = ["equal", "contains"];
/// Fields of the data of each type of node.
const DATA_MEMBERS: [(&str, &KnownMembers); 5] = [
    ("start", &[&["initialInput"]]),
    (
        "agent",
        &[&["agentName"], &["systemPrompt"], &["userPrompt"], &["model"], &["reasoningEffort"], &["tools"]],
    ),
    ("if", &[&["conditions", "condition"]]),
    ("approval", &[&["prompt"]]),
    ("input", &[&["prompt"]]),
];
const TOOL_MEMBERS: &KnownMembers = &[&["web_search"], &["subagents"]];
const CONDITION_MEMBERS: &KnownMembers = &[&["operator"], &["value"]];
const CONNECTION_MEMBERS: &KnownMembers = &[&["source"], &["target"], &["sourceHandle"], &["targetHandle"]];

/// Reports unknown operators, and fields and placeholders that look misspelled.
pub(super) fn check(graph: &Node, sources: &Sources, found: &mut Vec<Diagnostic>) {
    for node in list(graph.get("nodes")) {
        let text = |key: &str| node.get(key).and_then(Node::as_str).unwrap_or_default();
        let (id, kind) = (text("id"), text("type"));
        let Some(data) = node.get("data") else { continue };
        let known = DATA_MEMBERS.iter().find(|(name, _)| *name == kind);
        let Some((_, known)) = known else { continue };
        check_members(&format!("node '{id}'"), data, known, found);
        match kind {
            "agent" => {
                if let Some(tools) = data.get("tools") {
                    check_members(&format!("'tools' of node '{id}'"), tools, TOOL_MEMBERS, found);
                }
                if let Some(prompt) = data.get("userPrompt") {
                    check_placeholders(id, prompt, sources, found);
                }
            }
            "if" => {
                let legacy = data.get("condition").filter(|_| data.get("conditions").is_none());
                for condition in list(data.get("conditions")).iter().chain(legacy) {
                    check_members(
                        &format!("a condition of node '{id}'"),
                        condition,
                        CONDITION_MEMBERS,
                        found,
                    );
                    check_operator(id, condition, found);
                }
            }
            _ => {}
        }
    }
    for (n, connection) in list(graph.get("connections")).iter().enumerate() {
        check_members(&format!("connections[{n}]"), connection, CONNECTION_MEMBERS, found);
    }
}

fn list(node: Option<&Node>) -> &[Node] {
    node.and_then(Node::as_array).unwrap_or_default()
}

fn check_members(owner: &str, object: &Node, known: &KnownMembers, found: &mut Vec<Diagnostic>) {
    let members: &[Member] = object.as_object().unwrap_or_default();
    let names: Vec<&str> = members.iter().map(|member| member.key.as_str()).collect();
    for (name, near) in near_members(&names, &[known]) {
        let place = object.member(name).map_or(object.span, |member| member.key_span);
        let message = format!("{owner} has the member '{name}', which is not used");
        found.push(unknown("UNKNOWN_MEMBER", message, place).hint(format!("did you mean '{near}'?")));
    }
}

fn check_operator(id: &str, condition: &Node, found: &mut Vec<Diagnostic>) {
    let Some(written) = condition.get("operator") else { return };
    let Some(operator) = written.as_str().filter(|word| !word.is_empty() && !OPERATORS.contains(word)) else {
        return;
    };
    let message = format!("the operator '{operator}' of node '{id}' is unknown and treated as 'equal'");
    let near = hint_for(found.len(), operator, OPERATORS.into_iter());
    let hint = near.map_or_else(
        || format!("the operators are '{}'", OPERATORS.join("' and '")),
        |near| format!("did you mean '{near}'?"),
    );
    found.push(unknown("UNKNOWN_OPERATOR", message, written.span).hint(hint));
}

/// Reports placeholders that look mistyped, and the placeholder in single or unclosed braces.
fn check_placeholders(id: &str, prompt: &Node, sources: &Sources, found: &mut Vec<Diagnostic>) {
    let known = PREVIOUS.trim_matches(['{', '}']);
    let text = prompt.as_str().unwrap_or_default();
    let mut at = 0;
    while let Some(start) = text[at..].find('{').map(|start| at + start) {
        let rest = &text[start..];
        let braces = rest.bytes().take_while(|byte| *byte == b'{').count().min(2);
        let inner = &rest[braces..];
        let is_placeholder = inner.trim_start().starts_with(known);
        let end = if braces == 2 {
            inner.find("}}").map(|end| end + 2)
        } else {
            inner.find('}').map(|end| end + 1)
        };
        let length = braces + end.unwrap_or(known.len());
        let word = inner[..end.map_or(0, |end| end - braces)].trim();
        at = start + length.min(rest.len()).max(1);
        while !text.is_char_boundary(at) {
            at += 1;
        }
        let place = || token_span(sources, prompt.span, text, start..at);
        let hint = format!("did you mean '{PREVIOUS}'?");
        if is_placeholder && (braces == 1 || end.is_none()) {
            let problem = if braces == 1 { "in single braces" } else { "that is not closed" };
            let message = format!("the prompt of node '{id}' has the placeholder {known} {problem}");
            let error = Diagnostic::error(code::AGENTFLOW_WORD_UNKNOWN.as_str(), message);
            found.push(error.at(place()).sub_code("UNKNOWN_PLACEHOLDER").hint(hint));
        } else if braces == 2
            && end.is_some()
            && &inner[..end.unwrap_or(2) - 2] != known
            && hint_for(found.len(), word, std::iter::once(known)).is_some()
        {
            let message = format!("the prompt of node '{id}' keeps '{}' unchanged", &text[start..at]);
            found.push(unknown("UNKNOWN_PLACEHOLDER", message, place()).hint(hint));
        }
    }
}

fn unknown(sub_code: &str, message: String, place: Span) -> Diagnostic {
    Diagnostic::warning(code::AGENTFLOW_WORD_UNKNOWN.as_str(), message).at(place).sub_code(sub_code)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::AgentFlow;
    use crate::testing::{document, lower, slips};

    /// Returns sub codes and hints of the warnings about a node of this type with this data.
    fn warnings(kind: &str, data: &Value) -> Vec<String> {
        let file = json!({
            "nodes": [{ "id": "s", "type": "start" }, { "id": "n", "type": kind, "data": data }],
            "connections": [{ "source": "s", "target": "n" }],
        });
        told(&file)
    }

    fn told(file: &Value) -> Vec<String> {
        let found = lower(&AgentFlow, file).unwrap_or_else(|refused| panic!("{refused}")).warnings;
        assert!(found.items.iter().all(|item| item.code == "SINEW-2205"), "{found}");
        slips(&found.items)
    }

    #[test]
    fn operators_that_are_not_known_are_told() {
        let check = |condition: Value, want: &[&str]| {
            assert_eq!(warnings("if", &json!({ "conditions": [condition] })), want, "{condition}");
            assert_eq!(warnings("if", &json!({ "condition": condition })), want, "{condition}");
        };
        check(json!({ "operator": "equal", "value": "x" }), &[]);
        check(json!({ "operator": "contains", "value": "x" }), &[]);
        check(json!({ "value": "x" }), &[]);
        check(json!({ "operator": "", "value": "x", "id": "c1" }), &[]);
        check(json!({ "operator": "contians", "value": "x" }), &["UNKNOWN_OPERATOR 'contains'?"]);
        check(json!({ "operator": "equals", "value": "x" }), &["UNKNOWN_OPERATOR 'equal'?"]);
        check(json!({ "operator": "regex", "value": "x" }), &["UNKNOWN_OPERATOR"]);
        check(json!({ "opertor": "contains", "value": "x" }), &["UNKNOWN_MEMBER 'operator'?"]);
        assert_eq!(warnings("if", &json!({ "condition": "a text" })), [""; 0]);
    }

    #[test]
    fn placeholders_that_look_mistyped_are_told() {
        let check = |prompt: &str, want: &[&str]| {
            assert_eq!(warnings("agent", &json!({ "userPrompt": prompt })), want, "{prompt}");
        };
        let near = "UNKNOWN_PLACEHOLDER '{{PREVIOUS_OUTPUT}}'?";
        check("{{PREVIOUS_OUTPUT}} and {{OTHER}} and {{ }} and {{ open", &[]);
        check("{{PREVIOS_OUTPUT}}", &[near]);
        check("{{PREVIOUS_OUTPUT}} {{ PREVIOUS_OUTPUT }} {{previous_output}}", &[near, near]);
    }

    #[test]
    fn members_that_look_mistyped_are_told() {
        let check = |kind: &str, data: Value, want: &[&str]| {
            assert_eq!(warnings(kind, &data), want, "{kind} {data}");
        };
        let right = json!({ "agentName": "A", "label": "A", "mode": "x", "tools": { "web_search": true } });
        check("agent", right, &[]);
        check("agent", json!({ "agentName": "A", "agentname": "B" }), &[]);
        check("agent", json!({ "agentname": "A" }), &["UNKNOWN_MEMBER 'agentName'?"]);
        check("agent", json!({ "systemprompt": "A" }), &["UNKNOWN_MEMBER 'systemPrompt'?"]);
        check("agent", json!({ "tools": { "websearch": true } }), &["UNKNOWN_MEMBER 'web_search'?"]);
        check("approval", json!({ "promt": "Well?" }), &["UNKNOWN_MEMBER 'prompt'?"]);
        check("if", json!({ "condtions": [] }), &["UNKNOWN_MEMBER 'conditions'?"]);
        let connected = |connection: Value| {
            told(&json!({
                "nodes": [{ "id": "s", "type": "start" }, { "id": "a", "type": "agent" }],
                "connections": [connection],
            }))
        };
        let right = json!({ "id": "c", "source": "s", "target": "a", "sourceHandle": "output" });
        assert_eq!(connected(right), [""; 0]);
        let slip = json!({ "source": "s", "target": "a", "sourcehandle": "output" });
        assert_eq!(connected(slip), ["UNKNOWN_MEMBER 'sourceHandle'?"]);
    }

    #[test]
    fn warnings_stand_where_the_word_stands() {
        let text = "{\"nodes\": [{\"id\": \"s\", \"type\": \"start\"},\n  {\"id\": \"i\", \"type\": \"if\",\n   \"data\": \
                    {\"conditions\": [\n     {\"operator\": \"contians\", \"value\": \"x\"}]}}],\n \"connections\": []}";
        let mut found = Vec::new();
        let document = document(text);
        super::check(&document.root, &document.sources, &mut found);
        let place = found[0].span.unwrap();
        assert_eq!((place.line, place.column), (4, 19), "{:?}", found[0]);
    }
}
