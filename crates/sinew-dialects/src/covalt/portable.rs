//! Translation of nodes to `sam` workflows.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};
use sinew_plan::{EdgeIndex, NodeIndex, NodeOperation, Plan};

use super::lower::CanvasNodeData;
use crate::convert::has_template;
use crate::{PlanGraph, Portability};

pub(super) fn portable(graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
    let plan = graph.plan();
    let own = plan.node(node);
    let Ok(extra) = serde_json::from_value::<CanvasNodeData>(own.extra.clone()) else {
        return Portability::Not("the plan is of another dialect".into());
    };
    match (&own.op, own.kind.as_str()) {
        _ if own.attached => Portability::Attached,
        (NodeOperation::Source, _) => Portability::Start,
        (_, "conditional") => conditional(graph, node, &extra, losses).unwrap_or_else(Portability::Not),
        (NodeOperation::Agent, "agent" | "droid-agent") => {
            agent(graph, node, &extra, losses).unwrap_or_else(Portability::Not)
        }
        (_, kind) => Portability::Not(format!("sam has no equivalent of '{kind}'")),
    }
}

fn agent(
    graph: &PlanGraph<'_>,
    node: NodeIndex,
    extra: &CanvasNodeData,
    losses: &mut Vec<String>,
) -> Result<Portability, String> {
    let own = graph.plan().node(node);
    for (key, value) in extra.data.iter().filter(|(key, _)| *key != "instructions") {
        if value.to_string().contains("{{") {
            return Err(format!(
                "its '{key}' contains an expression, and only instructions can be converted"
            ));
        }
    }
    if extra.data.get("on_error").and_then(Value::as_str) == Some("continue") {
        return Err("the workflow continues after a failure of its agent".into());
    }
    if let Some((_, edge)) = graph.edges_into(node).find(|(_, edge)| edge.handle != "input") {
        return Err(format!("a value arrives at its input '{}'", edge.handle));
    }
    if !extra.links.is_empty() {
        losses.push("linked tools, sub-agents and models cannot be converted".into());
    }
    let before = previous(graph, node).ok_or("its input depends on which of several branches ran")?;
    losses.push(
        "its agent receives the preceding output as `input`, without the node's data and parameters".into(),
    );
    losses.push("members of its answer other than `response`, `model` and `tokens_used` are kept".into());
    if before == WORKFLOW_INPUT {
        losses.push("the message of the user must be the member `message` of the input".into());
    }
    let instructions = extra.data.get("instructions").and_then(Value::as_str).filter(|text| !text.is_empty());
    let instruction = instructions.map(|text| translate(graph, node, text)).transpose()?;
    if instruction.as_deref().is_some_and(has_template) {
        losses.push("a missing value leaves its template in the instruction instead of an empty text".into());
    }
    Ok(Portability::Agent {
        agent: own.agent.clone().unwrap_or_else(|| own.kind.clone()),
        instruction,
        input: Some(json!({ "input": format!("{{{{{before}}}}}") })),
    })
}

/// A `sam` condition on a missing field has no value and is therefore false, as in this dialect.
fn conditional(
    graph: &PlanGraph<'_>,
    node: NodeIndex,
    extra: &CanvasNodeData,
    losses: &mut Vec<String>,
) -> Result<Portability, String> {
    let text = |key: &str| extra.data.get(key).and_then(Value::as_str).unwrap_or_default();
    let before = previous(graph, node).ok_or("its input depends on which of several branches ran")?;
    let field: Vec<&str> = text("field").split('.').filter(|step| !step.is_empty()).collect();
    if field.iter().any(|step| step.contains(['{', '}']) || step.trim() != *step) {
        return Err(format!("templates cannot reference the field '{}'", text("field")));
    }
    if before == WORKFLOW_INPUT && field.first().is_none_or(|first| *first != MESSAGE) {
        return Err(format!(
            "only '{MESSAGE}' of the input is passed on by the start node, not '{}'",
            text("field")
        ));
    }
    let seen = format!("{{{{{}}}}}", [&[before.as_str()], field.as_slice()].concat().join("."));
    let wanted = extra.data.get("value").cloned().unwrap_or_default();
    if !(wanted.is_number() || wanted.is_boolean() || wanted.is_string()) || wanted.to_string().contains("{{")
    {
        return Err("it compares with a value that is not a literal".into());
    }
    let folds = extra.data.get("caseSensitive") == Some(&json!(false)) && wanted.is_string();
    // Booleans are numbers in Python, but not in this dialect.
    let (is, is_not) = match (&wanted, folds) {
        (Value::String(text), true) => {
            let folded = Value::String(text.to_lowercase());
            (format!("{seen}.lower() == {folded}"), None)
        }
        (Value::String(_), false) => (format!("{seen} == {wanted}"), Some(format!("{seen} != {wanted}"))),
        (Value::Bool(true), _) => (format!("{seen} is True"), Some(format!("{seen} is not True"))),
        (Value::Bool(false), _) => (format!("{seen} is False"), Some(format!("{seen} is not False"))),
        _ => {
            let is_truth = format!("({seen} is True or {seen} is False)");
            (
                format!("{seen} == {wanted} and not {is_truth}"),
                Some(format!("{seen} != {wanted} or {is_truth}")),
            )
        }
    };
    let condition = match text("operator") {
        "" | "equals" => is,
        "notEquals" => is_not.ok_or("sam can ignore the case of texts only in comparisons for equality")?,
        operator => {
            let compare = match operator {
                "greaterThan" => ">",
                "greaterThanOrEqual" | "greaterOrEqual" => ">=",
                "lessThan" => "<",
                "lessThanOrEqual" | "lessOrEqual" => "<=",
                other => return Err(format!("sam has no equivalent of the operator '{other}'")),
            };
            if folds || wanted.is_boolean() {
                return Err("it compares the order of texts without case, or of booleans".into());
            }
            losses.push("a value that cannot be compared takes the branch 'false' instead of failing".into());
            format!("{seen} {compare} {wanted}")
        }
    };
    if before == WORKFLOW_INPUT {
        losses.push("the message of the user must be the member `message` of the input".into());
    }
    let port = |name: &str| -> Option<EdgeIndex> {
        graph.edges_out_of(node).find(|(_, edge)| edge.port == name).map(|(ix, _)| ix)
    };
    if port("true").is_none() && port("false").is_some() {
        return Err("its branch 'true' has no target, but a case of sam requires one".into());
    }
    Ok(Portability::Choice {
        cases: port("true").map(|edge| (condition, edge)).into_iter().collect(),
        default: port("false"),
    })
}

/// A pattern that is compiled once.
type LazyPattern = LazyLock<Result<Regex, regex::Error>>;

static EXPRESSION: LazyPattern = LazyLock::new(|| Regex::new(r"\{\{\s*(.*?)\s*\}\}"));
static NAMED: LazyPattern =
    LazyLock::new(|| Regex::new(r#"^\$\(\s*['"]([^'"]+)['"]\s*\)\.item\.json((?:\.\w+)*)$"#));
static INPUT: LazyPattern = LazyLock::new(|| Regex::new(r"^input((?:\.\w+)*)$"));

/// Translates expressions that only name a value to `sam` templates; any other expression stops the
/// conversion.
fn translate(graph: &PlanGraph<'_>, node: NodeIndex, text: &str) -> Result<String, String> {
    let compiled = |pattern: &'static LazyPattern| pattern.as_ref().map_err(ToString::to_string);
    let (expression, named, input) = (compiled(&EXPRESSION)?, compiled(&NAMED)?, compiled(&INPUT)?);
    let mut out = String::new();
    let mut end = 0;
    for found in expression.captures_iter(text) {
        let (Some(whole), Some(inner)) = (found.get(0), found.get(1)) else { continue };
        let inner = inner.as_str();
        // The length of a string or list is not a field of its JSON.
        if inner.split('.').any(|step| step == "length") {
            return Err(format!("the expression '{inner}' does more than name a value"));
        }
        let path = if let Some(parts) = named.captures(inner) {
            let target = graph.named(&parts[1]).ok_or_else(|| format!("'{inner}' names no node"))?;
            format!("{}{}", root(graph.plan(), target), &parts[2])
        } else if let Some(parts) = input.captures(inner) {
            let before = previous(graph, node).ok_or("'input' depends on which of several branches ran")?;
            format!("{before}{}", &parts[1])
        } else {
            return Err(format!("the expression '{inner}' does more than name a value"));
        };
        let of_input = path.strip_prefix(WORKFLOW_INPUT).map(|rest| rest.trim_start_matches('.'));
        if of_input.is_some_and(|rest| rest.split('.').next() != Some(MESSAGE)) {
            return Err(format!(
                "only '{MESSAGE}' of the input is passed on by the start node, not '{inner}'"
            ));
        }
        out.push_str(&text[end..whole.start()]);
        out.push_str("{{");
        out.push_str(&path);
        out.push_str("}}");
        end = whole.end();
    }
    out.push_str(&text[end..]);
    Ok(out)
}

/// Field of the input that the start passes on.
const MESSAGE: &str = "message";
/// The path of the execution's input in `sam`.
const WORKFLOW_INPUT: &str = "workflow.input";

/// Returns the path of a node's value in `sam`.
fn root(plan: &Plan, node: NodeIndex) -> String {
    let own = plan.node(node);
    if own.op == NodeOperation::Source { WORKFLOW_INPUT.into() } else { format!("{}.output", own.id) }
}

/// Returns the path of the only preceding value, skipping conditionals, which pass on their input.
fn previous(graph: &PlanGraph<'_>, node: NodeIndex) -> Option<String> {
    let plan = graph.plan();
    let mut at = node;
    // No path in an acyclic graph is longer than its node count.
    for _ in 0..=plan.nodes.len() {
        let mut before = graph.edges_into(at).map(|(_, edge)| edge.from);
        let first = before.next()?;
        if before.any(|other| other != first) {
            return None;
        }
        if plan.node(first).kind == "conditional" {
            at = first;
        } else {
            return Some(root(plan, first));
        }
    }
    None
}
