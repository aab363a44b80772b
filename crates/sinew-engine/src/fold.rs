//! Checked fold of stored journals, which rejects corrupt journals and those of another plan.
//!
//! `apply` trusts its facts, because `decide` has just created them. A stored journal may contain
//! anything that decodes, so the fold checks that every id exists and every fact is possible in the
//! phase of its activation (see [`crate::lifecycle`]).

use sinew_plan::{EdgeIndex, NodeIndex};
use sinew_protocol::code;

use crate::apply::apply;
use crate::fact::{ChildSpec, EdgeToken, ExecutionStart, Fact, NewActivation};
use crate::graph::IndexedPlan;
use crate::lifecycle;
use crate::state::{Activation, ActivationPhase, ExecutionState};
use crate::{ActivationId, ROOT, ScopeId, Time};

/// A fact that cannot follow the previous ones: the journal is corrupt, or belongs to another plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FactError {
    /// The execution runs another plan than the one with which it is folded.
    #[error("the journal is of plan {found}, not of {expected}")]
    OtherPlan {
        /// Digest in the journal.
        found: String,
        /// Digest of the given plan.
        expected: String,
    },
    /// An id that does not exist.
    #[error("the fact '{fact}' names {what} {id}, which does not exist")]
    NoSuch {
        /// Kind of the fact.
        fact: &'static str,
        /// Kind of the id.
        what: &'static str,
        /// The id.
        id: u32,
    },
    /// An id out of sequence.
    #[error("the fact '{fact}' creates {what} {id}, but {next} is the next number")]
    OutOfOrder {
        /// Kind of the fact.
        fact: &'static str,
        /// Kind of the created item.
        what: &'static str,
        /// Its id.
        id: u32,
        /// The expected id.
        next: u32,
    },
    /// The activation is in another phase.
    #[error("the fact '{fact}' does not apply to activation {act}, which is {phase}")]
    WrongPhase {
        /// Kind of the fact.
        fact: &'static str,
        /// The activation.
        act: ActivationId,
        /// Its phase.
        phase: &'static str,
    },
    /// The execution is in another state.
    #[error("the fact '{fact}' cannot follow: the execution {state}")]
    Untimely {
        /// Kind of the fact.
        fact: &'static str,
        /// State of the execution.
        state: &'static str,
    },
}

impl FactError {
    /// Returns the error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::OtherPlan { .. } => code::JOURNAL_OF_OTHER_PLAN.as_str(),
            Self::NoSuch { .. } | Self::OutOfOrder { .. } => code::FACT_ID_UNKNOWN.as_str(),
            Self::WrongPhase { .. } | Self::Untimely { .. } => code::FACT_OUT_OF_PLACE.as_str(),
        }
    }
}

/// Folds one fact of a stored journal into the state. A rejected fact changes nothing.
pub fn fold(graph: &IndexedPlan, state: &mut ExecutionState, at: Time, fact: &Fact) -> Result<(), FactError> {
    FactCheck { graph, state, fact: fact.kind().as_str() }.check(fact)?;
    apply(graph, state, at, fact);
    Ok(())
}

/// A fact to check.
struct FactCheck<'a> {
    graph: &'a IndexedPlan,
    state: &'a ExecutionState,
    fact: &'static str,
}

type CheckResult = Result<(), FactError>;

impl FactCheck<'_> {
    fn check(&self, fact: &Fact) -> CheckResult {
        self.timely(fact)?;
        self.lifecycle(fact)?;
        match fact {
            Fact::Started(start) => self.started(start),
            Fact::Opened { scope, parent, owner, .. } => {
                self.next("scope", *scope, self.state.scopes.len() + 1)?;
                self.scope(*parent)?;
                self.act(*owner).map(drop)
            }
            Fact::Routed { scope, tokens, .. } => {
                self.scope(*scope)?;
                self.tokens(tokens)
            }
            Fact::Activated(made) => self.activated(made),
            Fact::Died { node, scope, .. } => {
                self.node(*node)?;
                self.scope(*scope)
            }
            Fact::Dropped { edge, scope } => {
                self.edge(*edge)?;
                self.scope(*scope)
            }
            Fact::Progressed { act, attempt, .. } | Fact::Late { act, attempt, .. } => {
                self.attempt(*act, *attempt)
            }
            Fact::Yielded { tokens, .. } => self.tokens(tokens),
            Fact::Dispatched { act, attempt, .. } => {
                self.next("attempt", *attempt, self.act(*act)?.attempt as usize + 1)
            }
            Fact::Replied { act, attempt, .. } | Fact::CalleeWaits { act, attempt, .. } => {
                self.running(*act, *attempt)
            }
            Fact::Fanned { children, .. } => {
                children.iter().try_for_each(|ChildSpec { body, .. }| self.node(*body))
            }
            Fact::Reopened { acts, reset, .. } => {
                acts.iter().try_for_each(|act| self.closed(*act))?;
                reset.iter().try_for_each(|node| self.node(*node))
            }
            Fact::Noted { .. }
            | Fact::Deferred { .. }
            | Fact::Undeferred { .. }
            | Fact::Began { .. }
            | Fact::BackedOff { .. }
            | Fact::Slept { .. }
            | Fact::Awaited { .. }
            | Fact::Reminded { .. }
            | Fact::Answered { .. }
            | Fact::Completed { .. }
            | Fact::Skipped { .. }
            | Fact::Failed { .. }
            | Fact::Cancelled { .. }
            | Fact::Paused { .. }
            | Fact::Resumed
            | Fact::CancelRequested { .. }
            | Fact::Concluded { .. }
            | Fact::Ended => Ok(()),
        }
    }

    /// Checks that the activation exists, and that its phase allows the fact.
    fn lifecycle(&self, fact: &Fact) -> CheckResult {
        let Some(act) = fact.activation() else { return Ok(()) };
        let one = self.act(act)?;
        let kind = fact.kind();
        self.can(act, !lifecycle::is_restricted(kind) || lifecycle::may_happen(one, kind))
    }

    /// Checks that the state of the execution allows the fact.
    fn timely(&self, fact: &Fact) -> CheckResult {
        let state = self.state;
        let wrong = match fact {
            Fact::Started(_) => state.start.is_some().then_some("has started already"),
            _ if state.start.is_none() => Some("has not started"),
            Fact::Late { .. } => None,
            Fact::Reopened { .. } => (!state.ended).then_some("has not ended"),
            _ if state.ended => Some("has ended"),
            Fact::Paused { .. } => state.paused.is_some().then_some("is paused already"),
            Fact::Resumed => state.paused.is_none().then_some("is not paused"),
            Fact::Concluded { .. } => state.outcome.is_some().then_some("has an outcome already"),
            Fact::Ended => state.outcome.is_none().then_some("has no outcome"),
            _ => None,
        };
        wrong.map_or(Ok(()), |state| Err(FactError::Untimely { fact: self.fact, state }))
    }

    fn started(&self, start: &ExecutionStart) -> CheckResult {
        if start.plan == self.graph.digest() {
            return Ok(());
        }
        Err(FactError::OtherPlan { found: start.plan.clone(), expected: self.graph.digest().to_owned() })
    }

    fn activated(&self, made: &NewActivation) -> CheckResult {
        self.next("activation", made.act, self.state.acts.len())?;
        self.node(made.node)?;
        self.scope(made.scope)?;
        self.scope(made.from)?;
        if let Some(owner) = made.owner {
            let one = self.act(owner)?;
            let planned = one.children.as_ref().is_some_and(|own| own.acts.len() < own.list.len());
            self.can(owner, planned)?;
        }
        made.again.map_or(Ok(()), |again| self.closed(again))
    }

    fn tokens(&self, tokens: &[EdgeToken]) -> CheckResult {
        tokens.iter().try_for_each(|token| self.edge(token.edge))
    }

    fn act(&self, act: ActivationId) -> Result<&Activation, FactError> {
        match self.state.acts.get(act as usize) {
            Some(one) => Ok(one),
            None => Err(FactError::NoSuch { fact: self.fact, what: "activation", id: act }),
        }
    }

    fn scope(&self, scope: ScopeId) -> CheckResult {
        let exists = scope == ROOT || scope as usize <= self.state.scopes.len();
        if exists { Ok(()) } else { self.no("scope", scope) }
    }

    fn node(&self, node: NodeIndex) -> CheckResult {
        if (node as usize) < self.graph.plan().nodes.len() { Ok(()) } else { self.no("node", node) }
    }

    fn edge(&self, edge: EdgeIndex) -> CheckResult {
        if (edge as usize) < self.graph.plan().edges.len() { Ok(()) } else { self.no("edge", edge) }
    }

    /// Checks that an attempt was dispatched.
    fn attempt(&self, act: ActivationId, attempt: u32) -> CheckResult {
        let known = (1..=self.act(act)?.attempt).contains(&attempt);
        if known { Ok(()) } else { self.no("attempt", attempt) }
    }

    /// Checks that an attempt is running.
    fn running(&self, act: ActivationId, attempt: u32) -> CheckResult {
        if self.act(act)?.running == Some(attempt) { Ok(()) } else { self.no("attempt", attempt) }
    }

    fn closed(&self, act: ActivationId) -> CheckResult {
        self.can(act, self.act(act)?.phase == ActivationPhase::Closed)
    }

    fn can(&self, act: ActivationId, can: bool) -> CheckResult {
        if can {
            return Ok(());
        }
        let phase = self.act(act)?.phase.as_str();
        Err(FactError::WrongPhase { fact: self.fact, act, phase })
    }

    fn next(&self, what: &'static str, id: u32, next: usize) -> CheckResult {
        let next = u32::try_from(next).unwrap_or(u32::MAX);
        if id == next { Ok(()) } else { Err(FactError::OutOfOrder { fact: self.fact, what, id, next }) }
    }

    fn no(&self, what: &'static str, id: u32) -> CheckResult {
        Err(FactError::NoSuch { fact: self.fact, what, id })
    }
}
