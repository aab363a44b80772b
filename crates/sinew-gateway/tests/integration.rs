//! Tests of the gateway: a real nats-server, real executors and agents, real clients.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by panicking"
)]

mod access;
mod access_matrix;
mod api;
mod api_answers;
mod binding_equivalence;
mod bindings;
mod bindings_support;
mod broker_pauses;
mod cards;
mod console;
mod decisions;
mod documents;
mod files;
mod grpc;
mod hostile;
mod key_scope;
mod large_mesh;
mod many_workflows;
mod mcp;
mod mcp_offers;
mod mcp_python;
mod mcp_support;
mod mcp_tasks;
mod node_sdk;
mod offline_agents;
mod oidc;
mod other_clients;
mod page_matrix;
mod page_threads;
mod pushes;
mod python_sdk;
mod replicas;
#[path = "../../../tests/conformance/scenario_agent.rs"]
mod scenario_agent;
#[path = "../../../tests/conformance/scenarios.rs"]
mod scenarios;
mod streams;
mod support;
mod tls;
mod tool_search;
mod webhooks;
