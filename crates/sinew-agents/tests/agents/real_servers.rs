//! Real MCP servers of npm and PyPI, over both transports: that others speak the protocol as we do.
//!
//! `SINEW_MCP_SERVERS` names their folder, as `deploy/get-mcp-servers.sh` prints it; `.ci/run` asks the script.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::Fixture;

const FOLDER: &str = "SINEW_MCP_SERVERS";
const PATIENCE: Duration = Duration::from_mins(1);

/// The folder of the servers; without it the test says so and ends.
#[expect(clippy::print_stderr, reason = "a test that asks nobody says so")]
fn servers() -> Option<PathBuf> {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    if folder.is_none() {
        eprintln!("\nNO MCP SERVERS: {FOLDER} is not set, so no server of others was asked\n");
    }
    folder
}

struct Running(Child);

impl Running {
    /// Starts a server and waits until it listens.
    fn listening(command: &mut Command, port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let running = Self(child.unwrap());
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "the server does not listen");
            std::thread::yield_now();
        }
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// The results of calls that a model makes one after the other, as the model is told.
async fn results(server: Value, calls: &[(&str, Value)]) -> Vec<String> {
    let mut entry = json!({"mcp": "t", "allow": ["*"], "effect": "read"});
    entry.as_object_mut().unwrap().extend(server.as_object().unwrap().clone());
    let mut answers: Vec<Value> =
        calls.iter().map(|(tool, input)| json!({"call": {format!("t_{tool}"): input}})).collect();
    answers.push(json!({"text": "done"}));
    let file = json!({"name": "x", "run": {"model": {
        "use": ["main"], "models": {"main": {"provider": "script", "answers": answers}}, "tools": [entry],
    }}});
    let reply = Fixture::file(&file).call(json!({"text": "hi"})).await.unwrap();
    reply.events.iter().filter_map(|event| event.get("output").map(Value::to_string)).collect()
}

fn everything() -> [(&'static str, Value); 3] {
    [("echo", json!({"message": "grüß"})), ("get-sum", json!({"a": 2, "b": 40})), ("nothing", json!({}))]
}

fn check_everything(results: &[String]) {
    assert!(results[0].contains("grüß"), "{results:?}");
    assert!(results[1].contains("42"), "{results:?}");
    assert_eq!(results.len(), 2, "a tool that does not exist is not called: {results:?}");
}

#[tokio::test]
async fn a_server_of_npm_is_asked_over_stdio() {
    let Some(folder) = servers() else { return };
    let program = folder.join("node_modules/.bin/mcp-server-everything");
    check_everything(&results(json!({"command": [program, "stdio"]}), &everything()).await);
    let told = results(json!({"command": [program, "stdio"]}), &[("get-env", json!({}))]).await;
    assert!(told[0].contains("PATH") && !told[0].contains("canary"), "{told:?}");
}

#[tokio::test]
async fn a_server_of_npm_is_asked_over_http() {
    let Some(folder) = servers() else { return };
    let port = free_port();
    let program = folder.join("node_modules/.bin/mcp-server-everything");
    let _running =
        Running::listening(Command::new(program).arg("streamableHttp").env("PORT", port.to_string()), port);
    let place = json!({"url": format!("http://127.0.0.1:{port}/mcp"), "allow_private": true});
    check_everything(&results(place, &everything()).await);
}

#[tokio::test]
async fn a_server_of_files_keeps_to_its_folder() {
    let Some(folder) = servers() else { return };
    let shown = tempfile::tempdir().unwrap();
    std::fs::write(shown.path().join("a.txt"), "words of a file").unwrap();
    let program = folder.join("node_modules/.bin/mcp-server-filesystem");
    let calls = [
        ("read_text_file", json!({"path": shown.path().join("a.txt")})),
        ("read_text_file", json!({"path": "/etc/passwd"})),
    ];
    let told = results(json!({"command": [program, shown.path()]}), &calls).await;
    assert!(told[0].contains("words of a file"), "{told:?}");
    assert!(told[1].contains("denied") && !told[1].contains("root:"), "{told:?}");
}

#[tokio::test]
async fn a_server_of_the_python_sdk_is_asked_over_both_transports() {
    let Some(folder) = servers() else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/sdk_server.py");
    let python = folder.join("python/bin/python");
    let calls = [("add", json!({"a": 2, "b": 40})), ("secret", json!({}))];
    let told = results(json!({"command": [python, script, "stdio"]}), &calls).await;
    assert!(told[0].contains("42") && told[1].contains("nothing"), "{told:?}");

    let port = free_port();
    let _running = Running::listening(Command::new(python).args([script, &port.to_string()]), port);
    let place = json!({"url": format!("http://127.0.0.1:{port}/mcp"), "allow_private": true});
    let told = results(place, &calls[..1]).await;
    assert!(told[0].contains("42"), "{told:?}");
}
