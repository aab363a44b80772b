//! `sinew mcp` as a process, as hosts start it: one JSON message a line, and nothing else on stdout.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::common::{World, text};

const REVIEW: &str = r#"{"id": "review", "name": "review", "triggers": ["t"],
  "nodes": [{"id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}},
            {"id": "h", "name": "h", "type": "HUMAN_IN_THE_LOOP", "subtype": "MANUAL_REVIEW",
             "configurations": {"question": "Is this right?"}}],
  "connections": [{"id": "c", "from_node": "t", "to_node": "h", "output_key": "result"}]}"#;

/// A host that has started `sinew mcp`.
struct Host {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Host {
    fn start(world: &World) -> Self {
        let mut command = world.command(&["mcp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, requests, answers }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.requests.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The next message that is an answer; every line must be a message.
    fn answer(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the process has ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    fn ask(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = self.answer();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Closes the pipe, as a host does that ends.
    fn close(mut self) -> Option<i32> {
        self.requests.take();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_host_lists_and_calls_tools() {
    let (world, _executor) = World::new();
    world.write("review.json", REVIEW);
    world.ok(&["workflow", "deploy", "review.json"]);
    world.online(&["review"]);
    let mut host = Host::start(&world);
    let begin = json!({"protocolVersion": "2025-11-25", "capabilities": {},
                       "clientInfo": {"name": "host", "version": "1"}});
    let begun = host.ask(1, "initialize", &begin);
    assert_eq!(begun["result"]["protocolVersion"], "2025-11-25", "{begun}");
    host.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let tools = host.ask(2, "tools/list", &json!({}));
    assert_eq!(tools["result"]["tools"][0]["name"], "review", "{tools}");
    let called = host.ask(3, "tools/call", &json!({"name": "review", "arguments": {}}));
    let told = called["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(told.contains("Is this right?"), "{called}");
    // The command that the answer names decides.
    let command = told.split('`').find(|text| text.starts_with("sinew approval approve")).unwrap();
    let task = called["result"]["_meta"]["io.github.sinew-mesh/task"].as_str().unwrap();
    world.ok(&command.split_whitespace().skip(1).collect::<Vec<_>>());
    let uri = format!("sinew://tasks/{task}");
    for id in 4.. {
        let read = host.ask(id, "resources/read", &json!({"uri": uri}));
        if read.to_string().contains("TASK_STATE_COMPLETED") {
            break;
        }
    }
    assert_eq!(host.close(), Some(0));
}

#[test]
fn a_host_without_words_or_with_wrong_ones_ends_the_process() {
    let (world, _executor) = World::new();
    assert_eq!(Host::start(&world).close(), Some(0));
    let unreachable = world.run(&["mcp", "--nats", "nats://127.0.0.1:1"]);
    assert_eq!(unreachable.status.code(), Some(4), "{}", text(&unreachable.stderr));
    assert_eq!(text(&unreachable.stdout), "");
    let secret = world.run(&["mcp", "config", "zed", "--password", "not-a-secret-7f3a"]);
    assert_eq!(secret.status.code(), Some(2));
    let config = world.ok(&["mcp", "config", "claude-code", "--namespace", "other", "--expose", "re*"]);
    let config: Value = serde_json::from_str(&config).unwrap();
    let arguments = &config["mcpServers"]["sinew"]["args"];
    assert_eq!((&arguments[0], &arguments[1]), (&json!("mcp"), &json!("--nats")), "{config}");
    assert!(
        arguments.to_string().ends_with(r#""--namespace","other","--tools","all","--expose","re*"]"#),
        "{config}"
    );
}
