//! The fold. It is total: any sequence of well-formed facts gives a state, and facts of the engine
//! never cause a panic.

mod clocks;
mod phases;
mod tokens;

use std::sync::Arc;

use crate::fact::{ExecutionOutcome, ExecutionStart, Fact};
use crate::graph::IndexedPlan;
use crate::state::{
    ActivationEnd, ActivationPhase, ChildScope, EngineTimer, ExecutionState, JoinSlot, TimerKind,
};
use crate::{SharedJson, Time};

/// Folds one fact into the state. See the phases after each fact in [`crate::lifecycle`].
pub fn apply(graph: &IndexedPlan, state: &mut ExecutionState, at: Time, fact: &Fact) {
    // The execution's end time is unchanged if a late reply arrives.
    if !(state.ended && matches!(fact, Fact::Late { .. })) {
        state.at = state.at.max(at);
    }
    match fact {
        Fact::Started(start) => state.start(graph, at, start),
        Fact::Opened { parent, owner, index, item, .. } => {
            let (parent, owner, index) = (*parent, *owner, *index);
            state.scopes.push(ChildScope { parent, owner, index, item: Arc::clone(item) });
        }
        Fact::Routed { act, scope, tokens, .. } => state.route(graph, *act, *scope, tokens),
        Fact::Activated(made) => state.activate(at, made),
        Fact::Died { node, scope, reason } => {
            state.slots.entry((*scope, *node)).or_default().died = Some(reason.clone());
        }
        Fact::Dropped { edge, scope } => state.drop_token(graph, *edge, *scope),
        Fact::Deferred { act, human } => state.defer(*act, *human),
        Fact::Undeferred { act } => state.undefer(*act),
        Fact::Began { act } => state.begin(graph, at, *act),
        Fact::Noted { .. } => {}
        Fact::Progressed { value, .. } => state.count_progress(value),
        Fact::Late { act, attempt, usage } => {
            state.note_usage(*act, *attempt, usage);
            state.settle_late(*act, *attempt);
            state.late_usages += u32::from(state.ended && !usage.is_null());
        }
        Fact::Yielded { act, tokens } => {
            let scope = state.act(*act).scope;
            state.place(graph, Some(*act), scope, tokens);
        }
        Fact::Dispatched { act, attempt, tries, ask, deadline } => {
            state.dispatch(*act, *attempt, *tries, ask);
            state.set_deadline(*act, *deadline, TimerKind::Attempt);
        }
        Fact::Replied { act, attempt, result, retried, usage, worked_ms: _ } => {
            state.note_usage(*act, *attempt, result.as_ref().map_or(usage, |reply| &reply.usage));
            state.take_reply(*act, (!retried).then(|| (*attempt, result.clone())));
        }
        Fact::BackedOff { act, until, ask } => state.back_off(*act, *until, ask.as_ref()),
        Fact::Slept { act, until } => state.sleep(*act, *until),
        Fact::Awaited { act, wait, deadline, stops_clocks } => {
            state.await_person(graph, *act, wait);
            state.set_deadline(*act, *deadline, TimerKind::Person);
            state.set_reminder(*act, wait);
            if *stops_clocks {
                state.stop_clocks(*act, state.at);
            }
        }
        Fact::Reminded { act } => state.clear_reminder(*act),
        Fact::CalleeWaits { act, callee, number, wait, .. } => {
            state.note_callee(*act, callee, *number, wait.as_ref());
        }
        Fact::Answered { act, .. } => {
            state.set_phase(*act, ActivationPhase::Begun);
            state.unfreeze(*act);
        }
        Fact::Fanned { act, children, limit, fail_fast } => {
            state.own_children(*act, children, *limit, *fail_fast);
        }
        Fact::Completed { act, output, reused } => {
            state.acts[*act as usize].reused = *reused;
            state.end(at, *act, ActivationEnd::Succeeded, Some(output.clone()));
        }
        Fact::Skipped { act, output, .. } => {
            state.end(at, *act, ActivationEnd::Skipped, Some(output.clone()));
        }
        Fact::Failed { act, fault, output } => state.fail(graph, at, *act, fault, output.clone()),
        Fact::Cancelled { act, .. } => state.cancel(at, *act),
        Fact::Paused { reason } => state.pause(reason),
        Fact::Resumed => state.resume(),
        Fact::CancelRequested { reason } => state.cancelling = Some(reason.clone()),
        Fact::Concluded { outcome } => state.conclude(outcome),
        Fact::Ended => state.finish(),
        Fact::Reopened { acts, reset, input, .. } => {
            state.reopen(graph, at);
            match input {
                Some(input) => state.start_afresh(input),
                None => state.reset(graph, acts, reset),
            }
        }
    }
}

/// Facts about the whole execution.
impl ExecutionState {
    fn start(&mut self, graph: &IndexedPlan, at: Time, start: &Arc<ExecutionStart>) {
        self.start = Some(Arc::clone(start));
        self.started_at = at;
        self.taken = vec![0; graph.counters()];
        self.arm_wall(graph, at);
    }

    fn arm_wall(&mut self, graph: &IndexedPlan, at: Time) {
        if let Some(wall) = graph.plan().limits.wall_ms {
            self.timers.insert(EngineTimer { at: at.saturating_add(wall), act: None, kind: TimerKind::Wall });
        }
    }

    fn conclude(&mut self, outcome: &ExecutionOutcome) {
        self.outcome = Some(outcome.clone());
        self.stopped_wall = None;
        self.timers.retain(|timer| timer.kind != TimerKind::Wall);
    }

    fn finish(&mut self) {
        self.ended = true;
        self.timers.clear();
        self.paused = None;
    }

    fn reopen(&mut self, graph: &IndexedPlan, at: Time) {
        self.arm_wall(graph, at);
        self.ended = false;
        self.outcome = None;
        self.cancelling = None;
        self.failed = None;
        self.exits_started = 0;
        self.reopened += 1;
    }

    /// Discards the state of all nodes, except for the budget of activations.
    fn start_afresh(&mut self, input: &SharedJson) {
        for slot in self.slots.values_mut() {
            **slot = JoinSlot { count: slot.count, ..JoinSlot::default() };
        }
        self.taken.fill(0);
        if let Some(start) = &mut self.start {
            let start = Arc::make_mut(start);
            start.input = Arc::clone(input);
            start.refused = None;
        }
    }
}
