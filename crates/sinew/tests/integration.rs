//! Tests of the command line: as a program, on terminals, and against a real nats-server.

mod architecture;
mod bench;
mod commands;
mod common;
mod completion;
mod conversations;
mod deploy;
mod examples;
mod first_hour;
mod gateway;
mod mesh;
mod permission;
mod test_command;
mod tools;
mod trace_of_processes;
mod transcripts;
