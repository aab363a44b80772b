//! An operator's retry: failed nodes run again, their dependents start again, all others are kept.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use serde_json::Value;
use sinew_plan::{FailurePolicy, JoinRule, NodeIndex, NodeOperation};
use sinew_protocol::Fault;

use super::{Decider, admit, entry, size};
use crate::adapter::Adapter;
use crate::fact::{Fact, NewActivation, TerminalStatus};
use crate::graph::IndexedPlan;
use crate::input::{InputRefusal, RetryPlan, RetryRequest};
use crate::state::{ActivationEnd, ExecutionState};
use crate::{ActivationId, ROOT, SharedJson};

/// Activations that a retry affects.
struct RetryScope {
    /// Activations that run again, in order of creation.
    again: Vec<ActivationId>,
    /// Nodes whose joins are reset.
    reset: BTreeSet<NodeIndex>,
}

/// Plans a retry without performing it. Performing it uses the same rule.
pub(crate) fn plan_retry(
    graph: &IndexedPlan,
    adapter: &dyn Adapter,
    state: &ExecutionState,
    retry: &RetryRequest,
) -> Result<RetryPlan, InputRefusal> {
    if let (Some(input), []) = (&retry.input, retry.nodes.as_slice()) {
        afresh(graph, adapter, state, input)?;
        return Ok(plan_afresh(graph, state));
    }
    let scope = scope(graph, state, retry)?;
    let id = |node: NodeIndex| graph.plan().node(node).id.clone();
    let mut rerun: BTreeMap<String, u32> = BTreeMap::new();
    for act in &scope.again {
        let one = state.act(*act);
        let children = one.children.as_ref().map_or(0, |own| {
            let kept = own
                .acts
                .iter()
                .filter(|child| state.act(**child).end.is_some_and(ActivationEnd::is_success))
                .count();
            own.list.len().saturating_sub(kept) as u32
        });
        *rerun.entry(id(one.node)).or_default() += children;
    }
    let touched = |node: NodeIndex| {
        scope.reset.contains(&node) || scope.again.iter().any(|act| state.act(*act).node == node)
    };
    let keep: BTreeSet<NodeIndex> = state
        .acts
        .iter()
        .filter(|one| one.owner.is_none() && one.end.is_some_and(ActivationEnd::is_success))
        .filter(|one| !touched(one.node) && !is_exit(graph, one.node))
        .map(|one| one.node)
        .collect();
    Ok(RetryPlan {
        keep: keep.into_iter().map(id).collect(),
        rerun,
        reset: scope.reset.iter().map(|node| id(*node)).collect(),
    })
}

/// Plans that the complete workflow runs again.
fn plan_afresh(graph: &IndexedPlan, state: &ExecutionState) -> RetryPlan {
    let plan = graph.plan();
    let begins = state.start.as_ref().map(|start| entry(plan, &start.mode)).unwrap_or_default();
    let id = |node: NodeIndex| plan.node(node).id.clone();
    let others = (0..plan.nodes.len() as NodeIndex)
        .filter(|ix| !plan.node(*ix).inner && !is_exit(graph, *ix) && !begins.contains(ix));
    RetryPlan {
        keep: Vec::new(),
        rerun: begins.iter().map(|node| (id(*node), 0)).collect(),
        reset: others.map(id).collect(),
    }
}

/// Checks that there is something to run again: a successful execution cannot be reopened.
fn may_reopen(state: &ExecutionState) -> Result<(), InputRefusal> {
    if !state.ended {
        return Err(InputRefusal::NotEnded);
    }
    if state.outcome.as_ref().is_some_and(|outcome| outcome.status == TerminalStatus::Success) {
        return Err(InputRefusal::NothingFailed);
    }
    Ok(())
}

/// Returns the validated input of an execution that starts again.
fn afresh(
    graph: &IndexedPlan,
    adapter: &dyn Adapter,
    state: &ExecutionState,
    input: &Value,
) -> Result<SharedJson, InputRefusal> {
    may_reopen(state)?;
    let start = state.start.as_ref().ok_or(InputRefusal::NotStarted)?;
    let admitted = admit(graph.plan(), adapter, &start.mode, start.depth, input.clone());
    admitted.map(Arc::new).map_err(|fault| InputRefusal::BadInput(fault.message))
}

fn scope(
    graph: &IndexedPlan,
    state: &ExecutionState,
    retry: &RetryRequest,
) -> Result<RetryScope, InputRefusal> {
    may_reopen(state)?;
    let left = unfinished(graph, state);
    for id in &retry.nodes {
        can_run_again(graph, state, &left, id)?;
    }
    let wanted = |act: &ActivationId| {
        // Cancelled activations run again even with named nodes, because they did not run.
        let beside = !retry.only && state.act(*act).end == Some(ActivationEnd::Cancelled);
        retry.nodes.is_empty() || beside || is_named(graph, state, retry, *act)
    };
    let again: Vec<ActivationId> = left.into_iter().filter(wanted).collect();
    let mut reset = BTreeSet::new();
    let mut queue: Vec<NodeIndex> = again.iter().map(|act| state.act(*act).node).collect();
    while let Some(node) = queue.pop() {
        for edge in graph.out_edges(node) {
            let to = graph.plan().edge(*edge).to;
            let waits = matches!(graph.plan().node(to).join, JoinRule::Resolved { .. });
            if waits && reset.insert(to) {
                queue.push(to);
            }
        }
    }
    if let Some(input) = &retry.input {
        takes(graph, &retry.nodes, &reset, input)?;
    }
    // A node that depends on another rerun node starts through its tokens, not directly.
    let again: Vec<ActivationId> =
        again.into_iter().filter(|act| !reset.contains(&state.act(*act).node)).collect();
    if again.is_empty() {
        return Err(InputRefusal::NothingFailed);
    }
    Ok(RetryScope { again, reset })
}

/// Returns the activations that failed or were cancelled, except for failures that the workflow
/// handled. Only the latest activation of a node in a
/// scope counts: earlier failures were already retried.
fn unfinished(graph: &IndexedPlan, state: &ExecutionState) -> Vec<ActivationId> {
    let acts = 0..state.acts.len() as ActivationId;
    acts.filter(|act| {
        let one = state.act(*act);
        one.owner.is_none()
            && !is_exit(graph, one.node)
            && match one.end {
                Some(ActivationEnd::Failed) => !graph.plan().node(one.node).handles_failure,
                end => end == Some(ActivationEnd::Cancelled),
            }
            && state.last(one.scope, one.node) == Some(*act)
    })
    .collect()
}

fn can_run_again(
    graph: &IndexedPlan,
    state: &ExecutionState,
    left: &[ActivationId],
    id: &str,
) -> Result<(), InputRefusal> {
    let Some(ix) = graph.plan().find(id) else { return Err(InputRefusal::NoSuchNode(id.to_owned())) };
    if left.iter().any(|act| state.act(*act).node == ix) {
        return Ok(());
    }
    let mut ran = state.acts.iter().filter(|one| one.node == ix).peekable();
    let has_run = ran.peek().is_some();
    let inner = graph.plan().node(ix).inner || ran.any(|one| one.owner.is_some());
    Err(match () {
        () if inner || is_exit(graph, ix) => InputRefusal::NotItsOwn(id.to_owned()),
        () if has_run => InputRefusal::DidNotFail(id.to_owned()),
        () => InputRefusal::NeverRan(id.to_owned()),
    })
}

/// Returns whether the named node can receive this input.
fn takes(
    graph: &IndexedPlan,
    nodes: &[String],
    reset: &BTreeSet<NodeIndex>,
    input: &Value,
) -> Result<(), InputRefusal> {
    let [id] = nodes else { return Err(InputRefusal::ManyNodes(nodes.len())) };
    let plan = graph.plan();
    let Some(ix) = plan.find(id) else { return Err(InputRefusal::NoSuchNode(id.clone())) };
    if !matches!(plan.node(ix).op, NodeOperation::Agent | NodeOperation::Workflow) {
        return Err(InputRefusal::TakesNoInput(id.clone()));
    }
    if reset.contains(&ix) {
        return Err(InputRefusal::TakesFromOthers(id.clone()));
    }
    let fault = size::too_large("the input", input, plan.limits.value_bytes);
    fault.map_or(Ok(()), |fault| Err(InputRefusal::BadInput(fault.message)))
}

fn is_named(graph: &IndexedPlan, state: &ExecutionState, retry: &RetryRequest, act: ActivationId) -> bool {
    retry.nodes.contains(&graph.plan().node(state.act(act).node).id)
}

/// Returns whether this is an exit node; exit nodes run again with every end of the execution.
fn is_exit(graph: &IndexedPlan, node: NodeIndex) -> bool {
    graph.plan().exits.iter().any(|exit| exit.node == node)
}

impl Decider<'_> {
    pub(super) fn reopen(&mut self, retry: &RetryRequest, reason: String) -> Result<(), InputRefusal> {
        if let (Some(input), []) = (&retry.input, retry.nodes.as_slice()) {
            let input = Some(afresh(self.graph, self.adapter, self.state, input)?);
            self.emit(Fact::Reopened { acts: Vec::new(), reset: Vec::new(), reason, input });
            self.enter();
            return Ok(());
        }
        let RetryScope { again, reset } = scope(self.graph, self.state, retry)?;
        let input: Option<SharedJson> = retry.input.clone().map(Arc::new);
        let reset = reset.into_iter().collect();
        self.emit(Fact::Reopened { acts: again.clone(), reset, reason, input: None });
        for act in again {
            let input = input.clone().filter(|_| is_named(self.graph, self.state, retry, act));
            let one = self.state.act(act);
            let made = NewActivation {
                node: one.node,
                scope: one.scope,
                from: ROOT,
                take: Some(0),
                again: Some(act),
                input,
                ..NewActivation::default()
            };
            if !self.activate(made) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the end of the activations that a retry of other nodes left unchanged: a failure,
    /// otherwise a cancellation.
    pub(super) fn left_behind(&self) -> Option<(Option<ActivationId>, Fault)> {
        if self.state.reopened == 0 {
            return None;
        }
        let left = unfinished(self.graph, self.state);
        let routes_on = self.graph.plan().profile.failure == FailurePolicy::RouteOn;
        let failed =
            left.iter().find(|act| !routes_on && self.state.act(**act).end == Some(ActivationEnd::Failed));
        if let Some(act) = failed {
            return self.state.act(*act).fault.clone().map(|fault| (Some(*act), fault));
        }
        let act = left.iter().find(|act| self.state.act(**act).end == Some(ActivationEnd::Cancelled))?;
        Some((Some(*act), Self::cancelled("only others were run again")))
    }
}
