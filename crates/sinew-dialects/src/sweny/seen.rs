//! Evaluated conditions of a node, with the context of the agent that judged them, for people.

use serde_json::Value;
use sinew_engine::{ActivationId, AdapterContext, BoundValue, SeenCondition, TaskRequest};
use sinew_plan::EdgeIndex;

/// Returns the conditions of a node's out-edges, of which one may have been chosen. Their context
/// is the input of the agent that judged them.
pub(super) fn conditions(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    edges: Vec<(EdgeIndex, &str)>,
    chosen: Option<&str>,
) -> Vec<SeenCondition> {
    let given = ctx.act(act).last_task().filter(|ask| ask.tag == TaskRequest::ROUTE);
    let given = given.map(|ask| Value::clone(&ask.input));
    let context = given.and_then(|mut input| input.get_mut("context").map(Value::take));
    let conditions = edges.into_iter().map(|(edge, text)| {
        let target = ctx.plan().node(ctx.plan().edge(edge).to).id.as_str();
        SeenCondition {
            kind: "condition",
            text: format!("{target}: {text}"),
            bound: context.iter().map(|context| BoundValue::new("context", Some(context.clone()))).collect(),
            holds: chosen.map(|chosen| chosen == target),
        }
    });
    conditions.collect()
}
