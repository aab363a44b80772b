//! Evaluated conditions of a node for display: the text and the values that it refers to.

use serde::Serialize;
use serde_json::Value;

/// A condition of a node, with the values that it referred to at the decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SeenCondition {
    /// Kind of the condition: `condition`, `when`, `items`.
    pub kind: &'static str,
    /// Text of the condition as in the file.
    pub text: String,
    /// Values of the names in the text, as far as they are available.
    pub bound: Vec<BoundValue>,
    /// Whether it was true; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
}

/// A name in a condition, and its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoundValue {
    /// The name as in the condition.
    pub name: String,
    /// Its value; `None` if it had none.
    pub value: Option<Value>,
}

impl BoundValue {
    /// Creates a name with its value.
    pub fn new(name: impl Into<String>, value: Option<Value>) -> Self {
        Self { name: name.into(), value }
    }
}
