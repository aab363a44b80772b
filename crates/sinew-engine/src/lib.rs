//! The engine: turns inputs into facts, facts into state, and facts into actions.
//!
//! Data flow: `Plan ──decide(Input)──▶ Facts ──append──▶ Journal ──apply──▶ State`, and
//! `Facts ──react──▶ Actions`. [`Machine`] is one execution: [`Machine::handle`] takes an input,
//! and the shell stores the round, then performs the actions. An action whose fact was not stored
//! never happens; after a crash the shell replays the journal and performs
//! [`Machine::outstanding`].
//!
//! The engine never reads a clock, a random source, a file or the network, and never waits. It
//! knows no dialect: an [`Adapter`] implements the differences between dialects.

mod action;
mod adapter;
mod apply;
mod ask;
mod bug;
mod ctx;
mod decide;
mod fact;
mod fact_kind;
mod fold;
mod graph;
mod input;
pub mod lifecycle;
mod machine;
mod seen_condition;
mod serde_result;
mod serde_some;
mod state;
mod wire;

use std::sync::Arc;

use serde_json::Value;

pub use action::{Action, OpenWait, WaitingFor, execution_status, people_waits, waiting, waiting_of};
pub use adapter::{Adapter, NativeEvent, NodeDecision, OutgoingToken, RouteDecision, out_edges};
pub use apply::apply;
pub use ask::{ATTEMPT_TIMED_OUT, RequestTarget, TaskReply, TaskRequest, is_attempt_timeout};
pub use ctx::{AdapterContext, NodeView};
pub use fact::{
    ActivationOutput, ChildSpec, EdgeToken, ExecutionMode, ExecutionOutcome, ExecutionStart, Fact,
    NewActivation, PersonAnswer, PersonRequest, Round, TerminalStatus, TokenValue,
};
pub use fact_kind::FactKind;
pub use fold::{FactError, fold};
pub use graph::IndexedPlan;
pub use input::{EngineInput, InputRefusal, RetryPlan, RetryRequest};
pub use machine::{Decided, Machine, RoundJournal};
pub use seen_condition::{BoundValue, SeenCondition};
pub use state::{
    Activation, ActivationEnd, ActivationPhase, ArrivedToken, ChildScope, ChildSet, ExecutionState,
    RecordedReply,
};
pub use wire::{WireError, decode_round, encode_round};

/// Milliseconds since the Unix epoch (or since the start of a test).
pub type Time = u64;
/// An activation within its execution, counted from 0.
pub type ActivationId = u32;
/// A scope within its execution; [`ROOT`] is the whole execution.
pub type ScopeId = u32;
/// A shared JSON value.
pub type SharedJson = Arc<Value>;

/// The scope of the whole execution.
pub const ROOT: ScopeId = 0;

#[cfg(test)]
mod tests;
