//! Agents whose work is done by tools of an MCP server: a program, or an address.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sinew_agents::{Agent, CancellationToken};

use crate::fixture::{Fixture, environment, heard, told};

pub(crate) const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/mcp_server.py");

fn server(fields: Value) -> Value {
    let mut mcp = json!({"command": ["python3", SERVER], "env": {"KEY": "${env:TOKEN}"}});
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    mcp.as_object_mut().unwrap().extend(fields);
    json!({ "mcp": mcp })
}

/// A server at an address, ended with its test.
pub(crate) struct HttpServer(Child, pub(crate) String);

impl HttpServer {
    pub(crate) fn start() -> Self {
        let mut child =
            Command::new("python3").args([SERVER, "http"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self(child, format!("http://127.0.0.1:{}/mcp", port.trim()))
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn tools_answer() {
    let numbers = json!({"a": 2, "b": 3});
    for (fields, input, expected) in [
        (json!({"tool": "add"}), numbers.clone(), json!({"sum": 5})),
        (json!({}), json!({"tool": "add", "arguments": numbers}), json!({"sum": 5})),
        (json!({"allow": ["j*"]}), json!({"tool": "json"}), json!([1, 2])),
        // The program has the variables of the file, and of ours those that every program needs. Their values stay there.
        (json!({"tool": "key"}), json!({}), json!({"text": "KEY=***"})),
    ] {
        let shown = format!("{fields} {input}");
        assert_eq!(Fixture::new(&server(fields)).output(input).await, Ok(expected), "{shown}");
    }
}

#[tokio::test]
async fn files_are_artifacts() {
    let fixture = Fixture::new(&server(json!({"tool": "picture"})));
    let reply = fixture.call(json!({})).await.unwrap();
    assert_eq!(reply.output, json!({"text": "drawn"}));
    assert_eq!(reply.artifacts.len(), 1);
    assert_eq!(fixture.stored(reply.artifacts[0].name.as_str()), b"abc");
}

#[tokio::test]
async fn failures_say_whose_they_are() {
    for (fields, input, expected) in [
        (
            json!({"tool": "fail"}),
            json!({}),
            "SINEW-5051 failure: the tool fail failed: no such file: /etc/x of *** (again)",
        ),
        (json!({"tool": "unknown"}), json!({}), "SINEW-5050 error: the MCP server cannot be used: "),
        (json!({"tool": "leave"}), json!({}), "SINEW-5050 error: the MCP server did not respond: "),
        (json!({"allow": ["add"]}), json!({"tool": "fail"}), "SINEW-5013 invalid: "),
        (json!({}), json!("add"), "SINEW-5013 invalid: "),
        (json!({"command": ["/no/such/program"]}), json!({"tool": "add"}), "SINEW-5020 error: "),
        (json!({"command": ["true"]}), json!({"tool": "add"}), "SINEW-5050 error: "),
        (json!({"command": ["echo", "not JSON"]}), json!({"tool": "add"}), "SINEW-5050 error: "),
        (
            json!({"command": ["python3", "-c", "import no_such_module"]}),
            json!({"tool": "add"}),
            "SINEW-5050 error: the MCP server cannot be used: connection closed: initialize response; its \
             standard error ends with 'ModuleNotFoundError: No module named 'no_such_module''",
        ),
        (json!({"env": {"KEY": "${env:UNSET}"}}), json!({"tool": "add"}), "SINEW-5036 error: "),
    ] {
        let shown = format!("{fields} {input}");
        let fault = Fixture::new(&server(fields)).call(input).await.unwrap_err();
        assert!(told(&fault).starts_with(expected), "{shown}: {}", told(&fault));
    }
}

#[tokio::test]
async fn progress_is_told_and_a_cancelled_call_ends_the_program() {
    let fixture = Fixture::new(&server(json!({"tool": "wait"})));
    let mut call = fixture.input(json!({}));
    let cancel = CancellationToken::new();
    call.cancel = cancel.clone();
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    call.progress = sender;
    let mut lines = Vec::new();
    let calling = async {
        let ended = fixture.agent.call(call).await;
        assert_eq!(ended.unwrap_err().code, "SINEW-5017");
    };
    let hearing = async {
        while lines.last().is_none_or(|line| line != "half") {
            lines.push(progress.recv().await.unwrap()["message"].as_str().unwrap().to_owned());
        }
        cancel.cancel();
    };
    tokio::join!(calling, hearing);
    assert!(lines.contains(&"a word of its own".to_owned()), "{lines:?} {:?}", heard(&mut progress));
    let pid = std::fs::read_to_string(fixture.path().join("pid")).unwrap();
    let gone = async {
        while Path::new(&format!("/proc/{}/cmdline", pid.trim())).exists()
            && !std::fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default().is_empty()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
}

#[tokio::test]
async fn progress_without_end_is_told_in_part() {
    let fixture = Fixture::new(&server(json!({"tool": "chatter"})));
    let mut call = fixture.input(json!({}));
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    call.progress = sender;
    assert_eq!(fixture.agent.call(call).await.unwrap().output, json!({"text": "told"}));
    let told = heard(&mut progress);
    let longest = told.iter().map(String::len).max();
    assert_eq!(longest, Some(1 << 10), "lines and messages are cut");
    let notes = told.iter().filter(|text| text.starts_with('y')).count();
    assert_eq!(notes, 999, "of {} messages", told.len());
    assert!(told.contains(&"the key is ***".to_owned()), "values of the environment are not told");
    assert!(told.len() <= 1_000 + 256, "{}", told.len());
}

#[tokio::test]
async fn an_address_is_asked_with_the_headers_of_the_file() {
    let http = HttpServer::start();
    let at = |fields: Value| {
        let mut mcp = json!({"url": http.1, "allow_private": true, "headers": {"X-Key": "${env:TOKEN}"}});
        mcp.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Fixture::new(&json!({ "mcp": mcp }))
    };
    let input = json!({"tool": "add", "arguments": {"a": 2, "b": 3}});
    assert_eq!(at(json!({})).output(input.clone()).await, Ok(json!({"sum": 5})));
    let refused = at(json!({"headers": {}})).call(input.clone()).await.unwrap_err();
    assert!(told(&refused).starts_with("SINEW-5050 error: "), "{}", told(&refused));
    let private = at(json!({"allow_private": false})).call(input).await.unwrap_err();
    assert_eq!(private.code, "SINEW-5030");
}

/// Tools and answers of a server that are no common ones, and the outputs of an agent and of a model.
fn odd_answers() -> Vec<(Value, Value)> {
    let text = |words: &str| json!({"type": "text", "text": words});
    let link = json!({"type": "resource_link", "uri": "ui://demo/v1", "mimeType": "text/html"});
    let hologram = json!({"type": "hologram", "data": 1});
    vec![
        (
            json!({"content": [text("THE BODY")], "structuredContent": {"file": "a.txt"}}),
            json!({"file": "a.txt", "text": "THE BODY"}),
        ),
        (
            json!({"content": [text("fine")], "structuredContent": null, "isError": null, "_meta": null}),
            json!({"text": "fine"}),
        ),
        (json!({"content": [hologram, text("fine")]}), json!({"text": "fine", "parts": [hologram]})),
        (json!({"content": [text("see"), link]}), json!({"text": "see", "parts": [link]})),
        (json!({"content": []}), json!({"text": ""})),
    ]
}

/// Writes the tool `odd` with this answer beside the server.
pub(crate) fn write_odd(folder: &Path, answer: &Value) {
    let tool = json!([{"name": "odd", "description": null, "inputSchema": {"type": "object"}}]);
    std::fs::write(folder.join("tools.json"), tool.to_string()).unwrap();
    std::fs::write(folder.join("answers.json"), json!({ "odd": answer }).to_string()).unwrap();
}

#[tokio::test]
async fn odd_answers_are_outputs_with_all_their_parts() {
    for (answer, expected) in odd_answers() {
        let fixture = Fixture::new(&server(json!({"tool": "odd"})));
        write_odd(fixture.path(), &answer);
        assert_eq!(fixture.output(json!({})).await, Ok(expected.clone()), "{answer}");
        let model = crate::mcp_tools::talk_to_odd(&answer).await;
        assert_eq!(model, expected, "for a model: {answer}");
    }
    // An output schema that takes only the structured content gets no more.
    let fixture = Fixture::new(&server(json!({"tool": "odd"})));
    write_odd(fixture.path(), &odd_answers()[0].0);
    let mut call = fixture.input(json!({}));
    call.output_schema =
        Some(json!({"type": "object", "properties": {"file": {}}, "additionalProperties": false}));
    assert_eq!(fixture.agent.call(call).await.unwrap().output, json!({"file": "a.txt"}));
    let content = json!([{"type": "text", "text": "no"}]);
    let details = json!({"code": "NEEDS_HUMAN"});
    let failure = json!({"content": content, "structuredContent": details, "isError": true});
    write_odd(fixture.path(), &failure);
    let fault = fixture.call(json!({})).await.unwrap_err();
    assert_eq!(fault.message, "the tool odd failed: no\n{\"code\":\"NEEDS_HUMAN\"}");
    assert_eq!(
        crate::mcp_tools::talk_to_odd(&failure).await,
        "the tool odd failed: no\n{\"code\":\"NEEDS_HUMAN\"}"
    );
}

#[tokio::test]
async fn a_rate_limit_is_waited_for() {
    let http = HttpServer::start();
    let input = json!({"tool": "add", "arguments": {"a": 2, "b": 3}});
    for (limit, expected) in [
        ("tools.call/0", Ok(json!({"sum": 5}))),
        ("initialize/0", Ok(json!({"sum": 5}))),
        (
            "tools.call/3600",
            Err("SINEW-5033 error: '127.0.0.1' is unavailable, last answer 429 after 1 attempts (again)"),
        ),
    ] {
        let url = format!("{}/{limit}", http.1);
        let mcp = json!({"url": url, "allow_private": true, "headers": {"X-Key": "${env:TOKEN}"}});
        let answer = Fixture::new(&json!({ "mcp": mcp })).output(input.clone()).await;
        let wait = answer.as_ref().err().and_then(|fault| fault.retry_after_ms);
        assert_eq!(answer.map_err(|fault| told(&fault)), expected.map_err(str::to_owned), "{limit}");
        assert_eq!(wait, limit.ends_with("3600").then_some(3_600_000), "{limit}");
    }
}

#[tokio::test]
async fn messages_name_no_types() {
    for fields in [
        json!({"command": ["true"]}),
        json!({"command": ["echo", "{\"jsonrpc\": \"2.0\", \"id\": 0, \"result\": {\"a\": 1}}"]}),
        json!({"command": null, "env": null, "url": "http://127.0.0.1:1/", "allow_private": true}),
    ] {
        let mut run = server(fields);
        run["mcp"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let fault = Fixture::new(&run).call(json!({"tool": "add"})).await.unwrap_err();
        let is_named = ["::", "Transport [", "JsonRpc", "Some("].iter().any(|it| fault.message.contains(it));
        assert!(!is_named, "{run}: {}", fault.message);
    }
}

#[tokio::test]
async fn tools_are_announced_as_skills() {
    let fixture = Fixture::new(&server(json!({"allow": ["add", "j*"]})));
    assert!(
        fixture.agent.announcement().input_schema.is_none(),
        "nothing is known before the server was asked"
    );
    fixture.agent.discover().await.unwrap();
    let announced = fixture.agent.announcement();
    let skills: Vec<&str> = announced.skills.iter().map(|skill| skill.id.as_str()).collect();
    assert_eq!(skills, ["add", "json"]);
    let schema = announced.input_schema.unwrap();
    assert_eq!(schema["oneOf"][0]["properties"]["arguments"]["required"], json!(["a", "b"]));
    let only = Fixture::new(&server(json!({"tool": "add"})));
    only.agent.discover().await.unwrap();
    assert_eq!(only.agent.input_schema().unwrap()["required"], json!(["a", "b"]));
    assert_eq!(only.agent.output_schema().unwrap()["required"], json!(["sum"]));
    let broken = Fixture::new(&server(json!({"command": ["true"]})));
    assert_eq!(broken.agent.discover().await.unwrap_err().code, "SINEW-5050");
}

#[test]
fn files_that_name_no_server_are_refused() {
    for (run, expected) in [
        (json!({"mcp": {}}), "either command or url"),
        (json!({"mcp": {"command": ["a"], "url": "http://b.example"}}), "either command or url"),
        (json!({"mcp": {"command": ["a"], "env": {"K": "{{unknown.x}}"}}}), "must begin with input"),
        (json!({"mcp": {"command": ["a"], "more": 1}}), "more"),
        (json!({"mcp": {"command": []}}), "command"),
        (
            json!({"mcp": {"url": "http://b.example"}, "http": {"url": "http://b.example"}}),
            "more than 1 property",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.agent.json");
        std::fs::write(&path, json!({"name": "x", "run": run}).to_string()).unwrap();
        let found = Agent::load_with(&path, &environment()).map(drop).unwrap_err().to_string();
        assert!(found.contains(expected), "{run}: {found}");
    }
}
