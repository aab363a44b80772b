//! Tests of the gateway: a real nats-server, real executors and agents, a real HTTP client.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by panicking"
)]

mod api;
mod bindings;
mod cards;
mod decisions;
mod documents;
mod hostile;
mod python_sdk;
mod streams;
mod support;
