//! The official Python SDK of MCP as a client of the gateway.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::python_sdk::python_with;
use crate::support::{GatewayWorld, SINGLE, review};

/// The SDK that is installed.
const SDK: &str = "mcp==2.3.0";

#[tokio::test]
async fn the_python_sdk_calls_tools() {
    let Some(python) = python_with(&[SDK]).await else { return };
    let world = GatewayWorld::new(&[("single", SINGLE), ("review", &review())]).await;
    world.serve_echo().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/mcp_client.py");
    let mut command = Command::new(python);
    command.arg(script).arg(format!("{}/mcp", world.base)).stdin(Stdio::null());
    let ended = command.output().await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{out}\n{err}");
    let told: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let versions: Vec<&Value> = told.iter().map(|call| &call["version"]).collect();
    assert_eq!(versions, [&json!("2025-11-25"), &json!("2026-07-28"), &json!("2026-07-28")]);
    for call in &told {
        assert_eq!(call["tools"], json!(["one", "review", "single"]), "{call}");
        assert_eq!(call["single"], json!({"value": "hello"}), "{call}");
        assert_eq!(call["text"], r#"{"value":"hello"}"#, "{call}");
        let messages = call["progress"].to_string();
        assert!(messages.contains("a: begun") && messages.contains("a: done"), "{call}");
        assert_eq!(call["wrong"][0], true, "{call}");
        assert!(call["wrong"][1].as_str().unwrap().starts_with("SINEW-"), "{call}");
        assert_eq!(call["review"][0], false, "{call}");
        assert_eq!(call["unknown"]["code"], "SINEW-9006", "{call}");
        assert_eq!(
            (&call["state"], &call["templates"]),
            (&json!("TASK_STATE_COMPLETED"), &json!(2)),
            "{call}"
        );
    }
    world.end().await;
}
