//! A server of its own for a test, with a mesh on it, and a wire to it that can be cut.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses what it needs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sinew_mesh::async_nats;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, Provision};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ActivationKey, ExecutionId, ResultKey, ResultToken, Subject, TaskId, Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A server and a mesh on it.
pub async fn mesh() -> (Server, Mesh) {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let mesh = connect(&server.url(), "tester").await;
    mesh.admin().provision(&Provision::default()).await.unwrap();
    (server, mesh)
}

/// A connection that comes back quickly.
pub async fn connect(url: &str, caller: &str) -> Mesh {
    let options =
        async_nats::ConnectOptions::new().reconnect_delay_callback(|_| std::time::Duration::from_millis(5));
    Mesh::new(options.connect(url).await.unwrap(), "test", caller)
}

/// The `n`th execution, its task for an agent, and the token that a result needs.
pub fn ids(n: usize) -> (ExecutionId, TaskId, ResultToken) {
    let execution = ExecutionId::of("test", "tester", &n.to_string());
    let activation = ActivationKey::of::<&str>(&execution, "node", &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    let token = ResultToken::of(&ResultKey::new([1; 32]), &task);
    (execution, task, token)
}

pub fn task(agent: &str, n: usize) -> Subject {
    let (execution, task, _) = ids(n);
    Subject::Task { agent: Token::of(agent), execution, task }
}

pub fn result(shard: u32, n: usize) -> Subject {
    let (execution, task, token) = ids(n);
    Subject::Result { shard, agent: Token::of("agent"), execution, task, token }
}

pub fn command(shard: u32, n: usize) -> Subject {
    let (operation, caller) = (Operation::Start, Token::of("tester"));
    Subject::Command { shard, operation, caller, id: Token::of(&n.to_string()) }
}

/// How many messages a stream of the mesh holds.
pub async fn messages(mesh: &Mesh, kind: &str) -> u64 {
    let mut stream = mesh.admin().jetstream().get_stream(format!("test_{kind}")).await.unwrap();
    stream.info().await.unwrap().state.messages
}

/// A wire between a client and a server that swallows one direction, or breaks, when it is told to.
pub struct Wire {
    pub url: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Drops all messages of the server.
    deaf: AtomicBool,
    /// Drops all messages of the client.
    mute: AtomicBool,
    swallowed: Notify,
    cut: Notify,
}

impl Wire {
    pub async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let (shared, port) = (Arc::clone(&state), server.port());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = pipe(from_client, to_server, &state, &state.mute) => {}
                        () = pipe(from_server, to_client, &state, &state.deaf) => {}
                        () = state.cut.notified() => {}
                    }
                });
            }
        });
        Self { url, state }
    }

    /// From now on the client hears nothing.
    pub fn deafen(&self) {
        self.state.deaf.store(true, Ordering::SeqCst);
    }

    /// From now on the server hears nothing.
    pub fn mute(&self) {
        self.state.mute.store(true, Ordering::SeqCst);
    }

    /// Waits until something was swallowed.
    pub async fn swallowed(&self) {
        self.state.swallowed.notified().await;
    }

    /// Breaks the connection; the next one is whole.
    pub fn cut(&self) {
        self.state.deaf.store(false, Ordering::SeqCst);
        self.state.mute.store(false, Ordering::SeqCst);
        self.state.cut.notify_waiters();
    }
}

async fn pipe(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State, swallows: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) if swallows.load(Ordering::SeqCst) => state.swallowed.notify_one(),
            Ok(read) => {
                if to.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}
