//! Commands of `docs/gateway.md` do what the page says.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::node_sdk::installed;
use crate::python_sdk::{SDK, python_with};
use crate::support::{GatewayWorld, state};

/// The workflow that the page calls.
const GREET: &str = r#"
workflow:
  description: Greets by name
  input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
  nodes:
    - {id: a, type: agent, agent_name: one, input: {name: "{{workflow.input.name}}"}}
  output_mapping: {name: "{{a.output.name}}"}
"#;

/// The fenced block of a language in `docs/calling.md`, for this gateway.
fn block(language: &str, base: &str) -> String {
    let page = include_str!("../../../docs/calling.md");
    let start = format!("```{language}\n");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {language}"));
    rest.split_once("```").unwrap().0.replace("http://127.0.0.1:8234", base)
}

/// Output of a command that ends well.
async fn output_of(command: &mut Command) -> Value {
    let ended = command.stdin(Stdio::null()).output().await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{out}\n{err}");
    serde_json::from_str(out.trim()).unwrap_or_else(|_| panic!("{out}\n{err}"))
}

#[tokio::test]
async fn examples_of_calling_work() {
    let world = GatewayWorld::new(&[("greet", GREET)]).await;
    world.serve_echo().await;
    let curl = block("console", &world.base).replace("\\\n", "");
    let curl = curl.lines().find(|line| line.starts_with("curl ")).unwrap().to_owned();
    let answer = output_of(Command::new("sh").args(["-c", &curl])).await;
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["data"], json!({"name": "Ada"}));
    if let Some(python) = python_with(&SDK).await {
        let script = block("python", &world.base);
        assert_eq!(output_of(Command::new(python).args(["-c", &script])).await, json!({"name": "Ada"}));
    }
    if let Some(folder) = installed().await {
        std::fs::write(folder.join("greet.mjs"), block("js", &world.base)).unwrap();
        let told = output_of(Command::new("node").arg("greet.mjs").current_dir(folder)).await;
        assert_eq!(told, json!({"name": "Ada"}));
    }
    world.end().await;
}

#[tokio::test]
async fn commands_of_the_page_work() {
    let page = include_str!("../../../docs/gateway.md").replace("\\\n", "");
    let commands: Vec<&str> = page.lines().filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(commands.len(), 5, "{commands:?}");
    let world = GatewayWorld::new(&[("greet", GREET)]).await;
    world.serve_echo().await;
    let mut answers: Vec<Value> = Vec::new();
    for command in commands {
        let command = command.replace("http://127.0.0.1:8234", &world.base);
        let ended = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).output().await.unwrap();
        assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
        answers.push(serde_json::from_slice(&ended.stdout).unwrap());
    }
    let skills: Vec<&Value> =
        answers[0]["skills"].as_array().unwrap().iter().map(|skill| &skill["id"]).collect();
    assert_eq!(skills, [&json!("greet"), &json!("one")]);
    let task = &answers[1]["task"];
    assert_eq!(state(task), "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(task["artifacts"][0]["parts"][0]["data"], json!({"name": "Ada"}));
    assert_eq!(answers[2]["executions"][0]["workflow"], "greet", "{}", answers[2]);
    assert_eq!(answers[3]["new"], true, "{}", answers[3]);
    assert_eq!(answers[4]["nodes"][0]["agent"], "one", "{}", answers[4]);
    world.end().await;
}
