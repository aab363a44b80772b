//! Translation of nodes to `sam` workflows.

use serde_json::Value;
use sinew_plan::{NodeIx, Op};

use super::lower::{ConnectionData, TeamNodeData};
use crate::{PlanGraph, Portability};

pub(super) fn portable(graph: &PlanGraph<'_>, node: NodeIx, losses: &mut Vec<String>) -> Portability {
    let plan = graph.plan();
    let own = plan.node(node);
    let Ok(extra) = serde_json::from_value::<TeamNodeData>(own.extra.clone()) else {
        return Portability::Not("the plan is not one of this dialect".into());
    };
    let converts = graph.edges_into(node).any(|(_, edge)| {
        serde_json::from_value::<ConnectionData>(edge.extra.clone())
            .is_ok_and(|extra| extra.conversion.is_some())
    });
    match &own.op {
        _ if own.attached => Portability::Attached,
        Op::Source => Portability::Start,
        _ if converts => Portability::Not("a conversion function makes its input".into()),
        Op::Agent => {
            let text = |key: &str| extra.configurations.get(key).and_then(Value::as_str);
            let instruction =
                text("system_prompt").or_else(|| text("prompt")).or_else(|| text("instructions"));
            if extra.configurations.values().any(|value| value.to_string().contains("{{")) {
                return Portability::Not("its configurations hold templates of this dialect".into());
            }
            if !extra.attached.is_empty() {
                losses.push("its tools and memories are not carried over".into());
            }
            losses
                .push("its agent gets what came before as it is, without configurations and shaping".into());
            Portability::Agent {
                agent: own.agent.clone().unwrap_or_else(|| own.kind.clone()),
                instruction: instruction.map(str::to_owned),
                input: None,
            }
        }
        _ => Portability::Not(format!("there is no word for '{}'", own.kind)),
    }
}
