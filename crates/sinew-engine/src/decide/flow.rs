//! Tokens: their routes from ended activations, and the activations that they create.

use std::collections::{BTreeMap, BTreeSet};

use sinew_plan::{EdgeIndex, JoinRule, NodeIndex, ReadyOrder, TraversalCounter};
use sinew_protocol::Fault;

use super::{BUDGET_USED_UP, Decider};
use crate::adapter::{OutgoingToken, RouteDecision};
use crate::bug::seeded_bug;
use crate::fact::{EdgeToken, Fact, NewActivation, TokenValue};
use crate::state::JoinSlot;
use crate::{ActivationId, ScopeId, SharedJson};

/// Tokens that were just placed.
pub(super) struct TokenArrival {
    scope: ScopeId,
    source: Option<ActivationId>,
    tokens: Vec<EdgeToken>,
}

/// Decision of a join on the arrived tokens.
enum JoinVerdict {
    Wait,
    Run,
    Die(String),
}

/// Result of the tokens of one arrival.
#[derive(Default)]
struct JoinBatch {
    due: Vec<DueJoin>,
    dead: Vec<(NodeIndex, String)>,
    /// Nodes whose join decided in this arrival.
    decided: BTreeSet<NodeIndex>,
}

/// An activation that tokens are about to create.
struct DueJoin {
    node: NodeIndex,
    fan: Option<u32>,
    take: Option<u32>,
}

impl Decider<'_> {
    /// Sends the tokens of an ended activation.
    pub(super) fn route(&mut self, act: ActivationId) {
        let select = self.consult(Some(act), |adapter, ctx| adapter.select(ctx, act));
        match select {
            RouteDecision::Ports => {
                let edges = self.graph.out_edges(self.state.act(act).node);
                let tokens = edges.iter().map(|edge| self.by_port(act, *edge)).collect();
                self.send(act, tokens, None);
            }
            RouteDecision::Tokens(sends) => {
                let tokens = self.with_dead(self.state.act(act).node, sends);
                self.send(act, tokens, None);
            }
            RouteDecision::Ask(ask) => {
                // An evaluation is not a retry of the preceding work.
                let tries = if ask.is_evaluation() { self.state.act(act).tries.max(1) } else { 1 };
                self.dispatch(act, std::sync::Arc::new(*ask), tries);
            }
            RouteDecision::End(reason) => {
                let tokens = self.with_dead(self.state.act(act).node, Vec::new());
                self.send(act, tokens, Some(reason));
            }
            RouteDecision::Fail(fault) => {
                let one = self.state.act(act);
                let (node, output) = (one.node, one.output.clone());
                self.emit(Fact::Failed { act, fault, output });
                if self.graph.plan().routes_failure(node) {
                    let tokens = self.with_dead(node, Vec::new());
                    self.send(act, tokens, Some("its edges cannot be evaluated".into()));
                } else {
                    self.after_failure(act);
                }
            }
        }
    }

    /// Applies the engine's default rule: an edge is live if the output has its port.
    fn by_port(&self, act: ActivationId, edge: EdgeIndex) -> EdgeToken {
        let port = &self.graph.plan().edge(edge).port;
        let live = self.state.act(act).output.as_ref().is_some_and(|output| output.at(port).is_some());
        EdgeToken { edge, value: if live { TokenValue::Port } else { TokenValue::Dead }, fan: None }
    }

    /// Returns the adapter's tokens; edges that it did not name are dead.
    fn with_dead(&self, node: NodeIndex, sends: Vec<OutgoingToken>) -> Vec<EdgeToken> {
        let named: BTreeSet<EdgeIndex> = sends.iter().map(|send| send.edge).collect();
        let unnamed = self.graph.out_edges(node).iter().filter(|edge| !named.contains(edge));
        let dead = unnamed.map(|edge| EdgeToken { edge: *edge, value: TokenValue::Dead, fan: None });
        sends
            .into_iter()
            .map(|OutgoingToken { edge, value, fan }| EdgeToken { edge, value, fan })
            .chain(dead)
            .collect()
    }

    fn send(&mut self, act: ActivationId, tokens: Vec<EdgeToken>, end: Option<String>) {
        let scope = self.state.act(act).scope;
        match self.within_budgets(tokens) {
            Ok(tokens) => self.emit_routed(Some(act), scope, tokens, end),
            Err(fault) => self.give_up(fault),
        }
    }

    /// Turns live tokens into dead ones where an edge's own budget is exceeded. Exceeding the
    /// plan's budget for an edge ends the execution.
    fn within_budgets(&self, mut tokens: Vec<EdgeToken>) -> Result<Vec<EdgeToken>, Fault> {
        let plan = self.graph.plan();
        let mut spent: BTreeMap<TraversalCounter, u32> = BTreeMap::new();
        for token in tokens.iter_mut().filter(|token| token.value.is_live()) {
            let edge = plan.edge(token.edge);
            let spent = spent.entry(edge.counter).or_default();
            let taken = self.state.taken(edge.counter).saturating_add(*spent);
            match edge.budget {
                Some(budget) if taken >= budget => token.value = TokenValue::Dead,
                None if taken >= plan.limits.edge => {
                    let (from, to) = (&plan.node(edge.from).id, &plan.node(edge.to).id);
                    let text =
                        format!("the edge {from} -> {to} was taken {taken} times, which is its budget");
                    return Err(Fault::failure(BUDGET_USED_UP, text).with_retryable(false));
                }
                _ => *spent += 1,
            }
        }
        Ok(tokens)
    }

    /// Places tokens. Dead ones only affect nodes that wait for all their edges.
    pub(super) fn emit_routed(
        &mut self,
        act: Option<ActivationId>,
        scope: ScopeId,
        mut tokens: Vec<EdgeToken>,
        end: Option<String>,
    ) {
        let plan = self.graph.plan();
        tokens.retain(|token| {
            token.value.is_live()
                || matches!(plan.node(plan.edge(token.edge).to).join, JoinRule::Resolved { .. })
        });
        self.emit(Fact::Routed { act, scope, tokens: tokens.clone(), end });
        if !tokens.is_empty() {
            self.arrivals.push_back(TokenArrival { scope, source: act, tokens });
        }
    }

    /// Sends a value of an activation that is still running.
    pub(super) fn emit_early(&mut self, act: ActivationId, attempt: u32, port: &str, value: &SharedJson) {
        if !self.is_current(act, attempt) {
            return;
        }
        let plan = self.graph.plan();
        let one = self.state.act(act);
        let scope = one.scope;
        let tokens: Vec<EdgeToken> = self
            .graph
            .out_edges(one.node)
            .iter()
            .filter(|edge| {
                let edge = plan.edge(**edge);
                edge.port == port && !matches!(plan.node(edge.to).join, JoinRule::Resolved { .. })
            })
            .map(|edge| EdgeToken {
                edge: *edge,
                value: TokenValue::Given(SharedJson::clone(value)),
                fan: None,
            })
            .collect();
        match self.within_budgets(tokens) {
            Ok(mut tokens) => {
                tokens.retain(|token| token.value.is_live());
                self.emit(Fact::Yielded { act, tokens: tokens.clone() });
                self.arrivals.push_back(TokenArrival { scope, source: Some(act), tokens });
            }
            Err(fault) => self.give_up(fault),
        }
    }

    /// Lets joins decide on all arrivals until nothing follows.
    pub(super) fn settle_arrivals(&mut self) {
        while let Some(arrival) = self.arrivals.pop_front() {
            let mut batch = JoinBatch::default();
            for token in &arrival.tokens {
                self.arrived(&arrival, token, &mut batch);
            }
            let JoinBatch { mut due, dead, .. } = batch;
            for (node, reason) in dead {
                self.die(arrival.scope, node, reason);
            }
            let plan = self.graph.plan();
            if plan.profile.order == ReadyOrder::Rank {
                due.sort_by_key(|due| plan.node(due.node).rank);
            }
            for (n, due) in due.into_iter().enumerate() {
                let position = (plan.profile.order == ReadyOrder::DepthFirst).then_some(n as u32);
                if !self.activate_due(&arrival, &due, position) {
                    return;
                }
            }
        }
    }

    fn arrived(&mut self, arrival: &TokenArrival, token: &EdgeToken, batch: &mut JoinBatch) {
        let node = self.graph.plan().edge(token.edge).to;
        let slot = self.state.slots.get(&(arrival.scope, node));
        match self.graph.plan().node(node).join {
            JoinRule::Each => batch.due.push(DueJoin { node, fan: token.fan, take: Some(1) }),
            JoinRule::Once if token.fan.is_some() => {
                batch.due.push(DueJoin { node, fan: token.fan, take: Some(1) });
            }
            JoinRule::Once if seeded_bug!(OnceRunsForEach) => {
                batch.due.push(DueJoin { node, fan: None, take: Some(1) });
            }
            JoinRule::Once => match slot.and_then(|slot| slot.last) {
                // The first token of the round creates the activation; the others of the round are
                // gathered.
                None if !batch.decided.insert(node) => {}
                None => batch.due.push(DueJoin { node, fan: None, take: None }),
                Some(last) if self.state.act(last).phase.is_queued() => {}
                Some(_) => self.emit(Fact::Dropped { edge: token.edge, scope: arrival.scope }),
            },
            JoinRule::Resolved { quorum } => {
                let Some(slot) = slot else { return };
                if slot.died.is_some() || batch.decided.contains(&node) {
                    return;
                }
                if slot.last.is_some() && !seeded_bug!(JoinRunsAgain) {
                    if token.value.is_live() {
                        self.emit(Fact::Dropped { edge: token.edge, scope: arrival.scope });
                    }
                    return;
                }
                match self.verdict(arrival.scope, node, slot, quorum, token) {
                    JoinVerdict::Wait => return,
                    JoinVerdict::Run => batch.due.push(DueJoin { node, fan: None, take: None }),
                    JoinVerdict::Die(reason) => batch.dead.push((node, reason)),
                }
                batch.decided.insert(node);
            }
        }
    }

    fn verdict(
        &self,
        scope: ScopeId,
        node: NodeIndex,
        slot: &JoinSlot,
        quorum: Option<u32>,
        token: &EdgeToken,
    ) -> JoinVerdict {
        let edges = self.graph.in_edges(node).len() as u32;
        if slot.vetoed {
            let from = &self.graph.plan().node(self.graph.plan().edge(token.edge).from).id;
            return JoinVerdict::Die(match token.value {
                TokenValue::Failed
                    if self.state.last(scope, self.graph.plan().edge(token.edge).from).is_none() =>
                {
                    format!("'{from}' did not run because of a failure")
                }
                TokenValue::Failed => format!("'{from}' failed"),
                _ if self.state.last(scope, self.graph.plan().edge(token.edge).from).is_none() => {
                    format!("'{from}' was not reached")
                }
                _ => format!("'{from}' did not choose it"),
            });
        }
        let has_required = slot.required >= self.graph.required(node) || seeded_bug!(QuorumIgnoresRequired);
        let more = u32::from(seeded_bug!(QuorumOneTooMany));
        if quorum.is_some_and(|n| slot.quorum_live >= n + more && has_required) {
            return JoinVerdict::Run;
        }
        if slot.resolved < edges {
            JoinVerdict::Wait
        } else if quorum.is_some() && seeded_bug!(UnmetQuorumDies) {
            JoinVerdict::Die(String::new())
        } else if slot.live > 0 || seeded_bug!(DeadJoinRuns) {
            // A quorum that can no longer be reached runs with the available tokens, because
            // nothing waits forever.
            JoinVerdict::Run
        } else {
            JoinVerdict::Die("no branch that leads to it was taken".into())
        }
    }

    /// Marks that a node will not run, and notifies its dependents whether a failure caused it.
    fn die(&mut self, scope: ScopeId, node: NodeIndex, reason: String) {
        self.emit(Fact::Died { node, scope, reason });
        let failed = self.state.slots.get(&(scope, node)).is_some_and(|slot| slot.failed);
        let is_failure = failed && !seeded_bug!(FailureDiesAsUntaken);
        let value = if is_failure { TokenValue::Failed } else { TokenValue::Dead };
        let tokens: Vec<EdgeToken> = self
            .graph
            .out_edges(node)
            .iter()
            .map(|edge| EdgeToken { edge: *edge, value: value.clone(), fan: None })
            .collect();
        if !tokens.is_empty() && !seeded_bug!(DeathNotTold) {
            self.emit_routed(None, scope, tokens, None);
        }
    }

    fn activate_due(&mut self, arrival: &TokenArrival, due: &DueJoin, position: Option<u32>) -> bool {
        let mut scope = arrival.scope;
        if let (Some(index), Some(source)) = (due.fan, arrival.source) {
            let front = self.state.slots.get(&(scope, due.node)).and_then(|slot| slot.arrived.front());
            let item = front.map(|arrived| SharedJson::clone(&arrived.value)).unwrap_or_default();
            scope = self.open_scope(scope, source, index, item);
        }
        self.activate(NewActivation {
            node: due.node,
            scope,
            from: arrival.scope,
            take: due.take,
            position,
            ..NewActivation::default()
        })
    }
}
