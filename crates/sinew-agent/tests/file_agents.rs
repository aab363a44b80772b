//! Agents of files with functions of this program as tools of their model.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::json;
use sinew_agent::{Agent, AgentError, Context, EffectClass, Failure, JsonSchema};
use sinew_protocol::task::NodeOutput;

use crate::common::{asked, mesh, results, serve};

#[derive(Deserialize, JsonSchema)]
struct Lookup {
    order: String,
}

#[derive(Serialize)]
struct Found {
    state: String,
}

/// A model that looks an order up in two ways, one of which fails.
const CLERK: &str = r#"
name: Clerk
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        answers:
          - {when: "the archive is closed", text: "It is moving."}
          - {when: "moving", call: {archive: {order: A-17}}}
          - {when: "required property", call: {lookup: {order: A-17}}}
          - {call: {lookup: {number: 17}}}
"#;

#[tokio::test]
async fn functions_of_a_program_are_tools_of_its_agent() {
    let (server, mesh) = mesh().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clerk.agent.yaml");
    std::fs::write(&path, CLERK).unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let lookup = move |wanted: Lookup, context: Context| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            assert_eq!(context.agent(), "Clerk");
            assert!(
                context.call_key().is_some_and(|key| !key.is_empty()),
                "a receiver recognises the call by it"
            );
            Ok(Found { state: format!("{} is moving", wanted.order) })
        }
    };
    let archive =
        |_: Lookup, _: Context| async { Err::<String, _>(Failure::new("the archive is closed").for_good()) };
    let clerk = Agent::from_file(&path)
        .unwrap()
        .tool("lookup", "Finds an order.", EffectClass::Read, lookup)
        .tool("archive", "Finds an old order.", EffectClass::Once, archive);
    let mut results = results(&mesh).await;
    let served = serve(&server, &mesh, clerk.into_agent()).await;
    asked(&mesh, "Clerk", 1).send(&mesh, json!({"text": "Where is A-17?"})).await;
    let result = results.next().await;
    assert_eq!(result.output, NodeOutput::Value(json!({"text": "It is moving."})), "{result:?}");
    assert_eq!((&result.usage["turns"], calls.load(Ordering::Relaxed)), (&json!(4), 1), "{}", result.usage);
    served.stop().await;
}

#[tokio::test]
async fn files_and_functions_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.agent.yaml");
    std::fs::write(&path, "name: x\nrun: {model: {use: [main], modles: {}}}\n").unwrap();
    let AgentError::File(told) = Agent::from_file(&path).unwrap_err() else { panic!("it is another error") };
    assert!(told.contains("modles") && told.contains("x.agent.yaml:2"), "{told}");
    std::fs::write(&path, "name: x\nrun: {script: {source: 'lambda input: input'}}\n").unwrap();
    let function = |wanted: Lookup, _: Context| async move { Ok(wanted.order) };
    let plain = Agent::from_file(&path).unwrap().tool("f", "A function.", EffectClass::Read, function);
    let (_server, mesh) = mesh().await;
    let refused = plain.serve(mesh, sinew_agent::CancellationToken::new()).await.unwrap_err();
    assert!(matches!(refused, AgentError::NoModel(ref name) if name == "x"), "{refused}");
}
