//! Timers that stop while an execution waits for a person.
//!
//! Time limits of nodes and executions apply to work. While an activation waits for a person, the
//! time limits of its owners and of the execution stop; if a callee asks the question, so do the
//! limits of the activation itself. When the wait ends, deadlines move by its duration. The due
//! time of a question, and a limit of the node that asks, always run.
//!
//! A callee reports the start of its wait. Timers stop at that time, even if the owner reads the
//! report later, so a takeover or an outage costs the callee no time. No time counts twice, because
//! a timer never stops before its last start.

use std::sync::Arc;

use sinew_protocol::person_wait::PersonWait;

use crate::state::{ActivationPhase, CalleeReport, EngineTimer, ExecutionState, TimerKind};
use crate::{ActivationId, Time};

impl ExecutionState {
    /// Records the report of a callee of the running attempt.
    pub(super) fn note_callee(
        &mut self,
        act: ActivationId,
        callee: &str,
        number: u64,
        wait: Option<&Arc<PersonWait>>,
    ) {
        let one = &mut self.acts[act as usize];
        let report = CalleeReport { number, wait: wait.cloned() };
        one.callees.get_or_insert_default().insert(callee.to_owned(), report);
        let (since, sent_at) = (one.callee_wait().map(|wait| wait.since), one.sent_at);
        match (since, one.stops_clocks) {
            (Some(since), false) => {
                self.stop_clocks(act, since.max(sent_at.unwrap_or(self.at)).min(self.at));
            }
            (None, true) => self.restart_clocks(act),
            _ => {}
        }
    }

    /// Stops the timers above a question that the activation, or its callee, asked at this time.
    pub(super) fn stop_clocks(&mut self, act: ActivationId, since: Time) {
        if std::mem::replace(&mut self.acts[act as usize].stops_clocks, true) {
            return;
        }
        self.asking.insert(act);
        self.has_asked = true;
        let mut next = Some(act);
        while let Some(above) = next {
            let one = &mut self.acts[above as usize];
            one.people += 1;
            next = one.owner;
            let has_clock = above != act || one.phase == ActivationPhase::Running;
            if one.people == 1 && one.end.is_none() && has_clock {
                self.stop_clock(above, since);
            }
        }
        if self.asking.len() == 1 {
            self.stop_wall(since);
        }
    }

    fn stop_wall(&mut self, since: Time) {
        if let Some(wall) = self.timers.iter().find(|timer| timer.kind == TimerKind::Wall).copied() {
            self.timers.remove(&wall);
            self.stopped_wall = Some((wall.at, since.max(self.wall_restarted_at)));
        }
    }

    /// Pauses the execution. Its time limit stops only if no node is activated yet: its workflow is
    /// paused.
    pub(super) fn pause(&mut self, reason: &str) {
        self.paused = Some(reason.to_owned());
        if self.acts.is_empty() {
            self.stop_wall(self.at);
        }
    }

    /// Resumes the execution, and its time limit unless a person is asked.
    pub(super) fn resume(&mut self) {
        self.paused = None;
        self.restart_wall();
    }

    fn restart_wall(&mut self) {
        if self.asking.is_empty()
            && let Some((deadline, stopped_at)) = self.stopped_wall.take()
        {
            let at = deadline.saturating_add(self.at.saturating_sub(stopped_at));
            self.timers.insert(EngineTimer { at, act: None, kind: TimerKind::Wall });
            self.wall_restarted_at = self.at;
        }
    }

    /// Restarts the timers after the activation's wait for a person.
    pub(super) fn restart_clocks(&mut self, act: ActivationId) {
        if !std::mem::take(&mut self.acts[act as usize].stops_clocks) {
            return;
        }
        self.asking.remove(&act);
        let mut next = Some(act);
        while let Some(above) = next {
            let one = &mut self.acts[above as usize];
            one.people = one.people.saturating_sub(1);
            next = one.owner;
            if one.people == 0 {
                self.restart_clock(above);
            }
        }
        self.restart_wall();
    }

    fn stop_clock(&mut self, act: ActivationId, since: Time) {
        let one = &mut self.acts[act as usize];
        one.stopped_at = Some(since.max(one.restarted_at));
        if let Some(deadline) = one.deadline {
            self.timers.remove(&activation_timer(act, deadline));
        }
        if let Some(timer) = one.timer.filter(|timer| timer.kind == TimerKind::Attempt) {
            self.timers.remove(&timer);
        }
    }

    fn restart_clock(&mut self, act: ActivationId) {
        let at = self.at;
        let one = &mut self.acts[act as usize];
        let Some(stopped_at) = one.stopped_at.take() else { return };
        one.restarted_at = at;
        if one.end.is_some() {
            return;
        }
        let waited = at.saturating_sub(stopped_at);
        if let Some(deadline) = &mut one.deadline {
            *deadline = deadline.saturating_add(waited);
            self.timers.insert(activation_timer(act, *deadline));
        }
        if let Some(timer) = one.timer.as_mut().filter(|timer| timer.kind == TimerKind::Attempt) {
            timer.at = timer.at.saturating_add(waited);
            self.timers.insert(*timer);
        }
    }
}

const fn activation_timer(act: ActivationId, at: Time) -> EngineTimer {
    EngineTimer { at, act: Some(act), kind: TimerKind::Activation }
}
