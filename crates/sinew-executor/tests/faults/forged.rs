//! Results that nobody asked for, in every way we could think of: none is accepted.

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_agent::Delivery;
use sinew_engine::{Fact, TerminalStatus};
use sinew_executor::client::Client;
use sinew_mesh::artifact::ArtifactOwner;
use sinew_mesh::{HeaderMap, PutOutcome};
use sinew_protocol::a2a::PartContent;
use sinew_protocol::artifact::ArtifactName;
use sinew_protocol::command::StartCommand;
use sinew_protocol::task::{Content, Draft, ResultArtifact, result_task};
use sinew_protocol::{ActivationKey, ExecutionId, ResultKey, ResultToken, Subject, TaskId, Token};

use crate::faults::audit::{audit, ended, facts, single, succeeded};
use crate::support::mesh::{PATIENCE, Site, TestMesh, start, worded};
use crate::support::process::Process;

/// Forged results of each kind.
const EACH: usize = 125;

/// A task that an agent holds, as somebody sees it who reads everything on the mesh.
struct Held {
    execution: ExecutionId,
    task: TaskId,
    /// The right subject for its result.
    result: Subject,
}

struct Scene {
    mesh: TestMesh,
    client: Client,
    agents: Process,
    executor: Process,
}

impl Scene {
    async fn new(hold: usize) -> Self {
        let mesh = TestMesh::new().await;
        mesh.deploy("single", &single("")).await;
        let words = [("one", json!({ "pass": true, "hold": hold }))];
        let agents = mesh.agents_process(Delivery::Queue, &words).await;
        let executor = mesh.executor_process("one").await;
        let client = mesh.client().await;
        Self { mesh, client, agents, executor }
    }

    /// Starts an execution and waits until the agent has its task.
    async fn held(&mut self, key: &str) -> Held {
        self.held_of(key, "single").await
    }

    async fn held_of(&mut self, key: &str, workflow: &str) -> Held {
        let before = self.agents.began().count();
        let command = start(&self.client, key, workflow, json!({ "value": "true" }));
        let execution = command.execution.clone();
        self.client.start(command).await.unwrap();
        self.agents.asked(before + 1).await;
        let call = self.agents.began().last().unwrap();
        assert_eq!(call["execution"], json!(execution));
        let task = TaskId::parse(call["task"].as_str().unwrap()).unwrap();
        let token = ResultToken::of(&self.mesh.mesh.admin().result_key().await.unwrap(), &task);
        let (shard, agent) = (shard(&self.mesh, &execution).await, Token::of("one"));
        let result =
            Subject::Result { shard, agent, execution: execution.clone(), task: task.clone(), token };
        Held { execution, task, result }
    }
}

async fn shard(site: &Site, execution: &ExecutionId) -> u32 {
    execution.shard(site.mesh.admin().layout().await.unwrap().shards)
}

fn body(task: &TaskId) -> Bytes {
    worded(task, Ok(json!({ "value": "forged" }))).into()
}

/// A thousand forged results of eight kinds while the true one is on its way.
#[tokio::test]
async fn forged_results_are_not_accepted() {
    let mut scene = Scene::new(1_000).await;
    let held = scene.held("victim").await;
    let other = scene.held("other").await;
    let forger = scene.mesh.connect("forger").await;
    let Subject::Result { shard, agent, execution, task, token } = held.result.clone() else {
        unreachable!()
    };
    let Subject::Result { token: foreign, task: other_task, .. } = other.result.clone() else {
        unreachable!()
    };
    let guess = |nth: usize| ResultToken::of(&ResultKey::new([nth as u8; 32]), &task);
    let ghost = |nth: usize| ExecutionId::of("test", "forger", &format!("ghost{nth}"));
    let ghost_task = |nth: usize| {
        TaskId::of(&execution, &ActivationKey::of::<String>(&execution, "a", &[], nth as u32 + 1), 1)
    };
    let far = |nth: usize| ((nth as u32 % 3) + shard + 1) % 4;
    let mut forged: Vec<(&str, Subject, Bytes)> = Vec::new();
    for nth in 0..EACH {
        let (shard, agent, execution, task) = (shard, agent.clone(), execution.clone(), task.clone());
        let kinds = [
            (
                "a token of another key",
                Subject::Result {
                    shard,
                    agent: agent.clone(),
                    execution: execution.clone(),
                    task: task.clone(),
                    token: guess(nth),
                },
                body(&task),
            ),
            (
                "the token of another task, by many agents",
                Subject::Result {
                    shard,
                    agent: Token::of(&format!("a{nth}")),
                    execution: execution.clone(),
                    task: task.clone(),
                    token: foreign.clone(),
                },
                body(&task),
            ),
            (
                "the right token under another task",
                Subject::Result {
                    shard,
                    agent: agent.clone(),
                    execution: execution.clone(),
                    task: ghost_task(nth),
                    token: token.clone(),
                },
                body(&task),
            ),
            (
                "the right token under another execution",
                Subject::Result {
                    shard,
                    agent: agent.clone(),
                    execution: ghost(nth),
                    task: task.clone(),
                    token: token.clone(),
                },
                body(&task),
            ),
            (
                "the right token in another shard",
                Subject::Result {
                    shard: far(nth),
                    agent: Token::of(&format!("far{nth}")),
                    execution: execution.clone(),
                    task: task.clone(),
                    token: token.clone(),
                },
                body(&task),
            ),
            (
                "another agent that has read the token",
                Subject::Result {
                    shard,
                    agent: Token::of(&format!("thief{nth}")),
                    execution: execution.clone(),
                    task: task.clone(),
                    token: token.clone(),
                },
                body(&task),
            ),
            (
                "an attempt that was never made",
                Subject::Result {
                    shard,
                    agent: agent.clone(),
                    execution: execution.clone(),
                    task: TaskId::of(
                        &execution,
                        &ActivationKey::of::<String>(&execution, "a", &[], 0),
                        nth as u32 + 2,
                    ),
                    token: guess(nth),
                },
                body(&task),
            ),
            (
                "a result of another execution's task, replayed",
                Subject::Result {
                    shard,
                    agent: Token::of(&format!("replay{nth}")),
                    execution: execution.clone(),
                    task: other_task.clone(),
                    token: foreign.clone(),
                },
                body(&other_task),
            ),
        ];
        forged.extend(kinds);
    }
    assert_eq!(forged.len(), 1_000);
    let mut stored = 0;
    for (kind, subject, body) in forged {
        // A subject takes one message: the same forgery twice is one.
        match forger.tasks().put_once(&subject, HeaderMap::new(), body).await {
            Ok(PutOutcome::New) => stored += 1,
            put => panic!("{kind}: {put:?}"),
        }
    }
    assert_eq!(stored, 1_000);
    scene.agents.release().await;
    scene.agents.release().await;
    for held in [&held, &other] {
        assert_eq!(succeeded(&scene.client, &held.execution).await, json!({ "value": "true" }));
        let record = scene.client.record(&held.execution).await.unwrap().unwrap();
        let replies = facts(&record)
            .into_iter()
            .filter(|fact| matches!(fact, Fact::Replied { .. } | Fact::Late { .. }));
        assert_eq!(replies.count(), 1, "a forged result became a fact");
    }
    // Results without a valid proof are kept in the quarantine.
    let aside = scene.mesh.mesh.quarantine().list(2_000).await.unwrap();
    let forged = aside.iter().filter(|one| one.reason.contains("SINEW-6034")).count();
    println!("1,000 forged results: 0 accepted, {forged} set aside");
    assert!(forged >= 5 * EACH, "{forged}");
    scene.executor.end().await;
}

/// The body is not what a result is, but its sender was given the task: the attempt fails, nothing else does.
#[tokio::test]
async fn bad_results_of_the_right_agent_fail_their_attempt() {
    let mut scene = Scene::new(1_000).await;
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let key = ExecutionId::of("test", "x", "y");
    let foreign = TaskId::of(&key, &ActivationKey::of::<String>(&key, "a", &[], 0), 1);
    let bodies: Vec<(&str, Bytes)> = vec![
        ("empty", Bytes::new()),
        ("no JSON", Bytes::from_static(b"\xff\xfe{{{")),
        ("deep JSON", deep.into()),
        ("another type", Bytes::from_static(b"[1,2,3]")),
        ("another task's result", worded(&foreign, Ok(json!({ "value": "forged" }))).into()),
        (
            "no end",
            json!({ "id": "x", "contextId": "y", "status": { "state": "TASK_STATE_WORKING" } })
                .to_string()
                .into(),
        ),
        ("large", vec![b'x'; 900_000].into()),
    ];
    for (nth, (what, body)) in bodies.into_iter().enumerate() {
        let held = scene.held(&format!("bad{nth}")).await;
        let put =
            scene.mesh.connect("one").await.tasks().put_once(&held.result, HeaderMap::new(), body).await;
        assert_eq!(put.unwrap(), PutOutcome::New);
        let outcome = scene
            .client
            .outcome(&held.execution, Some(crate::support::mesh::PATIENCE))
            .await
            .unwrap()
            .unwrap();
        let said =
            outcome.output.as_deref().is_some_and(|value: &Value| value.to_string().contains("forged"));
        assert!(!said, "{what}: it was believed");
        assert_eq!(outcome.status, TerminalStatus::Failure, "{what}: {outcome:?}");
        audit(&scene.client.record(&held.execution).await.unwrap().unwrap());
    }
    // Results that can be read, and contradict themselves or take too long to check.
    let schema = json!({"items": {"allOf": vec![json!({"type": "integer"}); 2_000]}});
    scene.mesh.deploy("checked", &single(&format!(", output_schema_override: {schema}"))).await;
    let replaced = |task: &TaskId, old: &str, new: &str| -> Bytes {
        let text = String::from_utf8(worded(task, Ok(json!({ "value": "forged" })))).unwrap();
        assert!(text.contains(old), "{text}");
        text.replace(old, new).into()
    };
    let numbers: Value = (0..5_000).collect();
    let hash = sinew_protocol::artifact::sha256(br#"{"value":"forged"}"#);
    for (nth, (workflow, code)) in [
        ("single", "SINEW-5114"),
        ("single", "SINEW-5114"),
        ("single", "SINEW-5115"),
        ("checked", "SINEW-4009"),
    ]
    .into_iter()
    .enumerate()
    {
        let held = scene.held_of(&format!("contradiction{nth}"), workflow).await;
        let body = match nth {
            0 => replaced(&held.task, &hash, &"0".repeat(64)),
            1 => replaced(&held.task, "\"size\":18", "\"size\":19"),
            2 => replaced(&held.task, "{\"value\":", "{\"value\":1,\"value\":"),
            _ => worded(&held.task, Ok(numbers.clone())).into(),
        };
        let put =
            scene.mesh.connect("one").await.tasks().put_once(&held.result, HeaderMap::new(), body).await;
        assert_eq!(put.unwrap(), PutOutcome::New);
        let outcome = ended(&scene.client, &held.execution).await;
        assert_eq!(outcome.status, TerminalStatus::Failure, "{code}: {outcome:?}");
        assert_eq!(outcome.fault.as_ref().map(|fault| fault.code.as_ref()), Some(code), "{outcome:?}");
    }
    let held = scene.held("good").await;
    let mut agents = 0;
    while agents < 12 {
        scene.agents.release().await;
        agents += 1;
    }
    assert_eq!(succeeded(&scene.client, &held.execution).await, json!({ "value": "true" }));
}

/// A stored value never changes: a shard that reads it again and again stands still for ever.
#[tokio::test]
async fn stored_values_that_are_not_json_hold_up_nobody() {
    let mut scene = Scene::new(1_000).await;
    let shards = scene.mesh.mesh.admin().layout().await.unwrap().shards.get();
    let one = scene.mesh.connect("one").await;
    let store = one.artifacts();
    let bodies: [(Vec<u8>, &str); 3] = [
        (vec![b'{'; 1 << 20], "SINEW-5014"),
        (format!(r#"{{"a":1,"a":"{}"}}"#, "x".repeat(1 << 20)).into(), "SINEW-5115"),
        // Small as text, and large in memory.
        (format!("[{}1]", "1,".repeat(1_200_000)).into(), "SINEW-6008"),
    ];
    for (nth, (bytes, code)) in bodies.into_iter().enumerate() {
        let held = scene.held(&format!("stored{nth}")).await;
        let place = ArtifactOwner { app: "one", user: "test", execution: &held.execution, task: &held.task };
        let name = ArtifactName::parse("bad.json").unwrap();
        let stored = store.put(&place, name, 0, "application/json", Bytes::from(bytes)).await.unwrap();
        let PartContent::Url(address) = stored.part.content.clone() else { panic!("it is stored inline") };
        // As the result of an agent, and as the input of starts in every shard.
        let artifact =
            ResultArtifact { meta: stored.meta.clone(), content: Content::of(&stored.part).unwrap() };
        let artifacts = [artifact];
        let draft = Draft { artifacts: &artifacts, ..Draft::new(&held.task, Ok(stored.meta.reference())) };
        let body = serde_json::to_vec(&result_task(draft)).unwrap();
        assert_eq!(
            one.tasks().put_once(&held.result, HeaderMap::new(), body.into()).await.unwrap(),
            PutOutcome::New
        );
        for key in 0..4 * shards {
            let command = start(&scene.client, &format!("address{nth}-{key}"), "single", Value::Null);
            let command = StartCommand { input_artifact: Some(address.clone()), ..command };
            scene.client.start(command).await.unwrap();
        }
        let outcome = ended(&scene.client, &held.execution).await;
        assert_eq!(outcome.fault.as_ref().map(|fault| fault.code.as_ref()), Some(code), "{outcome:?}");
    }
    let mut innocent = Vec::new();
    for key in 0..4 * shards {
        let command = start(&scene.client, &format!("innocent{key}"), "single", json!({ "value": "true" }));
        innocent.push(command.execution.clone());
        scene.client.start(command).await.unwrap();
    }
    // The tasks from above are held, too.
    for _ in 0..innocent.len() + 3 {
        scene.agents.release().await;
    }
    for execution in &innocent {
        succeeded(&scene.client, execution).await;
    }
}

/// Values may be small as text and large in memory, and starts may name any number of them.
#[tokio::test]
async fn stored_values_that_are_large_in_memory_are_read_in_turns() {
    let mut scene = Scene::new(0).await;
    scene.executor.kill9().await;
    let one = scene.mesh.connect("one").await;
    let owner = ExecutionId::parse("owner").unwrap();
    let place =
        ArtifactOwner { app: "one", user: "test", execution: &owner, task: &TaskId::parse("task").unwrap() };
    let text = format!(r#"{{"value":[{}1]}}"#, "1,".repeat(600_000));
    let name = ArtifactName::parse("large.json").unwrap();
    let stored = one.artifacts().put(&place, name, 0, "application/json", text.into()).await.unwrap();
    let PartContent::Url(address) = stored.part.content else { panic!("it is stored inline") };
    let mut waiting = Vec::new();
    for key in 0..48 {
        // No such workflow: nothing but the start itself has the value.
        let command = start(&scene.client, &format!("large{key}"), "absent", Value::Null);
        let command = StartCommand { input_artifact: Some(address.clone()), ..command };
        waiting.push(command.execution.clone());
        scene.client.start(command).await.unwrap();
    }
    let executor = scene.mesh.executor_process("two").await;
    for execution in &waiting {
        let refused = scene.client.outcome(execution, Some(PATIENCE)).await.unwrap_err();
        assert!(refused.to_string().contains("SINEW-6020"), "{refused}");
    }
    // 48 values take 2 GiB.
    let peak = executor.peak_memory();
    assert!(peak < 512, "{peak} MiB");
}

/// The same result again and again, others after it, and one after the end: the first counts.
#[tokio::test]
async fn the_first_result_counts() {
    let mut scene = Scene::new(1_000).await;
    let held = scene.held("twice").await;
    let one = scene.mesh.connect("one").await;
    let first: Bytes = worded(&held.task, Ok(json!({ "value": "first" }))).into();
    assert_eq!(
        one.tasks().put_once(&held.result, HeaderMap::new(), first.clone()).await.unwrap(),
        PutOutcome::New
    );
    for _ in 0..5 {
        assert_eq!(
            one.tasks().put_once(&held.result, HeaderMap::new(), first.clone()).await.unwrap(),
            PutOutcome::Same
        );
        assert_eq!(
            one.tasks().put_once(&held.result, HeaderMap::new(), body(&held.task)).await.unwrap(),
            PutOutcome::Taken
        );
    }
    assert_eq!(succeeded(&scene.client, &held.execution).await, json!({ "value": "first" }));
    // The agent itself is told nothing of that, and answers after the end.
    scene.agents.release().await;
    scene.agents.until("it has answered", |told| told.iter().any(|line| line.get("ended").is_some())).await;
    // Past write-once: the stream's own rules keep a second message out even when it is published plainly.
    let name = scene.mesh.mesh.subject(&held.result);
    let plain = one.admin().jetstream().publish(name, body(&held.task)).await.unwrap().await;
    assert!(plain.is_err(), "a second result was stored: {plain:?}");
    let next = scene.held("next").await;
    scene.agents.release().await;
    succeeded(&scene.client, &next.execution).await;
    assert_eq!(succeeded(&scene.client, &held.execution).await, json!({ "value": "first" }));
}

/// An input that is too large for a command is stored beside it; a start whose other members are too large is refused.
#[tokio::test]
async fn oversized_inputs_are_stored_and_oversized_starts_refused() {
    let scene = Scene::new(0).await;
    let limit = sinew_protocol::command::MAX_BODY;
    for (key, size) in [("under", limit - 10_000), ("over", limit + 1), ("far over", 2 * 1024 * 1024)] {
        let command = start(&scene.client, key, "single", json!({ "value": "x".repeat(size) }));
        let execution = command.execution.clone();
        scene.client.check_start(&command).unwrap();
        assert!(scene.client.start(command.clone()).await.unwrap(), "{key}");
        let output = succeeded(&scene.client, &execution).await;
        assert_eq!(output["value"].as_str().map(str::len), Some(size), "{key}");
        assert!(!scene.client.start(command).await.unwrap(), "{key}: the same start is the same execution");
    }
    let mut command = start(&scene.client, "label", "single", json!({ "value": "x" }));
    command.mode = json!({ "given": { "only": "x".repeat(limit) } });
    let refused = scene.client.start(command.clone()).await;
    assert!(refused.is_err() && scene.client.check_start(&command).is_err(), "{refused:?}");
    assert!(scene.client.record(&command.execution).await.unwrap().is_none(), "something was stored");
}
