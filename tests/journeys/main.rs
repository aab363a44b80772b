//! Journeys: real processes with everything switched on, and the same truth on every surface. See README.md.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod chat;
mod claim;
#[path = "../../crates/sinew/tests/common/mod.rs"]
mod common;
mod controls;
mod dialect_models;
mod discovery;
mod ended_work;
mod http;
mod model_server;
mod operators;
mod outage;
mod pauses;
mod python_agent;
mod rules;
mod sam_claim;
mod strangers;
mod views;
