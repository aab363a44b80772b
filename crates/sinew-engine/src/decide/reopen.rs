//! An operator's retry: what failed runs again, what depends on it starts afresh, everything else is kept.

use std::collections::{BTreeMap, BTreeSet};

use sinew_plan::{Join, NodeIx};

use super::Decider;
use crate::fact::{Fact, Made, Status};
use crate::graph::Graph;
use crate::input::{Refused, RetryPlan};
use crate::state::{End, State};
use crate::{ActId, ROOT};

/// What a retry touches.
struct Scope {
    /// Activations that run again, in the order in which they were made.
    again: Vec<ActId>,
    /// Nodes whose joins start afresh.
    reset: BTreeSet<NodeIx>,
}

/// What a retry would do. The same rule decides when it is carried out.
pub fn plan_retry(graph: &Graph, state: &State, nodes: &[String]) -> Result<RetryPlan, Refused> {
    let scope = scope(graph, state, nodes)?;
    let id = |node: NodeIx| graph.plan().node(node).id.clone();
    let mut rerun: BTreeMap<String, u32> = BTreeMap::new();
    for act in &scope.again {
        let one = state.act(*act);
        let children = one.children.as_ref().map_or(0, |own| {
            let kept =
                own.acts.iter().filter(|child| state.act(**child).end.is_some_and(End::is_success)).count();
            own.list.len().saturating_sub(kept) as u32
        });
        *rerun.entry(id(one.node)).or_default() += children;
    }
    let touched = |node: NodeIx| {
        scope.reset.contains(&node) || scope.again.iter().any(|act| state.act(*act).node == node)
    };
    let keep: BTreeSet<NodeIx> = state
        .acts
        .iter()
        .filter(|one| one.owner.is_none() && one.end.is_some_and(End::is_success))
        .filter(|one| !touched(one.node) && !is_exit(graph, one.node))
        .map(|one| one.node)
        .collect();
    Ok(RetryPlan {
        keep: keep.into_iter().map(id).collect(),
        rerun,
        reset: scope.reset.iter().map(|node| id(*node)).collect(),
    })
}

fn scope(graph: &Graph, state: &State, nodes: &[String]) -> Result<Scope, Refused> {
    if !state.ended {
        return Err(Refused::NotEnded);
    }
    if state.outcome.as_ref().is_some_and(|outcome| outcome.status == Status::Success) {
        return Err(Refused::NothingFailed);
    }
    // Only the latest activation of a node in a scope counts: earlier failures were retried already.
    let failed: Vec<ActId> = (0..state.acts.len() as ActId)
        .filter(|act| {
            let one = state.act(*act);
            one.owner.is_none()
                && !is_exit(graph, one.node)
                && matches!(one.end, Some(End::Failed | End::Cancelled))
                && state.last(one.scope, one.node) == Some(*act)
        })
        .collect();
    for id in nodes {
        let known =
            graph.plan().find(id).is_some_and(|ix| failed.iter().any(|act| state.act(*act).node == ix));
        if !known {
            return Err(Refused::NoSuchFailure(id.clone()));
        }
    }
    // With names, cancelled ones still run again: they never had their turn.
    let wanted = |act: &ActId| {
        let one = state.act(*act);
        nodes.is_empty()
            || one.end == Some(End::Cancelled)
            || nodes.iter().any(|id| *id == graph.plan().node(one.node).id)
    };
    let again: Vec<ActId> = failed.iter().copied().filter(wanted).collect();
    if again.is_empty() {
        return Err(Refused::NothingFailed);
    }
    let mut reset = BTreeSet::new();
    let mut queue: Vec<NodeIx> = again.iter().map(|act| state.act(*act).node).collect();
    while let Some(node) = queue.pop() {
        for edge in graph.out_edges(node) {
            let to = graph.plan().edge(*edge).to;
            let waits = matches!(graph.plan().node(to).join, Join::Resolved { .. });
            if waits && reset.insert(to) {
                queue.push(to);
            }
        }
    }
    // A node that depends on another one that runs again is reached by flow, not started on its own.
    let again = again.into_iter().filter(|act| !reset.contains(&state.act(*act).node)).collect();
    Ok(Scope { again, reset })
}

/// Exit nodes run again with every end of the execution.
fn is_exit(graph: &Graph, node: NodeIx) -> bool {
    graph.plan().exits.iter().any(|exit| exit.node == node)
}

impl Decider<'_> {
    pub(super) fn reopen(&mut self, nodes: &[String], reason: String) -> Result<(), Refused> {
        let Scope { again, reset } = scope(self.graph, self.state, nodes)?;
        self.emit(Fact::Reopened { acts: again.clone(), reset: reset.into_iter().collect(), reason });
        for act in again {
            let one = self.state.act(act);
            let made = Made {
                node: one.node,
                scope: one.scope,
                from: ROOT,
                take: Some(0),
                again: Some(act),
                ..Made::default()
            };
            if !self.activate(made) {
                break;
            }
        }
        Ok(())
    }
}
