//! Commands of people over the mesh: twice, late, without the right, and over the death of an owner.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sinew_agent::Delivery;
use sinew_engine::{Fact, TerminalStatus, WaitingFor};
use sinew_executor::client::Client;
use sinew_mesh::query::Answer;
use sinew_protocol::command::{
    ApproveCommand, CancelCommand, Command, PauseCommand, ResumeCommand, RetryCommand,
};
use sinew_protocol::journal::Verdict;
use sinew_protocol::query::{ExecutionStatus, Query, Summary};
use sinew_protocol::{ExecutionId, Token};

use crate::faults::agents::{begun, stands};
use crate::faults::audit::{CHAIN, audit, ended, facts, given, single, succeeded};
use crate::support::mesh::{PATIENCE, TestMesh};

pub(crate) async fn ask(client: &Client, id: &str, command: Command) -> Verdict {
    client.signal(&Token::of(id), command, PATIENCE).await.unwrap()
}

fn pause(execution: &ExecutionId) -> Command {
    Command::Pause(PauseCommand { execution: execution.clone(), reason: "wait".to_owned() })
}

fn resume(execution: &ExecutionId) -> Command {
    Command::Resume(ResumeCommand { execution: execution.clone() })
}

fn cancel(execution: &ExecutionId) -> Command {
    Command::Cancel(CancelCommand { execution: execution.clone(), reason: "enough".to_owned() })
}

fn retry(execution: &ExecutionId) -> Command {
    Command::Retry(RetryCommand {
        execution: execution.clone(),
        nodes: Vec::new(),
        only: false,
        input: None,
        reason: "again".to_owned(),
    })
}

fn approve(execution: &ExecutionId, reject: bool) -> Command {
    Command::Approve(ApproveCommand {
        execution: execution.clone(),
        node: None,
        activation: None,
        data: Value::Null,
        comment: reject.then(|| "too dear".to_owned()),
        reject,
        member: None,
    })
}

fn count(facts: &[Fact], is: impl Fn(&Fact) -> bool) -> usize {
    facts.iter().filter(|fact| is(fact)).count()
}

/// While an execution is paused nothing new is sent, results are kept, and neither is lost with the owner.
#[tokio::test]
async fn a_pause_outlives_its_owner() {
    let mesh = TestMesh::new().await;
    mesh.deploy("chain", CHAIN).await;
    let words = [("one", json!({ "pass": true, "hold": 1 })), ("two", json!({ "pass": true }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let mut first = mesh.executor_process("first").await;
    let client = mesh.client().await;
    let execution = begun(&client, "k", "chain", json!({ "value": 7 })).await;
    agents.asked(1).await;
    assert!(ask(&client, "pause", pause(&execution)).await.accepted);
    assert!(!ask(&client, "pause2", pause(&execution)).await.accepted, "it is paused already");
    let again = ask(&client, "pause", pause(&execution)).await;
    assert!(again.accepted, "the same request has the same verdict");
    agents.release().await;
    // The result becomes a fact; the next task does not.
    loop {
        let record = client.record(&execution).await.unwrap().unwrap();
        if count(&facts(&record), |fact| matches!(fact, Fact::Completed { .. })) == 1 {
            break;
        }
    }
    first.kill9().await;
    let _second = mesh.executor_process("second").await;
    // Until the second owner serves it, the row says that none does.
    stands(&client, &execution, |row| {
        let waiting = row.waiting.as_deref().unwrap_or_default();
        row.status == ExecutionStatus::Paused && waiting.starts_with("resume (by tester: wait)")
    })
    .await;
    assert_eq!(agents.began().count(), 1, "a task was sent during the pause");
    assert!(ask(&client, "resume", resume(&execution)).await.accepted);
    assert_eq!(succeeded(&client, &execution).await, json!({ "value": 7 }));
    for (id, command) in [("r2", resume(&execution)), ("p3", pause(&execution)), ("c", cancel(&execution))] {
        let verdict = ask(&client, id, command).await;
        assert!(!verdict.accepted && !verdict.reason.is_empty(), "{verdict:?}");
    }
    agents.end().await;
    assert_eq!(given(&[&agents]).len(), 2);
}

#[tokio::test]
async fn a_cancel_reaches_agents_and_is_heeded_once() {
    for delivery in [Delivery::Queue, Delivery::Direct] {
        let mesh = TestMesh::new().await;
        mesh.deploy("single", &single("")).await;
        let mut agents = mesh.agents_process(delivery, &[("one", json!({ "silent": true }))]).await;
        let _executor = mesh.executor_process("one").await;
        let client = mesh.client().await;
        let execution = begun(&client, "k", "single", json!({ "value": 7 })).await;
        agents.asked(1).await;
        assert!(ask(&client, "c1", cancel(&execution)).await.accepted);
        assert!(
            ask(&client, "c1", cancel(&execution)).await.accepted,
            "the same request has the same verdict"
        );
        assert!(!ask(&client, "c2", cancel(&execution)).await.accepted);
        let outcome = ended(&client, &execution).await;
        assert_eq!(outcome.status, TerminalStatus::Cancelled);
        agents.until("it is told", |told| told.iter().any(|line| line.get("cancelled").is_some())).await;
        let record = client.record(&execution).await.unwrap().unwrap();
        assert_eq!(count(&facts(&record), |fact| matches!(fact, Fact::CancelRequested { .. })), 1);
    }
}

/// An approval with named reviewers, as a workflow of the dialect that has them.
fn review() -> String {
    json!({
        "id": "review",
        "name": "review",
        "nodes": [
            { "id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {} },
            { "id": "h", "name": "h", "type": "HUMAN_IN_THE_LOOP", "subtype": "MANUAL_REVIEW",
              "configurations": { "reviewers": ["ann", "bob"], "question": "Is it good?" } }
        ],
        "connections": [{ "id": "c", "from_node": "t", "to_node": "h", "output_key": "result" }],
        "triggers": ["t"]
    })
    .to_string()
}

#[tokio::test]
async fn approvals_are_for_those_who_may_and_count_once() {
    let mesh = TestMesh::new().await;
    mesh.deploy("review", &review()).await;
    let mut first = mesh.executor_process("first").await;
    let client = mesh.client().await;
    let (ann, bob, eve) =
        (mesh.client_of("ann").await, mesh.client_of("bob").await, mesh.client_of("eve").await);
    let execution = begun(&client, "k", "review", json!({})).await;
    let row = stands(&client, &execution, |row| row.status == ExecutionStatus::Waiting).await;
    assert!(row.waiting.unwrap().contains("Is it good?"));
    let refused = ask(&eve, "e", approve(&execution, false)).await;
    assert!(!refused.accepted && refused.reason.contains("ann, bob"), "{refused:?}");
    // The question is as open after the owner's death as it was before.
    first.kill9().await;
    let _second = mesh.executor_process("second").await;
    let (yes, no) =
        tokio::join!(ask(&ann, "a", approve(&execution, false)), ask(&bob, "b", approve(&execution, true)));
    assert!(yes.accepted != no.accepted, "one decision counts: {yes:?} {no:?}");
    ended(&client, &execution).await;
    let late = ask(&ann, "late", approve(&execution, false)).await;
    assert!(!late.accepted, "{late:?}");
    let record = client.record(&execution).await.unwrap().unwrap();
    let by: Vec<_> = facts(&record)
        .into_iter()
        .filter_map(|fact| match fact {
            Fact::Answered { answer, .. } => answer.by.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(by, [if yes.accepted { "ann" } else { "bob" }]);
}

/// A closed failure is taken up again from the history; successful nodes keep their results.
#[tokio::test]
async fn a_closed_execution_is_retried() {
    let mesh = TestMesh::new().await;
    mesh.deploy("chain", CHAIN).await;
    let words = [
        ("one", json!({ "pass": true })),
        ("two", json!({ "pass": true, "error": "boom", "fail_times": 1 })),
    ];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let mut first = mesh.executor_process("first").await;
    let client = mesh.client().await;
    let execution = begun(&client, "k", "chain", json!({ "value": 7 })).await;
    assert_eq!(ended(&client, &execution).await.status, TerminalStatus::Failure);
    // Closed: no owner has it any more.
    first.end().await;
    assert!(client.open().await.unwrap().is_empty());
    let _second = mesh.executor_process("second").await;
    assert!(ask(&client, "again", retry(&execution)).await.accepted);
    assert!(ask(&client, "again", retry(&execution)).await.accepted, "the same request has the same verdict");
    assert_eq!(retried(&client, &execution).await, json!({ "value": 7 }));
    let refused = ask(&client, "more", retry(&execution)).await;
    assert!(!refused.accepted, "nothing of it failed: {refused:?}");
    let unknown = ExecutionId::of("test", "tester", "unknown");
    assert!(!ask_unknown(&client, &unknown).await);
    agents.end().await;
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for call in agents.began() {
        *names.entry(call["agent"].as_str().unwrap()).or_default() += 1;
    }
    assert_eq!(names, BTreeMap::from([("one", 1), ("two", 2)]));
}

/// A waiting execution is kept as stored in the journal, and is folded again when its answer comes.
#[tokio::test]
async fn what_waits_takes_no_room() {
    let mesh = TestMesh::new().await;
    mesh.deploy("review", &review()).await;
    let service = mesh.executor("one").await;
    let client = mesh.client_of("ann").await;
    let mut executions = Vec::new();
    for nth in 0..8 {
        let execution = begun(&client, &format!("k{nth}"), "review", json!({})).await;
        stands(&client, &execution, |row| row.status == ExecutionStatus::Waiting).await;
        executions.push(execution);
    }
    let (mut open, mut folded) = (0, 0);
    for shard in 0..4 {
        let Answer::Status(status) =
            client.mesh().services().ask_shard(shard, &Query::Status {}).await.unwrap()
        else {
            panic!("no status of shard {shard}");
        };
        open += status["executions"].as_u64().unwrap();
        folded += status["folded"].as_u64().unwrap();
    }
    assert_eq!((open, folded), (8, 0));
    for (nth, execution) in executions.iter().enumerate() {
        let done = ask(&client, &format!("a{nth}"), approve(execution, false)).await;
        assert!(done.accepted, "{done:?}");
        ended(&client, execution).await;
        audit(&client.record(execution).await.unwrap().unwrap());
    }
    service.drain().await;
}

/// The output once a retried execution has ended well. Its first end is in the record as well.
async fn retried(client: &Client, execution: &ExecutionId) -> Value {
    let waiting = async {
        loop {
            let (record, folded) = client.execution(execution).await.unwrap().unwrap();
            let outcome =
                folded.state().outcome.clone().filter(|outcome| outcome.status == TerminalStatus::Success);
            if folded.state().ended
                && let Some(outcome) = outcome
            {
                audit(&record);
                return Value::clone(outcome.output.as_deref().unwrap());
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap()
}

async fn ask_unknown(client: &Client, execution: &ExecutionId) -> bool {
    let patience = std::time::Duration::from_secs(5);
    client
        .signal(&Token::of("unknown"), retry(execution), patience)
        .await
        .is_ok_and(|verdict| verdict.accepted)
}

const PARENT: &str = r#"
workflow:
  description: Calls another workflow
  nodes:
    - {id: w, type: workflow, workflow_name: child, input: {value: "{{workflow.input.value}}"}}
  output_mapping: {value: "{{w.output.value}}"}
"#;

/// A parent whose sub-workflow failed is retried: the sub-workflow runs again as another execution.
#[tokio::test]
async fn a_sub_workflow_is_retried_with_its_parent() {
    let mesh = TestMesh::new().await;
    mesh.deploy("child", &single("")).await;
    mesh.deploy("parent", PARENT).await;
    let words = [("one", json!({ "pass": true, "error": "boom", "fail_times": 1, "hold": 1 }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let mut first = mesh.executor_process("first").await;
    let client = mesh.client().await;
    let execution = begun(&client, "k", "parent", json!({ "value": 7 })).await;
    agents.asked(1).await;
    // The owner of both dies while the child is at work.
    first.kill9().await;
    agents.release().await;
    let _second = mesh.executor_process("second").await;
    let outcome = ended(&client, &execution).await;
    assert_eq!(outcome.status, TerminalStatus::Failure);
    assert!(outcome.fault.unwrap().message.contains("boom"));
    assert!(ask(&client, "again", retry(&execution)).await.accepted);
    assert_eq!(retried(&client, &execution).await, json!({ "value": 7 }));
    agents.end().await;
    let children: std::collections::BTreeSet<_> =
        agents.began().map(|call| call["execution"].to_string()).collect();
    assert_eq!(children.len(), 2, "a child of its own for each attempt");
}

/// An execution keeps the version it began with, over deployments and owners.
#[tokio::test]
async fn a_new_version_does_not_change_an_open_execution() {
    let mesh = TestMesh::new().await;
    let old = mesh.deploy("chain", CHAIN).await;
    let words = [
        ("one", json!({ "pass": true, "hold": 1 })),
        ("two", json!({ "pass": true })),
        ("new", json!({ "output": { "value": "new" } })),
    ];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let mut first = mesh.executor_process("first").await;
    let client = mesh.client().await;
    let execution = begun(&client, "k", "chain", json!({ "value": "old" })).await;
    agents.asked(1).await;
    let new = mesh.deploy("chain", &CHAIN.replace("agent_name: two", "agent_name: new")).await;
    assert_ne!(old, new);
    // The owner knows of the new version before the old execution goes on.
    let second = begun(&client, "k2", "chain", json!({ "value": "x" })).await;
    let mut versions = vec![client.record(&second).await.unwrap()];
    while versions.last().is_none_or(Option::is_none) {
        versions.push(client.record(&second).await.unwrap());
    }
    first.kill9().await;
    let _second = mesh.executor_process("second").await;
    agents.release().await;
    assert_eq!(succeeded(&client, &execution).await, json!({ "value": "old" }));
    assert_eq!(succeeded(&client, &second).await, json!({ "value": "new" }));
    assert_eq!(client.record(&execution).await.unwrap().unwrap().meta.plan, old[0]);
    assert_eq!(client.record(&second).await.unwrap().unwrap().meta.plan, new[0]);
    agents.end().await;
}

/// A workflow whose only node calls `review`, two levels up, with less time than a person takes.
fn above(name: &str, below: &str, timeout: &str) -> String {
    format!(
        "apps:\n  - name: {name}\n    app_config:\n      workflow:\n        description: Calls another workflow\n        \
         nodes:\n          - {{id: k, type: workflow, workflow_name: {below}, input: {{value: 1}}, timeout: {timeout}}}\n        \
         output_mapping: {{decided: \"{{{{k.output}}}}\"}}\n"
    )
}

/// The execution that asks, as an execution above it knows.
async fn asking(client: &Client, execution: &ExecutionId) -> Option<ExecutionId> {
    let (_, folded) = client.execution(execution).await.unwrap()?;
    sinew_engine::waiting(folded.state()).into_iter().find_map(|wait| match wait.what {
        WaitingFor::CalleePerson { wait, .. } => wait.execution.clone(),
        _ => None,
    })
}

/// A person is waited for three levels down: each level says so, and none of their times runs, whichever owners die.
#[tokio::test]
async fn a_wait_for_a_person_stops_the_clocks_above_it() {
    let mesh = TestMesh::new().await;
    mesh.deploy("review", &review()).await;
    mesh.deploy("middle", &above("middle", "review", "2s")).await;
    mesh.deploy("top", &above("top", "middle", "2s")).await;
    mesh.deploy("hasty", &single(", timeout: 3s")).await;
    let mut first = mesh.executor_process("first").await;
    let client = mesh.client().await;
    let ann = mesh.client_of("ann").await;
    let execution = begun(&client, "k", "top", json!({})).await;
    let waits = |row: &Summary| {
        let waiting = row.waiting.as_deref().unwrap_or_default();
        row.status == ExecutionStatus::Waiting && waiting.starts_with("a person: Is it good? (in review ")
    };
    stands(&client, &execution, waits).await;
    first.kill9().await;
    let mut second = mesh.executor_process("second").await;
    // Another execution shows that more time has passed than the nodes have.
    let hasty = begun(&client, "h", "hasty", json!({ "value": 2 })).await;
    assert_eq!(ended(&client, &hasty).await.status, TerminalStatus::Failure);
    stands(&client, &execution, waits).await;
    second.kill9().await;
    let _third = mesh.executor_process("third").await;
    stands(&client, &execution, waits).await;
    let leaf = asking(&client, &execution).await.expect("the execution above knows who asks");
    assert!(ask(&ann, "a", approve(&leaf, false)).await.accepted);
    let output = succeeded(&client, &execution).await;
    assert!(output["decided"].is_object(), "{output}");
    let record = client.record(&execution).await.unwrap().unwrap();
    let reports = count(&facts(&record), |fact| matches!(fact, Fact::CalleeWaits { wait: Some(_), .. }));
    assert_eq!(reports, 1, "reports that are sent again are known");
}
