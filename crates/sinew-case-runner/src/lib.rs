//! Runs cases of workflows and model agents from test files, offline and in virtual time, and grades
//! evaluations of model agents, whose trials the caller runs.
//!
//! Place in the data flow: above the runtime's virtual time and the loader of workflow files, below
//! `sinew test`. Cases define stubs for agents, and the answers of language models.
//!
//! Closed executions can be converted to cases with the recorded answers.
//!
//! The crate never calls an agent, waits, or prints.

mod agent_cases;
mod case_file;
mod case_runner;
mod case_search;
mod coverage;
mod difference;
mod eval_file;
mod eval_trial;
mod expectation;
mod observation;
mod posted_cases;
mod recorded_case;
mod report;
mod stub;
mod stub_check;
mod update;

pub use agent_cases::schema as agent_case_schema;
pub use case_file::schema as workflow_case_schema;
pub use case_runner::{CaseOptions, CaseProgress, run_cases, run_posted_cases};
pub use coverage::Coverage;
pub use eval_file::{EvalCase, EvalFile, PeerStub, eval_schema, is_eval_file, read_eval};
pub use eval_trial::{EvalReport, EvalTrial, EvalVerdict, GradedTrial, grade_trial};
pub use posted_cases::PostedCases;
pub use recorded_case::recorded_case;
pub use report::{CaseReport, CaseVerdict};
