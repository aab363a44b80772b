//! The mesh on NATS: the only crate that communicates with a broker.
//!
//! The executor appends commits to a shard's [`journal`], sends tasks, and reads results and
//! commands from its [`inbox`]; agents receive tasks from their queue and store results; all
//! processes read cards, events and artifacts. `sinew-protocol` defines the messages; here they are
//! bytes with a subject, headers and a position in a stream.
//!
//! This crate never decides what a workflow does, never keeps state that the broker does not have,
//! never sends a message that must not be lost over a core subscription, and never inserts a
//! raw name into a subject.

pub use async_nats;
pub use async_nats::HeaderMap;

mod admin;
mod card_check;
pub mod connect;
mod connection_log;
mod context;
pub mod crash;
mod denied;
mod denied_request;
mod error;
mod go_duration;
pub mod layout;
pub mod log_limit;
mod mesh;
pub mod private_file;
mod random_token;
mod rights;
mod screen;
pub mod server;
pub mod server_group;
mod service;
mod service_listing;
mod store;
mod stream;
pub mod trace;
pub mod version;
pub mod wire;

pub use admin::server_clock::ServerClock;
pub use admin::{MeshAdmin, problem, provision};
pub use connect::Connect;
pub use error::MeshError;
pub use layout::Layout;
pub use mesh::Mesh;
pub use provision::{Change, Difference, Provision};
pub use rights::is_granted;
pub use service::{MeshServices, a2a_endpoint, micro, node, query, replica, rpc, start};
pub use store::{artifact, card, changes, fleet, history, history_index, record, steps, workflow};
pub use stream::inbox::{Inbox, ReceivedMessage, Source};
pub use stream::journal::{AppendError, Journal, Stored};
pub use stream::send::{OutgoingMessage, PutOutcome};
pub use stream::task::{AgentQueue, Delivery};
pub use stream::{event, inbox, journal, listen, live, position, publisher, quarantine, send, stored, task};
