//! Views of an execution for people and programs: pure projections of its [`record::Record`].
//!
//! A view reads no clock, file or network: `now` is an argument. Each view is a serializable
//! document with a text form for people. The command line and the gateway show the same documents.

pub mod agent_work;
pub mod decision;
pub mod describe;
pub mod diff;
pub mod drawing;
pub mod events;
pub mod execution_status;
pub mod list;
pub mod model_usage;
pub mod node_description;
pub mod node_evidence;
pub mod node_rows;
pub mod node_table;
pub mod record;
pub mod replay;
pub mod retry;
pub mod task_times;
pub mod timeline;
pub mod timeline_text;
pub mod tree;
pub mod unreached;
pub mod view_context;
pub mod waiting;

#[cfg(test)]
mod tests;
