//! The owner of one shard as a pure core.
//!
//! Place in the flow: between the engine, which decides for one execution, and the executor, which reads, appends,
//! publishes and calls. Inputs and the time come in as arguments, commits and messages go out as data.
//!
//! It never reads a clock, never waits, and never performs I/O.

pub mod events;
pub mod reply;
pub mod request;
pub mod summary;

mod agent_line;
mod call;
mod program;
mod start_identity;
mod takeover_note;

pub use agent_line::AgentLine;
pub use call::{Call, TaskKey, activation_key, call_cycle, call_of, call_with_ids, path};
pub use program::{Library, Program};
pub use start_identity::StartIdentity;
pub use takeover_note::{MAX_ITEM_DEATHS, TakeoverNote, WorkItem};
