//! Tests of workflows with thousands of nodes: checks and conversions must scale with the file and
//! need little stack.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_engine::TaskReply;

use crate::testing::{Bench, Stubbed, lower};
use crate::{Dialect, Loss, by_name, to_sam};

/// Stack size of the thread that lowers and converts, too small for recursion over the nodes of a
/// file.
const STACK_BYTES: usize = 512 << 10;
/// Node counts of the two workflows whose times are compared.
const NODE_COUNTS: [usize; 2] = [400, 2_000];
/// Maximum ratio of the two times. Five times the nodes take 5 times as long, or 25 times if each
/// node visits all others.
const MAX_GROWTH: f64 = 12.0;
/// Shorter times are too noisy to compare.
const LEAST_TIME: Duration = Duration::from_millis(100);
/// Measurements of both workflows before their growth counts as too large.
const MAX_MEASUREMENTS: usize = 4;
/// Node count of the workflows of the measured figures.
const FIGURE_COUNT: usize = 10_000;
/// Maximum size of the report of a check of one workflow, in bytes.
const MAX_REPORT_BYTES: usize = 2 << 20;

/// The edges between nodes, and the node names that expressions use.
#[derive(Clone, Copy, Debug, PartialEq)]
enum GraphShape {
    /// Each node leads to the next.
    Chain,
    /// One node leads to all others.
    FanOut,
    /// Layers of 100 nodes; each node depends on three of the layer before.
    Layers,
    /// Chain in which each node refers to the first.
    FarReferences,
    /// Each node refers to a node that does not exist.
    Unknown,
    /// The last node of a chain leads to the first.
    Cycle,
}

const SHAPES: [GraphShape; 6] = [
    GraphShape::Chain,
    GraphShape::FanOut,
    GraphShape::Layers,
    GraphShape::FarReferences,
    GraphShape::Unknown,
    GraphShape::Cycle,
];

fn node_id(n: usize) -> String {
    format!("node-{n:05}")
}

/// Returns pairs of nodes: the second follows the first.
fn edges(shape: GraphShape, count: usize) -> Vec<(usize, usize)> {
    match shape {
        GraphShape::FanOut => (1..count).map(|n| (0, n)).collect(),
        GraphShape::Layers => {
            let layer =
                |n: usize| [n - 100, n - n % 100 - 100 + (n * 7) % 100, n - n % 100 - 100 + (n * 31) % 100];
            let mut all: Vec<_> = (100..count).flat_map(|n| layer(n).map(|from| (from, n))).collect();
            all.dedup();
            all
        }
        GraphShape::Cycle => (0..count).map(|n| (n, (n + 1) % count)).collect(),
        GraphShape::Chain | GraphShape::FarReferences | GraphShape::Unknown => {
            (1..count).map(|n| (n - 1, n)).collect()
        }
    }
}

/// Returns the node that an expression of a node names.
fn reference(shape: GraphShape, n: usize) -> Option<String> {
    match shape {
        GraphShape::FarReferences => (n > 0).then(|| node_id(0)),
        GraphShape::Unknown => Some(format!("nodes-{n:05}x")),
        _ => (n > 0 && shape == GraphShape::Chain).then(|| node_id(n - 1)),
    }
}

fn workflow(dialect: &str, shape: GraphShape, count: usize) -> Value {
    let edges = edges(shape, count);
    let target = |n: usize| if shape == GraphShape::Unknown { format!("nodes-{n:05}x") } else { node_id(n) };
    let list = |edge: &dyn Fn(usize, &str, &str) -> Value| -> Vec<Value> {
        let all = edges.iter().enumerate();
        all.map(|(at, (from, to))| edge(at, &node_id(*from), &target(*to))).collect()
    };
    let nodes = |node: &dyn Fn(usize, String) -> Value| -> Vec<Value> {
        (0..count).map(|n| node(n, node_id(n))).collect()
    };
    match dialect {
        "sam" => {
            let mut before = vec![Vec::new(); count];
            for (from, to) in &edges {
                before[*to].push(node_id(*from));
            }
            let all = nodes(&|n, id| {
                let name = reference(shape, n);
                let input =
                    name.as_ref().map_or(json!("x"), |name| json!(format!("{{{{{name}.output.text}}}}")));
                let mut depends_on = before[n].clone();
                depends_on.extend(name.filter(|_| shape == GraphShape::Unknown));
                json!({ "id": id, "type": "agent", "agent_name": "Worker", "depends_on": depends_on, "input": { "text": input } })
            });
            json!({ "workflow": { "description": "large", "version": "1.0", "nodes": all,
                "output_mapping": { "end": format!("{{{{{}.output}}}}", node_id(count - 1)) } } })
        }
        "covalt" => json!({
            "nodes": nodes(&|n, id| {
                let text = reference(shape, n).map_or("x".to_owned(), |name| format!("{{{{ $('{name}').item.json.text }}}}"));
                json!({ "id": id, "type": "prompt-template", "data": { "template": text } })
            }),
            "edges": list(&|_, from, to| json!({ "source": from, "target": to, "data": { "channel": "flow" } })),
        }),
        "sweny" => {
            let all: serde_json::Map<String, Value> =
                (0..count).map(|n| (node_id(n), json!({ "name": "Node", "instruction": "Work" }))).collect();
            json!({ "id": "large", "name": "Large", "entry": node_id(0), "nodes": all,
                "edges": list(&|_, from, to| json!({ "from": from, "to": to, "when": "always" })) })
        }
        "agentflow" => json!({
            "nodes": nodes(&|n, id| json!({ "id": id, "type": if n == 0 { "start" } else { "agent" }, "x": 0, "y": 0, "data": {} })),
            "connections": list(&|_, from, to| json!({ "source": from, "target": to, "sourceHandle": "output", "targetHandle": "input" })),
        }),
        _ => json!({
            "metadata": { "name": "large" },
            "specs": { "TRIGGER.MANUAL": "*", "ACTION.DATA_TRANSFORMATION": "*" },
            "nodes": nodes(&|n, id| {
                let (kind, subtype) = if n == 0 { ("TRIGGER", "MANUAL") } else { ("ACTION", "DATA_TRANSFORMATION") };
                json!({ "id": id, "type": kind, "subtype": subtype, "configurations": {} })
            }),
            "connections": list(&|at, from, to| json!({ "id": format!("c{at}"), "from_node": from, "to_node": to })),
            "triggers": [node_id(0)],
        }),
    }
}

/// Returns the size of the report of a check or a conversion, in bytes.
fn report_bytes(dialect: &dyn Dialect, workflow: &Value) -> usize {
    let loss = |losses: &[Loss]| losses.iter().map(|loss| loss.what.len()).sum::<usize>();
    match lower(dialect, workflow) {
        Err(diagnostics) => sinew_source::render_json(&diagnostics).len(),
        Ok(lowered) => {
            let report = sinew_source::render_json(&lowered.warnings).len();
            report
                + to_sam(&lowered.plan, dialect)
                    .map_or_else(|losses| loss(&losses), |made| loss(&made.losses))
        }
    }
}

/// Returns the CPU time of this thread, so that other tests do not count.
fn work_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    nanoseconds.map_or(Duration::ZERO, Duration::from_nanos)
}

/// Checks and converts a workflow on a small stack; returns the duration, and the size of the
/// report in bytes.
fn measure(dialect: &'static str, shape: GraphShape, count: usize) -> (Duration, usize) {
    measure_workflow(dialect, workflow(dialect, shape, count))
}

fn measure_workflow(dialect: &'static str, workflow: Value) -> (Duration, usize) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(move || {
        let begun = work_time();
        let bytes = report_bytes(by_name(dialect).expect("a dialect of this name"), &workflow);
        (work_time().saturating_sub(begun), bytes)
    });
    thread.expect("a thread starts").join().expect("no overflow of the stack and no panic")
}

/// Nested `sam` loops, each of which waits for its parent, and nodes that wait for the innermost.
fn nested_loops(count: usize) -> Value {
    let depth = count / 2;
    let loops = (0..depth).map(|n| {
        let before = if n > 1 { vec![node_id(n - 1)] } else { Vec::new() };
        json!({ "id": node_id(n), "type": "loop", "node": node_id(n + 1), "depends_on": before,
            "condition": "{{workflow.input.go}}", "max_iterations": 2 })
    });
    let inner = json!({ "id": node_id(depth), "type": "agent", "agent_name": "Worker", "input": {} });
    let after = (depth + 1..count).map(|n| {
        json!({ "id": node_id(n), "type": "agent", "agent_name": "Worker", "depends_on": [node_id(depth)],
            "input": { "text": format!("{{{{{}.output.text}}}}", node_id(n - depth - 1)) } })
    });
    let nodes: Vec<Value> = loops.chain([inner]).chain(after).collect();
    json!({ "workflow": { "description": "nested", "nodes": nodes, "output_mapping": {} } })
}

fn each_workflow(check: impl Fn(&'static str, GraphShape)) {
    for dialect in ["sam", "covalt", "sweny", "agentflow", "agentteam"] {
        for shape in SHAPES {
            check(dialect, shape);
        }
    }
}

/// Checks that five times the nodes take far less than 25 times as long. Other load on the machine
/// only increases a time, so the minimum of several measurements counts.
fn check_growth(what: &str, measure: impl Fn(usize) -> Duration) {
    let mut least = [Duration::MAX; 2];
    for _ in 0..MAX_MEASUREMENTS {
        for (least, count) in least.iter_mut().zip(NODE_COUNTS) {
            *least = measure(count).min(*least);
        }
        let [small, large] = least;
        if large < LEAST_TIME || large.as_secs_f64() < MAX_GROWTH * small.as_secs_f64() {
            return;
        }
    }
    panic!("{what}: {least:?} for {NODE_COUNTS:?} nodes");
}

#[test]
fn time_grows_with_the_file_and_not_with_its_square() {
    each_workflow(|dialect, shape| {
        check_growth(&format!("{dialect} {shape:?}"), |count| {
            let (time, bytes) = measure(dialect, shape, count);
            assert!(bytes < MAX_REPORT_BYTES, "{dialect} {shape:?}: {bytes} bytes");
            time
        });
    });
}

#[test]
fn loops_that_run_each_other_take_time_that_grows_with_the_file() {
    check_growth("nested loops", |count| measure_workflow("sam", nested_loops(count)).0);
}

#[test]
fn an_execution_of_a_long_chain_needs_little_stack() {
    const NODE_COUNT: usize = 1_500;
    for dialect in ["sam", "covalt", "sweny", "agentflow", "agentteam"] {
        for shape in [GraphShape::Chain, GraphShape::FanOut] {
            let workflow = workflow(dialect, shape, NODE_COUNT);
            let execute = move || {
                let dialect = by_name(dialect).expect("a dialect of this name");
                let plan = lower(dialect, &workflow).expect("it lowers").plan;
                let mut bench = Bench::new(plan, dialect.adapter());
                let mut stub = |_: &str, _: &sinew_engine::TaskRequest| Stubbed {
                    after: 1,
                    progress: Vec::new(),
                    result: Ok(TaskReply::new(
                        json!({ "text": "x", "outputs": { "result": { "text": "x" } } }),
                    )),
                };
                bench.start(json!({}), &mut stub);
                bench.state().acts.len()
            };
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(execute);
            let activations = thread.expect("a thread starts").join().expect("no overflow of the stack");
            println!("{dialect} {shape:?}: {activations} activations");
            // A sweny execution visits at most 200 nodes, and one edge of each.
            assert!(activations > if dialect == "sweny" { 0 } else { NODE_COUNT / 2 }, "{dialect} {shape:?}");
        }
    }
}

/// `cargo test --release -p sinew-dialects --lib large -- --ignored --nocapture`
#[test]
#[ignore = "prints figures, which mean something in a release build"]
fn figures_of_ten_thousand_nodes() {
    each_workflow(|dialect, shape| {
        let (time, bytes) = measure(dialect, shape, FIGURE_COUNT);
        println!("{dialect:10} {shape:?}: {time:?}, {bytes} bytes of findings");
    });
    let (time, bytes) = measure_workflow("sam", nested_loops(FIGURE_COUNT));
    println!("{:10} nested loops: {time:?}, {bytes} bytes of findings", "sam");
}
