//! What a node would be in a `sam` workflow.

use std::collections::BTreeMap;

use serde_json::json;
use sinew_plan::{EdgeIndex, NodeIndex};

use super::lower::Extra;
use super::model::Work;
use super::text::PREVIOUS;
use crate::{PlanGraph, Portability};

pub(super) fn portable(graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
    let plan = graph.plan();
    let Ok(extra) = serde_json::from_value::<Extra>(plan.node(node).extra.clone()) else {
        return Portability::Not("the plan is not one of this dialect".into());
    };
    match extra.work {
        _ if plan.node(node).attached => Portability::Attached,
        Work::Start { initial } => {
            if initial.as_str() != Some("") {
                losses.push(format!(
                    "its initial input has to be given as the workflow's input: {{\"text\": {initial}}}"
                ));
            }
            Portability::Start
        }
        Work::Agent(agent) => {
            let Some(before) = previous(graph, node) else { return several() };
            if !extra.own.get("subagents").is_none_or(|below| below.as_array().is_none_or(Vec::is_empty)) {
                losses.push("the agents below it are not carried over".into());
            }
            let asked = if agent.user_prompt.trim().is_empty() { PREVIOUS } else { &agent.user_prompt };
            let instruction = format!("{}\n\n{}", agent.system_prompt, asked.replace(PREVIOUS, &before));
            Portability::Agent {
                agent: plan.node(node).agent.clone().unwrap_or(agent.name),
                instruction: Some(instruction),
                input: Some(json!({ "text": before })),
            }
        }
        Work::If { conditions } => {
            let Some(before) = previous(graph, node) else { return several() };
            losses.push("its comparisons ignore case here, but not in sam".into());
            let mut ports: BTreeMap<&str, EdgeIndex> = BTreeMap::new();
            for (ix, edge) in graph.edges_out_of(node) {
                ports.entry(&edge.port).or_insert(ix);
            }
            let edge = |port: &str| ports.get(port).copied();
            let cases = conditions.iter().enumerate().filter_map(|(n, condition)| {
                let expected = json!(condition.value.trim()).to_string();
                let test = if condition.contains {
                    format!("{expected} in '{before}'")
                } else {
                    format!("'{before}' == {expected}")
                };
                // Nothing is expected to match nothing, and a branch that leads nowhere only ends the flow.
                let never = condition.value.trim().is_empty();
                edge(&format!("condition-{n}")).filter(|_| !never).map(|edge| (test, edge))
            });
            Portability::Choice { cases: cases.collect(), default: edge("false") }
        }
        Work::Approval { .. } => Portability::Not("sam has no word for a person's decision".into()),
        Work::Unknown => Portability::Not(format!("its type '{}' is not known", plan.node(node).kind)),
        Work::Broken { message } => Portability::Not(message),
    }
}

fn several() -> Portability {
    Portability::Not("what it works on depends on which of several branches ran".into())
}

/// A template for what came before: the one node that works before it, past conditions, which hand on what they got.
fn previous(graph: &PlanGraph<'_>, node: NodeIndex) -> Option<String> {
    let plan = graph.plan();
    let mut at = node;
    // No way up a graph is longer than its nodes; more steps mean a cycle.
    for _ in 0..=plan.nodes.len() {
        let mut before = graph.edges_into(at).map(|(_, edge)| edge.from);
        let first = before.next()?;
        if before.any(|other| other != first) {
            return None;
        }
        match plan.node(first).kind.as_str() {
            "start" => return Some("{{workflow.input.text}}".into()),
            "if" | "condition" => at = first,
            _ => return Some(format!("{{{{{}.output}}}}", plan.node(first).id)),
        }
    }
    None
}
