//! Cost of a node in the engine, in small and in large graphs. Results and method: `README.md`.
#![expect(clippy::expect_used, reason = "a benchmark stops at the first surprise")]

use std::collections::VecDeque;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use serde_json::{Value, json};
use sinew_engine::{
    Action, ActivationId, Adapter, AdapterContext, ChildSpec, EngineInput, ExecutionMode, ExecutionState,
    Fact, IndexedPlan, Machine, NodeDecision, SharedJson, TaskReply, TaskRequest, Time, decode_round,
    encode_round,
};
use sinew_plan::{
    FailurePolicy, JoinRule, NodeOperation, PausePolicy, Plan, PlanEdge, PlanLimits, PlanNode, ReadyOrder,
    RetryPolicy, SchedulingProfile,
};
use sinew_protocol::Fault;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Asks an agent for every node; a map fans over its input.
struct Bench;

impl Adapter for Bench {
    fn name(&self) -> &'static str {
        "bench"
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let node = ctx.node_of(act);
        let input =
            ctx.act(act).inputs.first().map(|arrived| SharedJson::clone(&arrived.value)).unwrap_or_default();
        match node.op {
            NodeOperation::Map { body } => {
                let count = node.extra.as_u64().unwrap_or_default();
                let children =
                    (0..count).map(|n| ChildSpec { body, item: json!(n).into(), delay_ms: None }).collect();
                NodeDecision::Fan { children, limit: None, fail_fast: false }
            }
            _ => NodeDecision::Ask(Box::new(TaskRequest::agent("echo", input))),
        }
    }

    fn result(&self, _ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        Ok(Value::Null)
    }
}

fn plan(count: u32, edges: impl Iterator<Item = (u32, u32)>, body: Option<u64>) -> IndexedPlan {
    let node = |n: u32| PlanNode {
        id: format!("n{n}"),
        kind: "agent".into(),
        label: None,
        op: if body.is_some() && n == 0 { NodeOperation::Map { body: 1 } } else { NodeOperation::Agent },
        join: JoinRule::Resolved { quorum: None },
        rank: n,
        agent: None,
        retry: RetryPolicy::default(),
        attempt_timeout_ms: Some(60_000),
        timeout_ms: None,
        inner: body.is_some() && n == 1,
        attached: false,
        quiet: false,
        handles_failure: false,
        extra: body.filter(|_| n == 0).map_or(Value::Null, Value::from),
    };
    let edge = |(counter, (from, to))| PlanEdge {
        from,
        port: "out".into(),
        to,
        handle: "in".into(),
        label: None,
        budget: None,
        counter,
        veto: false,
        quorum: false,
        attach: false,
        extra: Value::Null,
    };
    IndexedPlan::new(Arc::new(Plan {
        format: Plan::FORMAT,
        dialect: "bench".into(),
        name: "bench".into(),
        description: String::new(),
        version: None,
        profile: SchedulingProfile {
            order: ReadyOrder::Rank,
            parallel: 0,
            failure: FailurePolicy::Stop,
            pause: PausePolicy::NodeLocal,
        },
        nodes: (0..count).map(node).collect(),
        edges: (0..).zip(edges).map(edge).collect(),
        entry: vec![0],
        exits: Vec::new(),
        limits: PlanLimits::default(),
        input_schema: None,
        output_schema: None,
        extra: Value::Null,
    }))
    .expect("the plan is well formed")
}

fn chain(size: u32) -> IndexedPlan {
    plan(size, (1..size).map(|n| (n - 1, n)), None)
}

/// One node to all others but the last, and from these to the last.
fn diamond(size: u32) -> IndexedPlan {
    plan(size, (1..size - 1).flat_map(move |n| [(0, n), (n, size - 1)]), None)
}

fn map(size: u32) -> IndexedPlan {
    plan(2, std::iter::empty(), Some(u64::from(size) - 1))
}

/// An execution with its agents: the oldest task is answered first.
struct Run {
    machine: Machine<()>,
    tasks: VecDeque<(ActivationId, u32)>,
    reply: SharedJson,
    /// Encoded rounds, if they are to be kept.
    journal: Option<Vec<Vec<u8>>>,
}

impl Run {
    fn new(graph: &Arc<IndexedPlan>, journal: bool) -> Self {
        let reply = SharedJson::new(json!({ "text": "x".repeat(150), "score": 7 }));
        let machine = Machine::new(Arc::clone(graph), &Bench);
        Self { machine, tasks: VecDeque::new(), reply, journal: journal.then(Vec::new) }
    }

    fn give(&mut self, input: EngineInput) {
        let decided = self.machine.handle(0, input).expect("the input is welcome");
        for action in decided.actions {
            if let Action::Send { act, attempt, .. } = action {
                self.tasks.push_back((act, attempt));
            }
        }
        if let Some(journal) = &mut self.journal {
            journal.push(encode_round(&decided.round));
        }
    }

    fn start(&mut self) {
        self.give(EngineInput::Start {
            input: json!({ "x": 1 }),
            mode: ExecutionMode::default(),
            depth: 0,
            chain: Vec::new(),
            paused: None,
        });
    }

    fn finish(mut self) -> Self {
        self.start();
        while let Some((act, attempt)) = self.tasks.pop_front() {
            let reply = TaskReply { output: SharedJson::clone(&self.reply), ..TaskReply::default() };
            self.give(EngineInput::Done { act, attempt, result: Ok(reply) });
        }
        assert!(self.machine.state().ended);
        self
    }
}

type Make = fn(u32) -> IndexedPlan;

const SHAPES: [(&str, Make); 3] = [("chain", chain), ("diamond", diamond), ("map", map)];

fn shapes() -> impl Iterator<Item = String> {
    SHAPES.iter().flat_map(|(name, _)| [100, 1_000, 10_000].map(|size| format!("{name} {size}")))
}

fn graph(shape: &str) -> (Arc<IndexedPlan>, u32) {
    let (name, size) = shape.split_once(' ').expect("a shape and a size");
    let size = size.parse().expect("a size");
    let (_, make) = SHAPES.iter().find(|(known, _)| *known == name).expect("a shape");
    (Arc::new(make(size)), size)
}

/// Nodes a second, decided, applied and reacted to; nothing is stored.
#[divan::bench(args = shapes(), sample_count = 20)]
fn decide_all(bencher: Bencher<'_, '_>, shape: &str) {
    let (graph, size) = graph(shape);
    bencher.counter(ItemsCount::new(size)).bench_local(|| Run::new(black_box(&graph), false).finish());
}

/// The same with every round encoded for the journal.
#[divan::bench(args = shapes(), sample_count = 20)]
fn decide_and_encode(bencher: Bencher<'_, '_>, shape: &str) {
    let (graph, size) = graph(shape);
    bencher.counter(ItemsCount::new(size)).bench_local(|| Run::new(black_box(&graph), true).finish());
}

/// Facts a second, decoded, checked and applied: what a recovery costs.
#[divan::bench(args = shapes(), sample_count = 20)]
fn fold(bencher: Bencher<'_, '_>, shape: &str) {
    bench_fold(bencher, shape, |graph, state, at, fact| {
        sinew_engine::fold(graph, state, at, fact).expect("a fact of our own making");
    });
}

/// The same without the checks.
#[divan::bench(args = shapes(), sample_count = 20)]
fn fold_unchecked(bencher: Bencher<'_, '_>, shape: &str) {
    bench_fold(bencher, shape, sinew_engine::apply);
}

fn bench_fold(
    bencher: Bencher<'_, '_>,
    shape: &str,
    fold: impl Fn(&IndexedPlan, &mut ExecutionState, Time, &Fact),
) {
    let (graph, _) = graph(shape);
    let journal = Run::new(&graph, true).finish().journal.unwrap_or_default();
    let facts: usize =
        journal.iter().map(|bytes| decode_round(bytes).map_or(0, |round| round.facts.len())).sum();
    bencher.counter(ItemsCount::new(facts)).bench_local(|| {
        let mut state = ExecutionState::new();
        for bytes in &journal {
            let round = decode_round(black_box(bytes)).expect("what was encoded just now");
            for fact in &round.facts {
                fold(&graph, &mut state, round.at, fact);
            }
        }
        state
    });
}

/// Memory of one execution of ten nodes that waits for its first, fifth and last agent ("max alloc").
#[divan::bench(args = [0, 4, 9])]
fn idle(bencher: Bencher<'_, '_>, done: u32) {
    let graph = Arc::new(chain(10));
    bencher.bench_local(|| {
        let mut run = Run::new(&graph, false);
        run.start();
        for _ in 0..done {
            let (act, attempt) = run.tasks.pop_front().expect("a task");
            let output = SharedJson::new(Value::clone(&run.reply));
            run.give(EngineInput::Done {
                act,
                attempt,
                result: Ok(TaskReply { output, ..TaskReply::default() }),
            });
        }
        run.machine
    });
}
