//! One execution: its program, the tasks it sends, the results it receives, and its events.
//!
//! Position in the data flow: between the engine, which decides for one execution, and its drivers:
//! `sinew-shard`, the owner of many executions on a mesh, and `sinew-runtime`, which runs executions
//! in one process. Views of an execution (`sinew-inspection`) read it through this crate as well.
//!
//! This crate never stores or sends anything, never reads a clock, and does not know who drives the
//! execution.

pub mod artifacts;
pub mod events;
pub mod reply;
pub mod request;
pub mod route;
pub mod usage;

mod call;
mod execution;
mod native_events;
mod program;

pub use call::{Call, TaskKey, activation_key, call_cycle, call_of, call_with_ids, label, path, task_id};
pub use execution::Execution;
pub use native_events::NativeEvents;
pub use program::{Library, Program};
