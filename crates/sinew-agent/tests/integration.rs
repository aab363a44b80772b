//! Tests of the SDK against a real nats-server.

mod common;
mod door;
mod life;
mod node;
mod python;
mod queue;
mod steps;
