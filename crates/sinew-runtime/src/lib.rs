//! Runs executions in one process, in real or virtual time.
//!
//! Position in the data flow: this crate owns an execution's journal and performs the engine's
//! actions in the fixed order decide → append → apply → act. [`local`] runs in real time; [`sim`]
//! runs in virtual time with stubbed agents, deterministic on every machine, and can crash after
//! any fact. [`execution_tree`] holds an execution with its children for both.
//!
//! This crate never decides what a workflow does next, stores nothing beyond the process, and does
//! not depend on the mesh.

pub mod evaluation;
pub mod execution_tree;
pub mod local;
pub mod sim;

mod clock;
