//! A commit that is being appended, with the messages to send after it is stored.

use std::sync::Arc;

use sinew_engine::{AdapterContext, Fact, Time};
use sinew_protocol::ExecutionId;
use sinew_protocol::journal::{Commit, ExecutionMeta, Verdict};
use sinew_protocol::message::MeshMessage;
use sinew_protocol::person_wait::PersonWait;

use crate::commit_builder::Effect;
use crate::outgoing::Outgoing;

/// A commit that is being appended.
pub(crate) struct CommitInFlight {
    pub(crate) commit: Commit,
    /// Effects that are not encoded yet.
    pub(crate) effects: Vec<Effect>,
    pub(crate) outgoing: Vec<Outgoing>,
    pub(crate) shown: Vec<ShownEffect>,
}

impl CommitInFlight {
    /// Creates a commit with the effects that follow from it.
    pub(crate) fn new(commit: Commit, effects: Vec<Effect>) -> Self {
        Self { commit, effects, outgoing: Vec::new(), shown: Vec::new() }
    }
}

/// An effect that is published after its commit is stored.
pub(crate) enum ShownEffect {
    /// Facts for metrics, with their events.
    Facts { execution: ExecutionId, facts: Vec<Fact>, events: Vec<ShardReport> },
    /// A verdict.
    Verdict(ShardReport),
}

/// Observer of stored facts, for metrics.
pub trait FactObserver {
    /// Observes one fact after its commit was stored; `at` is the time of its decision.
    fn observe(&mut self, ctx: &AdapterContext<'_>, meta: &ExecutionMeta, at: Time, fact: &Fact);
}

/// A report about a stored commit for observers.
#[derive(Clone, Debug)]
pub enum ShardReport {
    /// An event of an execution.
    Event {
        /// Constant properties of the execution.
        meta: Arc<ExecutionMeta>,
        /// Number of the round and index of the fact in it.
        place: (usize, usize),
        /// When the fact was decided, in milliseconds since 1970 UTC.
        at: Time,
        /// The event.
        message: Box<MeshMessage>,
    },
    /// A callee of a node starts or stops waiting for a person.
    PersonWait {
        /// Constant properties of the execution.
        meta: Arc<ExecutionMeta>,
        /// Number of the round and index of the fact in it.
        place: (usize, usize),
        /// When the fact was decided, in milliseconds since 1970 UTC.
        at: Time,
        /// The node that called it, with its position in maps and loops.
        node: String,
        /// The question; `None` if the callee waits for no person.
        wait: Option<Arc<PersonWait>>,
    },
    /// The verdict on a command.
    Verdict {
        /// The execution that the command names.
        execution: ExecutionId,
        /// Name of its workflow; empty if the execution is not open.
        workflow: String,
        /// The verdict.
        verdict: Verdict,
    },
}
