//! Agents that are not there, never answer, answer too late, or share a name.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sinew_agent::Delivery;
use sinew_engine::{Fact, TerminalStatus};
use sinew_executor::client::Client;
use sinew_mesh::HeaderMap;
use sinew_mesh::server::ServerOptions;
use sinew_protocol::command::{CancelCommand, Command};
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, ResultToken, Subject, TaskId, Token};

use crate::faults::audit::{CHAIN, audit, ended, facts, given, rounds, single, succeeded};
use crate::support::mesh::{PATIENCE, TestMesh, start, worded};

pub(crate) async fn begun(client: &Client, key: &str, workflow: &str, input: Value) -> ExecutionId {
    let command = start(client, key, workflow, input);
    let execution = command.execution.clone();
    assert!(client.start(command).await.unwrap());
    execution
}

/// Waits until the owner says this of an open execution.
pub(crate) async fn stands(
    client: &Client,
    execution: &ExecutionId,
    holds: impl Fn(&Summary) -> bool,
) -> Summary {
    let looking = async {
        loop {
            let open = client.open().await.unwrap();
            if let Some(row) = open.into_iter().find(|row| row.execution == *execution && holds(row)) {
                return row;
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap()
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_waited_for() {
    let mesh = TestMesh::new().await;
    mesh.deploy("patient", &single("")).await;
    mesh.deploy("hasty", &single(", timeout: 3s")).await;
    let _executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let patient = begun(&client, "p", "patient", json!({ "value": 1 })).await;
    let hasty = begun(&client, "h", "hasty", json!({ "value": 2 })).await;
    for execution in [&patient, &hasty] {
        stands(&client, execution, |row| row.waiting.as_deref() == Some("agent one")).await;
    }
    let outcome = ended(&client, &hasty).await;
    assert_eq!(outcome.status, TerminalStatus::Failure);
    let fault = outcome.fault.unwrap();
    assert_eq!(fault.code, "SINEW-6012", "{fault:?}");
    assert!(fault.message.contains("no process of agent 'one' took the task within 3 s"), "{fault:?}");
    // It comes at last: what was waiting is done, what timed out is not.
    let mut agents = mesh.agents_process(Delivery::Queue, &[("one", json!({ "pass": true }))]).await;
    assert_eq!(succeeded(&client, &patient).await, json!({ "value": 1 }));
    assert_eq!(ended(&client, &hasty).await.status, TerminalStatus::Failure);
    agents.end().await;
}

#[tokio::test]
async fn an_agent_that_never_answers_is_told_and_what_it_says_later_changes_nothing() {
    for delivery in [Delivery::Queue, Delivery::Direct] {
        let mesh = TestMesh::new().await;
        mesh.deploy("hasty", &single(", timeout: 1s")).await;
        let mut agents = mesh.agents_process(delivery, &[("one", json!({ "silent": true }))]).await;
        let _executor = mesh.executor_process("one").await;
        let client = mesh.client().await;
        let execution = begun(&client, "h", "hasty", json!({ "value": 2 })).await;
        let outcome = ended(&client, &execution).await;
        assert!(
            outcome.fault.as_ref().is_some_and(|fault| fault.message.contains("timed out")),
            "{outcome:?}"
        );
        agents.until("it is told", |told| told.iter().any(|line| line.get("cancelled").is_some())).await;
        let before = client.record(&execution).await.unwrap().unwrap();
        let task = TaskId::parse(agents.began().next().unwrap()["task"].as_str().unwrap()).unwrap();
        let token = ResultToken::of(&mesh.mesh.admin().result_key().await.unwrap(), &task);
        let shard = execution.shard(mesh.mesh.admin().layout().await.unwrap().shards);
        let subject = Subject::Result {
            shard,
            agent: Token::of("one"),
            execution: execution.clone(),
            task: task.clone(),
            token,
        };
        let late = worded(&task, Ok(json!({ "value": "late" }))).into();
        // The SDK may have said already that it gave up; then the subject is taken, and that is as good.
        mesh.connect("one").await.tasks().put_once(&subject, HeaderMap::new(), late).await.unwrap();
        // A later command has been read, so earlier ones have been read as well.
        let next = begun(&client, "n", "hasty", json!({ "value": 3 })).await;
        ended(&client, &next).await;
        let after = client.record(&execution).await.unwrap().unwrap();
        let meant = |record: &ExecutionRecord| {
            let all = facts(record).into_iter();
            all.filter(|fact| !matches!(fact, Fact::Late { .. })).collect::<Vec<_>>()
        };
        assert_eq!(meant(&before), meant(&after), "{delivery:?}: a late result changed a closed execution");
    }
}

/// A cancel and the result it races with, many times: each execution has one end, and its agent was told or had answered.
#[tokio::test]
async fn cancels_race_with_results() {
    const RACES: usize = 60;
    let mesh = TestMesh::new().await;
    mesh.deploy("single", &single("")).await;
    let words = [("one", json!({ "pass": true, "hold": RACES }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let _executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let mut executions = Vec::new();
    for nth in 0..RACES {
        executions.push(begun(&client, &format!("race{nth}"), "single", json!({ "value": nth })).await);
    }
    agents.asked(RACES).await;
    let cancels = executions.iter().map(|execution| {
        let cancel = Command::Cancel(CancelCommand { execution: execution.clone(), reason: String::new() });
        let client = client.clone();
        async move { client.signal(&Token::of(execution.as_str()), cancel, PATIENCE).await.unwrap() }
    });
    let releases = async {
        for _ in 0..RACES {
            agents.release().await;
            tokio::task::yield_now().await;
        }
    };
    let (verdicts, ()) = tokio::join!(futures_util::future::join_all(cancels), releases);
    let mut ends = BTreeSet::new();
    for (execution, verdict) in executions.iter().zip(verdicts) {
        let outcome = ended(&client, execution).await;
        // Log order decides: an accepted cancel has the last word, a refused one came after the end.
        let cancelled = outcome.status == TerminalStatus::Cancelled;
        assert_eq!(cancelled, verdict.accepted, "{verdict:?} {outcome:?}");
        ends.insert(format!("{:?}", outcome.status));
    }
    println!("{RACES} races: {ends:?}");
    assert_eq!(given(&[&agents]).len(), RACES);
}

#[tokio::test]
async fn two_processes_of_one_agent_share_its_tasks() {
    let mesh = TestMesh::new().await;
    mesh.deploy("chain", CHAIN).await;
    let words =
        [("one", json!({ "pass": true, "delay_ms": 20 })), ("two", json!({ "pass": true, "delay_ms": 20 }))];
    let mut first = mesh.agents_process(Delivery::Queue, &words).await;
    let mut second = mesh.agents_process(Delivery::Queue, &words).await;
    let _executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let mut executions = Vec::new();
    for nth in 0..30 {
        executions.push(begun(&client, &format!("k{nth}"), "chain", json!({ "value": nth })).await);
    }
    for (nth, execution) in executions.iter().enumerate() {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": nth }));
    }
    first.end().await;
    second.end().await;
    let shares = (first.began().count(), second.began().count());
    assert!(shares.0 > 0 && shares.1 > 0, "one of them did all the work: {shares:?}");
    let given = given(&[&first, &second]);
    assert_eq!(given.len(), 60);
    assert!(given.values().all(|times| *times == 1), "a task was worked on twice");
}

const MAP: &str = r#"
workflow:
  description: A map with a limit
  nodes:
    - {id: m, type: map, node: t, items: "{{workflow.input.items}}", concurrency_limit: 4}
    - {id: t, type: agent, agent_name: one, input: {n: "{{_map_item}}"}}
  output_mapping: {r: "{{m.output.results}}"}
"#;

/// The limit of a map holds over owners, and its results keep the order of its items.
#[tokio::test]
async fn a_map_keeps_its_limit_and_order_over_owners() {
    const ITEMS: usize = 60;
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("map", MAP).await;
    // The slower the earlier the item.
    let words = json!({ "double": "n", "delay_ms": [60, 10, 40, 0, 20] });
    let mut agents = mesh.agents_process(Delivery::Queue, &[("one", words)]).await;
    let client = mesh.client().await;
    let items: Vec<usize> = (0..ITEMS).collect();
    let mut executor = mesh.executor_process("e0").await;
    let execution = begun(&client, "map", "map", json!({ "items": items })).await;
    for kill in 1..=3 {
        agents.asked(kill * ITEMS / 4).await;
        executor.kill9().await;
        executor = mesh.executor_process(&format!("e{kill}")).await;
    }
    let output = succeeded(&client, &execution).await;
    let wanted: Vec<Value> = items.iter().map(|n| json!({ "value": n * 2 })).collect();
    assert_eq!(output, json!({ "r": wanted }));
    let record = client.record(&execution).await.unwrap().unwrap();
    audit(&record);
    let (mut flying, mut most) = (0_i32, 0);
    for fact in rounds(&record).iter().flat_map(|round| &round.facts) {
        match fact {
            Fact::Dispatched { .. } => flying += 1,
            Fact::Replied { .. } => flying -= 1,
            _ => {}
        }
        most = most.max(flying);
    }
    assert_eq!(most, 4, "items at work at once");
    let sent = facts(&record).iter().filter(|fact| matches!(fact, Fact::Dispatched { .. })).count();
    assert_eq!(sent, ITEMS);
    agents.end().await;
    assert_eq!(given(&[&agents]).len(), ITEMS);
}
