//! The small language model of `deploy/get-model.sh`: mechanics with real answers, and words where it is missing.
//!
//! `SINEW_LOCAL_MODEL` names the program that serves it, as the script prints it; `.ci/run` asks the script.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Variable with the program that serves the model.
const PROGRAM: &str = "SINEW_LOCAL_MODEL";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A model that is served until the test ends.
struct ServedModel {
    child: Child,
    url: String,
}

impl ServedModel {
    fn start(program: &Path) -> Self {
        let mut child =
            Command::new(program).arg("0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "the server did not tell its address: {url:?}");
        Self { child, url }
    }

    /// The text of an agent file, asking this server.
    fn asked_by(&self, file: &str) -> String {
        assert!(file.contains("http://127.0.0.1:8137/v1"));
        file.replace("http://127.0.0.1:8137/v1", &self.url)
    }
}

impl Drop for ServedModel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call(folder: &Path, agent: &str, message: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(["agent", "call", agent, "--agents", ".", "-m", message, "-o", "json"])
        .current_dir(folder)
        .env_remove("OPENAI_API_KEY")
        .output()
        .unwrap()
}

fn answer(folder: &Path, agent: &str, message: &str) -> Value {
    let output = call(folder, agent, message);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{agent}: {told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Looks an order up by a tool. The model cannot call tools of itself: its calls are one JSON Schema.
const LOOKER: &str = r#"
name: Looker
description: Tells where an order is.
output_schema: {type: object, required: [state], properties: {state: {type: string, maxLength: 40}}, additionalProperties: false}
run:
  model:
    use: [local]
    models:
      local:
        provider: openai
        model: local
        url: http://127.0.0.1:8137/v1
        allow_private: true
        context: 4096
        max_output: 64
        caps: {tools: schema, schema: native, parallel: false}
        settings: {temperature: 0}
        timeout: {first: 2m, idle: 1m, total: 3m}
    instruction: Look the order up, then answer with its state.
    tools:
      - script:
          name: look_up
          description: State of an order.
          input_schema: {type: object, required: [order], properties: {order: {enum: [A-17, B-4]}}, additionalProperties: false}
          source: "def look_up(args): return {'state': {'A-17': 'on its way', 'B-4': 'lost'}[args['order']]}"
    budget: {turns: 4, output_tokens: 1000}
"#;

/// The program that serves the model; says loudly that nothing was tried if there is none.
fn program() -> Option<PathBuf> {
    let program = std::env::var_os(PROGRAM).map(PathBuf::from);
    if program.is_none() {
        println!("NO LOCAL MODEL: {PROGRAM} is not set, so no agent was tried with a real model");
    }
    program
}

/// Mechanics, not wit: forms, calls, ends and usage are checked; which word the model chooses is not.
#[test]
fn agents_work_with_a_small_real_model() {
    let Some(program) = program() else { return };
    let model = ServedModel::start(&program);
    let here = tempfile::tempdir().unwrap();
    let sorter = root().join("examples/local-model/agent-cards/sorter.agent.yaml");
    let sorter = model.asked_by(&std::fs::read_to_string(sorter).unwrap());
    std::fs::write(here.path().join("sorter.agent.yaml"), &sorter).unwrap();
    std::fs::write(here.path().join("looker.agent.yaml"), model.asked_by(LOOKER)).unwrap();
    let cut = model.asked_by(LOOKER).replace("max_output: 64", "max_output: 2").replace("Looker", "Cut");
    std::fs::write(here.path().join("cut.agent.yaml"), cut).unwrap();

    // The key of the first model is not set, so the second one is asked; its answer has the form of the schema.
    let first = answer(here.path(), "Sorter", "The lamp does not work.");
    assert!(["question", "complaint"].contains(&first["output"]["kind"].as_str().unwrap()), "{first}");
    assert_eq!(first["usage"]["models"], serde_json::json!(["local"]), "{first}");
    assert!(first["usage"]["output_tokens"].as_u64().unwrap() > 0, "{first}");
    // Temperature 0: the same words again.
    assert_eq!(answer(here.path(), "Sorter", "The lamp does not work.")["output"], first["output"]);
    // As the README shows it, with the address of this server.
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let typed = readme.lines().find(|line| line.starts_with("$ sinew agent call Sorter")).unwrap();
    let typed = typed.trim_start_matches("$ sinew ").replace("examples/local-model/agent-cards", ".");
    let line = format!("'{}' {typed} -o json", env!("CARGO_BIN_EXE_sinew"));
    let output = Command::new("/bin/sh")
        .args(["-c", &line])
        .current_dir(here.path())
        .env_remove("OPENAI_API_KEY")
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["output"], first["output"]);
    // Called a tool, was told its result, and came to an end.
    let looked = answer(here.path(), "Looker", "Where is A-17?");
    assert!(looked["usage"]["tool_calls"].as_u64().unwrap() >= 1, "{looked}");
    assert!(looked["output"]["state"].is_string(), "{looked}");
    // A cut-off answer is never taken for a whole one.
    let cut = call(here.path(), "Cut", "Where is A-17?");
    let told = String::from_utf8_lossy(&cut.stderr);
    assert!(!cut.status.success() && told.contains("SINEW-520"), "{told}");
}

/// Copies the files of a folder, and of the folders in it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn sinew(folder: &Path, args: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    command.args(args).args(["-o", "json"]).current_dir(folder);
    for key in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
        command.env_remove(key);
    }
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {err}{out}");
    serde_json::from_str(&out).unwrap()
}

/// The same files as on the script, by one flag: a workflow of each dialect comes to a good end, and no other model answered.
#[test]
fn examples_of_all_dialects_end_well_on_a_small_real_model() {
    let Some(program) = program() else { return };
    let model = ServedModel::start(&program);
    let here = tempfile::tempdir().unwrap();
    let desk = here.path().join("desk");
    copy_folder(&root().join("examples/support-desk"), &desk);
    let models = desk.join("agent-cards/models.yaml");
    std::fs::write(&models, model.asked_by(&std::fs::read_to_string(&models).unwrap())).unwrap();
    let readme = std::fs::read_to_string(desk.join("README.md")).unwrap();
    for (file, arguments, shown, event) in [
        (
            "ticket.yaml",
            vec!["-p", "message=Where is A-17?"],
            "/output/verdict",
            "workflow_node_execution_result",
        ),
        (
            "desk.yaml",
            vec![
                "-p",
                "message=Where is A-17?",
                "--default-agent",
                "work=DeskClerk",
                "--default-agent",
                "route=DeskRouter",
                "--default-agent",
                "judge=DeskJudge",
            ],
            "/output/results/sort/data/kind",
            "node:exit",
        ),
        ("team.json", vec![], "/output/lead", "step_start"),
        ("cluster.json", vec!["-i", "\"How many lamps are there?\""], "/output/response", "completed"),
        ("flow.json", vec![], "/output/content", "execution_completed"),
    ] {
        assert!(readme.contains(file), "{file} is not in the page of the example");
        let began = std::time::Instant::now();
        let run = sinew(
            &desk,
            &[&["run", file, "--agents", "agent-cards", "--model", "local"], arguments.as_slice()].concat(),
        );
        assert_eq!(run["status"], "succeeded", "{file}: {run}");
        assert!(run.pointer(shown).is_some_and(|value| !value.is_null()), "{file}: {run}");
        let id = run["execution"].as_str().unwrap();
        // The native events of sam are those of the mesh.
        let native: &[&str] = if file == "ticket.yaml" { &[] } else { &["--native"] };
        let events = sinew(&desk, &[&["execution", "events", id], native].concat()).to_string();
        assert!(events.contains(event), "{file}: {event}\n{events}");
        let told = sinew(&desk, &["execution", "describe", id]);
        let used = told["models"].as_array().unwrap();
        // The local model has a price, of nothing; a script has none.
        let is_local = |node: &Value| node["turns"].as_u64() > Some(0) && node["cost_usd"] == 0.0;
        assert!(!used.is_empty() && used.iter().all(is_local), "{file}: {used:?}");
        println!("{file}: {:.1} s, {used:?}", began.elapsed().as_secs_f64());
    }
}

/// Runs the script with these variables, and nothing in the cache.
fn script(variables: &[(&str, &str)]) -> Output {
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new("/bin/bash");
    command.arg(root().join("deploy/get-model.sh")).env_remove(PROGRAM).env("XDG_CACHE_HOME", cache.path());
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_model_that_cannot_be_had_is_told() {
    let nothing = tempfile::tempdir().unwrap();
    let nothing = nothing.path().to_str().unwrap();
    for (variables, reason) in [
        (
            vec![(PROGRAM, "/nowhere/serve-model")],
            "SINEW_LOCAL_MODEL (/nowhere/serve-model) is not a program",
        ),
        (vec![("PATH", nothing)], "it needs python3 of 3.10 or newer, with pip and venv"),
        (
            // No registry listens there.
            vec![
                ("PIP_INDEX_URL", "http://127.0.0.1:9/simple"),
                ("PIP_RETRIES", "0"),
                ("PIP_NO_CACHE_DIR", "1"),
            ],
            "its packages could not be fetched",
        ),
    ] {
        let output = script(&variables);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{variables:?}: {told}");
        assert!(output.stdout.is_empty() && told.contains(reason), "{variables:?}: {told}");
        assert!(told.contains("provider: script"), "{told}");
    }
}
