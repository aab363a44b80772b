//! Agents from files, called as the executor calls them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod artifacts;
mod command;
mod discover;
mod files;
mod fixture;
mod http;
mod injection;
mod mcp;
mod mcp_tools;
mod model;
mod model_files;
mod model_keys;
mod model_quirks;
mod model_secrets;
mod model_wires;
mod nested;
mod node_settings;
mod real_servers;
mod script;
mod server;
mod workflow_tools;
