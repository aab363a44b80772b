//! Runs executions in one process: in real time with agents that answer when they please, or in virtual time.
//!
//! Place in the flow: it owns an execution's journal and performs the engine's actions in the fixed order decide →
//! append → apply → act. [`local`] runs in real time; [`sim`] runs in virtual time with stubbed agents, the same on every
//! machine, and can lose its memory at any fact. [`execution_tree`] holds an execution with its children for both.
//!
//! It never decides what a workflow does next, never keeps anything beyond the process, and knows no mesh.

pub mod evaluation;
pub mod execution_tree;
pub mod local;
pub mod sim;

mod clock;
mod execution;

pub use execution::Execution;
pub use sinew_shard::{Library, Program, activation_key, events, path, reply, request, usage};
