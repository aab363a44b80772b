//! The agent AGENT_NAME: a function that receives the input of a task and returns the output.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_agent::{Agent, AgentError, Context};

#[derive(Deserialize, JsonSchema)]
struct Person {
    /// The person to greet.
    name: String,
}

#[derive(Serialize, JsonSchema)]
struct Greeting {
    text: String,
}

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    Agent::new("AGENT_NAME", |person: Person, context: Context| async move {
        context.progress(format!("greeting {}", person.name));
        Ok(Greeting { text: format!("Hello, {}!", person.name) })
    })
    .description("Greets a person by name.")
    .run()
    .await
}
