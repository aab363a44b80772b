//! Evaluated conditions of a node for display: the text and the values that it refers to.

use serde::Serialize;
use serde_json::Value;

/// A condition of a node, and the values that it named when the node was decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SeenCondition {
    /// Kind of the condition: `condition`, `when`, `items`.
    pub kind: &'static str,
    /// Text of the condition, as the file has it.
    pub text: String,
    /// Values of what the text names, as far as they can be read now.
    pub bound: Vec<BoundValue>,
    /// Whether it held; `None` if that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
}

/// A name in a condition, and its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoundValue {
    /// The name, as the condition has it.
    pub name: String,
    /// Its value; `None` if there was none.
    pub value: Option<Value>,
}

impl BoundValue {
    /// A name with its value.
    pub fn new(name: impl Into<String>, value: Option<Value>) -> Self {
        Self { name: name.into(), value }
    }
}
