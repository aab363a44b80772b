//! Cost of lowering, and of templates and conditions while a workflow runs.
//!
//! `cargo bench -p sinew-dialects`
#![expect(clippy::expect_used, reason = "a bench that cannot run stops")]
#![expect(clippy::format_push_string, reason = "files are made once, outside what is measured")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sinew_dialects::{LowerOptions, by_name};
use sinew_engine::{Action, EngineInput, ExecutionMode, IndexedPlan, Machine, TaskReply};
use sinew_plan::Plan;
use sinew_source::{Document, Limits, LoadOptions, load};

fn main() {
    divan::main();
}

/// A chain of agents; each takes two templates from the one before.
fn file(nodes: usize, conditions: bool) -> String {
    let mut text = String::from(
        "workflow:\n  description: chain\n  nodes:\n    - {id: n0, type: agent, agent_name: A}\n",
    );
    for n in 1..nodes {
        let before = n - 1;
        let when = if conditions {
            format!(", when: \"{{{{n{before}.output.n}}}} >= 0 and '{{{{n{before}.output.s}}}}' == 'x'\"")
        } else {
            String::new()
        };
        text.push_str(&format!(
            "    - {{id: n{n}, type: agent, agent_name: A, depends_on: [n{before}], input: {{n: \"{{{{n{before}.output.n}}}}\", s: \"{{{{n{before}.output.s}}}}\"}}{when}}}\n"
        ));
    }
    let last = nodes - 1;
    text.push_str(&format!("  output_mapping: {{n: \"{{{{n{last}.output.n}}}}\"}}\n"));
    text
}

fn parse(text: &str) -> Document {
    let read = |_: &Path| Err("no other files".to_owned());
    load(
        text.as_bytes(),
        &LoadOptions {
            name: "bench.yaml",
            variables: sinew_source::Variables::Kept,
            read: &read,
            limits: Limits::default(),
        },
    )
    .expect("the file loads")
}

fn lower(document: Document) -> Plan {
    let options = LowerOptions {
        default_name: "bench",
        read: &|_| Err(String::new()),
        list: &sinew_dialects::no_list,
        agents: &BTreeMap::new(),
    };
    let sam = by_name("sam").expect("the dialect");
    sam.lower(document, &options).expect("it lowers").remove(0).plan
}

/// From bytes to a tree with places.
#[divan::bench(args = [100, 1_000, 10_000], sample_count = 10)]
fn load_file(bencher: divan::Bencher<'_, '_>, nodes: usize) {
    let text = file(nodes, false);
    bencher.counter(divan::counter::ItemsCount::new(nodes)).bench(|| parse(black_box(&text)));
}

/// From the tree to a checked plan.
#[divan::bench(args = [100, 1_000, 10_000], sample_count = 10)]
fn lower_plan(bencher: divan::Bencher<'_, '_>, nodes: usize) {
    let text = file(nodes, false);
    bencher.counter(divan::counter::ItemsCount::new(nodes)).with_inputs(|| parse(&text)).bench_values(lower);
}

/// A whole execution: per node one dispatch with two templates.
#[divan::bench(args = [100, 1_000, 10_000], sample_count = 10)]
fn run_templates(bencher: divan::Bencher<'_, '_>, nodes: usize) {
    let graph = graph(nodes, false);
    bencher.counter(divan::counter::ItemsCount::new(nodes)).bench(|| run(&graph));
}

/// The same with a condition on every node.
#[divan::bench(args = [100, 1_000], sample_count = 10)]
fn run_conditions(bencher: divan::Bencher<'_, '_>, nodes: usize) {
    let graph = graph(nodes, true);
    bencher.counter(divan::counter::ItemsCount::new(nodes)).bench(|| run(&graph));
}

fn graph(nodes: usize, conditions: bool) -> Arc<IndexedPlan> {
    Arc::new(IndexedPlan::new(Arc::new(lower(parse(&file(nodes, conditions))))).expect("a sound plan"))
}

fn run(graph: &Arc<IndexedPlan>) -> Machine<()> {
    let adapter = by_name("sam").expect("the dialect").adapter();
    let mut machine = Machine::new(Arc::clone(graph), adapter);
    let start = EngineInput::Start {
        input: json!({}),
        mode: ExecutionMode::default(),
        depth: 0,
        chain: Vec::new(),
        paused: None,
    };
    let mut decided = machine.handle(0, start).expect("it starts");
    loop {
        let next = decided.actions.iter().find_map(|action| match action {
            Action::Send { act, attempt, .. } => Some((*act, *attempt)),
            _ => None,
        });
        let Some((act, attempt)) = next else { break };
        let result = Ok(TaskReply::new(json!({"n": 1, "s": "x"})));
        decided = machine.handle(1, EngineInput::Done { act, attempt, result }).expect("it goes on");
    }
    assert!(machine.state().ended, "every bench runs to its end");
    machine
}
