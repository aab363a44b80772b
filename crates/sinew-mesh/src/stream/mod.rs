//! Ordered messages: journals, commands, tasks and results, events, the quarantine, and how they
//! are stored and read.

pub mod event;
pub(crate) mod follow;
pub mod inbox;
pub mod journal;
pub mod listen;
pub mod live;
pub mod position;
pub mod publisher;
pub(crate) mod pull;
pub mod quarantine;
pub mod send;
pub mod stored;
pub mod task;
