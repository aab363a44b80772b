//! Evaluation of one template or condition over plain data, without a workflow.

use serde_json::Value;

use super::chance::ConditionPosition;
use super::condition::Condition;
use super::path::{NodeLookup, TemplateScope};
use super::template::Template;

/// The data of an expression: outputs by node id, next to `workflow_input`, `_map_item`,
/// `_map_index`, `_loop_iteration` and, under `@raw`, other roots such as `workflow`.
struct Data<'s>(&'s Value);

impl TemplateScope for Data<'_> {
    fn input(&self) -> Option<&Value> {
        self.0.get("workflow_input")
    }
    fn workflow(&self) -> Option<&Value> {
        self.0.get("@raw")?.get("workflow")
    }
    fn item(&self) -> Option<&Value> {
        self.0.get("_map_item")
    }
    fn index(&self) -> Option<u32> {
        self.0.get("_map_index")?.as_u64()?.try_into().ok()
    }
    fn iteration(&self) -> Option<u32> {
        self.0.get("_loop_iteration")?.as_u64()?.try_into().ok()
    }
    fn node(&self, id: &str) -> NodeLookup<'_> {
        self.0.get(id).map_or(NodeLookup::Absent, NodeLookup::Done)
    }
}

/// Returns whether a condition holds for this data. The error is the reason why it cannot be parsed
/// or evaluated.
pub fn condition(text: &str, data: &Value) -> Result<bool, String> {
    let condition = Condition::parse(text).map_err(|error| error.to_string())?;
    condition.holds(&Data(data), ConditionPosition::When)
}

/// Fills the templates in a value from this data. The error names the one that cannot be filled.
pub fn resolve(value: &Value, data: &Value) -> Result<Value, String> {
    Template::parse(value).resolve(&Data(data))
}
