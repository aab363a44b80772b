//! External agents of A2A 1.0 as agents of a mesh: `sinew serve bridge`.
//!
//! Layer: above the SDK and the HTTP client of ready-made agents. A [`Bridge`] fetches the card of
//! an external agent, announces it under a name of the mesh, and serves each task by a task of the
//! external agent. The id of the external task is recorded as a step before the bridge waits for
//! it, so any process of the same name can continue the task.
//!
//! It never sends one message twice, unless the file states that the external agent deduplicates
//! messages; never sends credentials to a host that the operator did not configure; and never waits
//! for, or stores, more than its limits allow.
//!
//! ```yaml
//! # translator.bridge.yaml
//! name: translator
//! card: https://agents.example.com/translator
//! credentials: {bearer: {env: TRANSLATOR_TOKEN}}
//! ```

mod bridge;
mod bridge_file;
mod bridge_set;
mod card_signature;
mod credentials;
mod error;
mod named_hosts;
mod outside_hosts;
mod outside_task;
mod remote_card;
mod remote_client;
mod remote_output;
mod task_message;
mod task_view;

pub use bridge::Bridge;
pub use bridge_file::{BridgeSettings, bridge_file_schema};
pub use bridge_set::serve_bridges;
pub use error::BridgeError;
