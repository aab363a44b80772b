//! Conditions of a node as people read them afterwards, with the values that they looked at.

use serde_json::{Map, Value};
use sinew_engine::{ActivationId, AdapterContext, BoundValue, SeenCondition};

use super::adapter::{TypedInputs, extra, inputs};
use super::scope::{VisibleValues, bare, input_of};
use super::{compute, template};

/// Returns the condition of a node of the kind `conditional`.
pub(super) fn conditions(ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<SeenCondition> {
    let node = ctx.node_of(act);
    if node.kind != "conditional" {
        return Vec::new();
    }
    let Ok(TypedInputs { own, .. }) = inputs(ctx, act) else { return Vec::new() };
    let inputs: Map<String, Value> =
        own.iter().map(|(handle, value)| (handle.clone(), bare(value))).collect();
    let extra = extra(node);
    let params = template::resolve(&extra.data, &extra.raw, &VisibleValues { ctx, inputs: &inputs });
    let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (field, operator) = (text("field"), text("operator"));
    let operator = if operator.is_empty() { "equals" } else { &operator };
    let input = input_of(&inputs);
    let wanted = params.get("value").filter(|value| !value.is_null());
    let wanted = wanted.map(|value| format!(" {value}")).unwrap_or_default();
    vec![SeenCondition {
        kind: "condition",
        text: format!("{field} {operator}{wanted}"),
        bound: vec![BoundValue::new(field.clone(), compute::at(&input, &field).cloned())],
        holds: compute::condition(&params, &input).ok(),
    }]
}
