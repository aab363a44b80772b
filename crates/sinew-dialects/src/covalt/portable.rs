//! Translation of nodes to `sam` workflows.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};
use sinew_plan::{EdgeIx, NodeIx, Op, Plan};

use super::lower::CanvasNodeData;
use crate::{PlanGraph, Portability};

pub(super) fn portable(graph: &PlanGraph<'_>, node: NodeIx, losses: &mut Vec<String>) -> Portability {
    let plan = graph.plan();
    let own = plan.node(node);
    let Ok(extra) = serde_json::from_value::<CanvasNodeData>(own.extra.clone()) else {
        return Portability::Not("the plan is not one of this dialect".into());
    };
    match (&own.op, own.kind.as_str()) {
        _ if own.attached => Portability::Attached,
        (Op::Source, _) => Portability::Start,
        (_, "conditional") => conditional(graph, node, &extra).unwrap_or_else(Portability::Not),
        (Op::Agent, _) => agent(graph, node, &extra, losses).unwrap_or_else(Portability::Not),
        (_, kind) => Portability::Not(format!("there is no word for '{kind}'")),
    }
}

fn agent(
    graph: &PlanGraph<'_>,
    node: NodeIx,
    extra: &CanvasNodeData,
    losses: &mut Vec<String>,
) -> Result<Portability, String> {
    let own = graph.plan().node(node);
    for (key, value) in extra.data.iter().filter(|(key, _)| *key != "instructions") {
        if value.to_string().contains("{{") {
            return Err(format!("its '{key}' holds an expression, and only instructions are carried over"));
        }
    }
    if !extra.links.is_empty() {
        losses.push("what is linked to it (tools, sub-agents, a model) is not carried over".into());
    }
    losses.push("its agent gets what came before as `input`, without the node's data and parameters".into());
    let instructions = extra.data.get("instructions").and_then(Value::as_str).filter(|text| !text.is_empty());
    Ok(Portability::Agent {
        agent: own.agent.clone().unwrap_or_else(|| own.kind.clone()),
        instruction: instructions.map(|text| translate(graph, node, text)).transpose()?,
        input: previous(graph, node).map(|before| json!({ "input": format!("{{{{{before}}}}}") })),
    })
}

fn conditional(graph: &PlanGraph<'_>, node: NodeIx, extra: &CanvasNodeData) -> Result<Portability, String> {
    let text = |key: &str| extra.data.get(key).and_then(Value::as_str).unwrap_or_default();
    let before = previous(graph, node).ok_or("what it looks at depends on which of several branches ran")?;
    let seen = format!("{{{{{before}.{}}}}}", text("field"));
    let wanted = extra.data.get("value").cloned().unwrap_or_default();
    let compare = match text("operator") {
        "" | "equals" => "==",
        "notEquals" => "!=",
        "greaterThan" => ">",
        "greaterThanOrEqual" | "greaterOrEqual" => ">=",
        "lessThan" => "<",
        "lessThanOrEqual" | "lessOrEqual" => "<=",
        other => return Err(format!("there is no word for the operator '{other}'")),
    };
    if !(wanted.is_number() || wanted.is_boolean() || wanted.is_string()) || text("value").contains("{{") {
        return Err("it compares with something that is no plain value".into());
    }
    let port = |name: &str| -> Option<EdgeIx> {
        graph.edges_out_of(node).find(|(_, edge)| edge.port == name).map(|(ix, _)| ix)
    };
    let condition = format!("{seen} {compare} {wanted}");
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

/// Expressions that only name a value, as `sam` templates; any other stops the conversion.
fn translate(graph: &PlanGraph<'_>, node: NodeIx, text: &str) -> Result<String, String> {
    let compiled = |pattern: &'static LazyPattern| pattern.as_ref().map_err(ToString::to_string);
    let (expression, named, input) = (compiled(&EXPRESSION)?, compiled(&NAMED)?, compiled(&INPUT)?);
    let mut out = String::new();
    let mut end = 0;
    for found in expression.captures_iter(text) {
        let (Some(whole), Some(inner)) = (found.get(0), found.get(1)) else { continue };
        let inner = inner.as_str();
        let path = if let Some(parts) = named.captures(inner) {
            let target = graph.named(&parts[1]).ok_or_else(|| format!("'{inner}' names no node"))?;
            format!("{}{}", root(graph.plan(), target), &parts[2])
        } else if let Some(parts) = input.captures(inner) {
            let before = previous(graph, node).ok_or("'input' depends on which of several branches ran")?;
            format!("{before}{}", &parts[1])
        } else {
            return Err(format!("the expression '{inner}' does more than name a value"));
        };
        out.push_str(&text[end..whole.start()]);
        out.push_str("{{");
        out.push_str(&path);
        out.push_str("}}");
        end = whole.end();
    }
    out.push_str(&text[end..]);
    Ok(out)
}

/// The path of a node's value in `sam`.
fn root(plan: &Plan, node: NodeIx) -> String {
    let own = plan.node(node);
    if own.op == Op::Source { "workflow.input".into() } else { format!("{}.output", own.id) }
}

/// The path of what came before: the one node before it, past conditionals, which hand on what they got.
fn previous(graph: &PlanGraph<'_>, node: NodeIx) -> Option<String> {
    let plan = graph.plan();
    let mut at = node;
    // No way up a graph is longer than its nodes.
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
