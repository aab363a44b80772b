//! Faults made on purpose: processes, the broker, messages, clocks. Against a real nats-server.
//!
//! Judged from journals and from reports of agents in other processes. A test whose fault did not happen fails.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod agents;
pub(crate) mod audit;
mod broker;
mod clock;
pub(crate) mod crash;
mod ended_usage;
pub(crate) mod ended_work;
mod forged;
mod garbage;
mod hostile;
mod ids;
mod node;
mod owners;
mod poison;
mod questions;
mod signals;
mod starts;
