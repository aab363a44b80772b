//! The shell of shards on the mesh: reads inputs, appends commits, sends tasks and answers callers.
//!
//! Place in the flow: [`service`] owns shards and performs what their owners decide in the fixed order decide → append →
//! apply → act; [`client`] starts executions, gives commands and reads records.
//!
//! It never decides what a workflow does next, or what the owner of a shard does, and keeps nothing that the mesh does
//! not have.

pub mod client;
mod endpoint;
mod large_input;
mod measures;
mod programs;
pub mod service;
