//! One execution on five surfaces: command line, REST, A2A, MCP and console.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Role, Said, World};
use crate::http;

/// How long surfaces may take to agree: events travel, pages are projections.
const PATIENCE: Duration = Duration::from_secs(90);

/// Statuses as each surface words them: command line and REST, A2A and MCP, icon in the title of the console's page.
const STATUSES: [(&str, &str, &str); 5] = [
    ("succeeded", "TASK_STATE_COMPLETED", "✓"),
    ("failed", "TASK_STATE_FAILED", "✗"),
    ("cancelled", "TASK_STATE_CANCELED", "⊘"),
    ("running", "TASK_STATE_WORKING", "►"),
    ("waiting", "TASK_STATE_INPUT_REQUIRED", "◷"),
];

/// A gateway with its console.
pub(crate) struct Gateway {
    pub base: String,
    /// Sent with every request.
    key: Option<String>,
    role: Arc<Role>,
}

impl Gateway {
    /// Starts one on a port of its own.
    pub(crate) fn start(world: &World) -> Self {
        Self::start_with(world, &[])
    }

    /// The same with more arguments.
    pub(crate) fn start_with(world: &World, args: &[&str]) -> Self {
        let mut child = world
            .command(&[&["serve", "gateway", "--listen", "127.0.0.1:0", "--console"], args].concat())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let log = Said::by(child.stderr.take().unwrap());
        let lines = log.wait_for("/.well-known/agent-card.json");
        // The log goes on: a pipe that nobody reads would block the gateway.
        std::thread::spawn(move || log.rest());
        let line = lines.lines().find(|line| line.contains("/.well-known/agent-card.json")).unwrap();
        let card = line.split_whitespace().last().unwrap();
        let base = card.split("/.well-known/").next().unwrap().to_owned();
        Self { base, key: None, role: Arc::new(Role(child)) }
    }

    /// The same gateway, for the holder of a key.
    pub(crate) fn with_key(&self, key: String) -> Self {
        Self { base: self.base.clone(), key: Some(key), role: Arc::clone(&self.role) }
    }

    /// Starts an execution through the REST API and returns its id.
    pub(crate) fn begin(&self, workflow: &str, input: &Value) -> String {
        self.begin_with(&json!({ "workflow": workflow, "input": input }))
    }

    /// Starts an execution by this request and returns its id.
    pub(crate) fn begin_with(&self, request: &Value) -> String {
        let answer = self.post("/api/v1/executions", &[], &request.to_string());
        assert!((200..300).contains(&answer.status), "{}: {}", answer.status, answer.body);
        let started: Value = serde_json::from_str(&answer.body).unwrap();
        started["execution"].as_str().unwrap().to_owned()
    }

    /// Sends a message to an agent over A2A and returns the id of its task, without waiting for the end.
    pub(crate) fn send_message(&self, agent: &str, input: &Value) -> String {
        let message = json!({ "messageId": "m1", "role": "ROLE_USER", "parts": [{ "data": input }] });
        let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let path = format!("/agents/{agent}/message:send");
        let answer = self.post(&path, &[("a2a-version", "1.0")], &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        answer["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Waits until the command line and REST describe an execution with this status, and checks that they agree.
    #[track_caller]
    pub(crate) fn described(&self, world: &World, execution: &str, status: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let description = world.json(&["execution", "describe", execution]);
            let rest = self.document(&format!("/api/v1/executions/{execution}"));
            if description["status"] == status && rest["status"] == status {
                check_documents(&description, &rest);
                return description;
            }
            assert!(Instant::now() < until, "{execution} is not {status}: {description} {rest}");
        }
    }

    /// Waits until a page shows a text.
    #[track_caller]
    pub(crate) fn shows(&self, page: &str, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(page);
            if answer.status == 200 && answer.body.contains(text) {
                return;
            }
            assert!(Instant::now() < until, "{page} does not show {text:?}: {}", answer.body);
        }
    }

    /// Approves what an execution waits for.
    pub(crate) fn approve(&self, execution: &str) {
        let body = json!({ "decision": "approve" }).to_string();
        let answer = self.post(&format!("/api/v1/executions/{execution}/decisions"), &[], &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    pub(crate) fn get(&self, path: &str) -> http::Answer {
        self.send("GET", path, &[("a2a-version", "1.0")], "")
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> http::Answer {
        let mut all =
            vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        all.extend_from_slice(headers);
        self.send("POST", path, &all, body)
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> http::Answer {
        let credential = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let mut headers = headers.to_vec();
        headers.extend(credential.as_deref().map(|credential| ("authorization", credential)));
        http::send(method, &format!("{}{path}", self.base), &headers, body)
    }

    /// Returns a document of the gateway.
    pub(crate) fn document(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Returns the task of an execution as MCP shows it.
    fn mcp_task(&self, execution: &str) -> Value {
        let answer = self.mcp_answer(execution);
        let text = answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        serde_json::from_str(text).unwrap()
    }

    /// Returns the answer of MCP to a request for the task of an execution.
    pub(crate) fn mcp_answer(&self, execution: &str) -> Value {
        let uri = format!("sinew://tasks/{execution}");
        self.mcp_request("resources/read", &uri, json!({ "uri": uri }))
    }

    /// Returns the answer of MCP to a request for something with this name.
    pub(crate) fn mcp_request(&self, method: &str, name: &str, mut params: Value) -> Value {
        let abilities = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "journey", "version": "1" });
        meta["io.modelcontextprotocol/clientCapabilities"] = abilities;
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
        let answer = self.post("/mcp", &headers, &body.to_string());
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{}", answer.body))
    }

    /// Waits until an execution has this status, and checks that all five surfaces show it. Returns the description.
    #[track_caller]
    pub(crate) fn agree(&self, world: &World, workflow: &str, execution: &str, status: &str) -> Value {
        let (_, state, icon) = STATUSES.into_iter().find(|(word, ..)| *word == status).unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let seen = self.surfaces(world, workflow, execution);
            let description = &seen.description;
            let states = [seen.a2a["status"]["state"].clone(), seen.mcp["status"]["state"].clone()];
            let agree = description["status"] == status
                && seen.rest["status"] == status
                && states.iter().all(|seen| *seen == json!(state))
                && seen.title.contains(icon);
            if agree {
                seen.check_content();
                return seen.description;
            }
            assert!(
                Instant::now() < until,
                "{execution} is not {status} everywhere: command line {}, REST {}, A2A and MCP {states:?}, title {}",
                description["status"],
                seen.rest["status"],
                seen.title
            );
        }
    }

    fn surfaces(&self, world: &World, workflow: &str, execution: &str) -> Surfaces {
        let page = self.get(&format!("/console/executions/{execution}"));
        let title = page.body.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
        Surfaces {
            description: world.json(&["execution", "describe", execution]),
            rest: self.document(&format!("/api/v1/executions/{execution}")),
            a2a: self.document(&format!("/agents/{workflow}/tasks/{execution}")),
            mcp: self.mcp_task(execution),
            title: title.unwrap_or_else(|| panic!("{}", page.body)).to_owned(),
        }
    }
}

/// Checks that the command line and REST describe the same result, reason and price.
#[track_caller]
fn check_documents(description: &Value, rest: &Value) {
    for member in ["output", "failure", "models"] {
        assert_eq!(description[member], rest[member], "{member} by command line and REST");
    }
}

/// An execution as each surface shows it.
struct Surfaces {
    description: Value,
    rest: Value,
    a2a: Value,
    mcp: Value,
    title: String,
}

impl Surfaces {
    /// Result, reason and price are the same everywhere.
    #[track_caller]
    fn check_content(&self) {
        check_documents(&self.description, &self.rest);
        // Texts say how long something has waited.
        let waits = |from: &Value| -> Vec<Value> {
            let mut waits = from["waiting"].as_array().cloned().unwrap_or_default();
            waits.iter_mut().filter_map(Value::as_object_mut).for_each(|wait| {
                wait.remove("text");
            });
            waits
        };
        assert_eq!(waits(&self.description), waits(&self.rest), "waiting by command line and REST");
        if self.description["status"] == "succeeded" {
            for task in [&self.a2a, &self.mcp] {
                assert_eq!(task["metadata"]["output"], self.description["output"], "the task {task}");
            }
        }
        let causes = self.description["failure"]["chain"].as_array().cloned().unwrap_or_default();
        let reasons: Vec<&str> = causes.iter().filter_map(|cause| cause["message"].as_str()).collect();
        let has_reason = ["failed", "cancelled"].iter().any(|status| self.description["status"] == *status);
        assert_eq!(!reasons.is_empty(), has_reason, "{}", self.description["failure"]);
        for task in [&self.a2a, &self.mcp].into_iter().filter(|_| !reasons.is_empty()) {
            let parts = task["status"]["message"]["parts"].to_string();
            let told = |reason: &&str| parts.contains(json!(reason).to_string().trim_matches('"'));
            assert!(reasons.iter().any(told), "{parts} tells none of {reasons:?}");
        }
    }
}
