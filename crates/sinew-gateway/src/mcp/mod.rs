//! The Model Context Protocol: workflows and agents as tools, prompts and resources of
//! language-model hosts.
//!
//! Tools, tasks and decisions are A2A operations, so rights and ids are the same as in the other
//! bindings. The crate `rmcp` implements the protocol; the mapping is pure, and the handler
//! connects the two.

mod agent_call;
mod bad_params;
mod batch;
mod client_abilities;
mod client_input;
mod drain_tokens;
mod handler;
mod http_endpoint;
mod list_changes;
mod long_lines;
mod offer_output;
mod offered_content;
mod offers;
mod open_calls;
mod pipe;
mod question_form;
mod resource_uri;
mod resource_watch;
mod shared_state;
mod tool_list;
mod tool_result;
mod tool_search;

pub(crate) use drain_tokens::DrainTokens;
pub(crate) use http_endpoint::{McpEndpoint, as_json_rpc};
pub use pipe::{serve_mcp, serve_mcp_stdio};
pub(crate) use shared_state::McpShared;
pub(crate) use tool_search::MAX_SCHEMA_BYTES;

/// Member of a call's `_meta`: the id of the message that starts the work. The same id identifies
/// the same task.
const MESSAGE_ID_META: &str = "io.github.sinew-mesh/message-id";
/// Member of a result's `_meta`: the id of the task.
const TASK_META: &str = "io.github.sinew-mesh/task";
/// Member of a result's `_meta`: error code and text of a failure.
const ERROR_META: &str = "io.github.sinew-mesh/error";
