//! Parses a file's tree into a [`WorkflowDefinition`] and reports all errors in its shape.

use serde_json::Value;
use sinew_protocol::catalogue::Catalogue;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Member, Node, did_you_mean};

use super::extension_check;
use super::model::{
    Branch, Call, Case, ExitHandlers, KeySpans, NodeDef, RetryBackoff, RetryStrategy, Strategy, Work,
    WorkflowDefinition, WorkflowSettings,
};
use super::read::{Keys, ObjectFields, ParseFindings, whole_number, wrong_type};
use crate::display::DISPLAY;

const DEPENDS_ON: Keys = &["depends_on", "dependencies", "dependsOn"];
const RETRY: Keys = &["retry_strategy", "retryStrategy"];
const INPUT_SCHEMA: Keys = &["input_schema", "inputSchema"];
const TEXT_INPUT: Keys = &["text_input", "textInput"];
const OUTPUT_SCHEMA: Keys = &["output_schema", "outputSchema"];
const INPUT_OVERRIDE: Keys = &["input_schema_override", "inputSchemaOverride"];
const OUTPUT_OVERRIDE: Keys = &["output_schema_override", "outputSchemaOverride"];

/// A setting without an effect here: nothing waits for cancelled tasks.
const CANCELLATION: &str = "node_cancellation_timeout_seconds";

/// Reads the settings next to a definition; other keys there are ignored.
pub(super) fn settings(around: &Node, found: &mut ParseFindings) -> WorkflowSettings {
    let Some(mut fields) = ObjectFields::open(around, "the application", found) else {
        return WorkflowSettings::default();
    };
    if let Some(waiting) = around.get(CANCELLATION) {
        found.push(
            Diagnostic::warning(code::SETTING_NO_EFFECT.as_str(), format!("'{CANCELLATION}' has no effect"))
                .at(waiting.span)
                .hint("an execution does not wait at its end: open tasks are cancelled, and later results are ignored"),
        );
    }
    WorkflowSettings {
        display_name: fields.text(&["display_name"], found),
        default_node_timeout_seconds: fields.number(&["default_node_timeout_seconds"], 0.0, found),
        max_workflow_execution_time_seconds: fields.number(
            &["max_workflow_execution_time_seconds"],
            0.0,
            found,
        ),
        node_cancellation_timeout_seconds: fields.number(&[CANCELLATION], 0.0, found),
        default_max_map_items: fields.whole(&["default_max_map_items"], 1, found),
    }
}

/// Keys of [`WorkflowSettings`], and the name, for settings among a definition's own keys.
const AROUND: Keys = &[
    "name",
    "agent_name",
    "display_name",
    "default_node_timeout_seconds",
    "max_workflow_execution_time_seconds",
    CANCELLATION,
    "default_max_map_items",
];

/// Reads a definition. With `bare`, its settings are among its own keys.
pub(super) fn definition(
    node: &Node,
    name: &str,
    bare: bool,
    found: &mut ParseFindings,
) -> Option<WorkflowDefinition> {
    let mut fields = ObjectFields::open(node, format!("workflow '{name}'"), found)?;
    let mut places = KeySpans { whole: node.span, ..KeySpans::default() };
    if bare {
        for key in AROUND {
            fields.get(std::slice::from_ref(key), found);
        }
    }
    let description = fields.required_text(&["description"], found).unwrap_or_default();
    let version = fields.get(&["version"], found).and_then(|node| version(node, found));
    for (key, keys) in [("input_schema", INPUT_SCHEMA), ("output_schema", OUTPUT_SCHEMA)] {
        note(&mut places, key, fields.get(keys, &mut Vec::new()));
    }
    note(&mut places, "text_input", fields.get(TEXT_INPUT, &mut Vec::new()));
    let output_mapping = fields.require(&["output_mapping", "outputMapping"], found);
    note(&mut places, "output_mapping", output_mapping);
    if let Some(mapping) = output_mapping.filter(|mapping| mapping.as_object().is_none()) {
        found.push(wrong_type(mapping, "'output_mapping'", "an object"));
    }
    let list = fields.require(&["nodes"], found);
    places.keys.extend(list.map(|list| ("nodes".to_owned(), list.span)));
    let mut unread = Vec::new();
    let nodes = list.map(|list| nodes(list, &mut unread, found)).unwrap_or_default();
    let on_exit = fields.get(&["on_exit", "onExit"], found);
    let on_exit = on_exit.map(|node| exits(node, &mut places, found)).unwrap_or_default();
    let definition = WorkflowDefinition {
        description,
        version: version.unwrap_or_else(|| "1.0.0".to_owned()),
        input_schema: fields.object(INPUT_SCHEMA, found),
        text_input: fields.text(TEXT_INPUT, found),
        output_schema: fields.object(OUTPUT_SCHEMA, found),
        nodes,
        output_mapping: output_mapping.map(Node::to_json).unwrap_or_default(),
        skills: fields
            .list(&["skills"], found)
            .unwrap_or_default()
            .iter()
            .enumerate()
            .filter_map(|(n, node)| skill(node, n, found))
            .collect(),
        catalogue: fields.get(&["catalogue"], found).and_then(|node| catalogue(node, found)),
        on_exit,
        fail_fast: fields.flag(&["fail_fast", "failFast"], found).unwrap_or(true),
        max_call_depth: fields.whole(&["max_call_depth", "maxCallDepth"], 1, found).unwrap_or(10),
        retry_strategy: fields.get(RETRY, found).and_then(|node| retrying(node, name, found)),
        settings: WorkflowSettings::default(),
        display: fields.get(&[DISPLAY], found).cloned(),
        unread,
        places,
    };
    fields.close(found);
    Some(definition)
}

/// Reads a skill for the agent card; fields beyond the specification are kept.
fn skill(node: &Node, n: usize, found: &mut ParseFindings) -> Option<Value> {
    let mut fields = ObjectFields::open(node, format!("skill {n}"), found)?;
    let id = fields.required_text(&["id"], found);
    fields.report_missing(found);
    id?;
    for key in [&["name"][..], &["description"]] {
        fields.text(key, found);
    }
    if let Some(tags) = fields.list(&["tags"], found) {
        for tag in tags.iter().filter(|tag| tag.as_str().is_none()) {
            found.push(wrong_type(tag, &format!("every tag of skill {n}"), "text"));
        }
    }
    Some(node.to_json())
}

/// Reads the attributes by which the workflow is found.
fn catalogue(node: &Node, found: &mut ParseFindings) -> Option<Catalogue> {
    let wrong = |text: String| {
        Diagnostic::error(code::WRONG_VALUE_IN_WORKFLOW.as_str(), format!("catalogue: {text}"))
    };
    match serde_json::from_value::<Catalogue>(node.to_json()) {
        Err(error) => {
            found.push(wrong(error.to_string()).at(node.span));
            None
        }
        Ok(read) => {
            if let Some((member, text)) = read.mistake() {
                let place = node.get(member).map_or(node.span, |member| member.span);
                found.push(wrong(format!("{member}: {text}")).at(place));
            }
            Some(read)
        }
    }
}

/// Reads a version: `2.1` is a number in YAML, but a valid version.
fn version(node: &Node, found: &mut ParseFindings) -> Option<String> {
    match node.to_json() {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => {
            found.push(wrong_type(node, "'version'", "text"));
            None
        }
    }
}

pub(super) fn note(places: &mut KeySpans, key: &str, node: Option<&Node>) {
    if let Some(node) = node {
        places.keys.insert(key.to_owned(), node.span);
        places.values.insert(key.to_owned(), node.clone());
    }
}

fn exits(node: &Node, places: &mut KeySpans, found: &mut ParseFindings) -> ExitHandlers {
    if let Some(id) = node.as_str() {
        places.keys.insert("on_exit.always".to_owned(), node.span);
        // Messages use the key as written.
        places.keys.insert("on_exit".to_owned(), node.span);
        return ExitHandlers { always: Some(id.to_owned()), ..ExitHandlers::default() };
    }
    let Some(mut fields) = ObjectFields::open(node, "'on_exit'", found) else {
        return ExitHandlers::default();
    };
    let mut read = |key: &str, keys: Keys| {
        let id = fields.text(keys, found);
        note(places, &format!("on_exit.{key}"), fields.get(keys, &mut Vec::new()));
        id
    };
    let on_exit = ExitHandlers {
        always: read("always", &["always"]),
        on_success: read("on_success", &["on_success", "onSuccess"]),
        on_failure: read("on_failure", &["on_failure", "onFailure"]),
        on_cancel: read("on_cancel", &["on_cancel", "onCancel"]),
    };
    fields.close(found);
    on_exit
}

fn retrying(node: &Node, of: &str, found: &mut ParseFindings) -> Option<RetryStrategy> {
    let mut fields = ObjectFields::open(node, format!("'retry_strategy' of '{of}'"), found)?;
    let retry_policy = fields.get(&["retry_policy", "retryPolicy"], found);
    if let Some(policy) =
        retry_policy.filter(|policy| !policy.as_str().is_some_and(|text| POLICIES.contains(&text)))
    {
        let wrong = format!("'retry_policy' of '{of}' must be 'Always', 'OnFailure' or 'OnError'");
        found.push(Diagnostic::error(code::WRONG_VALUE_IN_WORKFLOW.as_str(), wrong).at(policy.span));
    }
    let retrying = RetryStrategy {
        limit: fields.whole(&["limit"], 0, found),
        retry_policy: retry_policy.and_then(Node::as_str).map(str::to_owned),
        backoff: fields.get(&["backoff"], found).and_then(|node| backoff(node, of, found)),
    };
    fields.close(found);
    Some(retrying)
}

const POLICIES: [&str; 3] = ["Always", "OnFailure", "OnError"];

fn backoff(node: &Node, of: &str, found: &mut ParseFindings) -> Option<RetryBackoff> {
    let mut fields = ObjectFields::open(node, format!("'backoff' of '{of}'"), found)?;
    let backoff = RetryBackoff {
        duration: fields.duration(&["duration"], found),
        factor: fields.number(&["factor"], 0.0, found),
        max_duration: fields.duration(&["max_duration", "maxDuration"], found),
    };
    fields.close(found);
    Some(backoff)
}

fn nodes(list: &Node, unread: &mut Vec<String>, found: &mut ParseFindings) -> Vec<NodeDef> {
    match list.as_array() {
        None => {
            found.push(wrong_type(list, "'nodes'", "a list"));
            Vec::new()
        }
        Some([]) => {
            found.push(
                Diagnostic::error(code::NOTHING_TO_RUN.as_str(), "'nodes' is empty: a workflow needs a node")
                    .at(list.span),
            );
            Vec::new()
        }
        Some(list) => {
            let mut nodes = Vec::with_capacity(list.len());
            for (n, node) in list.iter().enumerate() {
                match one(node, n, found) {
                    Some(read) => nodes.push(read),
                    None => unread.extend(node.get("id").and_then(Node::as_str).map(str::to_owned)),
                }
            }
            nodes
        }
    }
}

const TYPES: [&str; 10] =
    ["agent", "workflow", "conditional", "switch", "map", "fork", "join", "loop", "approval", "sleep"];

fn one(node: &Node, n: usize, found: &mut ParseFindings) -> Option<NodeDef> {
    let id = node.get("id").and_then(Node::as_str);
    let shown = id.map_or_else(|| format!("node {n}"), |id| format!("node '{id}'"));
    let mut fields = ObjectFields::open(node, shown.clone(), found)?;
    let id = fields.required_text(&["id"], found);
    if id.as_deref().is_some_and(|id| id.trim().is_empty()) {
        found.push(
            Diagnostic::error(code::WRONG_VALUE_IN_WORKFLOW.as_str(), format!("the id of node {n} is empty"))
                .at(fields.span),
        );
    }
    let Some(kind) = kind(&mut fields, node.as_object().unwrap_or_default(), found) else {
        fields.report_missing(found);
        return None;
    };
    let id = id?;
    fields.what = format!("{kind} {shown}");
    let mut places = KeySpans { whole: node.span, ..KeySpans::default() };
    note(&mut places, "id", node.get("id"));
    let depends_on = match fields.get(DEPENDS_ON, found) {
        Some(one) if one.as_str().is_some() => {
            let wrong = wrong_type(one, &fields.key(DEPENDS_ON), "a list of node ids");
            found.push(wrong.hint(format!("write [{}]", one.as_str().unwrap_or_default())));
            // Its meaning is clear, so nothing else is wrong because of it.
            one.as_str().map(str::to_owned).into_iter().collect()
        }
        _ => {
            let list = fields.list(DEPENDS_ON, &mut Vec::new());
            list_of_names(&mut fields, DEPENDS_ON, list, &mut places, found)
        }
    };
    let when = fields.text(&["when"], found);
    note(&mut places, "when", fields.get(&["when"], &mut Vec::new()));
    let continue_on_error = fields.flag(&["continue_on_error", "continueOnError"], found).unwrap_or(false);
    let on_error = placed(&mut fields, &["on_error", "onError"], false, &mut places, found);
    let work = work(kind, &id, &mut fields, &mut places, found);
    fields.close(found);
    Some(NodeDef { id, work: work?, depends_on, when, continue_on_error, on_error, places })
}

/// Returns the type as written, or, as in the source engine, derived from the keys.
fn kind(
    fields: &mut ObjectFields<'_>,
    members: &[Member],
    found: &mut ParseFindings,
) -> Option<&'static str> {
    let Some(written) = fields.get(&["type"], found) else {
        let has = |key: &str| members.iter().any(|member| member.key == key);
        let told = match () {
            () if has("agent_name") => Some("agent"),
            () if has("workflow_name") => Some("workflow"),
            () if has("cases") => Some("switch"),
            () if has("items") || has("withItems") || has("withParam") => Some("map"),
            () if has("node") && has("condition") => Some("loop"),
            () => None,
        };
        if told.is_none() {
            let missing = Diagnostic::error(
                code::REQUIRED_KEY_MISSING_IN_WORKFLOW.as_str(),
                format!("{} needs 'type'", fields.what),
            );
            found.push(missing.at(fields.span).hint(format!("one of {}", TYPES.join(", "))));
        }
        return told;
    };
    let Some(text) = written.as_str() else {
        found.push(wrong_type(written, &fields.key(&["type"]), "text"));
        return None;
    };
    let known = TYPES.into_iter().find(|known| *known == text);
    if known.is_none() {
        let unknown = Diagnostic::error(
            code::WRONG_VALUE_IN_WORKFLOW.as_str(),
            format!("{} has the unknown type '{text}'", fields.what),
        );
        found.push(unknown.at(written.span).hint(match did_you_mean(text, TYPES.into_iter()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("one of {}", TYPES.join(", ")),
        }));
    }
    known
}

fn list_of_names(
    fields: &mut ObjectFields<'_>,
    keys: Keys,
    list: Option<&[Node]>,
    places: &mut KeySpans,
    found: &mut ParseFindings,
) -> Vec<String> {
    let mut ids = Vec::new();
    if let Some(node) = fields.get(keys, &mut Vec::new()).filter(|_| list.is_none()) {
        found.push(wrong_type(node, &fields.key(keys), "a list of node ids"));
    }
    for node in list.unwrap_or_default() {
        let Some(id) = node.as_str() else {
            found.push(wrong_type(node, &format!("every entry of {}", fields.key(keys)), "the id of a node"));
            continue;
        };
        // Duplicate names count once.
        if !ids.iter().any(|other| other == id) {
            places.keys.insert(format!("{}[{id}]", keys[0]), node.span);
            ids.push(id.to_owned());
        }
    }
    ids
}

/// Reads a string and records its span.
pub(super) fn placed(
    fields: &mut ObjectFields<'_>,
    keys: Keys,
    needed: bool,
    places: &mut KeySpans,
    found: &mut ParseFindings,
) -> Option<String> {
    let text = if needed { fields.required_text(keys, found) } else { fields.text(keys, found) };
    note(places, keys[0], fields.get(keys, &mut Vec::new()));
    text
}

fn work(
    kind: &'static str,
    id: &str,
    fields: &mut ObjectFields<'_>,
    places: &mut KeySpans,
    found: &mut ParseFindings,
) -> Option<Work> {
    Some(match kind {
        "agent" => {
            let agent_name = placed(fields, &["agent_name"], true, places, found);
            let call = call(id, fields, places, found);
            Work::Agent { agent_name: agent_name?, call }
        }
        "workflow" => {
            let workflow_name = placed(fields, &["workflow_name"], true, places, found);
            let call = call(id, fields, places, found);
            Work::Workflow { workflow_name: workflow_name?, call }
        }
        "conditional" => {
            let condition = placed(fields, &["condition"], true, places, found);
            let true_branch = placed(fields, &["true_branch", "trueBranch"], true, places, found);
            let false_branch = placed(fields, &["false_branch", "falseBranch"], false, places, found);
            Work::Conditional { condition: condition?, true_branch: true_branch?, false_branch }
        }
        "switch" => {
            let list = fields.required_list(&["cases"], found);
            let default = placed(fields, &["default"], false, places, found);
            let cases = list?
                .iter()
                .enumerate()
                .map(|(n, node)| case(node, n, id, places, found))
                .collect::<Vec<_>>();
            Work::Switch { cases: cases.into_iter().collect::<Option<_>>()?, default }
        }
        "map" => {
            let items = items(id, fields, places, found);
            let node = placed(fields, &["node"], true, places, found);
            // 0 selects the default, as in the source engine.
            let max_items = fields.whole(&["max_items", "maxItems"], 0, found).filter(|max| *max > 0);
            let concurrency_limit = fields.whole(&["concurrency_limit", "concurrencyLimit"], 1, found);
            let tolerate = extension_check::tolerance(fields, places, found);
            Work::Map { items: items?, node: node?, max_items, concurrency_limit, tolerate }
        }
        "fork" => {
            let list = fields.required_list(&["branches"], found);
            let fail_fast = fields.flag(&["fail_fast", "failFast"], found).unwrap_or(true);
            let branches =
                list?.iter().enumerate().map(|(n, node)| branch(node, n, id, found)).collect::<Vec<_>>();
            if branches.is_empty() {
                let empty = Diagnostic::error(
                    code::WRONG_VALUE_IN_WORKFLOW.as_str(),
                    format!("'branches' of fork '{id}' is empty"),
                );
                found.push(empty.at(fields.span));
            }
            Work::Fork { branches: branches.into_iter().collect::<Option<_>>()?, fail_fast }
        }
        "join" => {
            const WAIT_FOR: Keys = &["wait_for", "waitFor"];
            let list = fields.required_list(WAIT_FOR, found);
            note(places, "wait_for", fields.get(WAIT_FOR, &mut Vec::new()));
            let wait_for = list.map(|list| list_of_names(fields, WAIT_FOR, Some(list), places, found));
            let strategy = strategy(id, fields, found);
            let n = fields.get(&["n"], found);
            note(places, "n", n);
            let n = join_count(id, n, strategy, wait_for.as_deref().map_or(0, <[_]>::len), places, found);
            Work::Join { wait_for: wait_for?, strategy: strategy?, n }
        }
        "approval" => Work::Approval(extension_check::approval(fields, places, found)?),
        "sleep" => Work::Sleep(extension_check::sleep(fields, places, found)?),
        _ => {
            let node = placed(fields, &["node"], true, places, found);
            let condition = placed(fields, &["condition"], true, places, found);
            let max_iterations = fields.whole(&["max_iterations", "maxIterations"], 1, found);
            let delay = fields.duration(&["delay"], found);
            Work::Loop { node: node?, condition: condition?, max_iterations, delay }
        }
    })
}

fn call(id: &str, fields: &mut ObjectFields<'_>, places: &mut KeySpans, found: &mut ParseFindings) -> Call {
    let input = fields.object(&["input"], found);
    note(places, "input", fields.get(&["input"], &mut Vec::new()));
    let instruction = placed(fields, &["instruction"], false, places, found);
    for keys in [INPUT_OVERRIDE, OUTPUT_OVERRIDE] {
        note(places, keys[0], fields.get(keys, &mut Vec::new()));
    }
    Call {
        input,
        instruction,
        input_schema_override: fields.object(INPUT_OVERRIDE, found),
        output_schema_override: fields.object(OUTPUT_OVERRIDE, found),
        retry_strategy: fields.get(RETRY, found).and_then(|node| retrying(node, id, found)),
        timeout: fields.duration(&["timeout"], found),
    }
}

fn case(node: &Node, n: usize, id: &str, places: &mut KeySpans, found: &mut ParseFindings) -> Option<Case> {
    let mut fields = ObjectFields::open(node, format!("case {n} of switch '{id}'"), found)?;
    let condition = fields.required_text(&["condition", "when"], found);
    let target = fields.required_text(&["node", "then"], found);
    note(places, &format!("cases[{n}].condition"), fields.get(&["condition", "when"], &mut Vec::new()));
    note(places, &format!("cases[{n}].node"), fields.get(&["node", "then"], &mut Vec::new()));
    fields.close(found);
    Some(Case { condition: condition?, node: target? })
}

fn branch(node: &Node, n: usize, id: &str, found: &mut ParseFindings) -> Option<Branch> {
    let mut fields = ObjectFields::open(node, format!("branch {n} of fork '{id}'"), found)?;
    let mut places = KeySpans { whole: node.span, ..KeySpans::default() };
    let branch_id = placed(&mut fields, &["id"], true, &mut places, found);
    let agent_name = placed(&mut fields, &["agent_name"], true, &mut places, found);
    let input = fields.object(&["input"], found);
    note(&mut places, "input", fields.get(&["input"], &mut Vec::new()));
    let output_key = placed(&mut fields, &["output_key", "outputKey"], true, &mut places, found);
    fields.close(found);
    Some(Branch { id: branch_id?, agent_name: agent_name?, input, output_key: output_key?, places })
}

/// Reads a map's items, from exactly one of their three keys.
fn items(
    id: &str,
    fields: &mut ObjectFields<'_>,
    places: &mut KeySpans,
    found: &mut ParseFindings,
) -> Option<Value> {
    let given: Vec<&Node> = [&["items"][..], &["with_param", "withParam"], &["with_items", "withItems"]]
        .into_iter()
        .filter_map(|keys| fields.get(keys, found))
        .collect();
    note(places, "items", given.first().copied());
    let wrong = match given.as_slice() {
        [one] => match &one.kind {
            sinew_source::Kind::String(_) | sinew_source::Kind::Object(_) | sinew_source::Kind::Array(_) => {
                return Some(one.to_json());
            }
            _ => wrong_type(one, &format!("'items' of map '{id}'"), "a template, an operator or a list"),
        },
        [] => Diagnostic::error(
            code::MAP_ITEMS_AMBIGUOUS.as_str(),
            format!("map node '{id}': MapNode requires one of: 'items', 'withParam', or 'withItems'"),
        )
        .at(fields.span),
        [_, second, ..] => Diagnostic::error(
            code::MAP_ITEMS_AMBIGUOUS.as_str(),
            format!("map node '{id}': MapNode accepts only one of: 'items', 'withParam', or 'withItems'"),
        )
        .at(second.span),
    };
    found.push(wrong);
    None
}

fn strategy(id: &str, fields: &mut ObjectFields<'_>, found: &mut ParseFindings) -> Option<Strategy> {
    let Some(node) = fields.get(&["strategy"], found) else {
        return Some(Strategy::All);
    };
    let strategy = match node.as_str() {
        Some("all") => Some(Strategy::All),
        Some("any") => Some(Strategy::Any),
        Some("n_of_m") => Some(Strategy::NOfM),
        _ => None,
    };
    if strategy.is_none() {
        let wrong = Diagnostic::error(
            code::WRONG_VALUE_IN_WORKFLOW.as_str(),
            format!("'strategy' of join '{id}' must be 'all', 'any' or 'n_of_m'"),
        );
        found.push(wrong.at(node.span));
    }
    strategy
}

/// Reads and checks the number of nodes that a join of `count` nodes waits for.
fn join_count(
    id: &str,
    node: Option<&Node>,
    strategy: Option<Strategy>,
    count: usize,
    places: &KeySpans,
    found: &mut ParseFindings,
) -> Option<u32> {
    let wrong = match (strategy, node.map(whole_number)) {
        (Some(Strategy::NOfM), None) => "JoinNode with strategy 'n_of_m' requires 'n' field".to_owned(),
        (_, None) => return None,
        (_, Some(None)) => "JoinNode 'n' must be a whole number".to_owned(),
        (_, Some(Some(n))) if n < 1 => "JoinNode 'n' must be at least 1".to_owned(),
        (_, Some(Some(n))) if usize::try_from(n).map_or(true, |n| n > count) => {
            format!("JoinNode 'n' ({n}) cannot exceed wait_for count ({count})")
        }
        (_, Some(Some(n))) => return u32::try_from(n).ok(),
    };
    found.push(
        Diagnostic::error(code::JOIN_QUORUM_WRONG.as_str(), format!("join node '{id}': {wrong}"))
            .at(places.of("n")),
    );
    None
}
