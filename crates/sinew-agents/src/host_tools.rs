//! Functions of the program around an agent, as tools of its model.

use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_model::EffectClass;
use sinew_protocol::Fault;

/// A function that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTool {
    /// Name that the model is told.
    pub name: String,
    /// Purpose of the function, for the model.
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub parameters: Value,
    /// Effect of a repeated call.
    pub effect: EffectClass,
}

/// Functions of the program around an agent. The model is told of all of them, beside the tools of the file.
pub trait HostTools: Send + Sync {
    /// Returns the functions.
    fn list(&self) -> Vec<HostTool>;
    /// Calls a function. The key is the same for all tries of this call. A failure is told to the model.
    fn call(&self, name: &str, arguments: Value, key: &str) -> BoxFuture<'_, Result<Value, Fault>>;
}
