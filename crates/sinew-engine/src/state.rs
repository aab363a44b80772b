//! The state of one execution: the fold of its facts.
//!
//! Maps are ordered (`BTreeMap`), so the same facts give the same state, byte for byte, on any
//! machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_plan::{EdgeIndex, NodeIndex};
use sinew_protocol::Fault;
use sinew_protocol::person_wait::PersonWait;
use sinew_protocol::usage::{ActivationUsage, ModelTotals};

use crate::ask::{TaskReply, TaskRequest, is_helper_tag};
use crate::fact::{ActivationOutput, ChildSpec, EdgeToken, ExecutionOutcome, ExecutionStart, PersonRequest};
use crate::{ActivationId, ROOT, ScopeId, SharedJson, Time};

/// Bytes of progress in the facts of an execution from which on no more is kept.
const MAX_PROGRESS_BYTES: u64 = 1 << 20;

/// State of one execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutionState {
    /// How it was started; none before [`crate::Fact::Started`].
    pub start: Option<Arc<ExecutionStart>>,
    /// When it was started.
    pub started_at: Time,
    /// When the last fact was applied.
    pub at: Time,
    /// All activations, in the order in which they were made.
    pub acts: Vec<Activation>,
    /// Child scopes; scope `n` is at `n - 1` (the root has no entry).
    pub(crate) scopes: Vec<ChildScope>,
    /// Tokens that each node of each scope has received so far. Boxed, because a map makes room for eleven at once, and
    /// most executions have few.
    #[serde(with = "slots")]
    pub(crate) slots: BTreeMap<(ScopeId, NodeIndex), Box<JoinSlot>>,
    /// Activations that may start, in order.
    pub(crate) ready: VecDeque<ActivationId>,
    /// Put aside until a person has answered.
    pub(crate) deferred: VecDeque<ActivationId>,
    /// Persons' nodes queued behind the one that waits.
    pub(crate) humans: VecDeque<ActivationId>,
    /// The activation whose person freezes the execution.
    pub(crate) frozen: Option<ActivationId>,
    /// Activations there were when it froze: what stands ready among them stood beside the one that waits.
    pub(crate) frozen_at: ActivationId,
    /// Traversals by counter.
    pub(crate) taken: Vec<u32>,
    /// Everything that is due at some time.
    pub(crate) timers: BTreeSet<EngineTimer>,
    /// Activations that hold a place of the profile's `parallel`.
    pub(crate) active: u32,
    /// Activations that are not closed.
    pub(crate) open: u32,
    /// An operator paused it.
    pub paused: Option<String>,
    /// Reason of a requested cancellation.
    pub cancelling: Option<String>,
    /// The first failure that decides the outcome.
    pub failed: Option<(Option<ActivationId>, Fault)>,
    /// The outcome, once the graph is done.
    pub outcome: Option<ExecutionOutcome>,
    /// Exit nodes already started.
    pub(crate) exits_started: u32,
    /// True once it ended.
    pub ended: bool,
    /// How often it was reopened.
    pub reopened: u32,
    /// Answers after an end that added usage.
    #[serde(default, skip_serializing_if = "is_default")]
    pub late_usages: u32,
    /// About how many bytes of progress are in its facts.
    #[serde(default)]
    pub progress_bytes: u64,
    /// Activations that wait for a person, themselves or through a callee, and stop the clocks above them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) asking: BTreeSet<ActivationId>,
    /// Whether it ever waited for a person in this way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_asked: bool,
    /// Deadline of the execution while its clock is stopped, and when it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_wall: Option<(Time, Time)>,
    /// When the execution's clock was last started again after a stop; 0 if never.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) wall_restarted_at: Time,
}

/// One run of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activation {
    /// The node.
    pub node: NodeIndex,
    /// Its scope.
    pub scope: ScopeId,
    /// The activation whose child it is.
    pub owner: Option<ActivationId>,
    /// Counts the activations of this node in this scope from 0.
    pub ordinal: u32,
    /// The live tokens it was made of, in arrival order.
    pub inputs: Vec<ArrivedToken>,
    /// Where it stands.
    pub phase: ActivationPhase,
    /// The latest attempt; 0 before the first.
    pub attempt: u32,
    /// The attempt an answer is awaited for.
    pub running: Option<u32>,
    /// When the latest attempt was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Time>,
    /// Attempts of the current ask so far.
    pub tries: u32,
    /// The current or last request.
    pub ask: Option<Arc<TaskRequest>>,
    /// Request of the previous attempt.
    pub asked_before: Option<Arc<TaskRequest>>,
    /// Replies the adapter has seen, in order.
    pub replies: Vec<RecordedReply>,
    /// Model calls of all attempts, failed ones included, as their agents told them; none if none told any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<ActivationUsage>>,
    /// Question for a person.
    pub wait: Option<Arc<PersonRequest>>,
    /// Children of a map, loop or fork.
    pub children: Option<Box<ChildSet>>,
    /// How it ended.
    pub end: Option<ActivationEnd>,
    /// Outputs, once it ended with some.
    pub output: Option<ActivationOutput>,
    /// Why it failed.
    pub fault: Option<Fault>,
    /// Tokens it sent.
    pub sent: Vec<EdgeToken>,
    /// When it was made.
    pub made_at: Time,
    /// When it began.
    pub began_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// When the whole activation is given up.
    pub deadline: Option<Time>,
    /// Milliseconds to wait before it begins.
    pub delay_ms: Option<u64>,
    /// Time that it waits for, besides its deadline.
    pub(crate) timer: Option<EngineTimer>,
    /// The node did not run: its output was given, or kept by a retry.
    pub reused: bool,
    /// The activation it repeats after an operator's retry.
    pub again: Option<ActivationId>,
    /// Input that an operator set, instead of the adapter's.
    #[serde(
        default,
        deserialize_with = "crate::serde_some::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub input: Option<SharedJson>,
    /// Set once it was put aside while a person was waited for: true if it stood in the queue of persons' nodes.
    pub deferred: Option<bool>,
    /// The latest report of each callee of the running attempt that waited for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) callees: Option<BTreeMap<String, CalleeReport>>,
    /// Whether it waits for a person and stops clocks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stops_clocks: bool,
    /// Waits for people in it and below it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) people: u32,
    /// When its clocks were stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_at: Option<Time>,
    /// When its clocks were last started again after a stop; 0 if never.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) restarted_at: Time,
}

/// The last report of a callee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CalleeReport {
    pub(crate) number: u64,
    pub(crate) wait: Option<Arc<PersonWait>>,
}

/// Callees of one attempt whose reports are kept. Clocks run on for those of further ones.
const MAX_CALLEES: usize = 1_024;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Activation {
    /// Returns true if the usage of an attempt is counted.
    pub fn has_usage_of(&self, attempt: u32) -> bool {
        self.usage.as_ref().is_some_and(|usage| usage.has(attempt))
    }

    /// Returns the oldest question that a callee of the running attempt waits for.
    pub fn callee_wait(&self) -> Option<&Arc<PersonWait>> {
        self.callee_waits().min_by_key(|wait| wait.since)
    }

    /// Returns the questions that callees of the running attempt wait for.
    pub(crate) fn callee_waits(&self) -> impl Iterator<Item = &Arc<PersonWait>> {
        let callees = self.callees.iter().flat_map(|callees| callees.values());
        callees.filter_map(|report| report.wait.as_ref())
    }

    /// Whether a report of a callee is newer than the last one.
    pub(crate) fn takes_report(&self, callee: &str, number: u64) -> bool {
        let Some(callees) = &self.callees else { return true };
        match callees.get(callee) {
            Some(known) => known.number < number,
            None => callees.len() < MAX_CALLEES,
        }
    }

    /// Tasks that agents and workflows were given; scripts that a worker evaluated are none.
    pub fn tasks(&self) -> u32 {
        let answered =
            self.replies.iter().filter(|reply| reply.tag == TaskRequest::EVALUATION).count() as u32;
        let waits = self.running.is_some() && self.ask.as_ref().is_some_and(|ask| ask.is_evaluation());
        self.attempt.saturating_sub(answered + u32::from(waits))
    }

    /// Returns the last request to an agent or a workflow; later evaluations of scripts do not count.
    pub fn last_task(&self) -> Option<&Arc<TaskRequest>> {
        self.ask.iter().chain(&self.asked_before).find(|ask| !ask.is_evaluation())
    }

    /// Returns the number of attempts at the node's own work. Requests that help it along are none
    /// ([`TaskRequest::is_helper`]), however often they were tried.
    pub fn work_attempts(&self) -> u32 {
        let (mut attempts, mut replied) = (0, 0);
        for reply in &self.replies {
            // A reply is recorded once its request is not tried again, so all attempts since the reply before were its.
            if !is_helper_tag(&reply.tag) {
                attempts += reply.attempt.saturating_sub(replied);
            }
            replied = reply.attempt;
        }
        let is_work = self.ask.as_ref().is_some_and(|ask| !ask.is_helper());
        attempts + if is_work { self.attempt.saturating_sub(replied) } else { 0 }
    }

    /// Returns the last request for the node's own work; `None` if there was none, or if two helping requests followed it.
    pub fn last_work(&self) -> Option<&Arc<TaskRequest>> {
        self.ask.iter().chain(&self.asked_before).find(|ask| !ask.is_helper())
    }

    /// The last reply of an agent or a workflow; outcomes of scripts are none.
    pub fn last_reply(&self) -> Option<&RecordedReply> {
        self.replies.iter().rfind(|reply| reply.tag != TaskRequest::EVALUATION)
    }
}

/// A live token as an activation received it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrivedToken {
    /// The edge; none for start values.
    pub edge: Option<EdgeIndex>,
    /// The activation that sent it.
    pub source: Option<ActivationId>,
    /// Value of the token.
    pub value: SharedJson,
    /// Position, when the edge carries several values.
    pub fan: Option<u32>,
}

/// A reply the adapter has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedReply {
    /// Tag of the ask.
    pub tag: String,
    /// The attempt.
    pub attempt: u32,
    /// The answer, or why there is none.
    #[serde(with = "crate::serde_result")]
    pub result: Result<Arc<TaskReply>, Fault>,
}

/// Phase of an activation; [`crate::lifecycle`] has the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationPhase {
    /// Queued.
    Ready,
    /// Put aside until a person has answered.
    Deferred,
    /// Begun; the engine is deciding what is next (never seen between two inputs).
    Begun,
    /// An agent works.
    Running,
    /// The next attempt waits.
    BackedOff,
    /// Sleeps.
    Sleeping,
    /// A person is waited for.
    Waiting,
    /// Children work.
    Owning,
    /// Ended, tokens not yet sent.
    Settled,
    /// Over.
    Closed,
}

impl ActivationPhase {
    /// True until it begins.
    pub const fn is_queued(self) -> bool {
        matches!(self, Self::Ready | Self::Deferred)
    }

    /// Returns the word for the phase, as its JSON has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Deferred => "deferred",
            Self::Begun => "begun",
            Self::Running => "running",
            Self::BackedOff => "backed_off",
            Self::Sleeping => "sleeping",
            Self::Waiting => "waiting",
            Self::Owning => "owning",
            Self::Settled => "settled",
            Self::Closed => "closed",
        }
    }
}

/// How an activation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationEnd {
    /// Well.
    Succeeded,
    /// Badly.
    Failed,
    /// A gate kept it from running.
    Skipped,
    /// Given up.
    Cancelled,
}

impl ActivationEnd {
    /// True if it counts as done: it ran well, or a gate said that it need not run.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Succeeded | Self::Skipped)
    }
}

/// Children of one activation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildSet {
    /// Children to run, in order.
    pub list: Vec<ChildSpec>,
    /// The activation of each child that was started.
    pub acts: Vec<ActivationId>,
    /// Started and not ended.
    pub active: u32,
    /// Children that may run at the same time.
    pub limit: Option<u32>,
    /// Whether the first failed child ends the others.
    pub fail_fast: bool,
    /// The first child that failed.
    pub failed: Option<ActivationId>,
}

/// A child scope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildScope {
    /// The scope it lies in.
    pub parent: ScopeId,
    /// Activation that the child belongs to.
    pub owner: ActivationId,
    /// Position among the owner's children.
    pub index: u32,
    /// Item of the child.
    pub item: SharedJson,
}

/// Tokens that a node has received in one scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JoinSlot {
    /// Live tokens no activation has taken yet.
    pub(crate) arrived: VecDeque<ArrivedToken>,
    /// Tokens, live or dead.
    pub(crate) resolved: u32,
    /// Live ones.
    pub(crate) live: u32,
    /// Live ones on edges that count towards the quorum.
    pub(crate) quorum_live: u32,
    /// Tokens on edges that do not count towards the quorum.
    pub(crate) required: u32,
    /// A veto edge is dead, or a node it depends on failed.
    pub(crate) vetoed: bool,
    /// A node before it failed.
    pub(crate) failed: bool,
    /// It will not run.
    pub(crate) died: Option<String>,
    /// The latest activation.
    pub(crate) last: Option<ActivationId>,
    /// Activations so far.
    pub(crate) count: u32,
}

/// A due time and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EngineTimer {
    /// When.
    pub(crate) at: Time,
    /// For which activation; none for the execution's own wall time.
    pub(crate) act: Option<ActivationId>,
    /// Effect of the timer.
    pub(crate) kind: TimerKind,
}

/// Effect of a due timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimerKind {
    /// The attempt is given up.
    Attempt,
    /// The next attempt starts.
    Backoff,
    /// Sleep is over.
    Sleep,
    /// Waiting for a person is over.
    Person,
    /// The activation is given up.
    Activation,
    /// The execution is given up.
    Wall,
}

impl ExecutionState {
    /// Returns the model calls behind all activations, failed attempts, sub-workflows and agents of agents included.
    pub fn model_totals(&self) -> ModelTotals {
        let mut totals = ModelTotals::default();
        for usage in self.acts.iter().filter_map(|one| one.usage.as_ref()) {
            totals.add(usage.sum().total());
        }
        totals
    }

    /// Price in USD of these model calls, as far as agents tell one.
    pub(crate) fn cost_usd(&self) -> f64 {
        self.model_totals().cost_usd.unwrap_or(0.0)
    }

    /// A state before the first fact.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether progress of agents is still kept: its bytes have a limit, so that agents that talk much do not fill journals.
    pub fn has_room_for_progress(&self) -> bool {
        self.progress_bytes < MAX_PROGRESS_BYTES
    }

    pub(crate) fn count_progress(&mut self, value: &Value) {
        self.progress_bytes = self.progress_bytes.saturating_add(value.to_string().len() as u64);
    }

    /// The activation, which must exist: ids come from facts.
    pub fn act(&self, act: ActivationId) -> &Activation {
        &self.acts[act as usize]
    }

    /// The scope; none for the root.
    pub fn scope(&self, scope: ScopeId) -> Option<&ChildScope> {
        (scope != ROOT).then(|| &self.scopes[scope as usize - 1])
    }

    /// The latest activation of a node in exactly this scope.
    pub fn last(&self, scope: ScopeId, node: NodeIndex) -> Option<ActivationId> {
        self.slots.get(&(scope, node)).and_then(|slot| slot.last)
    }

    /// Why a node will not run in this scope, if that is so.
    pub fn died(&self, scope: ScopeId, node: NodeIndex) -> Option<&str> {
        self.slots.get(&(scope, node)).and_then(|slot| slot.died.as_deref())
    }

    /// How often edges of this counter were taken.
    pub fn taken(&self, counter: u32) -> u32 {
        self.taken.get(counter as usize).copied().unwrap_or(0)
    }

    /// Whether the execution or one of its callees waits for a person.
    pub fn asks_people(&self) -> bool {
        !self.asking.is_empty() || self.waiting().next().is_some()
    }

    /// Activations that wait for a person.
    pub fn waiting(&self) -> impl Iterator<Item = ActivationId> + '_ {
        (0..self.acts.len() as ActivationId).filter(|act| self.act(*act).phase == ActivationPhase::Waiting)
    }
}

/// JSON has no tuple keys: slots travel as a list.
mod slots {
    use super::{BTreeMap, JoinSlot, NodeIndex, ScopeId};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Slots = BTreeMap<(ScopeId, NodeIndex), Box<JoinSlot>>;

    pub(super) fn serialize<S: Serializer>(slots: &Slots, serializer: S) -> Result<S::Ok, S::Error> {
        slots.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Slots, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}
