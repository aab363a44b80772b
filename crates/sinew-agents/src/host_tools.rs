//! Functions of the host program as tools of a model agent.

use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_model::EffectClass;
use sinew_protocol::Fault;

/// A function that a model can call.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTool {
    /// Name, for the model.
    pub name: String,
    /// Purpose of the function, for the model.
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub parameters: Value,
    /// Effect of a repeated call.
    pub effect: EffectClass,
}

/// Functions of the host program. The model can call all of them, in addition to the file's tools.
pub trait HostTools: Send + Sync {
    /// Returns the functions.
    fn list(&self) -> Vec<HostTool>;
    /// Calls a function. All attempts of a call have the same key. The model receives failures.
    fn call(&self, name: &str, arguments: Value, key: &str) -> BoxFuture<'_, Result<Value, Fault>>;
}
