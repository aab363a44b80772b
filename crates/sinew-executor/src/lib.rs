//! The shell of shards on the mesh: reads inputs, appends commits, sends tasks and answers callers.
//!
//! [`service`] owns shards and performs the decisions of their owners in the fixed order decide →
//! append → apply → act; [`client`] starts executions, sends commands and reads records.
//!
//! This crate never decides what a workflow or the owner of a shard does next, and it keeps no
//! state that the mesh does not have.

pub mod client;
mod endpoint;
mod large_input;
mod measures;
mod programs;
pub mod service;
mod stored_start;
mod text_input;
