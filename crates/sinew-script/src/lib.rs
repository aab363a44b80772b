//! Python functions of workflow files.
//!
//! Only this crate depends on the interpreter (monty). A [`Function`] is a lambda or a `def` of one
//! argument; a [`CallBatch`] is a list of calls as data, which a workflow requests and a shell
//! performs.
//!
//! Code from a file never reaches the host: it has no access to files, network, clock or
//! environment, and imports that need them are errors. Time, recursion, the size of a single
//! allocation and the sizes of source and result are limited (see [`Limits`]). The interpreter
//! cannot enforce all of these limits itself, so a program calls [`use_worker_processes`]: scripts
//! are then compiled and called in separate processes with limits on memory and processor time,
//! which are killed and replaced when a script exceeds them.
//!
//! This crate never reads files, keeps no state between evaluations, and never evaluates on replay:
//! time limits are not deterministic, so callers journal the results.

mod batch;
mod error;
mod fair_queue;
mod function;
mod interpreter;
mod limits;
mod printed_text;
mod process;
mod request;
mod source;
mod text;
mod value;
mod worker;
mod worker_cores;
mod worker_pool;

pub use batch::{CallBatch, CallOutcome, FunctionCall};
pub use error::{ScriptError, ScriptErrorKind};
pub use function::Function;
pub use limits::Limits;
pub use printed_text::PrintedText;
pub use text::{python_repr, python_str, python_truth, python_type};
pub use worker::run_worker;
pub use worker_pool::{use_worker_processes, use_worker_program};
