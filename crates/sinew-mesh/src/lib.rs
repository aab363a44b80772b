//! The mesh on NATS: the only crate that speaks to a broker.
//!
//! Place in the flow: the executor appends commits to a shard's [`journal`], sends tasks, reads results and commands from
//! its [`inbox`]; agents take tasks from their queue and put results; everybody reads cards, events and artifacts. What
//! the messages mean is said in `sinew-protocol`; here they are bytes with a subject, headers and a place in a stream.
//!
//! It never decides what a workflow does, never keeps state that the broker does not have, never lets a core
//! subscription carry anything that may not be lost, and never pastes a name into a subject.

pub use async_nats;
pub use async_nats::HeaderMap;

pub mod artifact;
pub mod card;
mod card_check;
pub mod connect;
mod context;
pub mod crash;
mod denied;
mod denied_request;
mod error;
pub mod event;
pub mod fleet;
mod follow;
pub mod history;
pub mod inbox;
pub mod journal;
pub mod layout;
mod layout_store;
pub mod listen;
pub mod live;
mod mesh;
pub mod micro;
pub mod node;
mod object;
pub mod position;
pub mod problem;
pub mod provision;
mod pull;
pub mod quarantine;
pub mod query;
mod random_token;
mod rights;
pub mod rpc;
mod screen;
pub mod send;
pub mod server;
pub mod steps;
pub mod store;
pub mod stored;
pub mod task;
pub mod trace;
pub mod version;
pub mod wire;

pub use connect::Connect;
pub use error::MeshError;
pub use inbox::{Inbox, ReceivedMessage, Source};
pub use journal::{AppendError, Journal, Stored};
pub use layout::Layout;
pub use mesh::Mesh;
pub use provision::{Change, Difference, Provision};
pub use send::{OutgoingMessage, PutOutcome};
pub use task::{AgentQueue, Delivery};
