//! Node endpoints with agents that do what they should not: forged answers, silence, blocking, leaving.

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_agent::Delivery;
use sinew_engine::Fact;
use sinew_mesh::async_nats::{Message, Subscriber};
use sinew_mesh::server::ServerOptions;
use sinew_protocol::card::Announcement;
use sinew_protocol::task::{WorkflowNodeRequest, WorkflowNodeResult};
use sinew_protocol::{Fault, TaskId};

use crate::faults::audit::{facts, single, succeeded};
use crate::support::mesh::{PATIENCE, TestMesh, start};

/// An agent of which the test plays every part.
struct PlayedAgent {
    mesh: sinew_mesh::Mesh,
    tasks: Subscriber,
}

/// A task that the played agent has.
struct HeldTask {
    id: TaskId,
    reply: String,
}

impl PlayedAgent {
    /// Listens at the node endpoint and announces the agent; waits until executors know.
    async fn new(mesh: &TestMesh, name: &str) -> Self {
        let own = mesh.connect(name).await;
        let tasks = own.client().subscribe(format!("test.v1.node.{name}")).await.unwrap();
        own.client().flush().await.unwrap();
        let (name, delivery, node_requests) = (name.to_owned(), Delivery::Direct, true);
        let card = Announcement { name, delivery, node_requests, ..Announcement::default() };
        own.cards().announce(&card.card("test")).await.unwrap();
        Self { mesh: own, tasks }
    }

    async fn next(&mut self) -> HeldTask {
        let next = tokio::time::timeout(PATIENCE, self.tasks.next());
        let Message { payload, reply, .. } = next.await.unwrap().unwrap();
        let request = WorkflowNodeRequest::read(&payload).unwrap();
        let reply = reply.unwrap().to_string();
        assert!(reply.ends_with(request.result_token.as_str()), "the answer's subject ends in the token");
        HeldTask { id: request.sub_task_id.clone(), reply }
    }

    async fn say(&self, subject: &str, body: impl Into<Bytes>) {
        self.mesh.client().publish(subject.to_owned(), body.into()).await.unwrap();
    }
}

fn good(task: &TaskId, value: &str) -> Vec<u8> {
    WorkflowNodeResult::of_output(task, "output.json", &json!({ "value": value })).to_bytes()
}

fn replies(facts: &[Fact]) -> usize {
    facts.iter().filter(|fact| matches!(fact, Fact::Replied { .. } | Fact::Late { .. })).count()
}

/// Name of a case, the answer for the right and a neighbouring task, and the code of the expected fault.
type AnswerCase = (&'static str, fn(&TaskId, &TaskId) -> Vec<u8>, Option<&'static str>);

/// An agent that holds one task tries to answer another one's, by every neighbour of its own subject.
#[tokio::test]
async fn neighbouring_tokens_are_refused() {
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("single", &single("")).await;
    mesh.deploy("other", &single("").replace("one", "two")).await;
    let (mut one, mut two) = (PlayedAgent::new(&mesh, "one").await, PlayedAgent::new(&mesh, "two").await);
    let executor = mesh.executor("exec").await;
    let client = mesh.client().await;
    let mut executions = Vec::new();
    for workflow in ["single", "other"] {
        let command = start(&client, workflow, workflow, json!({ "value": "true" }));
        executions.push(command.execution.clone());
        client.start(command).await.unwrap();
    }
    let (own, foreign) = (one.next().await, two.next().await);
    let (inbox, token) = own.reply.rsplit_once('.').unwrap();
    assert_eq!(foreign.reply.rsplit_once('.').unwrap().0, inbox, "both are heard by one subscription");
    let mut forged = 0;
    // Every token that differs from the agent's own in one letter, and counters.
    for at in 0..token.len() {
        for letter in b"abcdefghijklmnopqrstuvwxyz234567".iter().map(|letter| char::from(*letter)) {
            let mut near = token.to_owned();
            near.replace_range(at..=at, &letter.to_string());
            if near != token {
                one.say(&format!("{inbox}.{near}"), good(&foreign.id, "forged")).await;
                forged += 1;
            }
        }
    }
    for counter in 0..200 {
        one.say(&format!("{inbox}.{counter}"), good(&foreign.id, "forged")).await;
        one.say(&format!("{inbox}.{token}.{counter}"), good(&foreign.id, "forged")).await;
        forged += 2;
    }
    assert!(forged > 1_000);
    one.say(&own.reply, good(&own.id, "true")).await;
    assert_eq!(succeeded(&client, &executions[0]).await, json!({ "value": "true" }));
    // The forged answers came before that, on the same connection, and have changed nothing.
    let record = client.record(&executions[1]).await.unwrap().unwrap();
    assert_eq!(replies(&facts(&record)), 0, "a forged answer became a fact");
    two.say(&foreign.reply, good(&foreign.id, "right")).await;
    assert_eq!(succeeded(&client, &executions[1]).await, json!({ "value": "right" }));
    executor.drain().await;
}

/// Answers of the right agent at the node endpoint, and what becomes of the task.
#[tokio::test]
async fn answers_of_the_right_agent_mean_what_they_say() {
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("single", &single("")).await;
    let mut one = PlayedAgent::new(&mesh, "one").await;
    let executor = mesh.executor("exec").await;
    let client = mesh.client().await;
    let other = TaskId::parse("another-task").unwrap();
    let cases: [AnswerCase; 8] = [
        ("an output", |task, _| good(task, "fine"), None),
        ("a failure", |task, _| failed(task, "agents' own"), Some("agents' own")),
        ("empty", |_, _| Vec::new(), Some("SINEW-7002")),
        ("no JSON", |_, _| b"\xff\xfe{{".to_vec(), Some("SINEW-7002")),
        ("another type", |_, _| b"[1,2,3]".to_vec(), Some("SINEW-7002")),
        ("another task's", |_, other| good(other, "forged"), Some("SINEW-7002")),
        ("a key that stands twice", twice, Some("SINEW-5115")),
        ("no name for the output", |task, _| replaced(task, "artifact_name", "name"), Some("SINEW-7002")),
    ];
    for (nth, (what, answer, code)) in cases.into_iter().enumerate() {
        let command = start(&client, &format!("case{nth}"), "single", json!({ "value": "true" }));
        let execution = command.execution.clone();
        client.start(command).await.unwrap();
        let task = one.next().await;
        // The agent has no room, then stops; the task comes again, always under the same id.
        for fault in [
            Fault::error("SINEW-5113", "no room"),
            Fault::error("SINEW-5111", "stops").with_retry_after_ms(1),
        ] {
            one.say(&task.reply, WorkflowNodeResult::refusal(&task.id, &fault).to_bytes()).await;
            assert_eq!(one.next().await.id, task.id, "{what}");
        }
        one.say(&task.reply, answer(&task.id, &other)).await;
        // A second answer finds nothing.
        one.say(&task.reply, good(&task.id, "second")).await;
        let outcome = crate::faults::audit::ended(&client, &execution).await;
        let found = outcome.fault.as_ref().map(|fault| fault.code.to_string());
        let said: String = outcome.output.as_deref().map(Value::to_string).unwrap_or_default();
        assert!(!said.contains("second") && !said.contains("forged"), "{what}: {said}");
        assert_eq!(found.is_none(), code.is_none(), "{what}: {outcome:?}");
        let record = client.record(&execution).await.unwrap().unwrap();
        let codes: Vec<String> = facts(&record)
            .iter()
            .filter_map(|fact| match fact {
                Fact::Replied { result: Err(fault), .. } => Some(fault.code.to_string()),
                _ => None,
            })
            .collect();
        let wanted: Vec<String> = code
            .map(|code| if code == "agents' own" { "SINEW-5100" } else { code }.to_owned())
            .into_iter()
            .collect();
        assert_eq!(codes, wanted, "{what}");
    }
    executor.drain().await;
}

fn failed(task: &TaskId, message: &str) -> Vec<u8> {
    let fault = Fault::failure("SINEW-5100", message).with_retryable(false);
    WorkflowNodeResult::of_end(task, &Err(fault), &[]).to_bytes()
}

fn twice(task: &TaskId, _: &TaskId) -> Vec<u8> {
    replaced(task, "{\"value\":", "{\"value\":1,\"value\":")
}

fn replaced(task: &TaskId, old: &str, new: &str) -> Vec<u8> {
    let text = String::from_utf8(good(task, "forged")).unwrap();
    assert!(text.contains(old), "{text}");
    text.replace(old, new).into()
}

/// An agent that leaves is waited for; one that comes back without a node endpoint is asked as it wants to be.
#[tokio::test]
async fn an_agent_that_comes_back_in_another_way_gets_its_task() {
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("single", &single("")).await;
    let one = PlayedAgent::new(&mesh, "one").await;
    let executor = mesh.executor("exec").await;
    let client = mesh.client().await;
    // The card stays, and nobody listens.
    let PlayedAgent { mesh: own, mut tasks } = one;
    tasks.unsubscribe().await.unwrap();
    own.client().flush().await.unwrap();
    let command = start(&client, "waits", "single", json!({ "value": "true" }));
    let execution = command.execution.clone();
    client.start(command).await.unwrap();
    let asked = mesh.mesh.client().subscribe("test.v1.rpc.one.>").await.unwrap();
    mesh.mesh.client().flush().await.unwrap();
    let agent = sinew_agent::Agent::dynamic("one", None, None, |input, _| async move { Ok(input) });
    let agent = agent.delivery(Delivery::Direct).node_requests(false);
    let stop = sinew_agent::CancellationToken::new();
    let serving = tokio::spawn(agent.serve(mesh.connect("one").await, stop.clone()));
    assert_eq!(succeeded(&client, &execution).await, json!({ "value": "true" }));
    drop(asked);
    executor.drain().await;
    stop.cancel();
    serving.await.unwrap().unwrap();
}
