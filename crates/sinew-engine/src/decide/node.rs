//! Life cycle of one activation: start, request, reply, retry, children, end.

use std::sync::Arc;

use serde_json::{Value, json};
use sinew_plan::{FailurePolicy, NodeOperation, RetryCondition};
use sinew_protocol::access::matches_pattern;
use sinew_protocol::usage::TaskUsage;
use sinew_protocol::{Fault, FaultKind, code};

use super::{AttemptEnd, BUDGET_USED_UP, Decider, size};
use crate::adapter::NodeDecision;
use crate::ask::{ATTEMPT_TIMED_OUT, TASK_NOT_TAKEN, TaskRequest};
use crate::fact::{ActivationOutput, ChildSpec, EdgeToken, Fact, NewActivation, TokenValue};
use crate::state::{ActivationEnd, ActivationPhase, TimerKind};
use crate::{ActivationId, ROOT, ScopeId, Time};

/// Maximum back-off that a fault may request, in milliseconds, because some services request many
/// years.
const MAX_ASKED_DELAY_MS: u64 = 3_600_000;

impl Decider<'_> {
    /// Starts a ready activation, possibly with a sleep.
    pub(super) fn begin(&mut self, act: ActivationId) {
        let known = self.given(act).or_else(|| self.kept(act));
        let delay =
            self.state.act(act).delay_ms.filter(|delay| *delay > 0 && known.is_none() && !self.is_dry());
        if let Some(delay) = delay {
            let until = self.now.saturating_add(delay);
            self.emit(Fact::Slept { act, until });
            return;
        }
        self.emit(Fact::Began { act });
        if let Some(output) = known {
            self.complete(act, output, true);
            return;
        }
        let step = self.consult(Some(act), |adapter, ctx| adapter.bind(ctx, act));
        self.step(act, step);
    }

    /// Returns the output that a partial execution was given for this node.
    fn given(&self, act: ActivationId) -> Option<ActivationOutput> {
        let one = self.state.act(act);
        let id = &self.graph.plan().node(one.node).id;
        let value = self.state.start.as_ref()?.mode.given.get(id)?;
        (one.scope == ROOT && one.owner.is_none()).then(|| ActivationOutput::new(Arc::clone(value)))
    }

    /// Returns the output of the same child before an operator's retry.
    fn kept(&self, act: ActivationId) -> Option<ActivationOutput> {
        let owner = self.state.act(self.state.act(act).owner?);
        let before = self.state.act(owner.again?).children.as_ref()?;
        let index = self.state.scope(self.state.act(act).scope)?.index as usize;
        let (new, old) = (owner.children.as_ref()?.list.get(index)?, before.list.get(index)?);
        let kept = *before.acts.get(index)?;
        let same = new.body == old.body && new.item == old.item;
        (same && self.succeeded(kept)).then(|| self.state.act(kept).output.clone())?
    }

    /// Performs the adapter's next step.
    pub(super) fn step(&mut self, act: ActivationId, step: NodeDecision) {
        match step {
            NodeDecision::Ask(mut ask) => {
                let one = self.state.act(act);
                if let Some(input) =
                    one.input.as_ref().filter(|_| one.attempt == 0 && ask.tag == TaskRequest::WORK)
                {
                    ask.input = Arc::clone(input);
                }
                let limit = self.graph.plan().limits.value_bytes;
                match size::task_too_large(&ask, limit) {
                    // Workers have their own limit for the input of scripts.
                    Some(fault) if !ask.is_evaluation() => self.fail(act, fault, None),
                    _ => self.dispatch(act, Arc::new(*ask), 1),
                }
            }
            NodeDecision::Fan { children, limit, fail_fast } => self.fan(act, children, limit, fail_fast),
            NodeDecision::Wait(wait) => {
                let deadline = wait.timeout_ms.map(|ms| self.now.saturating_add(ms));
                if self.is_dry() {
                    self.complete(act, ActivationOutput::default(), false);
                } else {
                    self.emit(Fact::Awaited { act, wait: Arc::new(*wait), deadline, stops_clocks: true });
                }
            }
            NodeDecision::Sleep(_) if self.is_dry() => self.complete(act, ActivationOutput::default(), false),
            NodeDecision::Sleep(ms) => {
                let until = self.now.saturating_add(ms);
                self.emit(Fact::Slept { act, until });
            }
            NodeDecision::Done(output) => match self.too_large(&output) {
                Some(fault) => self.fail(act, fault, None),
                None => self.complete(act, output, false),
            },
            NodeDecision::Skip { reason, output } => {
                if let Some(fault) = self.too_large(&output) {
                    self.fail(act, fault, None);
                } else {
                    self.emit(Fact::Skipped { act, reason, output });
                    self.after_end(act);
                }
            }
            NodeDecision::Fail(fault) => self.fail(act, fault, None),
            NodeDecision::FailWith(fault, output) => {
                let output = self.too_large(&output).is_none().then_some(output);
                self.fail(act, fault, output);
            }
        }
    }

    fn too_large(&self, output: &ActivationOutput) -> Option<Fault> {
        let limit = self.graph.plan().limits.value_bytes;
        let values = std::iter::once(&output.value).chain(output.ports.iter().map(|(_, value)| value));
        values.into_iter().find_map(|value| size::too_large("the output", value, limit))
    }

    /// Dispatches a task.
    pub(super) fn dispatch(&mut self, act: ActivationId, ask: Arc<TaskRequest>, tries: u32) {
        // A dry run calls no agent, but scripts are part of the workflow.
        if self.is_dry() && !ask.is_evaluation() {
            let note = json!({ "engine": "dry_run", "would_ask": ask.target.name(), "input": *ask.input });
            self.emit(Fact::Noted { act: Some(act), note });
            if ask.tag == TaskRequest::ROUTE {
                let scope = self.state.act(act).scope;
                self.emit(Fact::Routed {
                    act: Some(act),
                    scope,
                    tokens: Vec::new(),
                    end: Some("dry run".into()),
                });
            } else {
                let samples = self.state.start.as_ref().map(|start| &start.mode.samples);
                let node = &self.graph.plan().node(self.state.act(act).node).id;
                let sample =
                    samples.and_then(|samples| samples.get(node).or_else(|| samples.get(ask.target.name())));
                let output = sample.map(|sample| ActivationOutput::new(Arc::clone(sample)));
                self.complete(act, output.unwrap_or_default(), false);
            }
            return;
        }
        if let Some(fault) = self.refused_call(&ask) {
            return self.fail(act, fault, None);
        }
        if self.state.paused.is_some() {
            // In a paused execution the step after a reply or an answer waits for the resume, like
            // all other work.
            self.emit(Fact::BackedOff { act, until: self.now, ask: Some(ask) });
            return;
        }
        let one = self.state.act(act);
        let timeout = ask.timeout_ms.or(self.graph.plan().node(one.node).attempt_timeout_ms);
        let deadline = timeout.map(|ms| self.now.saturating_add(ms));
        let attempt = one.attempt + 1;
        self.emit(Fact::Dispatched { act, attempt, tries, ask, deadline });
    }

    /// Returns why a call is outside the patterns of the key that deployed the workflow.
    fn refused_call(&self, ask: &TaskRequest) -> Option<Fault> {
        let calls = self.graph.plan().limits.calls.as_ref().filter(|_| !ask.is_evaluation())?;
        let name = ask.target.name();
        if calls.iter().any(|pattern| matches_pattern(pattern, name)) {
            return None;
        }
        let text = format!("the workflow was deployed with a key that does not allow calls of '{name}'");
        Some(Fault::invalid(code::CALL_BEYOND_KEY.as_str(), text))
    }

    /// Handles the end of an attempt.
    pub(super) fn done(&mut self, end: AttemptEnd) {
        let AttemptEnd { act, attempt, result, usage, worked_ms } = end;
        if (act as usize) >= self.state.acts.len() || attempt == 0 || attempt > self.state.act(act).attempt {
            return; // never dispatched, so it cannot be recorded
        }
        if !self.is_current(act, attempt) {
            return self.late(act, attempt, result.map_or(usage, |reply| reply.usage));
        }
        let limit = self.graph.plan().limits.value_bytes;
        let result = result.and_then(|reply| match size::too_large("the reply", &reply.output, limit) {
            Some(fault) => Err(fault),
            None => Ok(Arc::new(reply)),
        });
        let draining = self.draining();
        let wait = result.as_ref().err().filter(|_| !draining).and_then(|fault| self.retry_delay(act, fault));
        let usage = if size::too_large("usage", &usage, limit).is_some() { Value::Null } else { usage };
        self.emit(Fact::Replied { act, attempt, result, retried: wait.is_some(), usage, worked_ms });
        self.check_cost();
        if self.state.outcome.is_some() && self.state.act(act).phase == ActivationPhase::Closed {
            return; // the budget of the execution is exceeded
        }
        if let Some(wait) = wait {
            self.back_off(act, wait);
        } else if draining {
            self.emit(Fact::Cancelled { act, reason: "discarded: the execution has failed".into() });
        } else if self.state.act(act).end.is_some() {
            self.route(act);
        } else {
            let step = self.consult(Some(act), |adapter, ctx| adapter.shape(ctx, act));
            self.step(act, step);
        }
    }

    /// Handles an ignored reply: only the attempt's usage counts, once.
    pub(super) fn late(&mut self, act: ActivationId, attempt: u32, usage: Value) {
        let Some(one) = self.state.acts.get(act as usize).filter(|one| (1..=one.attempt).contains(&attempt))
        else {
            return;
        };
        let limit = self.graph.plan().limits.value_bytes;
        let is_new = TaskUsage::of(&usage).is_some()
            && !one.has_usage_of(attempt)
            && size::too_large("usage", &usage, limit).is_none();
        let usage = if is_new { usage } else { Value::Null };
        self.emit(Fact::Late { act, attempt, usage });
        if is_new && !self.state.ended {
            self.check_cost();
        }
    }

    /// Returns true from a failure under [`FailurePolicy::Drain`] until the graph is complete.
    fn draining(&self) -> bool {
        let graph_goes_on = self.state.outcome.is_none();
        graph_goes_on
            && self.graph.plan().profile.failure == FailurePolicy::Drain
            && self.state.failed.is_some()
    }

    /// Returns the milliseconds until the next attempt, if the node's policy allows one after this
    /// fault.
    fn retry_delay(&self, act: ActivationId, fault: &Fault) -> Option<u64> {
        let one = self.state.act(act);
        let retry = &self.graph.plan().node(one.node).retry;
        let wanted = match retry.on {
            RetryCondition::Always => true,
            RetryCondition::Failure => fault.kind.is_failure(),
            RetryCondition::Error => fault.kind.is_error(),
        };
        let is_work = one.ask.as_ref().is_some_and(|ask| ask.tag == TaskRequest::WORK) && one.end.is_none();
        if !(fault.retryable && wanted && is_work && one.tries <= retry.limit) {
            return None;
        }
        let jitter = match retry.jitter_ms {
            0 => 0,
            most => spread(act, one.attempt) % most.saturating_add(1),
        };
        let asked = fault.retry_after_ms.unwrap_or(0).min(MAX_ASKED_DELAY_MS);
        Some(retry.delay(one.tries).saturating_add(jitter).max(asked))
    }

    fn back_off(&mut self, act: ActivationId, wait: u64) {
        if wait == 0 && self.state.paused.is_none() {
            self.attempt_again(act);
        } else {
            let until = self.now.saturating_add(wait);
            self.emit(Fact::BackedOff { act, until, ask: None });
        }
    }

    /// Sends the same request again.
    pub(super) fn attempt_again(&mut self, act: ActivationId) {
        let one = self.state.act(act);
        let tries = one.tries + 1;
        if let Some(ask) = one.ask.clone() {
            self.dispatch(act, ask, tries);
        }
    }

    /// Returns the engine's fault for an attempt that timed out.
    pub(super) fn attempt_timeout(&self, act: ActivationId) -> Fault {
        let text = format!("timed out after {} s", seconds(self.attempt_time(act)));
        Fault::timeout(ATTEMPT_TIMED_OUT, text)
    }

    /// Returns the time limit of an attempt in milliseconds.
    fn attempt_time(&self, act: ActivationId) -> Time {
        let one = self.state.act(act);
        let ask = one.ask.as_ref().and_then(|ask| ask.timeout_ms);
        ask.or(self.graph.plan().node(one.node).attempt_timeout_ms).unwrap_or_default()
    }

    /// Handles the timeout of the current attempt.
    pub(super) fn attempt_timed_out(&mut self, act: ActivationId, fault: Fault) {
        let attempt = self.state.act(act).attempt;
        self.done(AttemptEnd { act, attempt, result: Err(fault), usage: Value::Null, worked_ms: None });
    }

    /// Handles the timeout of an attempt whose task no process has accepted.
    pub(super) fn not_taken(&mut self, act: ActivationId, attempt: u32, is_online: bool) {
        let is_due = self
            .state
            .acts
            .get(act as usize)
            .and_then(|one| one.timer)
            .is_some_and(|timer| timer.kind == TimerKind::Attempt && timer.at <= self.now);
        if !is_due || !self.is_current(act, attempt) {
            return;
        }
        let agent = self.state.act(act).ask.as_ref().map(|ask| ask.target.name().to_owned());
        let agent = agent.unwrap_or_default();
        let why = if is_online { "its processes were busy" } else { "none is online" };
        let time = seconds(self.attempt_time(act));
        let text = format!("no process of agent '{agent}' took the task within {time} s: {why}");
        self.attempt_timed_out(act, Fault::timeout(TASK_NOT_TAKEN, text));
    }

    fn fan(&mut self, act: ActivationId, children: Vec<ChildSpec>, limit: Option<u32>, fail_fast: bool) {
        let known = self.state.act(act).children.as_ref().map_or(0, |own| own.list.len());
        let limits = &self.graph.plan().limits;
        let is_loop =
            matches!(self.graph.plan().node(self.state.act(act).node).op, NodeOperation::Loop { .. });
        let budget = if is_loop { limits.iterations } else { limits.fan_out } as usize;
        if known + children.len() > budget {
            let text = format!("{} children are more than the budget of {budget}", known + children.len());
            self.fail(act, Fault::failure(BUDGET_USED_UP, text).with_retryable(false), None);
            return;
        }
        let stuck = children.is_empty() && self.state.act(act).phase == ActivationPhase::Owning;
        if stuck {
            // An adapter that responds to the end of its children with an empty list of children
            // would loop forever.
            self.fail(
                act,
                Fault::failure(BUDGET_USED_UP, "no child is left to run").with_retryable(false),
                None,
            );
            return;
        }
        self.emit(Fact::Fanned { act, children: Arc::new(children), limit, fail_fast });
        self.go_on_with_children(act);
    }

    /// Starts the children that may start, and gathers after all have ended.
    fn go_on_with_children(&mut self, owner: ActivationId) {
        let depth_first = self.graph.plan().profile.order == sinew_plan::ReadyOrder::DepthFirst;
        let mut position = 0;
        while let Some(index) = self.state.act(owner).children.as_ref().and_then(|own| own.next()) {
            let one = self.state.act(owner);
            let Some(child) = one.children.as_ref().map(|own| own.list[index as usize].clone()) else {
                return;
            };
            let parent = one.scope;
            let scope = self.open_scope(parent, owner, index, Arc::clone(&child.item));
            let made = NewActivation {
                node: child.body,
                scope,
                from: scope,
                take: Some(0),
                owner: Some(owner),
                value: Some(Arc::clone(&child.item)),
                position: depth_first.then_some(position),
                ..NewActivation::default()
            };
            position += 1;
            if !self.activate(made) {
                return;
            }
        }
        if self.state.act(owner).children.as_ref().is_some_and(|own| own.settled()) {
            self.gather(owner);
        }
    }

    pub(super) fn open_scope(
        &mut self,
        parent: ScopeId,
        owner: ActivationId,
        index: u32,
        item: crate::SharedJson,
    ) -> ScopeId {
        let scope = self.state.scopes.len() as ScopeId + 1;
        self.emit(Fact::Opened { scope, parent, owner, index, item });
        scope
    }

    fn gather(&mut self, owner: ActivationId) {
        let step = self.consult(Some(owner), |adapter, ctx| adapter.gather(ctx, owner));
        self.step(owner, step);
    }

    /// Continues an owner after a child has ended.
    fn child_ended(&mut self, owner: ActivationId) {
        if self.state.act(owner).phase != ActivationPhase::Owning {
            return;
        }
        let Some(own) = &self.state.act(owner).children else { return };
        if own.fail_fast && own.failed.is_some() {
            self.cancel_children(owner, "a sibling failed");
            self.gather(owner);
        } else {
            self.go_on_with_children(owner);
        }
    }

    pub(super) fn cancel_children(&mut self, owner: ActivationId, reason: &str) {
        let acts = self.state.act(owner).children.as_ref().map(|own| own.acts.clone()).unwrap_or_default();
        for act in acts {
            if self.state.act(act).phase == ActivationPhase::Owning {
                self.cancel_children(act, reason);
            }
            self.cancel_one(act, reason);
        }
    }

    /// Completes the activation successfully.
    pub(super) fn complete(&mut self, act: ActivationId, output: ActivationOutput, reused: bool) {
        self.emit(Fact::Completed { act, output, reused });
        self.after_end(act);
    }

    /// Fails the activation, unless its node's policy allows another attempt.
    pub(super) fn fail(&mut self, act: ActivationId, fault: Fault, output: Option<ActivationOutput>) {
        let judged = self.state.act(act).replies.last().is_some_and(|last| last.result.is_ok());
        if judged && let Some(wait) = self.retry_delay(act, &fault) {
            self.back_off(act, wait);
            return;
        }
        self.emit(Fact::Failed { act, fault, output });
        self.after_failure(act);
    }

    /// Applies the effect of a failed activation to the other activations.
    pub(super) fn after_failure(&mut self, act: ActivationId) {
        let one = self.state.act(act);
        let scope = one.scope;
        if let Some(owner) = one.owner {
            self.child_ended(owner);
            return;
        }
        if self.state.outcome.is_some() {
            return; // exit nodes are only recorded
        }
        if self.graph.plan().routes_failure(one.node) {
            return self.route(act);
        }
        let closed = |tokens| Fact::Routed { act: Some(act), scope, tokens, end: Some("failed".into()) };
        match self.graph.plan().profile.failure {
            FailurePolicy::RouteOn => {}
            FailurePolicy::Stop => {
                self.emit(closed(Vec::new()));
                self.cancel_open("the execution has failed");
            }
            FailurePolicy::Drain => {
                self.emit(closed(Vec::new()));
                // Running activations continue to their end; activations that would start further
                // work are cancelled.
                for other in 0..self.state.acts.len() as ActivationId {
                    if self.state.act(other).phase != ActivationPhase::Running {
                        self.cancel_one(other, "the execution has failed");
                    }
                }
            }
            FailurePolicy::Isolate => {
                let node = self.state.act(act).node;
                let tokens = self
                    .graph
                    .out_edges(node)
                    .iter()
                    .map(|edge| EdgeToken { edge: *edge, value: TokenValue::Failed, fan: None })
                    .collect();
                self.emit_routed(Some(act), scope, tokens, Some("failed".into()));
            }
        }
    }

    /// Handles the timeout of the activation.
    pub(super) fn activation_timeout(&mut self, act: ActivationId) {
        let one = self.state.act(act);
        if one.end == Some(ActivationEnd::Cancelled) || one.phase == ActivationPhase::Closed {
            return;
        }
        let ms = self.graph.plan().node(one.node).timeout_ms.unwrap_or_default();
        let text = format!("timed out after {} s", seconds(ms));
        let fault = Fault::timeout(super::ACTIVATION_TIMED_OUT, text).with_retryable(false);
        if let Some(attempt) = one.running {
            let gone = Fault { code: ATTEMPT_TIMED_OUT.into(), ..fault.clone() };
            let (result, usage) = (Err(gone), Value::Null);
            self.emit(Fact::Replied { act, attempt, result, retried: false, usage, worked_ms: None });
        }
        self.cancel_children(act, "its map, loop or fork timed out");
        self.emit(Fact::Failed { act, fault, output: None });
        self.after_failure(act);
    }

    pub(super) fn after_end(&mut self, act: ActivationId) {
        let one = self.state.act(act);
        let (scope, node) = (one.scope, one.node);
        if let Some(owner) = one.owner {
            self.child_ended(owner);
        } else if self.state.outcome.is_some() {
            // Nothing depends on an exit node.
        } else if self.stops_after(node) {
            self.emit(Fact::Routed { act: Some(act), scope, tokens: Vec::new(), end: Some("until".into()) });
        } else {
            self.route(act);
        }
    }

    /// Returns whether the activation succeeded with its own output.
    fn succeeded(&self, act: ActivationId) -> bool {
        self.state.act(act).end.is_some_and(ActivationEnd::is_success)
    }

    fn stops_after(&self, node: sinew_plan::NodeIndex) -> bool {
        let id = &self.graph.plan().node(node).id;
        self.state.start.as_ref().is_some_and(|start| start.mode.until.contains(id))
    }

    /// Returns the engine's fault for commands of people.
    pub(super) fn cancelled(reason: &str) -> Fault {
        Fault::new(FaultKind::Cancelled, super::CANCELLED, format!("cancelled: {reason}"))
    }
}

/// Formats milliseconds as seconds: `5`, `0.15`.
fn seconds(ms: Time) -> String {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a number that differs between attempts and is the same on every machine (splitmix64).
fn spread(act: ActivationId, attempt: u32) -> u64 {
    let mut x = (u64::from(act) << 32 | u64::from(attempt)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
