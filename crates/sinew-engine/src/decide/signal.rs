//! Inputs of people, and timers.

use std::sync::Arc;

use sinew_protocol::Fault;

use super::{Decider, WALL_TIMED_OUT};
use crate::ActivationId;
use crate::action::due_matters;
use crate::fact::{ExecutionOutcome, Fact, PersonAnswer, TerminalStatus};
use crate::input::InputRefusal;
use crate::state::{ActivationPhase, EngineTimer, TimerKind};

impl Decider<'_> {
    /// Fires all due timers in order of their due times.
    pub(super) fn tick(&mut self) {
        while let Some(timer) = self.next_due() {
            self.fire(timer);
            self.run();
        }
    }

    fn next_due(&self) -> Option<EngineTimer> {
        let due = self.state.timers.iter().take_while(|timer| timer.at <= self.now);
        due.copied().find(|timer| due_matters(self.state, timer.kind))
    }

    fn fire(&mut self, timer: EngineTimer) {
        let Some(act) = timer.act else {
            let ms = self.graph.plan().limits.wall_ms.unwrap_or_default();
            let text = format!("the execution exceeded its maximum time of {} s", ms as f64 / 1000.0);
            self.give_up(Fault::timeout(WALL_TIMED_OUT, text).with_retryable(false));
            return;
        };
        match timer.kind {
            TimerKind::Attempt => {
                let fault = self.attempt_timeout(act);
                self.attempt_timed_out(act, fault);
            }
            TimerKind::Backoff => self.attempt_again(act),
            TimerKind::Sleep if self.state.act(act).began_at.is_none() => {
                if self.is_frozen() {
                    self.emit(Fact::Deferred { act, human: false });
                } else {
                    self.begin(act);
                }
            }
            TimerKind::Sleep => {
                let step = self.consult(Some(act), |adapter, ctx| adapter.wake(ctx, act));
                self.step(act, step);
            }
            TimerKind::Person => {
                self.take_answer(act, PersonAnswer { timed_out: true, ..PersonAnswer::default() });
            }
            TimerKind::Reminder => self.emit(Fact::Reminded { act }),
            TimerKind::Activation => self.activation_timeout(act),
            TimerKind::Wall => {}
        }
    }

    pub(super) fn answer(&mut self, act: ActivationId, answer: PersonAnswer) -> Result<(), InputRefusal> {
        self.not_ended()?;
        match self.state.acts.get(act as usize) {
            Some(one) if one.phase == ActivationPhase::Waiting => {
                let given = one.wait.as_ref().map(|wait| wait.approvals.as_slice()).unwrap_or_default();
                // A person who has approved may still reject.
                if answer.approved != Some(false)
                    && let Some(by) =
                        answer.by.as_ref().filter(|by| given.iter().any(|one| one.by.as_ref() == Some(by)))
                {
                    return Err(InputRefusal::AlreadyApproved(by.clone()));
                }
                self.take_answer(act, PersonAnswer { timed_out: false, ..answer });
                Ok(())
            }
            _ => Err(InputRefusal::NotWaiting(act)),
        }
    }

    fn take_answer(&mut self, act: ActivationId, answer: PersonAnswer) {
        let answer = Arc::new(answer);
        self.emit(Fact::Answered { act, answer: Arc::clone(&answer) });
        let step = self.consult(Some(act), |adapter, ctx| adapter.answer(ctx, act, &answer));
        self.step(act, step);
    }

    pub(super) fn cancel(&mut self, reason: &str) -> Result<(), InputRefusal> {
        self.not_ended()?;
        let fault = Self::cancelled(reason);
        let concluded = self.state.outcome.is_some();
        self.emit(Fact::CancelRequested { reason: reason.to_owned() });
        self.cancel_open(reason);
        if concluded {
            // The graph is complete: only its exit nodes are cancelled, and the outcome remains.
            self.emit(Fact::Ended);
        } else {
            self.conclude_with(ExecutionOutcome {
                status: TerminalStatus::Cancelled,
                output: None,
                fault: Some(fault),
                cause: None,
            });
        }
        if self.state.paused.is_some() {
            self.emit(Fact::Resumed);
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, reason: String) -> Result<(), InputRefusal> {
        self.not_ended()?;
        if self.state.paused.is_some() {
            return Err(InputRefusal::Paused);
        }
        self.emit(Fact::Paused { reason });
        Ok(())
    }

    pub(super) fn resume(&mut self) -> Result<(), InputRefusal> {
        self.not_ended()?;
        if self.state.paused.is_none() {
            return Err(InputRefusal::NotPaused);
        }
        // Due timers wait for the next tick: a shell that reads results first sends it after them.
        self.emit(Fact::Resumed);
        Ok(())
    }

    fn not_ended(&self) -> Result<(), InputRefusal> {
        if self.state.ended { Err(InputRefusal::Ended) } else { Ok(()) }
    }
}
