//! The SDK: an agent is a function from a typed input to a typed output.
//!
//! Tasks arrive from the agent's queue or at its A2A endpoint; the result is published to the
//! subject that the task names.
//!
//! The SDK never answers a task with two different results, and never runs one without validating
//! its input.
//!
//! ```no_run
#![doc = include_str!("../examples/greeter.rs")]
//! ```
//!
//! With a NATS server and a provisioned mesh (`sinew dev`), `cargo run --example greeter` serves
//! it. The schema of `Greet` validates the input before the function is called, and that of
//! `Greeting` validates its output.
//!
//! - A redelivered task (its process crashed, a message was lost) is answered without repeating the
//!   work while this process remembers it. Deduplicate external effects by [`Context::activation`].
//! - [`Context::steps`] stores the results of parts of the work on the mesh: a redelivered task
//!   continues after them in any process.
//! - [`Context`] contains the deadline, the cancellation token, progress, artifacts, and the other
//!   agents and workflows.
//! - [`Agent::dynamic`] accepts JSON with schemas known at run time, [`Agent::model`] a language
//!   model's last message.
//! - With the feature `files`, `Agent::from_file` serves an agent of a file; functions of the
//!   program are additional tools of its language model.
//! - A function that blocks its thread for more than a millisecond is called in a separate task
//!   from then on; work that needs a processor for longer, or that may block forever, belongs in
//!   `tokio::task::spawn_blocking`. A function that blocks a single-threaded runtime stops it.
//! - The process shuts down gracefully on SIGTERM: it accepts no new tasks, completes those in
//!   progress, and returns the others.

mod agent;
mod agent_endpoint;
mod agent_host;
mod artifacts;
mod callee_wait;
mod caller_question;
mod cancelled_tasks;
mod context;
mod ended_tasks;
mod error;
mod failure;
mod feed;
#[cfg(feature = "files")]
mod file_agent;
mod handler;
mod handler_pace;
mod node_endpoint;
mod node_tasks;
mod operations;
mod parking;
mod peer_request;
mod peers;
mod person_question;
mod queue;
mod replicas;
mod reply;
mod request;
mod run;
mod serve;
mod session_log;
mod step_log;
mod steps;
mod table;
mod task_calls;
mod task_clock;
mod task_figures;
mod task_properties;
mod tools;
mod work;

pub use agent::Agent;
pub use artifacts::Artifacts;
pub use context::Context;
pub use error::AgentError;
pub use failure::Failure;
#[cfg(feature = "files")]
pub use file_agent::FileAgent;
pub use peer_request::ask_until_answered;
pub use peers::CallAnswer;
pub use person_question::{PersonAnswer, QuestionToPerson};
pub use schemars;
pub use schemars::JsonSchema;
pub use session_log::SessionLog;
#[cfg(feature = "files")]
pub use sinew_agents::EffectClass;
pub use sinew_mesh::Mesh;
pub use sinew_protocol::card::Delivery;
pub use sinew_source::HostReferences;
pub use sinew_source::VariableError;
pub use step_log::{AppendOutcome, StepLog};
pub use steps::{StepEffect, Steps};
pub use tokio_util::sync::CancellationToken;
