//! Workflows of a chaos run, and their expected outputs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sinew_dialects::LowerOptions;
use sinew_engine::Adapter;
use sinew_execution::Program;
use sinew_executor::service::store_plan;
use sinew_mesh::Mesh;
use sinew_protocol::deployment::Deployment;
use sinew_source::{Limits, LoadOptions};

use crate::Fallible;

/// Name of the started workflow.
pub(crate) const JOURNEY: &str = "journey";
/// Name of its sub-workflow.
pub(crate) const LEG: &str = "leg";
/// Workflows that fail while tasks are queued: one fails fast, one at the timeout of a node.
pub(crate) const FAILING: [&str; 2] = ["hasty", "late"];
/// Name of the workflow that waits for a person.
pub(crate) const GATE: &str = "gate";
/// Bytes of a large input, above the limit of inline values in messages.
pub(crate) const PAD: u64 = 70_000;

/// Ten nodes: a map, a loop, a join, a retry, a sub-workflow, both deliveries. Each agent returns
/// its input number plus one.
const JOURNEY_FILE: &str = r#"
workflow:
  description: Everything that can be cut in two
  nodes:
    - {id: first, type: agent, agent_name: alpha, input: {value: "{{workflow.input.value}}", pad: "{{workflow.input.pad}}"}}
    - {id: spread, type: map, depends_on: [first], items: "{{first.output.items}}", node: part, concurrency_limit: 2}
    - {id: part, type: agent, agent_name: beta, input: {value: "{{_map_item.value}}"}}
    - {id: side, type: agent, agent_name: gamma, depends_on: [first], input: {value: "{{first.output.value}}"}}
    - id: flaky
      type: agent
      agent_name: alpha
      depends_on: [first]
      input: {value: "{{first.output.value}}", fails: 1, carried: "{{first.output.carried}}"}
      retryStrategy: {limit: 3, retryPolicy: Always, backoff: {duration: 0.2s}}
    - {id: both, type: join, depends_on: [spread, side, flaky], wait_for: [spread, side, flaky]}
    - {id: again, type: loop, depends_on: [both], node: turn, condition: "{{turn.output.more}} == true", max_iterations: 5}
    - {id: turn, type: agent, agent_name: beta, input: {value: "{{first.output.value}}", turn: "{{_loop_iteration}}"}}
    - {id: leg, type: workflow, workflow_name: leg, depends_on: [again], input: {value: "{{turn.output.value}}"}}
    - {id: last, type: agent, agent_name: alpha, depends_on: [leg], input: {value: "{{leg.output.value}}"}}
  output_mapping:
    value: "{{last.output.value}}"
    side: "{{side.output.value}}"
    flaky: "{{flaky.output.value}}"
    spread: "{{spread.output.results}}"
"#;

const LEG_FILE: &str = r#"
workflow:
  description: Part of a journey
  nodes:
    - {id: only, type: agent, agent_name: delta, input: {value: "{{workflow.input.value}}"}}
  output_mapping: {value: "{{only.output.value}}"}
"#;

/// One node fails while the tasks of six items are queued or in progress.
const HASTY_FILE: &str = r#"
workflow:
  description: Fails fast
  nodes:
    - {id: spread, type: map, items: "{{workflow.input.items}}", node: part}
    - {id: part, type: agent, agent_name: beta, input: {value: "{{_map_item}}"}}
    - {id: breaks, type: agent, agent_name: alpha, input: {value: 1, fails: 99}}
  output_mapping: {spread: "{{spread.output.results}}"}
"#;

/// The agent of one node does not run, so the node times out.
const LATE_FILE: &str = r#"
workflow:
  description: Runs out of time
  nodes:
    - {id: spread, type: map, items: "{{workflow.input.items}}", node: part}
    - {id: part, type: agent, agent_name: gamma, input: {value: "{{_map_item}}"}}
    - {id: absent, type: agent, agent_name: absent, timeout: 1s, input: {value: 1}}
  output_mapping: {spread: "{{spread.output.results}}"}
"#;

const GATE_FILE: &str = r#"{
  "name": "gate",
  "nodes": [
    {"id": "start", "type": "start", "x": 0, "y": 0, "data": {}},
    {"id": "ask", "type": "approval", "x": 1, "y": 0, "data": {"prompt": "Shall it go on?"}}
  ],
  "connections": [{"source": "start", "target": "ask", "sourceHandle": "output", "targetHandle": "input"}]
}"#;

/// Description of a journey, which differs between its versions.
const DESCRIPTION: &str = "Everything that can be cut in two";

/// Returns the adapter of a dialect.
pub(crate) fn adapters(name: &str) -> Option<&'static dyn Adapter> {
    sinew_dialects::by_name(name).map(sinew_dialects::Dialect::adapter)
}

/// Returns the options for a file without includes.
pub(crate) fn load_options(name: &str) -> LoadOptions<'_> {
    LoadOptions {
        name,
        variables: sinew_source::Variables::Kept,
        read: &|_| Err("no includes".to_owned()),
        limits: Limits::default(),
    }
}

/// Deploys the workflows of a run.
pub(crate) async fn deploy(mesh: &Mesh) -> Fallible<()> {
    let [hasty, late] = FAILING;
    for (name, text) in [(LEG, LEG_FILE), (JOURNEY, JOURNEY_FILE), (hasty, HASTY_FILE), (late, LATE_FILE)] {
        deploy_text(mesh, name, text, &BTreeMap::new()).await?;
    }
    Ok(())
}

/// Deploys the workflow that waits for a person.
pub(crate) async fn deploy_gate(mesh: &Mesh) -> Fallible<()> {
    deploy_text(mesh, GATE, GATE_FILE, &BTreeMap::new()).await
}

/// Deploys a unique version of the journey.
pub(crate) async fn deploy_revision(mesh: &Mesh, revision: u64) -> Fallible<()> {
    let text = JOURNEY_FILE.replace(DESCRIPTION, &format!("{DESCRIPTION}, version {revision}"));
    deploy_text(mesh, JOURNEY, &text, &BTreeMap::new()).await
}

/// Deploys the text of a file under a name. `agents` are bound to nodes without an agent.
pub(crate) async fn deploy_text(
    mesh: &Mesh,
    name: &str,
    text: &str,
    agents: &BTreeMap<String, String>,
) -> Fallible<()> {
    deploy_programs(mesh, name, lower_text(name, text, agents)?).await
}

/// Lowers the text of a file in any dialect.
pub(crate) fn lower_text(
    name: &str,
    text: &str,
    agents: &BTreeMap<String, String>,
) -> Fallible<Vec<Program>> {
    let document = sinew_source::load(text.as_bytes(), &load_options("chaos.yaml"))
        .map_err(|found| format!("{found:?}"))?;
    let dialect = sinew_dialects::detect(&document).ok_or("no dialect takes the workflow")?;
    let options = LowerOptions {
        default_name: name,
        read: &|_| Err("no other files".to_owned()),
        list: &sinew_dialects::no_list,
        agents,
    };
    let lowered = dialect.lower(document, &options).map_err(|found| format!("{found:?}"))?;
    lowered.into_iter().map(|lowered| Ok(Program::new(lowered.plan, dialect.adapter())?)).collect()
}

/// Deploys programs, the first one under this name.
pub(crate) async fn deploy_programs(mesh: &Mesh, name: &str, programs: Vec<Program>) -> Fallible<()> {
    for (nth, program) in programs.into_iter().enumerate() {
        let digest = store_plan(mesh, &program, None).await?;
        let deployment = Deployment {
            name: if nth == 0 { name.to_owned() } else { program.name().to_owned() },
            digest,
            dialect: program.adapter.name().to_owned(),
            description: String::new(),
            card: Value::Null,
            mermaid: String::new(),
            at: 0,
            by: "chaos".to_owned(),
            author_version: None,
            pause: None,
        };
        mesh.workflows().deploy(&deployment).await?;
    }
    Ok(())
}

/// Returns the input of a journey.
pub(crate) fn input(value: u64, large: bool) -> Value {
    json!({ "value": value, "pad": if large { PAD } else { 0 }, "items": [1, 2, 3, 4, 5, 6] })
}

/// Returns the answer of an agent; `None` if it must fail at this attempt.
pub(crate) fn answer(input: &Value, attempt: u32) -> Option<Value> {
    let number = |key: &str| input.get(key).and_then(Value::as_u64);
    if number("fails").is_some_and(|fails| u64::from(attempt) <= fails) {
        return None;
    }
    let value = number("value").unwrap_or_default() + 1;
    let carried = "x".repeat(usize::try_from(number("pad").unwrap_or_default()).unwrap_or_default());
    let items: Vec<Value> = (0..3).map(|nth| json!({ "value": value + nth })).collect();
    let more = number("turn").is_some_and(|turn| turn < 1);
    Some(json!({ "value": value, "items": items, "more": more, "carried": carried }))
}

/// Returns the defect in the output of a journey.
pub(crate) fn wrong(value: u64, output: &Value) -> Option<String> {
    let spread = output["spread"].as_array().cloned().unwrap_or_default();
    let spread: Vec<_> = spread.iter().map(|one| one["value"].as_u64()).collect();
    let good = output["value"] == json!(value + 4)
        && output["side"] == json!(value + 2)
        && output["flaky"] == json!(value + 2)
        && spread == [Some(value + 2), Some(value + 3), Some(value + 4)];
    (!good).then(|| {
        format!("for {value} it answers {}", output.to_string().chars().take(300).collect::<String>())
    })
}
