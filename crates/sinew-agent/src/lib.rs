//! The SDK: an agent is a function from a typed input to a typed output; the rest is here.
//!
//! Place in the flow: tasks come from the agent's queue or at its A2A endpoint, the function answers, the result goes
//! to the subject that the task names.
//!
//! It never answers a task twice with two different results, and never runs one without checking its input.
//!
//! ```no_run
#![doc = include_str!("../examples/greeter.rs")]
//! ```
//!
//! With a NATS server and a provisioned mesh (`sinew dev`), `cargo run --example greeter` serves it. What comes in is
//! checked against the schema of `Greet` before the function sees it; what it returns, against that of `Greeting`.
//!
//! - A task that comes again (its process died, a message was lost) is answered, not done again, while this process
//!   remembers it. Effects outside are deduplicated on [`Context::activation`].
//! - [`Context::steps`] keeps the results of parts of the work on the mesh: a task that comes again to any process goes on
//!   behind them.
//! - [`Context`] has the deadline, the cancellation token, progress, artifacts, and the other agents and workflows.
//! - [`Agent::dynamic`] takes JSON with schemas known at run time, [`Agent::model`] a language model's last message.
//! - With the feature `files`, `Agent::from_file` serves an agent of a file; functions of the program are further tools of its
//!   language model.
//! - A function that blocks its thread for more than a millisecond is called beside the others from then on; work that takes a
//!   processor for longer, or that may block for ever, belongs into `tokio::task::spawn_blocking`. A runtime with one thread
//!   stands still while a function blocks it.
//! - The process ends gracefully on SIGTERM: it takes nothing new, finishes what runs, gives the rest back.

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
