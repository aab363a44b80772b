//! Tests of the SDK against a real nats-server.

mod common;
mod door;
#[cfg(feature = "files")]
mod file_agents;
mod life;
mod node;
mod python;
mod queue;
mod replicas;
mod steps;
