//! The published form of a file as one table, the source of the checks and of the JSON Schema.

use serde_json::{Map, Value, json};
use sinew_protocol::code;
use sinew_source::{Diagnostic, Node, Span, did_you_mean};

use crate::near_members::misspelled;

/// Shape of a value.
pub(super) enum Shape {
    /// A string; with `true` it must not be empty.
    Text(bool),
    /// One of these strings.
    Word(&'static [&'static str]),
    /// True or false.
    Bool,
    /// An integer of at least this value.
    Whole(u64),
    /// Any value.
    Any,
    /// Any object.
    Free,
    /// A list with at least this number of elements.
    List(usize, &'static Shape),
    /// An object whose values have this shape.
    Map(&'static Shape),
    /// An object with these fields and no others.
    Strict(&'static [Member]),
    /// An object with these fields; others are ignored.
    Open(&'static [Member]),
    /// Inline text, a file or a URL.
    Source,
    /// Sources of a node: a list, or a list that replaces the inherited ones.
    Sources,
    /// Preamble of a retry: a string, `{auto: true}` or `{reflect: text}`.
    Hint,
}

/// A field of an object.
pub(super) struct Member {
    key: &'static str,
    required: bool,
    /// Description for editors.
    about: &'static str,
    shape: Shape,
}

const fn must(key: &'static str, about: &'static str, shape: Shape) -> Member {
    Member { key, required: true, about, shape }
}

const fn may(key: &'static str, about: &'static str, shape: Shape) -> Member {
    Member { key, required: false, about, shape }
}

/// Declared kinds of workflows; without any effect.
const TYPES: &[&str] = &["pr_review", "e2e_test", "content_generation", "monitor", "data_sync", "generic"];

const TOOL_NAMES: Shape = Shape::List(1, &Shape::Text(true));

const OUTPUT_MATCH: Shape = Shape::Strict(&[
    must("path", "Path into the results, such as node.field or all:node.list[*].field.", Shape::Text(true)),
    may("equals", "Expected value.", Shape::Any),
    may("in", "Accepted values.", Shape::List(0, &Shape::Any)),
    may("matches", "Regular expression that the value matches.", Shape::Text(true)),
]);

const EVALUATOR: Shape = Shape::Strict(&[
    must("name", "Name of the evaluator in results.", Shape::Text(true)),
    must(
        "kind",
        "What is evaluated: the data (value), the called tools (function), or both by a model (judge).",
        Shape::Word(&["value", "function", "judge"]),
    ),
    may(
        "rule",
        "Rules of the kinds value and function. All must hold.",
        Shape::Strict(&[
            may("any_tool_called", "Tools of which at least one was called.", TOOL_NAMES),
            may("all_tools_called", "Tools that were all called.", TOOL_NAMES),
            may("no_tool_called", "Tools that were not called.", TOOL_NAMES),
            may("output_required", "Paths in the data that have a value.", TOOL_NAMES),
            may("output_matches", "Tests of values in the data.", Shape::List(1, &OUTPUT_MATCH)),
        ]),
    ),
    may("rubric", "Judge: rubric for the model.", Shape::Text(true)),
    may("pass_when", "Judge: verdict that passes. Default: yes.", Shape::Text(true)),
    may("model", "Judge: requested model. Default: judge_model.", Shape::Text(true)),
]);

const NODE: Shape = Shape::Strict(&[
    must("name", "Name of the node for people and drawings.", Shape::Text(true)),
    must("instruction", "Instruction for the agent: a text, a file or a URL.", Shape::Source),
    may(
        "skills",
        "Ids of the skills whose tools and instructions the agent receives.",
        Shape::List(0, &Shape::Text(false)),
    ),
    may("output", "JSON Schema of the data of the result.", Shape::Free),
    may("max_turns", "Maximum number of turns of the agent. Default: chosen by the agent.", Shape::Whole(1)),
    may("model", "Requested model. Default: the model of the workflow.", Shape::Text(true)),
    may("disallowed_tools", "Tools that the agent must not use.", Shape::List(0, &Shape::Text(true))),
    may(
        "tools",
        "Filter of the tools of the skills.",
        Shape::Strict(&[
            may("allow", "Tools that are allowed. Default: all.", TOOL_NAMES),
            may("deny", "Tools that are denied. Takes precedence over allow.", TOOL_NAMES),
        ]),
    ),
    may(
        "fail_soft",
        "Whether a failure that the agent reports counts as success. Default: false.",
        Shape::Bool,
    ),
    may("rules", "Rules of this node, in addition to those of the input and the workflow.", Shape::Sources),
    may(
        "context",
        "Background of this node, in addition to that of the input and the workflow.",
        Shape::Sources,
    ),
    may("eval", "Evaluators of the result. All must pass.", Shape::List(1, &EVALUATOR)),
    may(
        "eval_policy",
        "Policy for the evaluators. Only all_pass is supported. Default: all_pass.",
        Shape::Word(&["all_pass", "any_pass", "weighted"]),
    ),
    may(
        "judge_model",
        "Requested model of judges. Default: the judge_model of the workflow.",
        Shape::Text(true),
    ),
    may(
        "requires",
        "Conditions that must hold before the node runs.",
        Shape::Strict(&[
            may("output_required", "Paths in the results of earlier nodes that have a value.", TOOL_NAMES),
            may(
                "output_matches",
                "Tests of values in the results of earlier nodes.",
                Shape::List(1, &OUTPUT_MATCH),
            ),
            may(
                "on_fail",
                "Result of the node if a condition does not hold: fail or skip. Default: fail.",
                Shape::Word(&["fail", "skip"]),
            ),
        ]),
    ),
    may(
        "retry",
        "Retries after a failed evaluation. Default: none.",
        Shape::Strict(&[
            must("max", "Maximum number of retries.", Shape::Whole(1)),
            may(
                "instruction",
                "Text before the instruction of a retry. Default: the failed evaluations.",
                Shape::Hint,
            ),
        ]),
    ),
]);

const SKILL: Shape = Shape::Strict(&[
    may("name", "Name of the skill. Default: the id.", Shape::Text(false)),
    may("description", "Purpose of the skill.", Shape::Text(false)),
    may(
        "instruction",
        "Text that is added to the instructions of the nodes that use the skill.",
        Shape::Text(false),
    ),
    may(
        "mcp",
        "MCP server with the tools of the skill.",
        Shape::Strict(&[
            may("type", "Transport of the server.", Shape::Word(&["stdio", "http"])),
            may("command", "Program of a stdio server.", Shape::Text(false)),
            may("args", "Arguments of the program.", Shape::List(0, &Shape::Text(false))),
            may("url", "Address of an http server.", Shape::Text(false)),
            may(
                "headers",
                "Headers of requests. ${NAME} is resolved by the agent.",
                Shape::Map(&Shape::Text(false)),
            ),
            may("env", "Environment variables of the program.", Shape::Map(&Shape::Text(false))),
        ]),
    ),
]);

const INPUT: Shape = Shape::Strict(&[
    must("type", "Type of the input.", Shape::Word(&["string", "number", "boolean", "string[]"])),
    may("description", "Purpose of the input.", Shape::Text(false)),
    may("required", "Whether the input must be provided. Default: false.", Shape::Bool),
    may("default", "Value if the input is missing.", Shape::Any),
    may("enum", "Accepted values.", Shape::List(1, &Shape::Any)),
]);

/// A whole file. Other top-level fields (author, tags, version, …) belong to the marketplace and
/// are ignored.
pub(super) static WORKFLOW: Shape = Shape::Open(&[
    must("id", "Unique id of the workflow, by which it is called.", Shape::Text(true)),
    must("name", "Name of the workflow for people.", Shape::Text(true)),
    may("description", "Purpose of the workflow. Default: the name.", Shape::Text(false)),
    must("entry", "Id of the node where executions start.", Shape::Text(true)),
    must("nodes", "Nodes by id.", Shape::Map(&NODE)),
    must(
        "edges",
        "Edges between nodes.",
        Shape::List(
            0,
            &Shape::Strict(&[
                must("from", "Id of the node where the edge starts.", Shape::Text(true)),
                must("to", "Id of the node where the edge ends.", Shape::Text(true)),
                may(
                    "when",
                    "Condition in plain language; a model chooses. Default: the edge is the default.",
                    Shape::Text(false),
                ),
                may(
                    "max_iterations",
                    "Maximum number of times that the edge is followed. Required for cycles.",
                    Shape::Whole(1),
                ),
            ]),
        ),
    ),
    may("skills", "Skills that this file defines, by id.", Shape::Map(&SKILL)),
    may("rules", "Rules that all agents must follow.", Shape::List(0, &Shape::Source)),
    may("context", "Background for all agents.", Shape::List(0, &Shape::Source)),
    may("inputs", "Inputs of the workflow, by name.", Shape::Map(&INPUT)),
    may("text_input", "Input that a message of plain text fills.", Shape::Text(true)),
    may("model", "Requested model of nodes and of routing. Default: chosen by the agent.", Shape::Text(true)),
    may("judge_model", "Requested model of judges. Default: claude-haiku-4-5.", Shape::Text(true)),
    may(
        "judge_budget",
        "Number of judge evaluators above which the file is reported. Default: 50.",
        Shape::Whole(0),
    ),
    may("max_steps", "Maximum number of node visits of an execution. Default: 200.", Shape::Whole(1)),
    may("workflow_type", "Kind of the workflow, for the marketplace. No effect.", Shape::Word(TYPES)),
]);

/// Checks a value and reports all errors as `path: what`.
pub(super) fn check(shape: &Shape, node: &Node, path: &str, found: &mut Vec<Diagnostic>) {
    let mut report = |span: Span, text: String| found.push(error(span, path, &text));
    let wrong = |want: &str| format!("Expected {want}, received {}", type_name(node));
    match shape {
        Shape::Text(filled) => match node.as_str() {
            None => report(node.span, wrong("string")),
            Some("") if *filled => report(node.span, "String must contain at least 1 character(s)".into()),
            Some(_) => {}
        },
        Shape::Word(known) => match node.as_str() {
            Some(word) if known.contains(&word) => {}
            _ => {
                let words: Vec<String> = known.iter().map(|word| format!("'{word}'")).collect();
                let seen =
                    node.as_str().map_or_else(|| type_name(node).to_owned(), |word| format!("'{word}'"));
                let text = format!("Invalid enum value. Expected {}, received {seen}", words.join(" | "));
                let wrong = error(node.span, path, &text);
                let near = node.as_str().and_then(|word| did_you_mean(word, known.iter().copied()));
                found.push(match near {
                    Some(near) => wrong.hint(format!("did you mean '{near}'?")),
                    None => wrong,
                });
            }
        },
        Shape::Bool if node.as_bool().is_none() => report(node.span, wrong("boolean")),
        Shape::Whole(least) => match (node.as_f64(), whole(node)) {
            (None, _) => report(node.span, wrong("number")),
            (Some(number), _) if number < *least as f64 => {
                report(node.span, format!("Number must be greater than or equal to {least}"));
            }
            (Some(_), None) => report(node.span, "Expected integer, received float".into()),
            (Some(_), Some(_)) => {}
        },
        Shape::Free if node.as_object().is_none() => report(node.span, wrong("object")),
        Shape::Any | Shape::Bool | Shape::Free => {}
        Shape::List(least, element) => match node.as_array() {
            None => report(node.span, wrong("array")),
            Some(items) => {
                if items.len() < *least {
                    report(node.span, format!("Array must contain at least {least} element(s)"));
                }
                for (n, item) in items.iter().enumerate() {
                    check(element, item, &join(path, &n.to_string()), found);
                }
            }
        },
        Shape::Map(value) => match node.as_object() {
            None => report(node.span, wrong("object")),
            Some(members) => {
                for member in members {
                    check(value, &member.value, &join(path, &member.key), found);
                }
            }
        },
        Shape::Strict(members) => object(members, true, node, path, found),
        Shape::Open(members) => object(members, false, node, path, found),
        Shape::Source => source(node, path, found),
        Shape::Sources => match node.get("sources") {
            None if node.as_object().is_some() => object(SOURCES, true, node, path, found),
            Some(_) => object(SOURCES, true, node, path, found),
            None => check(&Shape::List(0, &Shape::Source), node, path, found),
        },
        Shape::Hint => {
            let fine = match node.as_object() {
                None => node.as_str().is_some_and(|text| !text.is_empty()),
                Some([one]) => match one.key.as_str() {
                    "auto" => one.value.as_bool() == Some(true),
                    "reflect" => one.value.as_str().is_some_and(|text| !text.is_empty()),
                    _ => false,
                },
                Some(_) => false,
            };
            if !fine {
                report(node.span, "Expected a text, {auto: true} or {reflect: text}".into());
            }
        }
    }
}

static SOURCES: &[Member] = &[
    may("only", "Whether those of the input and the workflow are ignored. Default: false.", Shape::Bool),
    must("sources", "Texts, files or URLs.", Shape::List(0, &Shape::Source)),
];

static URL: &[Member] = &[
    must("url", "Address of a text.", Shape::Text(true)),
    may("type", "How the address is read. Default: fetch.", Shape::Word(&["fetch"])),
];

fn object(members: &[Member], strict: bool, node: &Node, path: &str, found: &mut Vec<Diagnostic>) {
    let Some(given) = node.as_object() else {
        let seen = type_name(node);
        return found.push(error(node.span, path, &format!("Expected object, received {seen}")));
    };
    for member in members {
        match node.get(member.key) {
            Some(value) => check(&member.shape, value, &join(path, member.key), found),
            None if member.required => {
                // A misspelled member of a strict object is reported as an unknown one.
                match misspelled(node, member.key) {
                    Some(_) if strict => {}
                    Some(near) => {
                        let missing = error(near.key_span, &join(path, member.key), "Required");
                        found.push(missing.hint(format!("did you mean '{}'?", member.key)));
                    }
                    None => found.push(error(node.span, &join(path, member.key), "Required")),
                }
            }
            None => {}
        }
    }
    let known = || members.iter().map(|member| member.key);
    let unknown: Vec<_> = given.iter().filter(|given| known().all(|key| key != given.key)).collect();
    if let (true, Some(first)) = (strict, unknown.first()) {
        let keys: Vec<String> = unknown.iter().map(|member| format!("'{}'", member.key)).collect();
        let text = format!("Unrecognized key(s) in object: {}", keys.join(", "));
        let mut finding = error(first.key_span, path, &text);
        if let Some(near) = did_you_mean(&first.key, known()) {
            finding = finding.hint(format!("did you mean '{near}'?"));
        }
        found.push(finding);
    }
}

/// Checks a source: a string or an object with one tag; the reference in the tag is read later.
fn source(node: &Node, path: &str, found: &mut Vec<Diagnostic>) {
    let invalid = |code: &str, text: &str| {
        let message = if path.is_empty() { text.to_owned() } else { format!("{path}: {text}") };
        Diagnostic::error(code::SWENY_SOURCE_CANNOT_BE_READ.as_str(), message).at(node.span).sub_code(code)
    };
    let Some(members) = node.as_object() else {
        return check(&Shape::Text(true), node, path, found);
    };
    let tags: Vec<&str> = members
        .iter()
        .map(|member| member.key.as_str())
        .filter(|key| matches!(*key, "inline" | "file" | "url"))
        .collect();
    let extra = members.iter().any(|member| match member.key.as_str() {
        "inline" | "file" | "url" => false,
        "type" => tags != ["url"],
        _ => true,
    });
    match tags.as_slice() {
        [tag] if !extra => {
            if let Some(value) = node.get(tag) {
                check(&Shape::Text(true), value, &join(path, tag), found);
            }
            if node.get("type").is_some_and(|kind| kind.as_str() != Some("fetch")) {
                found.push(invalid("SOURCE_INVALID_TYPE", "the only type of a URL source is 'fetch'"));
            }
        }
        _ => {
            let text = "a source is a text or an object with one of inline, file and url (with type)";
            found.push(invalid("SOURCE_INVALID_SHAPE", text));
        }
    }
}

/// Returns a finding about the form of a file.
pub(super) fn error(span: Span, path: &str, text: &str) -> Diagnostic {
    let message = if path.is_empty() { text.to_owned() } else { format!("{path}: {text}") };
    Diagnostic::error(code::SWENY_WORKFLOW_WRONG_FORM.as_str(), message).at(span).sub_code("SCHEMA")
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Returns an integer, also when written as `3.0`.
#[expect(clippy::cast_sign_loss, reason = "checked not to be negative")]
fn whole(node: &Node) -> Option<u64> {
    node.as_u64()
        .or_else(|| node.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0 && *n < 9e15).map(|n| n as u64))
}

fn type_name(node: &Node) -> &'static str {
    match node.type_name() {
        "integer" => "number",
        name => name,
    }
}

/// Returns the shape as JSON Schema.
pub(super) fn json_schema(shape: &Shape) -> Value {
    match shape {
        Shape::Text(true) => json!({ "type": "string", "minLength": 1 }),
        Shape::Text(false) => json!({ "type": "string" }),
        Shape::Word(words) => json!({ "enum": words }),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Whole(least) => json!({ "type": "integer", "minimum": least }),
        Shape::Any => json!(true),
        Shape::Free => json!({ "type": "object" }),
        Shape::List(least, element) => {
            json!({ "type": "array", "minItems": least, "items": json_schema(element) })
        }
        Shape::Map(value) => json!({ "type": "object", "additionalProperties": json_schema(value) }),
        Shape::Strict(members) => object_schema(members, true),
        Shape::Open(members) => object_schema(members, false),
        Shape::Source => json!({ "anyOf": [
            { "type": "string", "minLength": 1 },
            object_schema(&[must("inline", "Text.", Shape::Text(true))], true),
            object_schema(&[must("file", "Path of a text file.", Shape::Text(true))], true),
            object_schema(URL, true)
        ] }),
        Shape::Sources => json!({ "anyOf": [
            { "type": "array", "items": json_schema(&Shape::Source) },
            object_schema(SOURCES, true)
        ] }),
        Shape::Hint => json!({ "anyOf": [
            { "type": "string", "minLength": 1 },
            {
                "type": "object",
                "properties": { "auto": {
                    "const": true,
                    "description": "Ask a model what the next attempt must do differently."
                } },
                "required": ["auto"],
                "additionalProperties": false
            },
            object_schema(&[must("reflect", "Question to a model about the failed attempt.", Shape::Text(true))], true)
        ] }),
    }
}

fn object_schema(members: &[Member], strict: bool) -> Value {
    let described = |member: &Member| {
        let mut schema = json_schema(&member.shape);
        // The schema of any value is `true`.
        if !schema.is_object() {
            schema = json!({});
        }
        schema["description"] = member.about.into();
        (member.key.to_owned(), schema)
    };
    let properties: Map<String, Value> = members.iter().map(described).collect();
    let required: Vec<&str> =
        members.iter().filter(|member| member.required).map(|member| member.key).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": !strict,
    })
}
