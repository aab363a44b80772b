//! Tests of the command line: as a program, on terminals, and against a real nats-server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where it cannot go on, and says what it saw"
)]

mod agent_trust;
mod architecture;
mod bench;
mod chance;
mod chat;
mod client_matrix;
mod commands;
mod common;
mod completion;
mod conversations;
mod convert;
mod deploy;
mod document_commands;
mod event_artifacts;
mod examples;
mod first_hour;
mod gateway;
mod local_model;
mod mcp;
mod mesh;
mod model_commands;
mod people;
mod permission;
mod python_project;
mod readiness;
mod test_command;
mod tools;
mod trace_of_models;
mod trace_of_processes;
mod transcripts;
mod vocabulary;
