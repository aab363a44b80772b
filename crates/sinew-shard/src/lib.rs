//! The owner of one shard as a pure core.
//!
//! Position in the data flow: between the engine, which decides for one execution, and the
//! executor, which reads, appends, publishes and calls. [`ShardOpening`] takes over a journal,
//! [`ShardState`] takes inputs and returns commits and messages, [`ShardManager`] decides which
//! shards an executor serves.
//!
//! This crate never reads a clock, waits or performs I/O: the time and all inputs are arguments.

pub mod membership;
pub mod outgoing;
pub mod person_wait;
pub mod summary;

mod active;
mod agent_line;
mod bug;
mod closed_ids;
mod command;
mod commit_builder;
mod decode;
mod in_flight;
mod intake;
mod journal_reader;
mod manager;
mod notice;
mod opening;
mod start_identity;
mod state;
mod stored;
mod table;
mod takeover_guard;
mod takeover_note;
#[cfg(test)]
mod tests;
mod timer_check;
mod wording;

pub use active::{CODE_BROKE, has_failed};
pub use agent_line::AgentLine;
pub use in_flight::{FactObserver, ShardReport};
pub use intake::{
    CommandInput, Found, InboxMessage, InputStream, Lookup, PendingInput, QuarantineReason, ResultInput,
    ShardInput, StartInput, of_task, reply_at_hand,
};
pub use journal_reader::JournalReader;
pub use manager::{LoopEnd, ManagerAction, REOPEN_PAUSE, ShardManager};
pub use notice::ShardNotice;
pub use opening::{ExecutionHeld, ShardOpening};
pub use outgoing::{Outgoing, StartDecision};
pub use start_identity::StartIdentity;
pub use state::{OutputCheck, PendingCommit, ShardConfig, ShardState};
pub use stored::{RoundLog, StoredExecution};
pub use takeover_guard::{MAX_CAREFUL_BATCH, TakeoverGuard, WorkGroup, own_note_cleared};
pub use takeover_note::{MAX_ITEM_DEATHS, TakeoverNote, WorkItem};
pub use timer_check::{DueTask, InboxEnds};
