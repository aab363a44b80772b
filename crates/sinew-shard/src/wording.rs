//! Encoding of the messages and reports that follow from a commit.
//!
//! Messages are encoded while the commit is being stored, because the state takes no input in the
//! meantime. They are returned only after the commit is stored.

use std::sync::Arc;

use sinew_engine::{Action, Fact};
use sinew_protocol::ExecutionId;

use crate::bug::seeded_bug;
use crate::commit_builder::Effect;
use crate::in_flight::{CommitInFlight, FactObserver, ShardReport, ShownEffect};
use crate::outgoing::Outgoing;
use crate::state::ShardState;

impl ShardState {
    /// Encodes the messages and reports of the polled commit while it is being stored.
    /// [`ShardState::handle_stored`] encodes the remaining ones.
    pub fn prepare(&mut self) {
        let Some(mut flight) = self.in_flight.take() else { return };
        for effect in std::mem::take(&mut flight.effects) {
            match effect {
                Effect::Act { execution, action } => {
                    flight.outgoing.extend(self.word_action(&execution, action));
                }
                Effect::ChildStartRejected { meta, fault } => {
                    if !seeded_bug!(RejectedChildUnanswered) {
                        flight.outgoing.push(Outgoing::ChildStartRejected { meta, fault });
                    }
                }
                Effect::StartDecided { execution, reply, decision } => {
                    flight.outgoing.push(Outgoing::StartAnswer { execution, reply, decision });
                }
                Effect::Facts { execution, round, facts } => {
                    flight.outgoing.extend(self.word_wait(&execution));
                    flight.shown.extend(self.word_facts(execution, round, facts));
                }
                Effect::Verdict { execution, workflow, verdict } => {
                    let report = ShardReport::Verdict { execution, workflow, verdict };
                    flight.shown.push(ShownEffect::Verdict(report));
                }
            }
        }
        self.in_flight = Some(flight);
    }

    /// Releases the messages of a commit, and publishes its facts.
    pub(crate) fn release(&mut self, flight: CommitInFlight) {
        self.outgoing.extend(flight.outgoing);
        self.shown.extend(flight.shown);
    }

    fn word_action(&mut self, execution: &ExecutionId, action: Action) -> Option<Outgoing> {
        // An execution with an input in this turn is active, unless the turn closed it.
        let active = self.table.get(execution)?;
        // A retry in the same turn has reopened it: no end has to be archived, and the next end
        // would be confused with this one.
        let is_reopened = matches!(action, Action::Finish(_)) && !active.state().ended;
        if is_reopened && !seeded_bug!(ReopenedEndArchived) {
            return None;
        }
        // A later input in the same turn has ended the activation: its task must not start.
        if let Action::Send { act, attempt, .. } = &action
            && !active.awaits(*act, *attempt)
            && !seeded_bug!(EndedTaskSent)
        {
            return None;
        }
        let message = Outgoing::of(active, action);
        if seeded_bug!(ClosedBeforeArchived)
            && let Outgoing::Finish { end_number, .. } = &message
        {
            self.table.close(&mut self.builder, execution, *end_number);
        }
        Some(message)
    }

    /// Encodes the report for the caller of an execution that starts or stops waiting for a person
    /// with this commit. The end of an execution has its own report.
    fn word_wait(&mut self, execution: &ExecutionId) -> Option<Outgoing> {
        let active = self.table.get_mut(execution)?;
        if active.state().ended {
            return None;
        }
        active.poll_wait_report().map(|report| Outgoing::WaitReport(Box::new(report)))
    }

    fn word_facts(&self, execution: ExecutionId, round: usize, facts: Vec<Fact>) -> Option<ShownEffect> {
        let active = self.table.get(&execution)?;
        let (meta, ctx, at) = (&active.stored.meta, active.ctx(), self.now);
        let mut events = Vec::new();
        for (index, fact) in facts.iter().enumerate() {
            if let Fact::CalleeWaits { act, wait, .. } = fact {
                let (meta, node, wait) = (Arc::clone(meta), sinew_execution::label(&ctx, *act), wait.clone());
                events.push(ShardReport::PersonWait { meta, place: (round, index), at, node, wait });
            }
            let messages =
                sinew_execution::events::project_known(&ctx, &meta.execution, active.known_tasks(), fact);
            events.extend(messages.into_iter().map(|message| {
                let (meta, message) = (Arc::clone(meta), Box::new(message));
                ShardReport::Event { meta, place: (round, index), at, message }
            }));
        }
        Some(ShownEffect::Facts { execution, facts, events })
    }

    /// Returns the reports about the stored commit, in the order of its facts, and passes the facts
    /// to `observer`.
    pub fn take_reports(&mut self, observer: &mut dyn FactObserver) -> Vec<ShardReport> {
        let mut reports = Vec::new();
        for effect in std::mem::take(&mut self.shown) {
            match effect {
                ShownEffect::Facts { execution, facts, events } => {
                    if let Some(active) = self.table.get(&execution) {
                        let ctx = active.ctx();
                        for fact in &facts {
                            observer.observe(&ctx, &active.stored.meta, self.now, fact);
                        }
                    }
                    reports.extend(events);
                }
                ShownEffect::Verdict(report) => reports.push(report),
            }
        }
        reports
    }
}
