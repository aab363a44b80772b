//! Target agents of bombs, and agents that answer with bombs.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Failure};
use sinew_script::{Function, Limits};

use crate::Fallible;
use crate::roles::{MeshArgs, prepare};
use crate::target_group::TargetGroup;

/// Serves the agents of a group until the parent ends.
pub(crate) async fn targets(place: &MeshArgs, group: TargetGroup) -> Fallible<()> {
    prepare(place)?;
    let mut serving = tokio::task::JoinSet::new();
    for &name in group.agents() {
        let agent = Agent::dynamic(name, None, None, move |input, _| answer(name, input));
        let mesh = place.connect(name).await?;
        serving.spawn(agent.concurrency(16).serve(mesh, CancellationToken::new()));
    }
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    Ok(())
}

async fn answer(agent: &str, input: Value) -> Result<Value, Failure> {
    match agent {
        "python" => evaluate(&input).await,
        "texts" => Ok(json!({ "text": format!("{}!", "a".repeat(50_000)) })),
        "deep" => Ok((0..100).fold(json!({ "text": "a".repeat(900) }), |inner, _| json!({ "a": [inner] }))),
        "wide" => Ok(json!({ "text": "aaaa", "list": (0..50_000).collect::<Vec<_>>() })),
        "huge" => Ok(json!({ "text": "a".repeat(4 << 20) })),
        _ => Ok(input),
    }
}

/// Calls a Python function, as script agents do.
async fn evaluate(input: &Value) -> Result<Value, Failure> {
    let source = input["source"].as_str().unwrap_or_default().to_owned();
    let limits = Limits { max_duration: Duration::from_secs(2), ..Limits::function() };
    let called = tokio::task::spawn_blocking(move || {
        Function::compile_with(&source, limits).and_then(|function| function.call(&Value::Null))
    });
    match called.await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Failure::new(error.to_string())),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}
