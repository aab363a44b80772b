//! A small dialect, programs in it, and messages in short notation.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use sinew_engine::{
    ActivationId, ActivationOutput, Adapter, AdapterContext, ChildSpec, NodeDecision, PersonRequest,
    SharedJson, TaskRequest, Time,
};
use sinew_plan::{NodeOperation, Plan, PlanLimits};
use sinew_protocol::{ExecutionId, Fault, ResultKey, TaskId, Token};

use crate::in_flight::FactObserver;
use crate::state::{OutputCheck, ShardConfig};
use crate::timer_check::InboxEnds;
use sinew_execution::{Library, Program};

/// Ends of an inbox that was read completely.
pub(crate) const fn read_inbox(at: Time) -> InboxEnds {
    InboxEnds { at, commands: 0, results: 0 }
}

/// A dialect without its own rules: agents get the first input, and their output is the node's.
pub(crate) struct PlainDialect;

fn input(ctx: &AdapterContext<'_>, act: ActivationId) -> Value {
    ctx.act(act).inputs.first().map(|arrived| Value::clone(&arrived.value)).unwrap_or_default()
}

impl Adapter for PlainDialect {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let node = ctx.node_of(act);
        assert!(node.extra["panic"] != true, "the code of this node breaks");
        let agent = node.agent.clone().unwrap_or_else(|| node.id.clone());
        match &node.op {
            NodeOperation::Agent => NodeDecision::Ask(Box::new(TaskRequest::agent(agent, input(ctx, act)))),
            NodeOperation::Workflow => {
                NodeDecision::Ask(Box::new(TaskRequest::workflow(agent, input(ctx, act))))
            }
            NodeOperation::Human => NodeDecision::Wait(Box::new(PersonRequest {
                allowed: node.extra["allowed"].as_str().map(str::to_owned).into_iter().collect(),
                ..PersonRequest::default()
            })),
            NodeOperation::Delay => NodeDecision::Sleep(node.extra["sleep"].as_u64().unwrap_or(700)),
            NodeOperation::Map { body } => NodeDecision::Fan {
                children: (0..3)
                    .map(|nth| ChildSpec { body: *body, item: Arc::new(json!(nth)), delay_ms: None })
                    .collect(),
                limit: Some(2),
                fail_fast: false,
            },
            _ if node.extra["evaluate"] == true => {
                NodeDecision::Ask(Box::new(TaskRequest::evaluation(json!([]))))
            }
            _ => NodeDecision::Done(ActivationOutput::new(input(ctx, act))),
        }
    }

    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        match ctx.act(act).replies.last().map(|replied| &replied.result) {
            Some(Ok(reply)) => {
                assert!(reply.output["poison"] != true, "the code breaks on this output");
                NodeDecision::Done(ActivationOutput::new(Arc::clone(&reply.output)))
            }
            Some(Err(fault)) => {
                assert!(fault.code != "poison" && fault.message != "poison", "and on this fault");
                NodeDecision::Fail(fault.clone())
            }
            None => NodeDecision::Done(ActivationOutput::default()),
        }
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        Ok(json!(ctx.state.acts.len()))
    }
}

/// A plan of nodes with settings (`op`, `agent`, `body`, `retry`, `attempt_timeout_ms`, others are `extra`) and edges
/// such as `a>b`.
fn plan(name: &str, edges: &str, nodes: &Value) -> Plan {
    let nodes = nodes.as_object().cloned().unwrap_or_default();
    let ids: Vec<&String> = nodes.keys().collect();
    let index = |id: &str| ids.iter().position(|known| *known == id).unwrap_or_else(|| panic!("no {id}"));
    let drawn: Vec<(usize, usize)> = edges
        .split_whitespace()
        .map(|edge| edge.split_once('>').unwrap_or_else(|| panic!("no edge: {edge}")))
        .map(|(from, to)| (index(from), index(to)))
        .collect();
    let bodies: Vec<usize> = nodes.values().filter_map(|node| node["body"].as_str()).map(index).collect();
    let entry: Vec<usize> =
        (0..ids.len()).filter(|nth| !bodies.contains(nth) && drawn.iter().all(|(_, to)| to != nth)).collect();
    let node = |(nth, (id, set)): (usize, (&String, &Value))| {
        let kind = set["op"].as_str().unwrap_or("agent");
        let op = match set["body"].as_str() {
            Some(body) => json!({ kind: { "body": index(body) } }),
            None => json!(kind),
        };
        let mut node = json!({
            "id": id, "kind": kind, "op": op, "join": { "resolved": {} }, "agent": set["agent"],
            "inner": bodies.contains(&nth), "extra": set,
        });
        for key in ["retry", "attempt_timeout_ms"] {
            if !set[key].is_null() {
                node[key] = set[key].clone();
            }
        }
        node
    };
    let edge = |(nth, (from, to)): (usize, &(usize, usize))| json!({ "from": from, "port": "out", "to": to, "handle": "in", "counter": nth });
    let plan = json!({
        "format": Plan::FORMAT, "dialect": "plain", "name": name, "description": "",
        "profile": { "order": "fifo", "parallel": 0, "failure": "stop", "pause": "node_local" },
        "nodes": nodes.iter().enumerate().map(node).collect::<Vec<_>>(),
        "edges": drawn.iter().enumerate().map(edge).collect::<Vec<_>>(),
        "entry": entry, "limits": PlanLimits::default(),
    });
    serde_json::from_value(plan).unwrap()
}

/// The programs of all tests.
///
/// `one`: an agent. `line`: three agents, with retries and a timeout. `wide`: a map. `nap`: a delay and an agent. `ask`: a
/// person and an agent. `parent`: a child `line` and an agent. `boss`: a child `ask` with a timeout. `slow`: an agent with
/// a timeout. `loop`: a child with its own name. `script`: an evaluation.
/// `broken`: code that panics.
pub(crate) fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let retry = json!({ "limit": 2, "delay_ms": 300 });
        let mut library = Library::default();
        for plan in [
            plan("one", "", &json!({ "a": {} })),
            plan(
                "line",
                "a>b b>c",
                &json!({
                    "a": { "retry": retry },
                    "b": { "attempt_timeout_ms": 2_000, "retry": retry },
                    "c": { "agent": "direct" },
                }),
            ),
            plan(
                "wide",
                "m>z",
                &json!({ "m": { "op": "map", "body": "w" }, "w": { "retry": retry }, "z": {} }),
            ),
            plan("nap", "s>a", &json!({ "s": { "op": "delay" }, "a": { "agent": "direct" } })),
            plan("ask", "h>a", &json!({ "h": { "op": "human" }, "a": {} })),
            plan("vote", "", &json!({ "h": { "op": "human", "allowed": "ada" } })),
            plan(
                "parent",
                "k>a",
                &json!({ "k": { "op": "workflow", "agent": "line", "retry": retry }, "a": {} }),
            ),
            plan(
                "boss",
                "",
                &json!({ "k": { "op": "workflow", "agent": "ask", "attempt_timeout_ms": 2_000 } }),
            ),
            plan("slow", "", &json!({ "a": { "attempt_timeout_ms": 2_000 } })),
            plan("loop", "", &json!({ "k": { "op": "workflow", "agent": "loop" } })),
            plan("script", "", &json!({ "e": { "op": "pure", "evaluate": true } })),
            plan("broken", "", &json!({ "x": { "op": "pure", "panic": true } })),
        ] {
            library.insert(Program::new(plan, &PlainDialect).unwrap());
        }
        library
    })
}

/// Returns the program with this name.
pub(crate) fn program(name: &str) -> Program {
    library().get(name).cloned().unwrap_or_else(|| panic!("no program {name}"))
}

/// Returns the program of a plan, by its digest.
pub(crate) fn program_by_digest(digest: &str) -> Option<Program> {
    library().iter().find(|program| program.graph.digest() == digest).cloned()
}

/// Key of all tests.
pub(crate) fn key() -> ResultKey {
    ResultKey::new([7; 32])
}

/// Config of one of `shards` shards, owned by `owner`.
pub(crate) fn config(owner: &str, shard: u32, shards: u32) -> ShardConfig {
    ShardConfig {
        shard,
        shards: shards.try_into().unwrap(),
        namespace: "ns".to_owned(),
        owner: Token::of(owner),
        key: key(),
        compaction_threshold_bytes: usize::MAX,
        memory_limit_bytes: usize::MAX,
    }
}

/// Execution with this id.
pub(crate) fn execution(id: &str) -> ExecutionId {
    ExecutionId::parse(id).unwrap()
}

/// Encodes an agent's result.
pub(crate) fn answer(task: &TaskId, result: Result<Value, Fault>) -> Vec<u8> {
    let mut body = json!({ "type": "workflow_node_result", "sub_task_id": task.as_str() });
    match result {
        Ok(output) => {
            body["status"] = json!("success");
            body["artifact_name"] = json!("out.json");
            body["artifact_version"] = json!(0);
            body["output"] = output;
        }
        Err(fault) => {
            body["status"] = json!("failure");
            body["fault"] = serde_json::to_value(fault).unwrap();
        }
    }
    serde_json::to_vec(&body).unwrap()
}

/// Encodes the result of an agent that called a model once.
pub(crate) fn answer_with_usage(task: &TaskId, result: Result<Value, Fault>) -> Vec<u8> {
    let mut body: Value = serde_json::from_slice(&answer(task, result)).unwrap();
    body["usage"] = json!({ "turns": 1 });
    serde_json::to_vec(&body).unwrap()
}

/// Accepts every output.
pub(crate) struct NoSchemas;

impl OutputCheck for NoSchemas {
    fn check(&self, _ask: &TaskRequest, _output: &SharedJson) -> Result<(), Fault> {
        Ok(())
    }
}

/// Counts the observed facts.
#[derive(Default)]
pub(crate) struct FactCounter(pub(crate) usize);

impl FactObserver for FactCounter {
    fn observe(
        &mut self,
        _ctx: &AdapterContext<'_>,
        _meta: &sinew_protocol::journal::ExecutionMeta,
        _at: sinew_engine::Time,
        _fact: &sinew_engine::Fact,
    ) {
        self.0 += 1;
    }
}
