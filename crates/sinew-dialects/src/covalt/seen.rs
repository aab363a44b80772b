//! Evaluated conditions of a node, with the values that they used, for people.

use serde_json::{Map, Value};
use sinew_engine::{AdapterContext, BoundValue, SeenCondition};

use super::lower::CanvasNodeData;
use super::scope::{VisibleValues, input_of};
use super::{compute, template};

/// Returns the condition of a `conditional` node with these inputs.
pub(super) fn conditions(
    ctx: &AdapterContext<'_>,
    extra: &CanvasNodeData,
    inputs: &Map<String, Value>,
) -> Vec<SeenCondition> {
    let params = template::resolve(&extra.data, &extra.raw, &VisibleValues { ctx, inputs });
    let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (field, operator) = (text("field"), text("operator"));
    let operator = if operator.is_empty() { "equals" } else { &operator };
    let input = input_of(inputs);
    let wanted = params.get("value").filter(|value| !value.is_null());
    let wanted = wanted.map(|value| format!(" {value}")).unwrap_or_default();
    vec![SeenCondition {
        kind: "condition",
        text: format!("{field} {operator}{wanted}"),
        bound: vec![BoundValue::new(field.clone(), compute::at(&input, &field).cloned())],
        holds: compute::condition(&params, &input).ok(),
    }]
}
