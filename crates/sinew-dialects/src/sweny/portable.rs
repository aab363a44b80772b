//! What a node would be in a `sam` workflow.

use serde::Deserialize;
use sinew_plan::NodeIndex;

use super::instruct;
use super::model::{NodeExtra, PlanExtra};
use crate::{PlanGraph, Portability};

pub(super) fn portable(graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
    let plan = graph.plan();
    let parsed = (graph.plan_extra::<PlanExtra>(), NodeExtra::deserialize(&plan.node(node).extra));
    let (Some(whole), Ok(extra)) = parsed else {
        return Portability::Not("the plan is not one of this dialect".into());
    };
    let mut edges = graph.edges_out_of(node).map(|(_, edge)| edge);
    if edges.clone().any(|edge| edge.label.is_some()) {
        return Portability::Not("a model chooses among its edges by conditions in plain language".into());
    }
    if edges.nth(1).is_some() {
        return Portability::Not(
            "only the first of its edges is ever taken, until its budget is used up".into(),
        );
    }
    let work = &extra.work;
    if !plan.entry.contains(&node) {
        losses.push("it sees what the node before it gave, not what all nodes before it gave".into());
    }
    for (lost, what) in [
        (!work.eval.is_empty(), "its evaluators are not carried over"),
        (work.requires.is_some(), "its requirements are not carried over"),
        (work.retry.is_some(), "its retries after a failed evaluation are not carried over"),
        (work.fail_soft, "a failure of its agent fails the workflow"),
        (!work.skills.is_empty(), "the tools of its skills have to be the agent's own"),
        (work.model.is_some(), "the agent chooses its model"),
        (work.max_turns.is_some(), "the agent chooses how many turns it takes"),
    ] {
        if lost {
            losses.push(what.into());
        }
    }
    Portability::Agent {
        agent: plan.node(node).agent.clone().unwrap_or_default(),
        instruction: Some(instruct::instruction(whole, &extra, &serde_json::Value::Null)),
        input: None,
    }
}
