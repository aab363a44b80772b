//! Translates nodes to a `sam` workflow.
//!
//! The text for agents is built with `sam` operators, so that an answer `{"text": …}` counts as its
//! text there, too. Conditions compare that text in lower case, as in this dialect.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sinew_plan::{EdgeIndex, NodeIndex};

use super::lower::Extra;
use super::model::{Agent, BranchCondition, Work};
use super::project;
use super::text::{self, PREVIOUS};
use crate::convert::has_template;
use crate::{PlanGraph, Portability};

pub(super) fn portable(graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
    let plan = graph.plan();
    let Ok(extra) = serde_json::from_value::<Extra>(plan.node(node).extra.clone()) else {
        return Portability::Not("the plan is of another dialect".into());
    };
    match extra.work {
        _ if plan.node(node).attached => Portability::Attached,
        Work::Start { .. } => {
            losses.push("only an input {\"text\": …} replaces its initial input".into());
            Portability::Start
        }
        Work::Agent(agent) => {
            let below = extra.own.get("subagents").and_then(Value::as_array);
            if below.is_some_and(|below| !below.is_empty()) {
                return Portability::Not("it delegates to sub-agents".into());
            }
            agent_node(graph, node, &agent, losses).unwrap_or_else(Portability::Not)
        }
        Work::If { conditions } => choice(graph, node, &conditions).unwrap_or_else(Portability::Not),
        Work::Approval { prompt } => approval(graph, node, &prompt, losses).unwrap_or_else(Portability::Not),
        Work::Unknown => Portability::Not(format!("its type '{}' is unknown", plan.node(node).kind)),
        Work::Broken { message } => Portability::Not(message),
    }
}

fn agent_node(
    graph: &PlanGraph<'_>,
    node: NodeIndex,
    agent: &Agent,
    losses: &mut Vec<String>,
) -> Result<Portability, String> {
    let before = previous(graph, node)?;
    if has_template(&agent.system_prompt) {
        return Err("sam would evaluate the templates in its system prompt".into());
    }
    losses.push("the agent chooses its model, its effort and its tools".into());
    losses.push("an answer that is neither a text nor {\"text\": …} is formatted differently".into());
    let prompt = if agent.user_prompt.trim().is_empty() { PREVIOUS } else { &agent.user_prompt };
    let mut parts = Vec::new();
    for (n, text) in prompt.split(PREVIOUS).enumerate() {
        if n > 0 {
            parts.push(before.value());
        }
        parts.extend(literal(text));
    }
    // A string among the parts makes the result a string, whatever the previous output is.
    parts.push(json!(""));
    Ok(Portability::Agent {
        agent: graph.plan().node(node).agent.clone().unwrap_or_else(|| agent.name.clone()),
        instruction: Some(agent.system_prompt.clone()),
        input: Some(json!({ "text": { "concat": parts } })),
    })
}

/// Splits a string into pieces that `sam` does not read as templates.
fn literal(text: &str) -> Vec<Value> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut pieces: Vec<Value> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{").filter(|_| has_template(rest)) {
        pieces.push(json!(rest[..=at]));
        rest = &rest[at + 1..];
    }
    pieces.push(json!(rest));
    pieces
}

fn choice(
    graph: &PlanGraph<'_>,
    node: NodeIndex,
    conditions: &[BranchCondition],
) -> Result<Portability, String> {
    let seen = previous(graph, node)?.lower_case()?;
    let mut ports: BTreeMap<&str, EdgeIndex> = BTreeMap::new();
    for (ix, edge) in graph.edges_out_of(node) {
        ports.entry(&edge.port).or_insert(ix);
    }
    let mut cases = Vec::new();
    let default = ports.get("false").copied();
    for (n, condition) in conditions.iter().enumerate() {
        let expected = condition.value.trim().to_lowercase();
        // An empty expected value matches nothing.
        if expected.is_empty() {
            continue;
        }
        let expected = python_text(&expected)?;
        let test = if condition.contains {
            format!("{expected} in {seen}")
        } else {
            format!("{seen} == {expected}")
        };
        let Some(edge) = ports.get(format!("condition-{n}").as_str()) else {
            // The branch ends here. A case needs a target, so later cases would have to exclude
            // this one.
            if n + 1 < conditions.len() || default.is_some() {
                return Err(format!("its branch 'condition-{n}' has no target, but a later branch has"));
            }
            continue;
        };
        cases.push((test, *edge));
    }
    Ok(Portability::Choice { cases, default })
}

/// Converts an approval. In `sam`, `on_reject` names one node, and all other dependents run after an
/// approval.
fn approval(
    graph: &PlanGraph<'_>,
    node: NodeIndex,
    prompt: &str,
    losses: &mut Vec<String>,
) -> Result<Portability, String> {
    let prompt = if prompt.is_empty() { project::WAITING } else { prompt };
    if has_template(prompt) {
        return Err("sam would evaluate the templates in its prompt".into());
    }
    let data = previous(graph, node)?.value();
    let (mut approved, mut rejected) = (BTreeSet::new(), BTreeSet::new());
    for (_, edge) in graph.edges_out_of(node) {
        match edge.port.as_str() {
            "approve" => approved.insert(edge.to),
            "reject" => rejected.insert(edge.to),
            port => {
                return Err(format!(
                    "its port '{port}' has no connection, but sam would run the following nodes"
                ));
            }
        };
    }
    let on_reject = match rejected.iter().copied().collect::<Vec<_>>().as_slice() {
        [target] if approved.contains(target) => return Err("both decisions lead to the same node".into()),
        [target] => graph.plan().node(*target).id.clone(),
        [] => return Err("its branch 'reject' has no target, and sam would fail or go on".into()),
        _ => return Err("its branch 'reject' leads to several nodes, a sam case to one".into()),
    };
    losses.push("a decision is {approved, by, comment, data} instead of {decision, note}".into());
    let members = json!({ "type": "approval", "prompt": prompt, "data": data, "on_reject": on_reject });
    Ok(Portability::Node(members.as_object().cloned().unwrap_or_default()))
}

/// Formats a string as a literal in conditions.
fn python_text(text: &str) -> Result<String, String> {
    if text.contains("{{") {
        return Err(format!("sam would read a template in '{text}'"));
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err("a condition contains a control character".into());
    }
    Ok(json!(text).to_string())
}

/// The source of the value before a node.
enum PreviousValue<'g> {
    /// The input of the execution, or this default.
    Start(Value),
    /// The output of a node.
    Node(&'g str),
}

impl PreviousValue<'_> {
    /// Returns the value in `sam`.
    fn value(&self) -> Value {
        match self {
            Self::Start(initial) => json!({ "coalesce": ["{{workflow.input.text}}", initial] }),
            Self::Node(id) => {
                json!({ "coalesce": [format!("{{{{{id}.output.text}}}}"), format!("{{{{{id}.output}}}}")] })
            }
        }
    }

    /// Returns the lower-case string in a `sam` condition.
    fn lower_case(&self) -> Result<String, String> {
        Ok(match self {
            Self::Start(initial) => {
                let initial = python_text(&text::plain(initial))?;
                format!("str({{{{workflow.input}}}}.get('text', {initial})).lower()")
            }
            Self::Node(id) => {
                let output = format!("{{{{{id}.output}}}}");
                format!(
                    "str({output}['text'] if str({output}).startswith(\"{{'text': \") else {output}).lower()"
                )
            }
        })
    }
}

/// Returns the only node whose output this node receives. Conditions and approvals in between pass on
/// their input.
fn previous<'g>(graph: &PlanGraph<'g>, node: NodeIndex) -> Result<PreviousValue<'g>, String> {
    let plan = graph.plan();
    let several = || "its input depends on which of several branches ran".to_owned();
    let mut at = node;
    // No path in an acyclic graph is longer than its node count; more steps mean a cycle.
    for _ in 0..=plan.nodes.len() {
        let mut before = graph.edges_into(at).map(|(_, edge)| edge.from);
        let first = before.next().ok_or_else(several)?;
        if before.any(|other| other != first) {
            return Err(several());
        }
        let from = plan.node(first);
        match serde_json::from_value::<Extra>(from.extra.clone()).map(|extra| extra.work) {
            Ok(Work::Start { initial }) => {
                if has_template(&initial.to_string()) {
                    return Err("sam would evaluate the templates in the initial input".into());
                }
                return Ok(PreviousValue::Start(initial));
            }
            // The text before a decision passes it.
            Ok(Work::If { .. } | Work::Approval { .. }) => at = first,
            _ if from.id.contains(['.', '{', '}']) => {
                return Err(format!("templates cannot reference the node '{}'", from.id));
            }
            _ => return Ok(PreviousValue::Node(&from.id)),
        }
    }
    Err(several())
}
