//! Facts about tokens: the queues in which they wait, and the activations that they create.

use std::collections::BTreeSet;
use std::sync::Arc;

use sinew_plan::{EdgeIndex, JoinRule, NodeIndex, PlanEdge};

use crate::bug::seeded_bug;
use crate::fact::{ChildSpec, EdgeToken, NewActivation, TokenValue};
use crate::graph::IndexedPlan;
use crate::state::{Activation, ActivationPhase, ArrivedToken, ExecutionState, JoinSlot};
use crate::{ActivationId, ROOT, ScopeId, SharedJson, Time};

/// Number of activations for which the vector grows one by one: by default it allocates four, and
/// most executions have fewer.
const FEW_ACTIVATIONS: usize = 4;

impl ExecutionState {
    pub(super) fn route(
        &mut self,
        graph: &IndexedPlan,
        act: Option<ActivationId>,
        scope: ScopeId,
        tokens: &[EdgeToken],
    ) {
        self.place(graph, act, scope, tokens);
        if let Some(act) = act {
            self.acts[act as usize].sent = tokens.to_vec();
            self.close(act);
        }
    }

    pub(super) fn drop_token(&mut self, graph: &IndexedPlan, edge: EdgeIndex, scope: ScopeId) {
        let target = graph.plan().edge(edge).to;
        if let Some(slot) = self.slots.get_mut(&(scope, target)) {
            slot.arrived.retain(|arrived| arrived.edge != Some(edge));
        }
    }

    pub(super) fn place(
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
                    // A queued node that has not started gathers later tokens.
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

    pub(super) fn activate(&mut self, at: Time, made: &NewActivation) {
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
        if self.acts.len() < FEW_ACTIVATIONS {
            self.acts.reserve_exact(1);
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
            sent_at: None,
            tries: 0,
            ask: None,
            asked_before: None,
            replies: Vec::new(),
            usage: None,
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
            callees: None,
            stops_clocks: false,
            people: 0,
            stopped_at: None,
            restarted_at: 0,
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

    /// Resets the joins of these nodes to the tokens of nodes with kept results.
    pub(super) fn reset(&mut self, graph: &IndexedPlan, acts: &[ActivationId], reset: &[NodeIndex]) {
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
            self.slots.insert((ROOT, *node), Box::new(slot));
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
        if token.fan.is_some_and(|position| position > 0) && !seeded_bug!(FanCountedTwice) {
            return;
        }
        self.resolved += if seeded_bug!(BranchCountedTwice) { 2 } else { 1 };
        self.required += u32::from(!edge.quorum);
        match token.value {
            TokenValue::Port | TokenValue::Given(_) => {
                self.live += 1;
                self.quorum_live += u32::from(edge.quorum);
            }
            TokenValue::Dead if seeded_bug!(DeadBranchIsLive) => self.live += 1,
            TokenValue::Dead => self.vetoed |= edge.veto && !seeded_bug!(VetoIgnored),
            TokenValue::Failed if seeded_bug!(FailureForgotten) => self.vetoed |= edge.veto,
            TokenValue::Failed => {
                self.failed = true;
                // A node that needs only some of these edges can do without this one.
                self.vetoed |= edge.veto || !edge.quorum;
            }
        }
    }
}
