//! The plan: what a dialect lowers a workflow file into, and all that the engine knows of it.
//!
//! Place in the flow: `file ──dialect.lower──▶ Plan ──engine.decide──▶ facts`. A plan is immutable data; it
//! serialises to JSON and is identified by the sha256 of its canonical form, so an execution keeps the version
//! it was started with.
//!
//! A plan never holds code, file places or a dialect's types: what only the dialect understands travels in the
//! `extra` values, which the engine hands back unread.

mod canonical;
mod check;
mod limits;
mod plan;

pub use canonical::{canonical_json, digest};
pub use check::{PlanError, check};
pub use limits::PlanLimits;
pub use plan::{
    EdgeIndex, ExitCondition, ExitNode, FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan,
    PlanEdge, PlanNode, ReadyOrder, RetryCondition, RetryPolicy, SchedulingProfile, TraversalCounter,
};

#[cfg(test)]
mod tests;
