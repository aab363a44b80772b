//! Facts that change the phase of an activation; see [`crate::lifecycle`].

use std::sync::Arc;

use serde_json::Value;
use sinew_plan::PausePolicy;
use sinew_protocol::Fault;
use sinew_protocol::usage::TaskUsage;

use crate::ask::{TaskReply, TaskRequest};
use crate::fact::{ActivationOutput, ChildSpec, PersonRequest};
use crate::graph::IndexedPlan;
use crate::state::{
    ActivationEnd, ActivationPhase, ChildSet, EngineTimer, ExecutionState, RecordedReply, TimerKind,
};
use crate::{ActivationId, Time};

/// Facts about the queue.
impl ExecutionState {
    pub(super) fn defer(&mut self, act: ActivationId, human: bool) {
        self.unqueue(act);
        self.set_phase(act, ActivationPhase::Deferred);
        self.acts[act as usize].deferred = Some(human);
        if human {
            self.humans.push_back(act);
        } else {
            self.deferred.push_back(act);
        }
    }

    pub(super) fn undefer(&mut self, act: ActivationId) {
        self.deferred.retain(|other| *other != act);
        self.humans.retain(|other| *other != act);
        self.set_phase(act, ActivationPhase::Ready);
        self.ready.push_front(act);
    }

    pub(super) fn begin(&mut self, graph: &IndexedPlan, at: Time, act: ActivationId) {
        self.unqueue(act);
        self.set_phase(act, ActivationPhase::Begun);
        let timeout = graph.plan().node(self.act(act).node).timeout_ms;
        let one = &mut self.acts[act as usize];
        one.began_at = Some(at);
        if let Some(timeout) = timeout {
            let deadline = at.saturating_add(timeout);
            one.deadline = Some(deadline);
            self.timers.insert(EngineTimer { at: deadline, act: Some(act), kind: TimerKind::Activation });
        }
    }

    pub(super) fn unqueue(&mut self, act: ActivationId) {
        if self.act(act).phase != ActivationPhase::Ready {
            return;
        }
        if self.ready.front() == Some(&act) {
            self.ready.pop_front();
        } else {
            self.ready.retain(|other| *other != act);
        }
    }
}

/// Facts about attempts, sleep, people and children.
impl ExecutionState {
    pub(super) fn dispatch(&mut self, act: ActivationId, attempt: u32, tries: u32, ask: &Arc<TaskRequest>) {
        self.set_phase(act, ActivationPhase::Running);
        let at = self.at;
        let one = &mut self.acts[act as usize];
        one.sent_at = Some(at);
        one.tries = tries;
        one.attempt = attempt;
        one.running = Some(attempt);
        one.asked_before = one.ask.replace(Arc::clone(ask));
    }

    /// Ends the running attempt. `reply` is its number and result, unless the same request is
    /// retried.
    pub(super) fn take_reply(
        &mut self,
        act: ActivationId,
        reply: Option<(u32, Result<Arc<TaskReply>, Fault>)>,
    ) {
        self.set_phase(act, ActivationPhase::Begun);
        let one = &mut self.acts[act as usize];
        one.running = None;
        if let Some((attempt, result)) = reply {
            let tag = one.ask.as_ref().map(|ask| ask.tag.clone()).unwrap_or_default();
            one.replies.push(RecordedReply { tag, attempt, result });
        }
    }

    /// Adds an attempt's usage to the sums of its activation.
    pub(super) fn note_usage(&mut self, act: ActivationId, attempt: u32, usage: &Value) {
        if TaskUsage::of(usage).is_none() {
            return;
        }
        let one = &mut self.acts[act as usize];
        let agent = one.ask.as_ref().map(|ask| ask.target.name()).unwrap_or_default();
        one.usage.get_or_insert_default().add(agent, attempt, usage);
    }

    /// The agent of a cancelled attempt has replied, so it no longer has to be notified.
    pub(super) fn settle_late(&mut self, act: ActivationId, attempt: u32) {
        let one = &mut self.acts[act as usize];
        if one.running == Some(attempt) && one.phase == ActivationPhase::Closed {
            one.running = None;
        }
    }

    pub(super) fn back_off(&mut self, act: ActivationId, until: Time, ask: Option<&Arc<TaskRequest>>) {
        self.set_phase(act, ActivationPhase::BackedOff);
        if let Some(ask) = ask {
            let one = &mut self.acts[act as usize];
            one.ask = Some(Arc::clone(ask));
            one.tries = 0;
        }
        self.set_deadline(act, Some(until), TimerKind::Backoff);
    }

    pub(super) fn sleep(&mut self, act: ActivationId, until: Time) {
        self.unqueue(act);
        self.set_phase(act, ActivationPhase::Sleeping);
        self.acts[act as usize].delay_ms = None;
        self.set_deadline(act, Some(until), TimerKind::Sleep);
    }

    pub(super) fn await_person(&mut self, graph: &IndexedPlan, act: ActivationId, wait: &Arc<PersonRequest>) {
        self.set_phase(act, ActivationPhase::Waiting);
        self.acts[act as usize].wait = Some(Arc::clone(wait));
        if graph.plan().profile.pause == PausePolicy::FreezeDefer && self.frozen.is_none() {
            self.frozen = Some(act);
            self.frozen_at = self.acts.len() as ActivationId;
        }
    }

    /// Ends the wait that froze the execution; another wait for a person may continue.
    pub(super) fn unfreeze(&mut self, act: ActivationId) {
        if self.frozen == Some(act) {
            let next = self.waiting().next();
            self.frozen = next;
        }
    }

    pub(super) fn own_children(
        &mut self,
        act: ActivationId,
        children: &[ChildSpec],
        limit: Option<u32>,
        fail_fast: bool,
    ) {
        self.set_phase(act, ActivationPhase::Owning);
        let own: &mut Box<ChildSet> = self.acts[act as usize].children.get_or_insert_default();
        own.list.extend(children.iter().cloned());
        own.limit = limit;
        own.fail_fast = fail_fast;
    }
}

/// Ends of activations.
impl ExecutionState {
    pub(super) fn fail(
        &mut self,
        graph: &IndexedPlan,
        at: Time,
        act: ActivationId,
        fault: &Fault,
        output: Option<ActivationOutput>,
    ) {
        self.acts[act as usize].fault = Some(fault.clone());
        self.end(at, act, ActivationEnd::Failed, output);
        let one = self.act(act);
        let (node, owner) = (one.node, one.owner);
        if let Some(owner) = owner
            && !graph.plan().node(node).handles_failure
            && let Some(children) = &mut self.acts[owner as usize].children
            && children.failed.is_none()
        {
            children.failed = Some(act);
        }
        let decides = owner.is_none() && self.outcome.is_none() && self.failed.is_none();
        if decides && !graph.plan().routes_failure(node) {
            self.failed = Some((Some(act), fault.clone()));
        }
    }

    pub(super) fn cancel(&mut self, at: Time, act: ActivationId) {
        // `running` remains, because the attempt is still running and `react` cancels it.
        let running = self.act(act).running;
        self.end(at, act, ActivationEnd::Cancelled, None);
        self.close(act);
        self.acts[act as usize].running = running;
    }

    pub(super) fn end(
        &mut self,
        at: Time,
        act: ActivationId,
        end: ActivationEnd,
        output: Option<ActivationOutput>,
    ) {
        match self.act(act).phase {
            ActivationPhase::Ready => self.unqueue(act),
            ActivationPhase::Deferred => {
                self.deferred.retain(|other| *other != act);
                self.humans.retain(|other| *other != act);
            }
            _ => {}
        }
        self.set_phase(act, ActivationPhase::Settled);
        self.unfreeze(act);
        let one = &mut self.acts[act as usize];
        one.end = Some(end);
        one.ended_at = Some(at);
        one.running = None;
        one.output = output;
        if let Some(deadline) = one.deadline {
            self.timers.remove(&EngineTimer { at: deadline, act: Some(act), kind: TimerKind::Activation });
        }
        let (owner, exit) = (self.act(act).owner, self.outcome.is_some());
        if let Some(owner) = owner
            && let Some(children) = &mut self.acts[owner as usize].children
        {
            children.active = children.active.saturating_sub(1);
        }
        if owner.is_some() || exit {
            self.close(act);
        }
    }

    pub(super) fn close(&mut self, act: ActivationId) {
        if self.act(act).phase != ActivationPhase::Closed {
            self.set_phase(act, ActivationPhase::Closed);
            self.open -= 1;
        }
    }
}

/// The phase and its timer.
impl ExecutionState {
    pub(super) fn set_phase(&mut self, act: ActivationId, phase: ActivationPhase) {
        self.restart_clocks(act);
        self.clear_reminder(act);
        self.acts[act as usize].callees = None;
        let before = self.acts[act as usize].phase;
        self.active -= u32::from(holds_place(before));
        self.active += u32::from(holds_place(phase));
        self.acts[act as usize].phase = phase;
        if let Some(timer) = self.acts[act as usize].timer.take() {
            self.timers.remove(&timer);
        }
    }

    /// Sets the timer that reminds people of the activation's question.
    pub(super) fn set_reminder(&mut self, act: ActivationId, wait: &PersonRequest) {
        let Some(ms) = wait.remind_ms else { return };
        let at = self.at.saturating_add(ms);
        self.timers.insert(EngineTimer { at, act: Some(act), kind: TimerKind::Reminder });
    }

    /// Removes the timer that reminds people of the activation's question, if there is one.
    pub(super) fn clear_reminder(&mut self, act: ActivationId) {
        let one = self.act(act);
        if one.phase == ActivationPhase::Waiting
            && one.wait.as_ref().is_some_and(|wait| wait.remind_ms.is_some())
        {
            self.timers.retain(|timer| (timer.act, timer.kind) != (Some(act), TimerKind::Reminder));
        }
    }

    /// Sets the timer of the phase; without a time the phase has no deadline.
    pub(super) fn set_deadline(&mut self, act: ActivationId, at: Option<Time>, kind: TimerKind) {
        let Some(at) = at else { return };
        let timer = EngineTimer { at, act: Some(act), kind };
        self.timers.insert(timer);
        self.acts[act as usize].timer = Some(timer);
    }
}

/// Returns whether the phase holds a slot of the profile's `parallel`.
const fn holds_place(phase: ActivationPhase) -> bool {
    matches!(
        phase,
        ActivationPhase::Begun
            | ActivationPhase::Running
            | ActivationPhase::BackedOff
            | ActivationPhase::Sleeping
            | ActivationPhase::Settled
    )
}

impl ChildSet {
    /// Returns the position of the next child, if another may start now.
    pub(crate) fn next(&self) -> Option<u32> {
        let next = self.acts.len();
        let full = self.limit.is_some_and(|limit| self.active >= limit.max(1));
        (next < self.list.len() && !full).then_some(next as u32)
    }

    /// Returns whether every child was started and has ended.
    pub(crate) fn settled(&self) -> bool {
        self.active == 0 && self.acts.len() == self.list.len()
    }
}
