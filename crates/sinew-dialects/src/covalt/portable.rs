//! What a node would be in a `sam` workflow.

use regex::Regex;
use serde_json::{Value, json};
use sinew_plan::{EdgeIx, NodeIx, Op, Plan};

use super::lower::Extra;
use crate::Portability;

pub(super) fn portable(plan: &Plan, node: NodeIx, losses: &mut Vec<String>) -> Portability {
    let own = plan.node(node);
    let Ok(extra) = serde_json::from_value::<Extra>(own.extra.clone()) else {
        return Portability::Not("the plan is not one of this dialect".into());
    };
    match (&own.op, own.kind.as_str()) {
        _ if own.attached => Portability::Attached,
        (Op::Source, _) => Portability::Start,
        (_, "conditional") => conditional(plan, node, &extra).unwrap_or_else(Portability::Not),
        (Op::Agent, _) => agent(plan, node, &extra, losses).unwrap_or_else(Portability::Not),
        (_, kind) => Portability::Not(format!("there is no word for '{kind}'")),
    }
}

fn agent(plan: &Plan, node: NodeIx, extra: &Extra, losses: &mut Vec<String>) -> Result<Portability, String> {
    let own = plan.node(node);
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
        instruction: instructions.map(|text| translate(plan, node, text)).transpose()?,
        input: previous(plan, node).map(|before| json!({ "input": format!("{{{{{before}}}}}") })),
    })
}

fn conditional(plan: &Plan, node: NodeIx, extra: &Extra) -> Result<Portability, String> {
    let text = |key: &str| extra.data.get(key).and_then(Value::as_str).unwrap_or_default();
    let before = previous(plan, node).ok_or("what it looks at depends on which of several branches ran")?;
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
    let port = |name: &str| {
        let at = plan.edges.iter().position(|edge| edge.from == node && !edge.attach && edge.port == name);
        at.map(|ix| ix as EdgeIx)
    };
    let condition = format!("{seen} {compare} {wanted}");
    Ok(Portability::Choice {
        cases: port("true").map(|edge| (condition, edge)).into_iter().collect(),
        default: port("false"),
    })
}

/// Expressions that only name a value, as `sam` templates; any other stops the conversion.
fn translate(plan: &Plan, node: NodeIx, text: &str) -> Result<String, String> {
    let expression = Regex::new(r"\{\{\s*(.*?)\s*\}\}").map_err(|error| error.to_string())?;
    let named = Regex::new(r#"^\$\(\s*['"]([^'"]+)['"]\s*\)\.item\.json((?:\.\w+)*)$"#);
    let input = Regex::new(r"^input((?:\.\w+)*)$");
    let (named, input) =
        (named.map_err(|error| error.to_string())?, input.map_err(|error| error.to_string())?);
    let mut out = String::new();
    let mut end = 0;
    for found in expression.captures_iter(text) {
        let (Some(whole), Some(inner)) = (found.get(0), found.get(1)) else { continue };
        let inner = inner.as_str();
        let path = if let Some(parts) = named.captures(inner) {
            let target = find(plan, &parts[1]).ok_or_else(|| format!("'{inner}' names no node"))?;
            format!("{}{}", root(plan, target), &parts[2])
        } else if let Some(parts) = input.captures(inner) {
            let before = previous(plan, node).ok_or("'input' depends on which of several branches ran")?;
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

fn find(plan: &Plan, name: &str) -> Option<NodeIx> {
    let labelled = plan.nodes.iter().position(|node| node.label.as_deref() == Some(name));
    plan.find(name).or_else(|| labelled.map(|ix| ix as NodeIx))
}

/// The path of a node's value in `sam`.
fn root(plan: &Plan, node: NodeIx) -> String {
    let own = plan.node(node);
    if own.op == Op::Source { "workflow.input".into() } else { format!("{}.output", own.id) }
}

/// The path of what came before: the one node before it, past conditionals, which hand on what they got.
fn previous(plan: &Plan, node: NodeIx) -> Option<String> {
    let mut at = node;
    // No way up a graph is longer than its nodes.
    for _ in 0..=plan.nodes.len() {
        let mut before = plan.edges.iter().filter(|edge| edge.to == at && !edge.attach).map(|edge| edge.from);
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
