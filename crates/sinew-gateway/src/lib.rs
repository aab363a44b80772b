//! Access to a mesh without NATS: find and call its workflows and agents over HTTP or standard
//! input and output.
//!
//! Place in the flow: a request over HTTP becomes one [`operations::A2aOperations`] call, which becomes requests on the
//! mesh under the caller's own name. Each binding of A2A, and MCP, is a thin translation around that one interface.
//!
//! It authenticates callers and enforces the role, patterns and scope of their keys. It never
//! decides what a workflow does, and stores no state outside the mesh, so any gateway can answer any
//! request. Its memory holds caches, and the sessions of MCP clients before 2026-07-28.

mod a2a_request;
mod a2a_schema;
mod access;
mod allowed_origins;
mod api;
mod ard;
mod call_observer;
mod caller_stream;
mod card_signature;
mod card_times;
mod cards;
mod console_mount;
mod cors;
mod deadline_body;
mod error;
mod file_link;
mod files;
mod gateway;
mod gateway_service;
mod gateway_signer;
mod grpc;
mod guard;
mod http_error;
mod jsonrpc;
mod layout_cache;
mod mcp;
pub mod operations;
mod options;
mod protected_resource;
mod push;
mod push_address;
mod request_body;
mod request_metrics;
mod request_permits;
mod rest;
mod routes;
mod search_skill;
mod server;
mod sse;
mod stall_guard;
mod state;
mod tls;
mod tool_mode;
mod traffic_meter;
mod webhook;
mod webhook_triggers;

pub use error::GatewayError;
pub use gateway::Gateway;
pub use mcp::{serve_mcp, serve_mcp_stdio};
pub use options::{
    AccessOptions, DEFAULT_PORT, GatewayLimits, GatewayOptions, GrpcAddressForm, OidcClient, OidcOptions,
    TlsFiles, TransportSecurity,
};
pub use routes::{RouteDescription, described_routes};
pub use sinew_agents::ReachableAddresses;
pub use sinew_console::ConsoleMode;
pub use tool_mode::ToolMode;
