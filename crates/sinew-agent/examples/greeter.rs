//! An agent that greets.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_agent::{Agent, AgentError, Context};

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Name of the person to greet.
    name: String,
}

#[derive(Serialize, JsonSchema)]
struct Greeting {
    text: String,
}

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    Agent::new("greeter", |input: Greet, context: Context| async move {
        context.progress(format!("looking for {}", input.name));
        Ok(Greeting { text: format!("Hello, {}!", input.name) })
    })
    .description("Greets a person.")
    .run()
    .await
}
