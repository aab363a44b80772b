//! Five workflow dialects on one engine.
//!
//! Data flow: `file ──lower──▶ Plan`, and one [`Adapter`](sinew_engine::Adapter) per dialect that
//! the engine calls while it decides. A dialect parses, validates, lowers, binds, shapes, selects
//! and projects.
//!
//! A dialect never schedules, persists, waits or calls anything. It reads referenced files through
//! a closure that the caller provides.

pub mod agentflow;
pub mod agentteam;
pub mod covalt;
pub mod sam;
pub mod sweny;

mod chain;
mod convert;
mod dialect;
mod display;
mod fill;
mod js;
mod near_members;
mod pattern;
mod person_question;
mod reach;
mod registry;
mod script_span;
mod workflow_file;

pub use convert::{Converted, Loss, PlanGraph, Portability, to_sam};
pub use dialect::{Dialect, LowerOptions, Lowered, no_list};
pub use person_question::person_question_plan;
pub use registry::{adapter, all, by_name, detect};
pub use workflow_file::{FileVariables, load_workflow_file};

#[cfg(test)]
mod large;
#[cfg(test)]
mod testing;
mod text_input;
