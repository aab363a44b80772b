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

/// Size of progress in an execution's facts above which no more is stored.
const MAX_PROGRESS_BYTES: u64 = 1 << 20;

/// State of one execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutionState {
    /// How it was started; `None` before [`crate::Fact::Started`].
    pub start: Option<Arc<ExecutionStart>>,
    /// When it was started.
    pub started_at: Time,
    /// When the last fact was applied.
    pub at: Time,
    /// All activations, in order of creation.
    pub acts: Vec<Activation>,
    /// Child scopes; scope `n` is at `n - 1` (the root has no entry).
    pub(crate) scopes: Vec<ChildScope>,
    /// Tokens that each node of each scope has received so far. Boxed, because a map allocates
    /// space for eleven entries, and most executions have few.
    #[serde(with = "slots")]
    pub(crate) slots: BTreeMap<(ScopeId, NodeIndex), Box<JoinSlot>>,
    /// Activations that may start, in order.
    pub(crate) ready: VecDeque<ActivationId>,
    /// Activations deferred until a person has answered.
    pub(crate) deferred: VecDeque<ActivationId>,
    /// People's nodes that queue after the waiting one.
    pub(crate) humans: VecDeque<ActivationId>,
    /// The activation that waits for a person and freezes the execution.
    pub(crate) frozen: Option<ActivationId>,
    /// Number of activations when it froze: those that are ready among them were ready at the same
    /// time as the waiting one.
    pub(crate) frozen_at: ActivationId,
    /// Traversals by counter.
    pub(crate) taken: Vec<u32>,
    /// All timers.
    pub(crate) timers: BTreeSet<EngineTimer>,
    /// Activations that hold a slot of the profile's `parallel`.
    pub(crate) active: u32,
    /// Activations that are not closed.
    pub(crate) open: u32,
    /// Operator and reason if it is paused.
    pub paused: Option<String>,
    /// Reason of a requested cancellation.
    pub cancelling: Option<String>,
    /// The first failure that decides the outcome.
    pub failed: Option<(Option<ActivationId>, Fault)>,
    /// The outcome, after the graph is complete.
    pub outcome: Option<ExecutionOutcome>,
    /// Number of started exit nodes.
    pub(crate) exits_started: u32,
    /// Whether it has ended.
    pub ended: bool,
    /// How often it was reopened.
    pub reopened: u32,
    /// Number of replies after an end that added usage.
    #[serde(default, skip_serializing_if = "is_default")]
    pub late_usages: u32,
    /// Approximate size of progress in its facts, in bytes.
    #[serde(default)]
    pub progress_bytes: u64,
    /// Activations that wait for a person, directly or through a callee, and stop the timers above
    /// them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) asking: BTreeSet<ActivationId>,
    /// Whether it ever waited for a person in this way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_asked: bool,
    /// Deadline of the execution while its timer is stopped, and when it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_wall: Option<(Time, Time)>,
    /// When the execution's timer was last restarted; 0 if never.
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
    /// The parent activation.
    pub owner: Option<ActivationId>,
    /// Number of the activation of this node in this scope, from 0.
    pub ordinal: u32,
    /// The live tokens that created it, in order of arrival.
    pub inputs: Vec<ArrivedToken>,
    /// Its phase.
    pub phase: ActivationPhase,
    /// The latest attempt; 0 before the first.
    pub attempt: u32,
    /// The running attempt.
    pub running: Option<u32>,
    /// When the latest attempt was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Time>,
    /// Number of attempts at the current request.
    pub tries: u32,
    /// The current or last request.
    pub ask: Option<Arc<TaskRequest>>,
    /// Request of the previous attempt.
    pub asked_before: Option<Arc<TaskRequest>>,
    /// Replies that the adapter has received, in order.
    pub replies: Vec<RecordedReply>,
    /// Model calls of all attempts, including failed ones, as reported by agents; `None` if none
    /// were reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<ActivationUsage>>,
    /// Question for a person.
    pub wait: Option<Arc<PersonRequest>>,
    /// Children of a map, loop or fork.
    pub children: Option<Box<ChildSet>>,
    /// How it ended.
    pub end: Option<ActivationEnd>,
    /// Outputs, if it ended with any.
    pub output: Option<ActivationOutput>,
    /// Reason of its failure.
    pub fault: Option<Fault>,
    /// Tokens it sent.
    pub sent: Vec<EdgeToken>,
    /// When it was created.
    pub made_at: Time,
    /// When it started.
    pub began_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// Deadline of the activation.
    pub deadline: Option<Time>,
    /// Milliseconds to wait before the start.
    pub delay_ms: Option<u64>,
    /// Timer for which it waits, in addition to its deadline.
    pub(crate) timer: Option<EngineTimer>,
    /// Whether the node did not run because its output was given, or kept by a retry.
    pub reused: bool,
    /// The activation that it repeats after an operator's retry.
    pub again: Option<ActivationId>,
    /// Input set by an operator, which replaces the adapter's.
    #[serde(
        default,
        deserialize_with = "crate::serde_some::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub input: Option<SharedJson>,
    /// Set once it was deferred while the execution waited for a person: true if it was in the
    /// queue of people's nodes.
    pub deferred: Option<bool>,
    /// The latest report of each callee of the running attempt that waited for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) callees: Option<BTreeMap<String, CalleeReport>>,
    /// Whether it waits for a person and stops timers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stops_clocks: bool,
    /// Number of waits for people in and below it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) people: u32,
    /// When its timers were stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_at: Option<Time>,
    /// When its timers were last restarted; 0 if never.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) restarted_at: Time,
}

/// The last report of a callee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CalleeReport {
    pub(crate) number: u64,
    pub(crate) wait: Option<Arc<PersonWait>>,
}

/// Maximum number of callees per attempt whose reports are stored. Timers continue for further
/// ones.
const MAX_CALLEES: usize = 1_024;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Activation {
    /// Returns whether the usage of an attempt is counted.
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

    /// Returns whether a callee's report is newer than the last one.
    pub(crate) fn takes_report(&self, callee: &str, number: u64) -> bool {
        let Some(callees) = &self.callees else { return true };
        match callees.get(callee) {
            Some(known) => known.number < number,
            None => callees.len() < MAX_CALLEES,
        }
    }

    /// Returns the number of tasks for agents and workflows; evaluations of scripts are not
    /// counted.
    pub fn tasks(&self) -> u32 {
        let answered =
            self.replies.iter().filter(|reply| reply.tag == TaskRequest::EVALUATION).count() as u32;
        let waits = self.running.is_some() && self.ask.as_ref().is_some_and(|ask| ask.is_evaluation());
        self.attempt.saturating_sub(answered + u32::from(waits))
    }

    /// Returns the last request to an agent or a workflow; later evaluations of scripts are
    /// ignored.
    pub fn last_task(&self) -> Option<&Arc<TaskRequest>> {
        self.ask.iter().chain(&self.asked_before).find(|ask| !ask.is_evaluation())
    }

    /// Returns the number of attempts at the node's own work. Helper requests
    /// ([`TaskRequest::is_helper`]) are not counted.
    pub fn work_attempts(&self) -> u32 {
        let (mut attempts, mut replied) = (0, 0);
        for reply in &self.replies {
            // A reply is recorded only when its request is not retried, so all attempts since the
            // previous reply belong to it.
            if !is_helper_tag(&reply.tag) {
                attempts += reply.attempt.saturating_sub(replied);
            }
            replied = reply.attempt;
        }
        let is_work = self.ask.as_ref().is_some_and(|ask| !ask.is_helper());
        attempts + if is_work { self.attempt.saturating_sub(replied) } else { 0 }
    }

    /// Returns the last request for the node's own work, or `None` if there was none, or two helper
    /// requests followed it.
    pub fn last_work(&self) -> Option<&Arc<TaskRequest>> {
        self.ask.iter().chain(&self.asked_before).find(|ask| !ask.is_helper())
    }

    /// Returns the last reply of an agent or a workflow; results of scripts are ignored.
    pub fn last_reply(&self) -> Option<&RecordedReply> {
        self.replies.iter().rfind(|reply| reply.tag != TaskRequest::EVALUATION)
    }
}

/// A live token that an activation received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrivedToken {
    /// The edge; `None` for start values.
    pub edge: Option<EdgeIndex>,
    /// The activation that sent it.
    pub source: Option<ActivationId>,
    /// Value of the token.
    pub value: SharedJson,
    /// Position if the edge carries several values.
    pub fan: Option<u32>,
}

/// A reply that the adapter has received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedReply {
    /// Tag of the request.
    pub tag: String,
    /// The attempt.
    pub attempt: u32,
    /// The reply, or the reason why it failed.
    #[serde(with = "crate::serde_result")]
    pub result: Result<Arc<TaskReply>, Fault>,
}

/// Phase of an activation; see the transitions in [`crate::lifecycle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationPhase {
    /// Queued.
    Ready,
    /// Deferred until a person has answered.
    Deferred,
    /// Started; the engine is deciding the next step (never visible between two inputs).
    Begun,
    /// An agent is working.
    Running,
    /// The next attempt waits for its back-off.
    BackedOff,
    /// Sleeping.
    Sleeping,
    /// Waiting for a person.
    Waiting,
    /// Children are running.
    Owning,
    /// Ended, with tokens not yet sent.
    Settled,
    /// Closed.
    Closed,
}

impl ActivationPhase {
    /// Returns whether it has not started.
    pub const fn is_queued(self) -> bool {
        matches!(self, Self::Ready | Self::Deferred)
    }

    /// Returns the name of the phase in its JSON.
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
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// A condition prevented it from running.
    Skipped,
    /// It was cancelled.
    Cancelled,
}

impl ActivationEnd {
    /// Returns whether it counts as completed: it succeeded or was skipped.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Succeeded | Self::Skipped)
    }

    /// Returns the name of the end in its JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Children of one activation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildSet {
    /// Children to run, in order.
    pub list: Vec<ChildSpec>,
    /// The activation of each started child.
    pub acts: Vec<ActivationId>,
    /// Number of running children.
    pub active: u32,
    /// Maximum number of children that run concurrently.
    pub limit: Option<u32>,
    /// Whether the first failed child cancels the others.
    pub fail_fast: bool,
    /// The first child that failed.
    pub failed: Option<ActivationId>,
}

/// A child scope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildScope {
    /// The enclosing scope.
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
    /// Live tokens that no activation has consumed yet.
    pub(crate) arrived: VecDeque<ArrivedToken>,
    /// Number of tokens, live or dead.
    pub(crate) resolved: u32,
    /// Number of live tokens.
    pub(crate) live: u32,
    /// Number of live tokens on edges that count towards the quorum.
    pub(crate) quorum_live: u32,
    /// Number of tokens on edges that do not count towards the quorum.
    pub(crate) required: u32,
    /// A veto edge is dead, or a node that it depends on failed.
    pub(crate) vetoed: bool,
    /// A preceding node failed.
    pub(crate) failed: bool,
    /// Reason why it will not run.
    pub(crate) died: Option<String>,
    /// The latest activation.
    pub(crate) last: Option<ActivationId>,
    /// Number of activations so far.
    pub(crate) count: u32,
}

/// A due time and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EngineTimer {
    /// Due time.
    pub(crate) at: Time,
    /// The activation; `None` for the execution's own timeout.
    pub(crate) act: Option<ActivationId>,
    /// Effect of the timer.
    pub(crate) kind: TimerKind,
}

/// Effect of a due timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimerKind {
    /// The attempt times out.
    Attempt,
    /// The next attempt starts.
    Backoff,
    /// The sleep ends.
    Sleep,
    /// The wait for a person times out.
    Person,
    /// The activation times out.
    Activation,
    /// The execution times out.
    Wall,
    /// People are reminded of an open question.
    Reminder,
}

impl ExecutionState {
    /// Returns the model calls of all activations, including failed attempts, sub-workflows and
    /// agents called by agents.
    pub fn model_totals(&self) -> ModelTotals {
        let mut totals = ModelTotals::default();
        for usage in self.acts.iter().filter_map(|one| one.usage.as_ref()) {
            totals.add(usage.sum().total());
        }
        totals
    }

    /// Returns the price of these model calls in USD, as far as agents report it.
    pub(crate) fn cost_usd(&self) -> f64 {
        self.model_totals().cost_usd.unwrap_or(0.0)
    }

    /// Creates the state before the first fact.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether agents' progress is still stored: its size is limited, so that verbose
    /// agents do not fill journals.
    pub fn has_room_for_progress(&self) -> bool {
        self.progress_bytes < MAX_PROGRESS_BYTES
    }

    pub(crate) fn count_progress(&mut self, value: &Value) {
        self.progress_bytes = self.progress_bytes.saturating_add(value.to_string().len() as u64);
    }

    /// Returns the activation, which must exist: ids come from facts.
    pub fn act(&self, act: ActivationId) -> &Activation {
        &self.acts[act as usize]
    }

    /// Returns the scope, or `None` for the root.
    pub fn scope(&self, scope: ScopeId) -> Option<&ChildScope> {
        (scope != ROOT).then(|| &self.scopes[scope as usize - 1])
    }

    /// Returns the latest activation of a node in exactly this scope.
    pub fn last(&self, scope: ScopeId, node: NodeIndex) -> Option<ActivationId> {
        self.slots.get(&(scope, node)).and_then(|slot| slot.last)
    }

    /// Returns why a node will not run in this scope, or `None` if it may run.
    pub fn died(&self, scope: ScopeId, node: NodeIndex) -> Option<&str> {
        self.slots.get(&(scope, node)).and_then(|slot| slot.died.as_deref())
    }

    /// Returns how often edges of this counter were traversed.
    pub fn taken(&self, counter: u32) -> u32 {
        self.taken.get(counter as usize).copied().unwrap_or(0)
    }

    /// Returns whether the execution or one of its callees waits for a person.
    pub fn asks_people(&self) -> bool {
        !self.asking.is_empty() || self.waiting().next().is_some()
    }

    /// Returns the activations that wait for a person.
    pub fn waiting(&self) -> impl Iterator<Item = ActivationId> + '_ {
        (0..self.acts.len() as ActivationId).filter(|act| self.act(*act).phase == ActivationPhase::Waiting)
    }
}

/// JSON keys cannot be tuples, so slots are encoded as a list.
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
