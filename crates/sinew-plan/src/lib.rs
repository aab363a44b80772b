//! The plan: the result of lowering a workflow file, and the engine's only knowledge of it.
//!
//! Position in the data flow: `file ──dialect.lower──▶ Plan ──engine.decide──▶ facts`. A plan is
//! immutable data; it serialises to JSON and is identified by the sha256 of its canonical form, so
//! an execution keeps the version that it was started with.
//!
//! A plan never contains code, file positions or types of a dialect: data that only the dialect
//! understands is stored in the `extra` values, which the engine passes back unread.

mod canonical;
mod check;
mod limits;
mod plan;

pub use canonical::{digest, sorted_json};
pub use check::{PlanError, check};
pub use limits::PlanLimits;
pub use plan::{
    EdgeIndex, ExitCondition, ExitNode, FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan,
    PlanEdge, PlanNode, ReadyOrder, RetryCondition, RetryPolicy, SchedulingProfile, TraversalCounter,
};

#[cfg(test)]
mod tests;
