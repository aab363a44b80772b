//! Model agents in the dialects: each receives the prompt that its dialect defines, remembers the
//! conversation of its caller, and reports its work in the dialect's events and fields.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Said, World};
use crate::views::Gateway;

/// A model that calls a tool which fails, then twice one that waits for a person, then answers.
fn model_agent(name: &str) -> String {
    format!(
        r#"
name: {name}
description: Adds.
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        model: script-1
        price: {{input: 1, output: 1}}
        answers:
          - {{call: {{broken: {{}}}}}}
          - {{call: {{workflow_approval: {{claim: 1}}}}}}
          - {{call: {{workflow_approval: {{claim: 7}}}}}}
          - {{text: "It is {name}."}}
    session: {{keep: 1d}}
    tools:
      - script: {{name: broken, input_schema: {{type: object, properties: {{}}}}, source: "def broken(args): raise ValueError('no')"}}
      - workflow: approval
"#
    )
}

const APPROVAL: &str = r#"{
  "id": "approval", "name": "approval", "triggers": ["t"],
  "nodes": [
    {"id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}},
    {"id": "h", "name": "h", "type": "HUMAN_IN_THE_LOOP", "subtype": "MANUAL_REVIEW", "configurations": {"question": "Go on?"}}
  ],
  "connections": [{"id": "c", "from_node": "t", "to_node": "h", "output_key": "result"}]
}"#;

const COVALT: &str = r#"{
  "nodes": [
    {"id": "cs", "type": "chat-start", "data": {"_label": "Chat Start"}},
    {"id": "n", "type": "agent", "data": {"_label": "Agent", "agent": "Covalt", "instructions": "Be nice."}}
  ],
  "edges": [{"id": "1", "source": "cs", "target": "n", "data": {"channel": "flow"}}]
}"#;

const TEAM: &str = r#"{
  "id": "team", "name": "team", "triggers": ["t"],
  "nodes": [
    {"id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}},
    {"id": "n", "name": "n", "type": "AI_AGENT", "subtype": "OPENAI_CHATGPT", "configurations": {"agent": "Team"}}
  ],
  "connections": [{"id": "c", "from_node": "t", "to_node": "n"}]
}"#;

const FLOW: &str = r#"{
  "nodes": [
    {"id": "s", "type": "start", "x": 0, "y": 0, "data": {}},
    {"id": "n", "type": "agent", "x": 1, "y": 0, "data": {"agentName": "Flow", "userPrompt": "Say: {{PREVIOUS_OUTPUT}}"}}
  ],
  "connections": [{"source": "s", "target": "n", "sourceHandle": "output", "targetHandle": "input"}]
}"#;

const SWENY: &str =
    "id: sweny\nname: sweny\nentry: n\nnodes:\n  n: {name: N, instruction: Add the numbers.}\nedges: []\n";

/// A workflow of a dialect, with the expected reports of its model agent.
struct DialectCase {
    workflow: &'static str,
    file: (&'static str, &'static str),
    agent: &'static str,
    input: Value,
    /// User message of the model.
    prompt: &'static str,
    /// A pointer to the answer in the native result, and the answer.
    answer: (&'static str, &'static str),
    /// Part of an event: of the call that waits for the person, if the dialect has one.
    live: &'static str,
    /// Whether the event occurs while the model waits.
    is_live: bool,
}

fn cases() -> [DialectCase; 4] {
    let text = json!({ "message": "hello" });
    [
        DialectCase {
            workflow: "covalt",
            file: ("covalt.json", COVALT),
            agent: "Covalt",
            input: text.clone(),
            prompt: "hello",
            answer: ("/outputs/n/output/response", "It is Covalt."),
            live: r#""tool_name":"workflow_approval","tool_args":{"claim":7}"#,
            is_live: true,
        },
        DialectCase {
            workflow: "team",
            file: ("team.json", TEAM),
            agent: "Team",
            input: text,
            prompt: "hello",
            answer: ("/nodes/n/output/result/content", "It is Team."),
            live: r#""tool":"workflow_approval","input":{"claim":7}"#,
            is_live: true,
        },
        DialectCase {
            workflow: "flow",
            file: ("flow.json", FLOW),
            agent: "Flow",
            input: json!({ "initialInput": "hello" }),
            prompt: "Say: hello",
            answer: ("/state/n", "It is Flow."),
            live: r#""type":"start_prompt","content":"Say: hello""#,
            is_live: false,
        },
        DialectCase {
            workflow: "sweny",
            file: ("sweny.yaml", SWENY),
            agent: "agent",
            input: json!({ "a": 1 }),
            prompt: r#"{"input":{"a":1}}"#,
            answer: ("/results/n/data/text", "It is agent."),
            live: r#""type":"tool:call","node":"n","tool":"workflow_approval","input":{"claim":7}"#,
            is_live: true,
        },
    ]
}

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_mins(1);
/// A context that the caller of all executions names.
const CHAT: &str = "01936f2a-0000-7000-8000-000000000002";

/// Starts an execution in the chat.
fn begin(gateway: &Gateway, workflow: &str, input: &Value) -> String {
    gateway.begin_with(&json!({ "workflow": workflow, "input": input, "session": CHAT }))
}

/// Approves the next call of a model that was not approved yet.
fn approve_next(gateway: &Gateway, approved: &mut BTreeSet<String>) {
    let until = Instant::now() + PATIENCE;
    loop {
        let open = gateway.document("/api/v1/approvals");
        let open = open.as_array().unwrap().iter().filter_map(|one| one["execution"].as_str());
        if let Some(question) = open.into_iter().find(|id| !approved.contains(*id)) {
            gateway.approve(question);
            approved.insert(question.to_owned());
            return;
        }
        assert!(Instant::now() < until, "no call waits for approval");
    }
}

/// Returns messages and answers of the earlier conversations that a model received.
fn earlier(world: &World, execution: &str) -> Vec<(String, String)> {
    let log = world.json(&["agent", "log", execution, "--content"]);
    let begin = &log[0]["records"][0];
    assert_eq!(begin["kind"], "begin", "{log}");
    let turns = begin["content"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    turns.iter().map(|turn| (text(&turn["input"]), text(&turn["output"]))).collect()
}

#[test]
fn a_model_agent_speaks_the_language_of_each_dialect() {
    let (world, _executor) = World::new();
    world.write("approval.json", APPROVAL);
    world.ok(&["workflow", "deploy", "approval.json"]);
    let mut roles = Vec::new();
    for DialectCase { workflow, file: (file, text), agent, .. } in cases() {
        world.write(file, text);
        let agent_file = format!("{agent}.agent.yaml");
        world.write(&agent_file, &model_agent(agent));
        roles.push(world.serve(&["serve", "agent", &agent_file]));
        world.ok(&["workflow", "deploy", file]);
        world.online(&[workflow, agent]);
    }
    let gateway = Gateway::start(&world);
    let mut approved = BTreeSet::new();
    for case in cases() {
        let DialectCase { workflow, input, prompt, answer: (at, answer), live, .. } = case;
        let first = begin(&gateway, workflow, &input);
        let follow = ["execution", "events", &first, "--native", "--follow", "-o", "jsonl"];
        let mut follower = world.command(&follow).stdout(Stdio::piped()).spawn().unwrap();
        let said = Said::by(follower.stdout.take().unwrap());
        // Printed after the follower has subscribed to the agent's progress.
        let mut followed = said.wait_for(r#""seq":"1.1""#);
        approve_next(&gateway, &mut approved);
        if case.is_live {
            // The second call waits for the person, so the node has no result.
            followed.push_str(&said.wait_for(live));
        }
        approve_next(&gateway, &mut approved);
        followed.push_str(&said.rest());
        assert!(follower.wait().unwrap().success());
        let stored = world.ok(&["execution", "events", &first, "--native", "-o", "jsonl"]);
        let count = |events: &str| events.lines().filter(|line| line.contains(live)).count();
        assert_eq!(count(&followed), 1, "{workflow}: {live}\n{followed}");
        // Chunks of agentteam are for observers; its output contains the calls.
        assert_eq!(count(&stored), usize::from(workflow != "team"), "{workflow}: {live}\n{stored}");
        gateway.described(&world, &first, "succeeded");
        let native = world.json(&["execution", "result", &first, "--native"]);
        assert_eq!(native.pointer(at), Some(&json!(answer)), "{native:#}");
        check_fields(workflow, &native);
        assert_eq!(earlier(&world, &first), []);

        let mut again = |input: &Value| {
            let execution = begin(&gateway, workflow, input);
            approve_next(&gateway, &mut approved);
            approve_next(&gateway, &mut approved);
            gateway.described(&world, &execution, "succeeded");
            execution
        };
        let second = again(&input);
        let turn = (prompt.to_owned(), answer.to_owned());
        assert_eq!(earlier(&world, &second), std::slice::from_ref(&turn), "{workflow}");
        if workflow == "covalt" {
            // Too large for the short form of a task.
            let third = again(&json!({ "message": "x".repeat(70_000) }));
            assert_eq!(earlier(&world, &third), [turn.clone(), turn]);
        }
    }
}

/// Checks the fields in which a dialect reports the work of a model.
fn check_fields(workflow: &str, native: &Value) {
    let calls = |calls: &Value, key: &str| -> Vec<(Value, bool)> {
        let calls = calls.as_array().unwrap().iter();
        calls.map(|call| (call[key].clone(), call.get("output").or(call.get("result")).is_some())).collect()
    };
    let approval = || (json!("workflow_approval"), true);
    let expected = [(json!("broken"), false), approval(), approval()];
    match workflow {
        "covalt" => {
            let output = &native["outputs"]["n"]["output"];
            assert_eq!(output["model"], "script-1");
            assert_eq!(output["tokens_used"].as_object().unwrap().len(), 2);
            assert!(output["tokens_used"]["prompt"].as_u64() > Some(0), "{output}");
            assert!(output["tokens_used"]["completion"].as_u64() > Some(0), "{output}");
        }
        "team" => {
            let output = &native["nodes"]["n"]["output"]["result"];
            assert_eq!(output["metadata"], json!({ "model": "script-1", "finish_reason": "stop" }));
            let tokens = ["prompt_tokens", "completion_tokens", "total_tokens"];
            let [prompt, completion, total] = tokens.map(|key| output["token_usage"][key].as_u64().unwrap());
            assert_eq!(prompt + completion, total);
            assert_eq!(calls(&output["function_calls"], "name"), expected);
        }
        "sweny" => assert_eq!(calls(&native["results"]["n"]["toolCalls"], "tool"), expected),
        _ => {}
    }
}
