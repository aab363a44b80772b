//! Counts the requests to a real server.

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use sinew_mesh::Provision;
use sinew_mesh::async_nats::{Client, Subscriber, connect};
use sinew_mesh::server::{Server, ServerOptions};

use super::*;

/// Number of concurrent queries.
const TASKS: usize = 50;

/// A server with a mesh, and the consumer requests of its clients.
struct WatchedMesh {
    _server: Server,
    mesh: Mesh,
    _watcher: Client,
    questions: Subscriber,
}

impl WatchedMesh {
    async fn start() -> Self {
        let server = Server::start(ServerOptions::default()).await.unwrap();
        let mesh = Mesh::new(connect(server.url()).await.unwrap(), "test", "tester");
        mesh.admin().provision(&Provision::default()).await.unwrap();
        let watcher = connect(server.url()).await.unwrap();
        let questions = watcher.subscribe("$JS.API.CONSUMER.>").await.unwrap();
        // The server has processed the subscription when it replies; flushing would only send it.
        assert!(watcher.request("nobody.listens.here", "".into()).await.is_err());
        Self { _server: server, mesh, _watcher: watcher, questions }
    }

    /// Returns the number of queries of an agent's queue since the last call.
    async fn asked(&mut self, agent: &str) -> usize {
        // On the same connection: a server may reply before it forwards a request, but reads
        // messages in order.
        self.mesh.client().publish("$JS.API.CONSUMER.end", "".into()).await.unwrap();
        let (mut number, name) = (0, format!("agent-{agent}"));
        while let Some(message) = self.questions.next().await {
            if message.subject.ends_with(".end") {
                break;
            }
            number += usize::from(message.subject.split('.').any(|token| token == name));
        }
        number
    }
}

#[tokio::test]
async fn one_question_makes_a_queue_for_all_tasks() {
    let mut watched = WatchedMesh::start().await;
    let queues = KnownQueues::default();
    queues.ensure(&watched.mesh, "alone").await;
    let for_one = watched.asked("alone").await;
    assert!(for_one > 0 && queues.has("alone") && !queues.has("many"));
    join_all((0..TASKS).map(|_| queues.ensure(&watched.mesh, "many"))).await;
    assert_eq!(watched.asked("many").await, for_one);
    assert!(queues.has("many") && !queues.passes_over("many", 1), "nothing was given out yet");
    queues.clear();
    assert!(!queues.has("many"));
}

#[tokio::test]
async fn one_question_tells_of_all_tasks_of_a_queue() {
    let mut watched = WatchedMesh::start().await;
    let agent = Token::of("one");
    watched.mesh.tasks().make_queue(&agent).await.unwrap();
    watched.asked("one").await;
    let views = QueueViews::default();
    let looks = (1..=TASKS as u64).map(|place| views.is_over(&watched.mesh, &agent, place));
    let over: Vec<bool> = join_all(looks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(over, [false; TASKS], "nothing was given out yet");
    assert_eq!(watched.asked("one").await, 1);
}
