//! Python conditions and functions of workflow files.
//!
//! This is the only crate that knows which interpreter runs them (monty). A [`Expression`] is a condition or
//! value over named variables; a [`Function`] is a lambda or a `def` of one argument. Both are compiled once
//! when a plan is made and evaluated while a run goes on.
//!
//! Code from a file never reaches the host: there is no file, network, clock or environment access, and
//! importing anything that would need them is an error. Time, recursion, the size of a single allocation and
//! the sizes of source and result are limited (see [`Limits`]).
//!
//! This crate never reads files, never keeps state between two evaluations, and never evaluates on replay:
//! time limits are not deterministic, so callers journal the results they get here.

mod error;
mod expression;
mod function;
mod limits;
mod pool;
mod program;
mod source;
mod text;
mod value;

pub use error::{ScriptError, ScriptErrorKind};
pub use expression::Expression;
pub use function::Function;
pub use limits::Limits;
pub use text::{python_repr, python_str, python_truth, python_type};
