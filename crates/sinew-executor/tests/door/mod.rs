//! Workflows at their A2A door and as tools of agents, against a real nats-server.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod calls;
mod nested;
mod observed;
mod rpc;
mod stream;
