//! Drives the engine: facts in memory, agents called through a trait, real or virtual time.
//!
//! Place in the flow: it owns an execution's journal and performs the engine's actions in the fixed order decide →
//! append → apply → act. [`local`] runs in real time with agents that answer when they please; [`sim`] runs in
//! virtual time with stubbed agents, the same on every machine, and can lose its memory at any fact.
//!
//! It never decides what a workflow does next, and never keeps anything beyond the process: that is the mesh's.

pub mod client;
pub mod local;
pub mod service;
pub mod sim;

pub mod execution_tree;

mod evaluation;
mod execution;
mod programs;

pub use execution::Execution;
pub use sinew_shard::{Library, Program, activation_key, events, path, reply, request};
