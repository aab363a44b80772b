//! Bridges on a real mesh, before outside agents that are good, slow, dying and hostile.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod cards;
mod deaths;
mod fake_agent;
mod hostile;
mod hostile_bytes;
mod own_gateway;
mod tasks;
mod world;
