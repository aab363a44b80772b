//! Inputs that end the process of whoever works on them: they cost a few executors, and nothing else.

use serde_json::{Value, json};
use sinew_agent::Delivery;
use sinew_executor::client::{Client, ClientError};
use sinew_mesh::server::ServerOptions;
use sinew_protocol::ExecutionId;
use sinew_protocol::command::{Command, PauseCommand, ResumeCommand};
use sinew_protocol::query::AN_OPERATOR;

use crate::faults::agents::begun;
use crate::faults::audit::{single, succeeded};
use crate::faults::signals::ask;
use crate::support::mesh::{PATIENCE, TestMesh};
use crate::support::process::{POISON_RESULT, POISON_START, Part, Process};

/// Deaths over one poison among few others: one that no note foresees, one of a group, and those of the poison alone.
const MAX_DEATHS: usize = 4;

struct Scene {
    mesh: TestMesh,
    client: Client,
    agents: Process,
    /// Innocent executions, begun before and after the poison, and the poison itself.
    innocent: Vec<ExecutionId>,
    poison: ExecutionId,
}

impl Scene {
    async fn new(poison: &str) -> Self {
        let mesh = TestMesh::with(ServerOptions::default(), 2).await;
        mesh.deploy("single", &single("")).await;
        let agents = mesh.agents_process(Delivery::Queue, &[("one", json!({ "pass": true }))]).await;
        let client = mesh.client().await;
        let mut executions = Vec::new();
        for nth in 0..9 {
            let value = if nth == 4 { json!(poison) } else { json!(nth) };
            let input = json!({ "value": value });
            executions.push(begun(&client, &format!("k{nth}"), "single", input).await);
        }
        let poison = executions.remove(4);
        Self { mesh, client, agents, innocent: executions, poison }
    }

    async fn executor(&self) -> Process {
        // The same name again and again, as a supervisor does it: no lease has to end.
        self.mesh.process(Part::FragileExecutor { id: "fragile".to_owned(), lease_ms: 2_000 }).await
    }

    /// Starts one executor after the other until one lives long enough for this to end; gives the deaths and the living.
    async fn outlive<T>(&self, done: impl AsyncFn() -> T) -> (usize, Process, T) {
        for deaths in 0..=MAX_DEATHS {
            let mut executor = self.executor().await;
            let done = async { tokio::time::timeout(PATIENCE, done()).await.unwrap() };
            tokio::select! {
                biased;
                () = executor.gone() => {}
                done = done => return (deaths, executor, done),
            }
        }
        panic!("executors die in a loop");
    }

    async fn innocents_end(&self) {
        for (nth, execution) in self.innocent.iter().enumerate() {
            let nth = if nth < 4 { nth } else { nth + 1 };
            assert_eq!(succeeded(&self.client, execution).await, json!({ "value": nth }));
        }
    }
}

/// The row of an execution that waits for an operator.
async fn set_aside(client: &Client, execution: &ExecutionId) -> String {
    loop {
        let open = client.open().await.unwrap();
        let mut aside = open.into_iter().filter_map(|row| {
            let waiting = row.waiting.filter(|waiting| waiting.starts_with(AN_OPERATOR))?;
            Some((row.execution, waiting))
        });
        if let Some((found, waiting)) = aside.next() {
            assert_eq!(found, *execution, "an innocent execution was set aside");
            assert!(aside.next().is_none());
            return waiting;
        }
    }
}

#[tokio::test]
async fn a_result_that_ends_its_owners_sets_its_execution_aside() {
    let mut scene = Scene::new(POISON_RESULT).await;
    let (deaths, mut executor, waiting) =
        scene.outlive(async || set_aside(&scene.client, &scene.poison).await).await;
    assert!((3..=MAX_DEATHS).contains(&deaths), "{deaths}");
    assert!(waiting.contains("3 executors"), "{waiting}");
    scene.innocents_end().await;
    let after = begun(&scene.client, "after", "single", json!({ "value": "after" })).await;
    assert_eq!(succeeded(&scene.client, &after).await, json!({ "value": "after" }));
    // It is shown, not folded, and takes no commands but those that take it up again.
    let record = scene.client.record(&scene.poison).await.unwrap().unwrap();
    assert_eq!(record.hold.unwrap().code, "SINEW-6061");
    let folded = scene.client.execution(&scene.poison).await.unwrap_err();
    assert!(matches!(&folded, ClientError::Held { .. }) && folded.code() == "SINEW-6061", "{folded}");
    let pause = Command::Pause(PauseCommand { execution: scene.poison.clone(), reason: String::new() });
    let verdict = ask(&scene.client, "pause", pause).await;
    assert!(!verdict.accepted && verdict.reason.contains("is held"), "{verdict:?}");
    let aside = scene.mesh.mesh.quarantine().list(100).await.unwrap();
    let [result] = aside.as_slice() else { panic!("{aside:?}") };
    assert!(result.stream == "RESULTS" && result.reason.contains("SINEW-6061"), "{result:?}");
    // It stays aside when its shard is handed over; an executor that can bear it takes it up.
    executor.end().await;
    let mut sound = scene.mesh.executor_process("sound").await;
    set_aside(&scene.client, &scene.poison).await;
    let resume = Command::Resume(ResumeCommand { execution: scene.poison.clone() });
    let verdict = ask(&scene.client, "resume", resume).await;
    assert!(verdict.accepted, "{verdict:?}");
    scene.mesh.mesh.quarantine().replay("RESULTS", result.seq).await.unwrap();
    assert_eq!(succeeded(&scene.client, &scene.poison).await, json!({ "value": POISON_RESULT }));
    sound.end().await;
    scene.agents.end().await;
}

#[tokio::test]
async fn a_start_that_ends_its_owners_is_refused() {
    let mut scene = Scene::new(POISON_START).await;
    let (deaths, mut executor, refused) =
        scene.outlive(async || scene.client.outcome(&scene.poison, Some(PATIENCE)).await).await;
    assert!((3..=MAX_DEATHS).contains(&deaths), "{deaths}");
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("SINEW-6062"), "{refused}");
    scene.innocents_end().await;
    let aside = scene.mesh.mesh.quarantine().list(100).await.unwrap();
    let [start] = aside.as_slice() else { panic!("{aside:?}") };
    assert!(start.stream == "COMMANDS" && start.reason.contains("SINEW-6062"), "{start:?}");
    assert!(start.subject.ends_with(scene.poison.as_str()));
    let open: Vec<Value> = scene.client.open().await.unwrap().iter().map(|row| json!(row)).collect();
    assert!(open.iter().all(|row| row["waiting"].is_null()), "{open:?}");
    executor.end().await;
    scene.agents.end().await;
}
