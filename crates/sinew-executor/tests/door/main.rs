//! Workflows at their A2A door and as tools of agents, against a real nats-server.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod calls;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../service/mesh.rs"]
mod mesh;
mod nested;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../service/process.rs"]
mod process;
mod rpc;
mod stream;
#[path = "../service/stub.rs"]
mod stub;
