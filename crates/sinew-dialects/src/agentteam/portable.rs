//! Translation of nodes to `sam` workflows.

use serde_json::{Value, json};
use sinew_plan::{NodeIndex, NodeOperation};

use super::lower::{ConnectionData, TeamNodeData};
use crate::{PlanGraph, Portability};

pub(super) fn portable(graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
    let plan = graph.plan();
    let own = plan.node(node);
    let Ok(extra) = serde_json::from_value::<TeamNodeData>(own.extra.clone()) else {
        return Portability::Not("the plan is of another dialect".into());
    };
    let converts = graph.edges_into(node).any(|(_, edge)| {
        serde_json::from_value::<ConnectionData>(edge.extra.clone())
            .is_ok_and(|extra| extra.conversion.is_some())
    });
    match &own.op {
        _ if own.attached => Portability::Attached,
        NodeOperation::Source => Portability::Start,
        _ if converts => Portability::Not("a conversion function computes its input".into()),
        NodeOperation::Agent => agent(graph, node, &extra, losses).unwrap_or_else(Portability::Not),
        _ => Portability::Not(format!("sam has no equivalent of '{}'", own.kind)),
    }
}

fn agent(
    graph: &PlanGraph<'_>,
    node: NodeIndex,
    extra: &TeamNodeData,
    losses: &mut Vec<String>,
) -> Result<Portability, String> {
    let own = graph.plan().node(node);
    if extra.kind != "AI_AGENT" {
        return Err(
            "its behaviour depends on its configuration, but agents of sam receive only an input".into()
        );
    }
    if extra.configurations.values().any(|value| value.to_string().contains("{{")) {
        return Err("its configuration contains templates of this dialect".into());
    }
    let text =
        |key: &str| extra.configurations.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if text("user_prompt").is_some() {
        return Err("its own user_prompt replaces the incoming message".into());
    }
    if own.id.contains(['.', '{', '}']) {
        return Err("templates of sam cannot reference it".into());
    }
    if let Some((_, edge)) = graph.edges_into(node).find(|(_, edge)| edge.port != "result") {
        return Err(format!("its input is the output '{}' of the preceding node", edge.port));
    }
    let mut before = graph.edges_into(node).map(|(_, edge)| edge.from);
    let first = before.next().map(|from| graph.plan().node(from));
    if before.next().is_some() {
        return Err("its input depends on which of several nodes ran first".into());
    }
    let path = match first {
        Some(from) if from.op != NodeOperation::Source => format!("{{{{{}.output}}}}", from.id),
        _ => "{{workflow.input}}".to_owned(),
    };
    if !extra.attached.is_empty() {
        losses.push("its tools and memories cannot be converted".into());
    }
    losses.push(
        "its agent receives the preceding output unchanged, without configuration and output shaping".into(),
    );
    Ok(Portability::Agent {
        agent: own.agent.clone().unwrap_or_else(|| own.kind.clone()),
        instruction: text("system_prompt").map(str::to_owned),
        input: Some(json!({ "result": path })),
    })
}
