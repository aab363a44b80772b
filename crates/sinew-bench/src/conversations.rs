//! Conversations with a language model that answers immediately, to measure the overhead of Sinew.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use sinew_agents::{Agent, AgentCase, StepRecord};
use sinew_mesh::Mesh;
use sinew_mesh::steps::StepLogId;
use sinew_model::ConversationState;
use sinew_model::script::ModelScript;
use sinew_operations::failure::Failure;
use sinew_protocol::{ActivationKey, ExecutionId, Token};

use crate::bench_failure::cannot_go_on;
use crate::cluster::{BenchCluster, connect};
use crate::delta::delta_times;
use crate::order::{DriverOrder, MeasuredTime, median};

/// Two turns: a tool call, and the answer.
const TALKER_FILE: &str = r#"
name: bench_talker
description: Calls a tool, and answers.
output_schema: {type: object, properties: {text: {type: string}}, required: [text]}
concurrency: 64
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        answers:
          - {when: "script:total", answer: {text: done}}
          - {call: {total: {a: [1, 2, 3]}}}
    instruction: You add numbers.
    tools:
      - script: {name: total, input_schema: {type: object}, source: "def total(args): return sum(args['a'])"}
"#;

/// Two turns, with a person in between.
const ASKER_FILE: &str = r#"
name: bench_asker
description: Asks a person.
concurrency: 8
run:
  model:
    use: [main]
    models:
      main: {provider: script, answers: [{call: {ask_person: {question: "May I?"}}}, {text: done}]}
    instruction: You ask first.
    tools:
      - builtin: [ask_person]
"#;

/// Fifty turns, all but the last with a tool call.
const LONG_FILE: &str = r#"
name: bench_long
description: Works for long.
run:
  model:
    use: [main]
    models: {main: {provider: script, context: 1000000, answers: [{text: done}]}}
    tools:
      - script: {name: total, input_schema: {type: object}, source: "def total(args): return sum(args['a'])"}
    budget: {turns: 60, tool_calls: 60}
"#;

const LONG_TURNS: usize = 50;
/// Time after which waiting conversations have dropped their state, with a margin for busy machines.
const PARKING_TIME: Duration = Duration::from_secs(3);
/// Number of replays of the long conversation.
const REPLAYS: usize = 20;

/// Measurements of conversations.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ConversationFigures {
    /// Number of measured nodes of two turns.
    pub(crate) nodes: usize,
    /// CPU milliseconds of the agent's process per node.
    pub(crate) agent_cpu_ms: f64,
    /// CPU milliseconds of all processes per node: server, executor, agent, client.
    pub(crate) all_cpu_ms: f64,
    /// Median milliseconds from start to end, one at a time.
    pub(crate) p50_ms: f64,
    /// Number of records of the conversation of fifty turns.
    pub(crate) replayed_records: usize,
    /// Milliseconds to read and fold them.
    pub(crate) replay_ms: f64,
    /// Milliseconds of a text delta from a model's server to an observing client: median and p99.
    pub(crate) delta_ms: (f64, f64),
    /// Number of conversations that wait for a person concurrently.
    pub(crate) parked: usize,
    /// Memory of the agent's process for waiting conversations, in MiB.
    pub(crate) parked_mib: f64,
}

/// Returns the model agents of the bench.
pub(crate) fn talking_agents() -> Result<Vec<Agent>, Failure> {
    [TALKER_FILE, ASKER_FILE].into_iter().map(agent).collect()
}

fn agent(text: &str) -> Result<Agent, Failure> {
    Agent::from_text(std::path::Path::new("bench.agent.yaml"), text).map_err(Failure::diagnostics)
}

/// Measures many conversations of two turns, the replay of a long one, and many waiting ones.
pub(crate) async fn conversations(
    quick: bool,
    smoke: bool,
    note: &dyn Fn(&str),
) -> Result<ConversationFigures, Failure> {
    let (nodes, parked) = if smoke {
        (4, 4)
    } else if quick {
        (200, 200)
    } else {
        (1_000, 1_000)
    };
    let mut cluster = BenchCluster::start(false, None, None).await?;
    cluster.talk().await?;
    let talks = |count, at_once| DriverOrder::Run { workflow: "talk".to_owned(), items: 0, count, at_once };
    note("conversations of two turns");
    cluster.measure(&talks(nodes / 4 + 1, 8)).await?;
    let (_, cost) = cluster.measure(&talks(nodes, 8)).await?;
    let (alone, _) = cluster.measure(&talks(nodes / 10 + 1, 1)).await?;
    note("the replay of a conversation of 50 turns");
    let mesh = connect(cluster.url()).await?;
    let (replayed_records, replay_ms) = replay(&mesh).await?;
    note("text of a model on its way to a client");
    let mut delta_times = delta_times(&mesh, smoke).await?;
    delta_times.sort_by(f64::total_cmp);
    let slow = delta_times.get(delta_times.len() * 99 / 100).copied().unwrap_or_default();
    let delta_ms = (median(delta_times), slow);
    note(&format!("{parked} conversations that wait for a person"));
    let before = cluster.talking_memory();
    // Each conversation and each question is an execution.
    let order = DriverOrder::Open { workflow: "asks".to_owned(), total: parked, each: 2 };
    cluster.driver.ask::<MeasuredTime>(&order).await?;
    tokio::time::sleep(PARKING_TIME).await;
    let parked_mib = (cluster.talking_memory() - before).max(0.0);
    cluster.stop().await?;
    Ok(ConversationFigures {
        nodes,
        agent_cpu_ms: cost.agent / nodes as f64 / 1e3,
        all_cpu_ms: cost.all / nodes as f64 / 1e3,
        p50_ms: alone.p50_us / 1e3,
        replayed_records,
        replay_ms,
        delta_ms,
        parked,
        parked_mib,
    })
}

/// Returns the number of records of a long conversation, and the milliseconds to read and fold them.
async fn replay(mesh: &Mesh) -> Result<(usize, f64), Failure> {
    let records = long_log()?;
    let (steps, execution) = (mesh.tasks().steps(), ExecutionId::of(mesh.namespace(), "bench", "long"));
    let activation = ActivationKey::of::<&str>(&execution, "bench_long", &[], 0);
    let log = StepLogId { agent: Token::of("bench_long"), execution, activation };
    for (place, record) in records.iter().enumerate() {
        let body =
            serde_json::to_vec(record).map(Bytes::from).map_err(|error| cannot_go_on(&error.to_string()))?;
        steps.append(&log, place as u64, body, None).await?;
    }
    let mut times = Vec::new();
    for _ in 0..REPLAYS {
        let began = Instant::now();
        let stored = steps.read(&log, 0).await?;
        let read: Result<Vec<StepRecord>, _> =
            stored.iter().map(|body| serde_json::from_slice(body)).collect();
        let state = ConversationState::fold(&read.map_err(|error| cannot_go_on(&error.to_string()))?);
        times.push(began.elapsed());
        if state.totals.turns as usize != LONG_TURNS {
            return Err(cannot_go_on("the replayed conversation has not all of its turns"));
        }
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Ok((records.len(), median(times.into_iter().map(milliseconds).collect())))
}

/// Returns the log of a conversation of fifty turns.
fn long_log() -> Result<Vec<StepRecord>, Failure> {
    let mut answers: Vec<_> =
        (1..LONG_TURNS).map(|turn| json!({"call": {"total": {"a": [turn, turn]}}})).collect();
    answers.push(json!({"text": "done"}));
    let case = AgentCase {
        input: json!({"text": "Add many numbers."}),
        instruction: None,
        output_schema: None,
        context: serde_json::Value::Null,
        begun_at: None,
        script: ModelScript::read(&answers).map_err(|bad| cannot_go_on(&bad.to_string()))?,
        tools: std::collections::BTreeMap::new(),
        peers: Vec::new(),
        people_allow: false,
        crash_everywhere: false,
    };
    let outcome =
        agent(LONG_FILE)?.rehearse(&case).ok_or_else(|| cannot_go_on("the agent holds no conversations"))?;
    Ok(outcome.map_err(|fault| cannot_go_on(&fault.message))?.rehearsal.log)
}
