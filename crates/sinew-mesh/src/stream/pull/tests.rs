//! A consumer that was idle for longer than the server keeps a pull request receives later messages.

use async_nats::HeaderMap;
use sinew_protocol::journal::Positions;
use sinew_protocol::subject::Operation;
use sinew_protocol::{ActivationKey, ExecutionId, Subject, TaskId, Token};

use super::*;
use crate::Provision;
use crate::server::{Server, ServerOptions};

/// So long nothing comes: a request has ended, and the one after it.
const IDLE: Duration = EXPIRES.saturating_mul(5).checked_div(2).unwrap();
/// Longer than a loaded machine takes.
const PATIENCE: Duration = Duration::from_secs(30);

async fn mesh() -> (Server, Mesh) {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let mesh = Mesh::new(async_nats::connect(server.url()).await.unwrap(), "test", "tester");
    mesh.admin().provision(&Provision::default()).await.unwrap();
    (server, mesh)
}

#[tokio::test]
async fn an_idle_inbox_hears() {
    let (_server, mesh) = mesh().await;
    let mut inbox = mesh.commands().inbox(1, Positions::at(0, 0)).await.unwrap();
    let mut next = Box::pin(inbox.next());
    timeout(IDLE, &mut next).await.unwrap_err();
    let (operation, caller) = (Operation::Start, Token::of("tester"));
    let command = Subject::Command { shard: 1, operation, caller, id: Token::of("x") };
    mesh.put_once(&command, HeaderMap::new(), "{}".into()).await.unwrap();
    assert_eq!(timeout(PATIENCE, next).await.unwrap().subject, Some(command));
}

#[tokio::test]
async fn an_idle_queue_hears() {
    let (_server, mesh) = mesh().await;
    let agent = Token::of("reviewer");
    let mut queue = mesh.tasks().queue(&agent, 1);
    let mut next = Box::pin(queue.next());
    timeout(IDLE, &mut next).await.unwrap_err();
    let execution = ExecutionId::of("test", "tester", "k");
    let task = TaskId::of(&execution, &ActivationKey::of::<&str>(&execution, "node", &[], 0), 1);
    let subject = Subject::Task { agent, execution, task: task.clone() };
    mesh.put_once(&subject, HeaderMap::new(), "{}".into()).await.unwrap();
    assert_eq!(timeout(PATIENCE, next).await.unwrap().task, task);
}
