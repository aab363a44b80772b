//! The official Python SDK of A2A as a client of the gateway.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use sinew_gateway::GrpcAddressForm;
use tokio::process::Command;

use crate::support::{GatewayWorld, SINGLE};

/// The SDK that is installed.
pub(crate) const SDK: [&str; 4] = ["a2a-sdk[grpc,signing]==1.3.0", "httpx", "grpcio", "cryptography"];

/// A Python that has these packages, installed once below the target folder. None where PyPI cannot be reached.
pub(crate) async fn python_with(packages: &[&str]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(packages[0].replace(['[', ']', ','], "-").replace("==", "-"));
    let python = folder.join("bin/python");
    let installed = folder.join("installed");
    if installed.exists() {
        return Some(python);
    }
    let run = async |program: &Path, args: &[&str]| {
        let ended = Command::new(program).args(args).stdin(Stdio::null()).output().await;
        ended.is_ok_and(|ended| ended.status.success())
    };
    let made = run(Path::new("python3"), &["-m", "venv", folder.to_str()?]).await;
    let pip = ["-m", "pip", "install", "-q", "--timeout", "10"];
    if !made || !run(&python, &[&pip, packages].concat()).await {
        println!("not run: {packages:?} cannot be installed from PyPI here");
        return None;
    }
    std::fs::write(installed, "").unwrap();
    Some(python)
}

#[tokio::test]
async fn the_python_sdk_calls_workflows() {
    let Some(python) = python_with(&SDK).await else { return };
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        options.grpc_on_cards = Some(GrpcAddressForm::Authority);
    })
    .await;
    world.serve_echo().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/client.py");
    let ended =
        Command::new(python).arg(script).arg(&world.base).stdin(Stdio::null()).output().await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{out}\n{err}");
    let told: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (cards, calls) = told.split_at(3);
    let is_right = |card: &Value| card == &json!({"signed": true, "changed": "InvalidSignaturesError"});
    assert!(cards.iter().all(is_right), "{out}");
    assert_eq!(calls.len(), 6, "three bindings, each blocking and as a stream: {out}");
    for call in calls {
        assert_eq!(call["state"], "TASK_STATE_COMPLETED", "{call}");
        assert_eq!(call["data"], json!({"value": "hello"}), "{call}");
        assert_eq!((&call["listed"], &call["kinds"][0]), (&json!(true), &json!("task")), "{call}");
        assert_eq!(call["refused"], "TaskNotFoundError", "{call}");
        // A stream of an execution that has ended already is its task alone.
        let count = call["kinds"].as_array().unwrap().len();
        assert!(count == 1 || call["streaming"] == true, "{call}");
    }
    world.end().await;
}

#[tokio::test]
async fn the_python_sdk_of_a2a_0_3_calls_workflows() {
    let Some(python) = python_with(&["a2a-sdk==0.3.26", "httpx"]).await else { return };
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/client_0_3.py");
    let ended =
        Command::new(python).arg(script).arg(&world.base).stdin(Stdio::null()).output().await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{out}\n{err}");
    let calls: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(calls.len(), 2, "blocking and as a stream: {out}");
    for call in calls {
        assert_eq!(
            (&call["state"], &call["artifact"]),
            (&json!("completed"), &json!({"value": "hello"})),
            "{call}"
        );
        assert_eq!((&call["kinds"][0], &call["history"]), (&json!("Task"), &json!(["user"])), "{call}");
        assert!(call["refused"].to_string().contains("not found"), "{call}");
        assert_eq!(call["push"], json!(["https://hooks.example.com/a2a", ["Bearer"]]), "{call}");
        assert!(call["cancelled"].to_string().contains("cancel"), "{call}");
    }
    world.end().await;
}
