//! Python functions of workflow files.
//!
//! This is the only crate that knows which interpreter runs them (monty). A [`Function`] is a lambda or a `def` of one
//! argument; a [`CallBatch`] is some calls as data, which a workflow asks for and a shell performs.
//!
//! Code from a file never reaches the host: there is no file, network, clock or environment access, and
//! importing anything that would need them is an error. Time, recursion, the size of a single allocation and
//! the sizes of source and result are limited (see [`Limits`]). The interpreter cannot keep all of these limits by
//! itself, so a program calls [`use_worker_processes`]: scripts are then compiled and called in processes of their own,
//! with limits on memory and processor time, which are ended and replaced when a script breaks them.
//!
//! This crate never reads files, never keeps state between two evaluations, and never evaluates on replay:
//! time limits are not deterministic, so callers journal the results they get here.

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
