//! The fold. Total: any sequence of well-formed facts gives a state, and never a panic on facts of our own making.
//!
//! | phase     | facts that lead there                          | facts that lead on                           |
//! |-----------|------------------------------------------------|----------------------------------------------|
//! | ready     | activated, undeferred                          | began, deferred, slept, cancelled            |
//! | deferred  | deferred                                       | undeferred, cancelled                        |
//! | begun     | began, replied, answered                       | dispatched, slept, awaited, fanned, an end   |
//! | running   | dispatched                                     | replied, cancelled                           |
//! | backed off| backed_off                                     | dispatched, cancelled                        |
//! | sleeping  | slept                                          | began or an end, cancelled                   |
//! | waiting   | awaited                                        | answered, cancelled                          |
//! | owning    | fanned                                         | fanned, an end, cancelled                    |
//! | settled   | completed, skipped, failed                     | routed, dispatched (a routing question)      |
//! | closed    | routed, cancelled; ends of children and exits  | –                                            |

use std::collections::BTreeSet;
use std::sync::Arc;

use sinew_plan::{EdgeIndex, FailurePolicy, JoinRule, NodeIndex, PausePolicy, PlanEdge};

use crate::fact::{ActivationOutput, ChildSpec, EdgeToken, Fact, NewActivation, TokenValue};
use crate::graph::IndexedPlan;
use crate::state::{
    Activation, ActivationEnd, ActivationPhase, ArrivedToken, ChildScope, ChildSet, EngineTimer,
    ExecutionState, JoinSlot, RecordedReply, TimerKind,
};
use crate::{ActivationId, ROOT, ScopeId, SharedJson, Time};

/// Folds one fact into the state.
pub fn apply(graph: &IndexedPlan, state: &mut ExecutionState, at: Time, fact: &Fact) {
    state.at = state.at.max(at);
    match fact {
        Fact::Started(start) => {
            state.start = Some(Arc::clone(start));
            state.started_at = at;
            state.taken = vec![0; graph.counters()];
            state.arm_wall(graph, at);
        }
        Fact::Opened { parent, owner, index, item, .. } => {
            state.scopes.push(ChildScope {
                parent: *parent,
                owner: *owner,
                index: *index,
                item: Arc::clone(item),
            });
        }
        Fact::Routed { act, scope, tokens, .. } => {
            state.place(graph, *act, *scope, tokens);
            if let Some(act) = act {
                state.acts[*act as usize].sent.clone_from(tokens);
                state.close(*act);
            }
        }
        Fact::Activated(made) => state.activate(at, made),
        Fact::Died { node, scope, reason } => {
            state.slots.entry((*scope, *node)).or_default().died = Some(reason.clone());
        }
        Fact::Dropped { edge, scope } => {
            let target = graph.plan().edge(*edge).to;
            if let Some(slot) = state.slots.get_mut(&(*scope, target)) {
                slot.arrived.retain(|arrived| arrived.edge != Some(*edge));
            }
        }
        Fact::Deferred { act, human } => {
            state.unqueue(*act);
            state.set_phase(*act, ActivationPhase::Deferred);
            state.acts[*act as usize].deferred = Some(*human);
            if *human {
                state.humans.push_back(*act);
            } else {
                state.deferred.push_back(*act);
            }
        }
        Fact::Undeferred { act } => {
            state.deferred.retain(|other| other != act);
            state.humans.retain(|other| other != act);
            state.set_phase(*act, ActivationPhase::Ready);
            state.ready.push_front(*act);
        }
        Fact::Began { act } => {
            state.unqueue(*act);
            state.set_phase(*act, ActivationPhase::Begun);
            let node = graph.plan().node(state.act(*act).node);
            let timeout = node.timeout_ms;
            let one = &mut state.acts[*act as usize];
            one.began_at = Some(at);
            if let Some(timeout) = timeout {
                let deadline = at.saturating_add(timeout);
                one.deadline = Some(deadline);
                state.timers.insert(EngineTimer {
                    at: deadline,
                    act: Some(*act),
                    kind: TimerKind::Activation,
                });
            }
        }
        Fact::Noted { .. } | Fact::Progressed { .. } => {}
        Fact::Late { act, attempt } => {
            let one = &mut state.acts[*act as usize];
            // Its agent was to be told that it is given up; it has answered, so that is settled.
            if one.running == Some(*attempt) && one.phase == ActivationPhase::Closed {
                one.running = None;
            }
        }
        Fact::Yielded { act, tokens } => {
            let scope = state.act(*act).scope;
            state.place(graph, Some(*act), scope, tokens);
        }
        Fact::Dispatched { act, attempt, tries, ask, deadline } => {
            state.set_phase(*act, ActivationPhase::Running);
            let one = &mut state.acts[*act as usize];
            one.tries = *tries;
            one.attempt = *attempt;
            one.running = Some(*attempt);
            one.asked_before = one.ask.replace(Arc::clone(ask));
            if let Some(deadline) = deadline {
                state.set_timer(*act, *deadline, TimerKind::Attempt);
            }
        }
        Fact::Replied { act, attempt, result, retried } => {
            state.set_phase(*act, ActivationPhase::Begun);
            let one = &mut state.acts[*act as usize];
            one.running = None;
            if !retried {
                let tag = one.ask.as_ref().map(|ask| ask.tag.clone()).unwrap_or_default();
                one.replies.push(RecordedReply { tag, attempt: *attempt, result: result.clone() });
            }
        }
        Fact::BackedOff { act, until, ask } => {
            state.set_phase(*act, ActivationPhase::BackedOff);
            if let Some(ask) = ask {
                let one = &mut state.acts[*act as usize];
                one.ask = Some(Arc::clone(ask));
                one.tries = 0;
            }
            state.set_timer(*act, *until, TimerKind::Backoff);
        }
        Fact::Slept { act, until } => {
            state.unqueue(*act);
            state.set_phase(*act, ActivationPhase::Sleeping);
            state.acts[*act as usize].delay_ms = None;
            state.set_timer(*act, *until, TimerKind::Sleep);
        }
        Fact::Awaited { act, wait, deadline } => {
            state.set_phase(*act, ActivationPhase::Waiting);
            state.acts[*act as usize].wait = Some(Arc::clone(wait));
            if graph.plan().profile.pause == PausePolicy::FreezeDefer && state.frozen.is_none() {
                state.frozen = Some(*act);
                state.frozen_at = state.acts.len() as ActivationId;
            }
            if let Some(deadline) = deadline {
                state.set_timer(*act, *deadline, TimerKind::Person);
            }
        }
        Fact::Answered { act, .. } => {
            state.set_phase(*act, ActivationPhase::Begun);
            state.unfreeze(*act);
        }
        Fact::Fanned { act, children, limit, fail_fast } => {
            state.set_phase(*act, ActivationPhase::Owning);
            let own = state.acts[*act as usize].children.get_or_insert_default();
            own.list.extend(children.iter().cloned());
            own.limit = *limit;
            own.fail_fast = *fail_fast;
        }
        Fact::Completed { act, output, reused } => {
            state.acts[*act as usize].reused = *reused;
            state.end(at, *act, ActivationEnd::Succeeded, Some(output.clone()));
        }
        Fact::Skipped { act, output, .. } => {
            state.end(at, *act, ActivationEnd::Skipped, Some(output.clone()))
        }
        Fact::Failed { act, fault, output } => {
            state.acts[*act as usize].fault = Some(fault.clone());
            state.end(at, *act, ActivationEnd::Failed, output.clone());
            let one = state.act(*act);
            if one.owner.is_none()
                && state.outcome.is_none()
                && state.failed.is_none()
                && graph.plan().profile.failure != FailurePolicy::RouteOn
            {
                state.failed = Some((Some(*act), fault.clone()));
            }
        }
        Fact::Cancelled { act, .. } => {
            // `running` stays: the attempt is still out there, and `react` tells its agent.
            let running = state.act(*act).running;
            state.end(at, *act, ActivationEnd::Cancelled, None);
            state.close(*act);
            state.acts[*act as usize].running = running;
        }
        Fact::Paused { reason } => state.paused = Some(reason.clone()),
        Fact::Resumed => state.paused = None,
        Fact::CancelRequested { reason } => state.cancelling = Some(reason.clone()),
        Fact::Concluded { outcome } => {
            state.outcome = Some(outcome.clone());
            state.timers.retain(|timer| timer.kind != TimerKind::Wall);
        }
        Fact::Ended => {
            state.ended = true;
            state.timers.clear();
            state.paused = None;
        }
        Fact::Reopened { acts, reset, input, .. } => {
            state.reopen(graph, at);
            match input {
                Some(input) => state.start_afresh(input),
                None => state.reset(graph, acts, reset),
            }
        }
    }
}

impl ExecutionState {
    fn arm_wall(&mut self, graph: &IndexedPlan, at: Time) {
        if let Some(wall) = graph.plan().limits.wall_ms {
            self.timers.insert(EngineTimer { at: at.saturating_add(wall), act: None, kind: TimerKind::Wall });
        }
    }

    fn set_phase(&mut self, act: ActivationId, phase: ActivationPhase) {
        let before = self.acts[act as usize].phase;
        self.active -= u32::from(holds_place(before));
        self.active += u32::from(holds_place(phase));
        self.acts[act as usize].phase = phase;
        if let Some(timer) = self.acts[act as usize].timer.take() {
            self.timers.remove(&timer);
        }
    }

    fn set_timer(&mut self, act: ActivationId, at: Time, kind: TimerKind) {
        let timer = EngineTimer { at, act: Some(act), kind };
        self.timers.insert(timer);
        self.acts[act as usize].timer = Some(timer);
    }

    /// The wait that froze the execution is over; another person may be waited for still.
    fn unfreeze(&mut self, act: ActivationId) {
        if self.frozen == Some(act) {
            let next = self.waiting().next();
            self.frozen = next;
        }
    }

    fn unqueue(&mut self, act: ActivationId) {
        if self.act(act).phase != ActivationPhase::Ready {
            return;
        }
        if self.ready.front() == Some(&act) {
            self.ready.pop_front();
        } else {
            self.ready.retain(|other| *other != act);
        }
    }

    fn end(&mut self, at: Time, act: ActivationId, end: ActivationEnd, output: Option<ActivationOutput>) {
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
            if end == ActivationEnd::Failed && children.failed.is_none() {
                children.failed = Some(act);
            }
        }
        if owner.is_some() || exit {
            self.close(act);
        }
    }

    fn close(&mut self, act: ActivationId) {
        if self.act(act).phase != ActivationPhase::Closed {
            self.set_phase(act, ActivationPhase::Closed);
            self.open -= 1;
        }
    }

    fn place(
        &mut self,
        graph: &IndexedPlan,
        act: Option<ActivationId>,
        scope: ScopeId,
        tokens: &[EdgeToken],
    ) {
        for token in tokens {
            let edge = graph.plan().edge(token.edge);
            let target = graph.plan().node(edge.to);
            let value = match &token.value {
                TokenValue::Dead | TokenValue::Failed => None,
                TokenValue::Port => Some(self.port_value(act, &edge.port)),
                TokenValue::Given(value) => Some(Arc::clone(value)),
            };
            if value.is_some()
                && let Some(taken) = self.taken.get_mut(edge.counter as usize)
            {
                *taken = taken.saturating_add(1);
            }
            let slot = self.slots.entry((scope, edge.to)).or_default();
            slot.count_token(edge, token);
            if let Some(value) = value {
                let arrived = ArrivedToken { edge: Some(token.edge), source: act, value, fan: token.fan };
                let queued = slot.last.filter(|_| target.join == JoinRule::Once && token.fan.is_none());
                match queued {
                    // A node that is queued but has not begun gathers what still arrives.
                    Some(queued) if self.acts[queued as usize].phase.is_queued() => {
                        self.acts[queued as usize].inputs.push(arrived);
                    }
                    _ => slot.arrived.push_back(arrived),
                }
            }
        }
    }

    fn port_value(&self, act: Option<ActivationId>, port: &str) -> SharedJson {
        act.and_then(|act| self.act(act).output.as_ref())
            .and_then(|output| output.at(port).cloned().or_else(|| Some(Arc::clone(&output.value))))
            .unwrap_or_default()
    }

    fn activate(&mut self, at: Time, made: &NewActivation) {
        let NewActivation { act, node, scope, from, take, owner, value, again, position, input } = made;
        let (mut inputs, mut input) = (Vec::new(), input.clone());
        if let Some(slot) = self.slots.get_mut(&(*from, *node)) {
            let count = take.map_or(slot.arrived.len(), |take| slot.arrived.len().min(take as usize));
            inputs.extend(slot.arrived.drain(..count));
        }
        if let Some(again) = again {
            let again = self.act(*again);
            inputs.clone_from(&again.inputs);
            input = input.or_else(|| again.input.clone());
        }
        inputs.extend(value.iter().map(|value| ArrivedToken {
            edge: None,
            source: *owner,
            value: Arc::clone(value),
            fan: None,
        }));
        let slot = self.slots.entry((*scope, *node)).or_default();
        let ordinal = slot.count;
        slot.count += 1;
        slot.last = Some(*act);
        slot.died = None;
        let mut delay_ms = None;
        if let Some(children) = owner.and_then(|owner| self.acts[owner as usize].children.as_mut()) {
            delay_ms = children.list.get(children.acts.len()).and_then(|child: &ChildSpec| child.delay_ms);
            children.acts.push(*act);
            children.active += 1;
        }
        self.acts.push(Activation {
            node: *node,
            scope: *scope,
            owner: *owner,
            ordinal,
            inputs,
            phase: ActivationPhase::Ready,
            attempt: 0,
            running: None,
            tries: 0,
            ask: None,
            asked_before: None,
            replies: Vec::new(),
            wait: None,
            children: None,
            end: None,
            output: None,
            fault: None,
            sent: Vec::new(),
            made_at: at,
            began_at: None,
            ended_at: None,
            deadline: None,
            delay_ms,
            timer: None,
            reused: false,
            again: *again,
            input,
            deferred: None,
        });
        self.open += 1;
        if self.outcome.is_some() && owner.is_none() {
            self.exits_started += 1;
        }
        match position {
            Some(position) => self.ready.insert((*position as usize).min(self.ready.len()), *act),
            None => self.ready.push_back(*act),
        }
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
            *slot = JoinSlot { count: slot.count, ..JoinSlot::default() };
        }
        self.taken.fill(0);
        if let Some(start) = &mut self.start {
            let start = Arc::make_mut(start);
            start.input = Arc::clone(input);
            start.refused = None;
        }
    }

    /// Joins of these nodes have received what nodes that keep their results sent, and nothing else.
    fn reset(&mut self, graph: &IndexedPlan, acts: &[ActivationId], reset: &[NodeIndex]) {
        let again: BTreeSet<NodeIndex> = acts.iter().map(|act| self.act(*act).node).collect();
        for node in reset {
            let mut slot = JoinSlot {
                count: self.slots.get(&(ROOT, *node)).map_or(0, |slot| slot.count),
                ..JoinSlot::default()
            };
            for edge in graph.in_edges(*node) {
                let from = graph.plan().edge(*edge).from;
                if again.contains(&from) || reset.contains(&from) {
                    continue;
                }
                self.replay_tokens(graph, &mut slot, *edge, from);
            }
            self.slots.insert((ROOT, *node), slot);
        }
    }

    /// Restores the tokens that a node with a kept result sent along this edge.
    fn replay_tokens(&self, graph: &IndexedPlan, slot: &mut JoinSlot, edge_ix: EdgeIndex, from: NodeIndex) {
        let Some(origin) = self.slots.get(&(ROOT, from)) else { return };
        let edge = graph.plan().edge(edge_ix);
        let unsent = |value| EdgeToken { edge: edge_ix, value, fan: None };
        let Some(act) = origin.last else {
            if origin.died.is_some() {
                let value = if origin.failed { TokenValue::Failed } else { TokenValue::Dead };
                slot.count_token(edge, &unsent(value));
            }
            return;
        };
        let one = self.act(act);
        let mut sent = one.sent.iter().filter(|token| token.edge == edge_ix).peekable();
        if sent.peek().is_none() && one.phase == ActivationPhase::Closed {
            slot.count_token(edge, &unsent(TokenValue::Dead));
        }
        for token in sent {
            slot.count_token(edge, token);
            let value = match &token.value {
                TokenValue::Port => self.port_value(Some(act), &edge.port),
                TokenValue::Given(value) => Arc::clone(value),
                TokenValue::Dead | TokenValue::Failed => continue,
            };
            slot.arrived.push_back(ArrivedToken {
                edge: Some(edge_ix),
                source: Some(act),
                value,
                fan: token.fan,
            });
        }
    }
}

impl JoinSlot {
    /// Counts a token towards the node's join. Values that share an edge resolve it once.
    fn count_token(&mut self, edge: &PlanEdge, token: &EdgeToken) {
        if token.fan.is_some_and(|position| position > 0) {
            return;
        }
        self.resolved += 1;
        self.required += u32::from(!edge.quorum);
        match token.value {
            TokenValue::Port | TokenValue::Given(_) => {
                self.live += 1;
                self.quorum_live += u32::from(edge.quorum);
            }
            TokenValue::Dead => self.vetoed |= edge.veto,
            TokenValue::Failed => {
                self.failed = true;
                // A node that needs only some of these edges can do without this one.
                self.vetoed |= edge.veto || !edge.quorum;
            }
        }
    }
}

/// Phases that take one of the places of the profile's `parallel`.
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
    /// The position of the child that is started next, if another may start now.
    pub(crate) fn next(&self) -> Option<u32> {
        let next = self.acts.len();
        let full = self.limit.is_some_and(|limit| self.active >= limit.max(1));
        (next < self.list.len() && !full).then_some(next as u32)
    }

    /// True if every child was started and has ended.
    pub(crate) fn settled(&self) -> bool {
        self.active == 0 && self.acts.len() == self.list.len()
    }
}
