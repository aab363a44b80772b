//! Conditions of a node as people read them afterwards: the ways that were open, and what the agent that judged them saw.

use serde_json::Value;
use sinew_engine::{ActivationId, AdapterContext, BoundValue, SeenCondition, TaskRequest, out_edges};

use super::adapter::{answered, when};

/// Returns the conditions of the edges behind a node. What was judged is the input of the agent that judged.
pub(super) fn conditions(ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<SeenCondition> {
    let one = ctx.act(act);
    let judged = one.replies.iter().rfind(|reply| reply.tag == TaskRequest::ROUTE);
    let chosen = judged.and_then(|reply| reply.result.as_ref().ok()).map(|reply| answered(&reply.output));
    let given =
        one.last_task().filter(|ask| ask.tag == TaskRequest::ROUTE).map(|ask| Value::clone(&ask.input));
    let context = given.and_then(|mut input| input.get_mut("context").map(Value::take));
    let edges = out_edges(ctx, one.node).filter_map(|edge| Some((edge, when(ctx, edge)?)));
    let conditions = edges.map(|(edge, text)| {
        let target = ctx.plan().node(ctx.plan().edge(edge).to).id.as_str();
        SeenCondition {
            kind: "condition",
            text: format!("{target}: {text}"),
            bound: context.iter().map(|context| BoundValue::new("context", Some(context.clone()))).collect(),
            holds: chosen.as_deref().map(|chosen| chosen == target),
        }
    });
    conditions.collect()
}
