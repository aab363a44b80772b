//! What a node costs the engine, and whether it costs the same in large graphs. Results and method: `README.md`.
#![expect(clippy::expect_used, reason = "a benchmark stops at the first surprise")]

use std::collections::VecDeque;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use serde_json::{Value, json};
use sinew_engine::{
    ActId, Action, Adapter, Ask, Child, Ctx, Fact, Graph, Input, Machine, Mode, Reply, State, Step, Time,
    Val, decode_round, encode_round,
};
use sinew_plan::{Failure, Join, Limits, Op, Order, Pause, Plan, PlanEdge, PlanNode, Profile, Retry};
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

    fn bind(&self, ctx: &Ctx<'_>, act: ActId) -> Step {
        let node = ctx.node_of(act);
        let input = ctx.act(act).inputs.first().map(|arrived| Val::clone(&arrived.value)).unwrap_or_default();
        match node.op {
            Op::Map { body } => {
                let count = node.extra.as_u64().unwrap_or_default();
                let children =
                    (0..count).map(|n| Child { body, item: json!(n).into(), delay_ms: None }).collect();
                Step::Fan { children, limit: None, fail_fast: false }
            }
            _ => Step::Ask(Box::new(Ask::agent("echo", input))),
        }
    }

    fn result(&self, _ctx: &Ctx<'_>) -> Result<Value, Fault> {
        Ok(Value::Null)
    }
}

fn plan(count: u32, edges: impl Iterator<Item = (u32, u32)>, body: Option<u64>) -> Graph {
    let node = |n: u32| PlanNode {
        id: format!("n{n}"),
        kind: "agent".into(),
        label: None,
        op: if body.is_some() && n == 0 { Op::Map { body: 1 } } else { Op::Agent },
        join: Join::Resolved { quorum: None },
        rank: n,
        agent: None,
        retry: Retry::default(),
        attempt_timeout_ms: Some(60_000),
        timeout_ms: None,
        inner: body.is_some() && n == 1,
        attached: false,
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
    Graph::new(Arc::new(Plan {
        format: Plan::FORMAT,
        dialect: "bench".into(),
        name: "bench".into(),
        description: String::new(),
        version: None,
        profile: Profile { order: Order::Rank, parallel: 0, failure: Failure::Stop, pause: Pause::NodeLocal },
        nodes: (0..count).map(node).collect(),
        edges: (0..).zip(edges).map(edge).collect(),
        entry: vec![0],
        exits: Vec::new(),
        limits: Limits::default(),
        input_schema: None,
        output_schema: None,
        extra: Value::Null,
    }))
    .expect("the plan is well formed")
}

fn chain(size: u32) -> Graph {
    plan(size, (1..size).map(|n| (n - 1, n)), None)
}

/// One node to all others but the last, and from these to the last.
fn diamond(size: u32) -> Graph {
    plan(size, (1..size - 1).flat_map(move |n| [(0, n), (n, size - 1)]), None)
}

fn map(size: u32) -> Graph {
    plan(2, std::iter::empty(), Some(u64::from(size) - 1))
}

/// An execution with its agents: the oldest task is answered first.
struct Run {
    machine: Machine<()>,
    tasks: VecDeque<(ActId, u32)>,
    reply: Val,
    /// Encoded rounds, if they are to be kept.
    journal: Option<Vec<Vec<u8>>>,
}

impl Run {
    fn new(graph: &Arc<Graph>, journal: bool) -> Self {
        let reply = Val::new(json!({ "text": "x".repeat(150), "score": 7 }));
        let machine = Machine::new(Arc::clone(graph), &Bench);
        Self { machine, tasks: VecDeque::new(), reply, journal: journal.then(Vec::new) }
    }

    fn give(&mut self, input: Input) {
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
        self.give(Input::Start {
            input: json!({ "x": 1 }),
            mode: Mode::default(),
            depth: 0,
            chain: Vec::new(),
        });
    }

    fn finish(mut self) -> Self {
        self.start();
        while let Some((act, attempt)) = self.tasks.pop_front() {
            let reply = Reply { output: Val::clone(&self.reply), ..Reply::default() };
            self.give(Input::Done { act, attempt, result: Ok(reply) });
        }
        assert!(self.machine.state().ended);
        self
    }
}

type Make = fn(u32) -> Graph;

const SHAPES: [(&str, Make); 3] = [("chain", chain), ("diamond", diamond), ("map", map)];

fn shapes() -> impl Iterator<Item = String> {
    SHAPES.iter().flat_map(|(name, _)| [100, 1_000, 10_000].map(|size| format!("{name} {size}")))
}

fn graph(shape: &str) -> (Arc<Graph>, u32) {
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

fn bench_fold(bencher: Bencher<'_, '_>, shape: &str, fold: impl Fn(&Graph, &mut State, Time, &Fact)) {
    let (graph, _) = graph(shape);
    let journal = Run::new(&graph, true).finish().journal.unwrap_or_default();
    let facts: usize =
        journal.iter().map(|bytes| decode_round(bytes).map_or(0, |round| round.facts.len())).sum();
    bencher.counter(ItemsCount::new(facts)).bench_local(|| {
        let mut state = State::new();
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
            let output = Val::new(Value::clone(&run.reply));
            run.give(Input::Done { act, attempt, result: Ok(Reply { output, ..Reply::default() }) });
        }
        run.machine
    });
}
