//! Translates nodes to a `sam` workflow.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sinew_plan::NodeIndex;

use super::instruct;
use super::model::{NodeExtra, PlanExtra};
use crate::convert::has_template;
use crate::{PlanGraph, Portability};

pub(super) fn portable(graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
    let plan = graph.plan();
    let parsed = (graph.plan_extra::<PlanExtra>(), NodeExtra::deserialize(&plan.node(node).extra));
    let (Some(whole), Ok(extra)) = parsed else {
        return Portability::Not("the plan is of another dialect".into());
    };
    if plan.node(node).id.contains(['.', '{', '}']) {
        return Portability::Not("templates of sam cannot reference it".into());
    }
    let mut edges = graph.edges_out_of(node).map(|(_, edge)| edge);
    if edges.clone().any(|edge| edge.label.is_some()) {
        return Portability::Not("a model chooses among its edges by conditions in plain language".into());
    }
    if edges.nth(1).is_some() {
        return Portability::Not(
            "only the first of its edges is taken, until its max_iterations is reached".into(),
        );
    }
    let work = &extra.work;
    for (is_lost, what) in [
        (!work.eval.is_empty(), "its evaluators decide whether it failed"),
        (work.output.is_some(), "the schema of its output decides whether it failed"),
        (work.requires.is_some(), "its requirements decide whether it runs"),
        (work.fail_soft, "a failure of its agent counts as a success"),
    ] {
        if is_lost {
            return Portability::Not(what.into());
        }
    }
    let instruction = instruct::instruction(whole, &extra, &Value::Null);
    if has_template(&instruction) {
        return Portability::Not("sam would evaluate the templates in its instruction".into());
    }
    for (is_lost, what) in [
        (true, "a failure of its agent ends the workflow"),
        (true, "an answer that is a complete result, or not an object, is passed on unchanged"),
        (!work.skills.is_empty(), "the agent must provide the tools of its skills itself"),
        (work.model.is_some(), "the agent chooses its model"),
        (work.max_turns.is_some(), "the agent chooses the number of its turns"),
        (plan.entry.contains(&node), "'rules', 'context' and 'dryRun' of the input have no effect"),
    ] {
        if is_lost {
            losses.push(what.into());
        }
    }
    Portability::Agent {
        agent: plan.node(node).agent.clone().unwrap_or_default(),
        instruction: Some(instruction),
        input: Some(context(graph, node)),
    }
}

/// Returns the context of a node: the input, and the output of each preceding node of the chain.
fn context(graph: &PlanGraph<'_>, node: NodeIndex) -> Value {
    let plan = graph.plan();
    let mut chain = Vec::new();
    let mut at = node;
    // No chain is longer than its node count; more steps mean a cycle, which is rejected elsewhere.
    while let Some((_, edge)) = graph.edges_into(at).next().filter(|_| chain.len() < plan.nodes.len()) {
        at = edge.from;
        chain.push(plan.node(at).id.as_str());
    }
    let mut seen = Map::from_iter([("input".to_owned(), json!("{{workflow.input}}"))]);
    for id in chain.into_iter().rev() {
        seen.insert(id.to_owned(), json!(format!("{{{{{id}.output}}}}")));
    }
    Value::Object(seen)
}
