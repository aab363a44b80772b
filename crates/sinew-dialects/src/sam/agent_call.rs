//! The workflow that calls one agent: for calls that must survive the processes of both sides.

use std::collections::BTreeMap;

use serde_json::json;
use sinew_plan::Plan;
use sinew_protocol::card::agent_call;
use sinew_source::{Limits, load_data};

use crate::dialect::{Dialect as _, LowerOptions, no_list};

/// Returns the plan of the workflow that calls the agent of this name once. The agent receives the
/// input of the workflow unchanged, and the output is `{output}`. The same name always gives the
/// same plan. `None` for a name that is not valid for a workflow.
pub fn agent_call_plan(agent: &str) -> Option<Plan> {
    let document = json!({
        "name": agent_call(agent),
        "workflow": {
            "description": format!("Calls agent {agent} on behalf of another agent."),
            "version": "1",
            "nodes": [{"id": "call", "type": "agent", "agent_name": agent}],
            "output_mapping": {"output": "{{call.output}}"},
        },
    });
    let read = |_: &str| Err("there are no files here".to_owned());
    let document = load_data(document.to_string().as_bytes(), "call", Limits::default()).ok()?;
    let options =
        LowerOptions { default_name: "call", read: &read, list: &no_list, agents: &BTreeMap::new() };
    let lowered = super::Sam.lower(document, &options).ok()?;
    let mut plans = lowered.into_iter().map(|lowered| lowered.plan);
    plans.next().filter(|plan| plan.name == agent_call(agent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_has_one_plan() {
        for agent in ["Courier", "a b", "ä\"{{x}}", "call:Courier"] {
            let plan = agent_call_plan(agent).unwrap();
            assert_eq!(plan.nodes.len(), 1);
            assert_eq!(plan.nodes[0].agent.as_deref(), Some(agent));
            assert_eq!(Some(plan), agent_call_plan(agent));
        }
        assert_ne!(agent_call_plan("a"), agent_call_plan("b"));
    }
}
