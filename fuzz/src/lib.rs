//! What each target does with its bytes, once: `fuzz_targets/` brings what the fuzzer invents,
//! `crates/sinew-dialects/tests/corpus.rs` what is kept under `corpus/`. A panic is a finding.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_dialects::{LowerOptions, Lowered};
use sinew_engine::{
    Action, Adapter, AdapterContext, EngineInput, ExecutionMode, ExecutionState, IndexedPlan, Machine,
    PersonAnswer, TaskReply, TaskRequest, apply, decode_round, encode_round, waiting,
};
use sinew_plan::PlanError;
use sinew_protocol::{ArtifactName, ArtifactUri};
use sinew_source::{Diagnostics, Document, Limits, LoadOptions, Node, Sources, Variable, Variables};

/// Activations an execution may have here: enough for every kind of node, too few to spend a second on.
const ACTIVATIONS: u32 = 300;
/// Inputs an execution gets from outside.
const INPUTS: usize = 300;

/// A workflow file.
pub fn workflow_file(bytes: &[u8]) {
    // The same bytes as data: read or refused, and never more than a tree.
    let _ = sinew_source::load_data(bytes, "corpus.yaml", Limits::default());
    if let Ok(document) = load(bytes) {
        lower_everywhere(&document);
    }
}

/// The condition of a switch.
pub fn condition(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    run_sam(&switch(text), &hostile());
}

/// A template wherever templates may stand.
pub fn template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // What is JSON stands as the value it is: operators are objects.
    let template = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let workflow = json!({
        "description": "templates",
        "nodes": [
            { "id": "a", "type": "agent", "agent_name": "A", "input": { "it": template }, "instruction": text },
            { "id": "m", "type": "map", "node": "b", "items": template, "depends_on": ["a"] },
            { "id": "b", "type": "agent", "agent_name": "B", "input": { "it": "{{_map_item}}" } },
        ],
        "output_mapping": { "it": template },
    });
    run_sam(&workflow, &hostile());
}

/// The conversion function of a connection of the `agentteam` dialect.
pub fn conversion(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let file = json!({
        "nodes": [{ "id": "a", "type": "AGENT" }, { "id": "b", "type": "AGENT" }],
        "connections": [{ "id": "c", "source_node_id": "a", "target_node_id": "b", "conversion_function": text }],
    });
    let document = Document { root: Node::from_json(&file), sources: Sources::default() };
    let _ = sinew_dialects::agentteam::try_conversion(&document, "c", &hostile());
    // The same function in a file that is lowered and run.
    lower_everywhere(&document);
}

/// Data that an agent answers with.
pub fn value(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let secret = "only this text and no other";
    let mut workflow = switch(&format!("'{{{{a.output.it}}}}' == '{secret}'"));
    workflow["nodes"][1]["input"] = json!({ "it": "{{a.output.it}}", "text": "<{{a.output.it}}>" });
    let asked = run_sam(&workflow, &json!({ "it": text }));
    let names: Vec<_> = asked.iter().map(|ask| ask.target.name()).collect();
    let other = if text == secret { "B" } else { "C" };
    assert_eq!(names, ["A", "E", other], "the value decides nothing but what it is compared with");
    assert_eq!(asked[1].input["it"], json!(text), "the value arrives as it was sent");
    assert_eq!(asked[1].input["text"], json!(format!("<{text}>")), "also inside a text");
}

/// A round of a journal.
pub fn journal(bytes: &[u8]) {
    if let Ok(round) = decode_round(bytes) {
        assert_eq!(
            decode_round(&encode_round(&round)).ok().as_ref(),
            Some(&round),
            "a round reads back the same"
        );
    }
}

/// The name or the address of an artifact.
pub fn artifact_name(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(name) = ArtifactName::parse(text) {
        assert_eq!(name.as_str(), text);
        let parts: Vec<_> = Path::new(text).components().collect();
        assert!(matches!(parts[..], [std::path::Component::Normal(_)]), "{text:?} is more than one segment");
        assert!(!text.contains(['/', '\\', ':', '\0']), "{text:?} means something to a file system");
    }
    if let Ok(uri) = text.parse::<ArtifactUri>() {
        assert_eq!(uri.to_string().parse::<ArtifactUri>(), Ok(uri), "an address reads back the same");
    }
}

/// Reads a file as the command line does; what it includes is a file that includes itself.
pub fn load(bytes: &[u8]) -> Result<Document, Diagnostics> {
    let look_up = |name: &str| match name {
        "KNOWN" => Variable::Value("value".to_owned()),
        "TOKEN" => Variable::Secret,
        _ => Variable::Unset,
    };
    let options = LoadOptions {
        name: "corpus.yaml",
        variables: Variables::Replaced(&look_up),
        read: &|path| match path.to_str() {
            Some("again.yaml") => Ok(b"again: !include again.yaml".to_vec()),
            _ => Err("no such file".to_owned()),
        },
        limits: sinew_source::Limits::default(),
    };
    sinew_source::load(bytes, &options)
}

/// Lowers a document as each dialect; what comes out runs.
pub fn lower_everywhere(document: &Document) {
    sinew_dialects::detect(document);
    for dialect in sinew_dialects::all() {
        for lowered in lower(*dialect, document.clone()).unwrap_or_default() {
            run(lowered, dialect.adapter(), &hostile());
        }
    }
}

fn lower(dialect: &dyn sinew_dialects::Dialect, document: Document) -> Result<Vec<Lowered>, Diagnostics> {
    let read = |_: &str| Err("no such file".to_owned());
    let options = LowerOptions {
        default_name: "corpus",
        read: &read,
        list: &sinew_dialects::no_list,
        agents: &BTreeMap::new(),
    };
    dialect.lower(document, &options)
}

/// A switch that takes `b` if the condition holds, else `c`, after an agent saw the same data.
fn switch(condition: &str) -> Value {
    json!({
        "description": "a switch",
        "nodes": [
            { "id": "a", "type": "agent", "agent_name": "A" },
            { "id": "e", "type": "agent", "agent_name": "E", "depends_on": ["a"] },
            { "id": "s", "type": "switch", "depends_on": ["e"], "default": "c",
              "cases": [{ "condition": condition, "node": "b" }] },
            { "id": "b", "type": "agent", "agent_name": "B", "depends_on": ["s"] },
            { "id": "c", "type": "agent", "agent_name": "C", "depends_on": ["s"] },
        ],
        "output_mapping": {},
    })
}

/// Data that means something in other places.
fn hostile() -> Value {
    json!({
        "it": "x' == 'x' or 'a",
        "text": "{{a.output.it}} ${HOME} {% x %} \\' \" \u{202e} \0",
        "list": [1, "two", null, { "item": [] }],
        "number": -0.0,
        "big": u64::MAX,
        "yes": true,
        "object": { "": {}, "a.b": 1, "__proto__": [] },
    })
}

/// Runs a workflow of the `sam` dialect whose agents all answer the same; returns what was asked.
fn run_sam(workflow: &Value, answer: &Value) -> Vec<Arc<TaskRequest>> {
    let sam = sinew_dialects::by_name("sam").expect("the dialect is there");
    let document = Document { root: Node::from_json(workflow), sources: Sources::default() };
    let lowered = lower(sam, document).unwrap_or_default();
    lowered.into_iter().flat_map(|one| run(one, sam.adapter(), answer)).collect()
}

/// Runs a plan until it ends, waits for what never comes, or has had all its inputs.
fn run(lowered: Lowered, adapter: &'static dyn Adapter, answer: &Value) -> Vec<Arc<TaskRequest>> {
    let mut plan = lowered.plan;
    plan.limits.activations = plan.limits.activations.min(ACTIVATIONS);
    let graph = match IndexedPlan::new(Arc::new(plan)) {
        Ok(graph) => Arc::new(graph),
        // Legal to draw and to look at; only running it is refused.
        Err(PlanError::NoEntry) => return Vec::new(),
        Err(error) => panic!("what a dialect lowers holds together: {error}"),
    };
    let mut machine = Machine::<()>::new(Arc::clone(&graph), adapter);
    let (mut folded, mut now) = (ExecutionState::new(), 0);
    let mut asked = Vec::new();
    let start = EngineInput::Start {
        input: answer.clone(),
        mode: ExecutionMode::default(),
        depth: 0,
        chain: Vec::new(),
        paused: None,
    };
    let mut inputs = VecDeque::from([start]);
    for _ in 0..INPUTS {
        let Some(input) = inputs.pop_front().or_else(|| from_outside(&machine, &mut now)) else { break };
        let Ok(decided) = machine.handle(now, input) else { break };
        let read = decode_round(&encode_round(&decided.round)).expect("what is written is read");
        assert_eq!(read, decided.round, "and read as it was written");
        for fact in &read.facts {
            apply(&graph, &mut folded, read.at, fact);
            let _ = adapter.project(&AdapterContext::new(&graph, &folded, now), fact);
        }
        for action in decided.actions {
            let Action::Send { act, attempt, ask, .. } = action else { continue };
            asked.push(ask);
            inputs.push_back(EngineInput::Done { act, attempt, result: Ok(TaskReply::new(answer.clone())) });
        }
        assert_eq!(&folded, machine.state(), "facts say everything");
    }
    let _ = adapter.native_result(&AdapterContext::new(&graph, machine.state(), now));
    asked
}

/// What happens when no agent is at work: a person says yes, or time passes.
fn from_outside(machine: &Machine<()>, now: &mut u64) -> Option<EngineInput> {
    let state = machine.state();
    if state.ended {
        return None;
    }
    let person = waiting(state).into_iter().find_map(|one| match one.what {
        sinew_engine::WaitingFor::Person(_) => one.act,
        _ => None,
    });
    if let Some(act) = person {
        let answer = PersonAnswer { data: json!({ "approved": true }), ..PersonAnswer::default() };
        return Some(EngineInput::Answer { act, answer });
    }
    *now = machine.next_deadline()?.0.max(*now);
    Some(EngineInput::Tick)
}
