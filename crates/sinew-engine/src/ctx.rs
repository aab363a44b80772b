//! The view of an execution for its adapter.

use std::cell::RefCell;

use serde_json::Value;
use sinew_plan::{EdgeIndex, NodeIndex, Plan, PlanNode};
use sinew_protocol::Fault;

use crate::fact::{ExecutionMode, ExecutionOutcome};
use crate::graph::IndexedPlan;
use crate::state::{Activation, ActivationEnd, ExecutionState};
use crate::{ActivationId, ROOT, ScopeId, SharedJson, Time};

/// Read access to one execution, for one hook of an adapter.
#[derive(Debug)]
pub struct AdapterContext<'a> {
    /// The plan and its adjacency.
    pub graph: &'a IndexedPlan,
    /// The state.
    pub state: &'a ExecutionState,
    /// The time of the decision. Values made from it are recorded, so replay never reads it again.
    pub now: Time,
    execution: Option<&'a str>,
    notes: RefCell<Vec<Value>>,
}

/// How a node stands, as later nodes see it.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeView<'a> {
    /// Not reached (yet).
    Absent,
    /// At work.
    Open,
    /// Will not run: its branch was not taken.
    Dead(&'a str),
    /// Ended, with this output (null when it has none).
    Ended(ActivationEnd, Option<&'a SharedJson>),
}

impl<'a> AdapterContext<'a> {
    /// A context for one hook.
    pub fn new(graph: &'a IndexedPlan, state: &'a ExecutionState, now: Time) -> Self {
        Self { graph, state, now, execution: None, notes: RefCell::new(Vec::new()) }
    }

    /// The same context with the id of the execution, for events and results that name it, and for chance: numbers that a
    /// dialect draws while it decides come from the id, so that each owner and each replay draws the same.
    #[must_use]
    pub fn with_execution_id(self, id: &'a str) -> Self {
        Self { execution: Some(id), ..self }
    }

    /// The same context with the id of the execution, if it is known.
    #[must_use]
    pub(crate) fn with_id(self, id: Option<&'a str>) -> Self {
        Self { execution: id.or(self.execution), ..self }
    }

    /// The id of the execution, where the caller knows it.
    pub fn execution_id(&self) -> Option<&'a str> {
        self.execution
    }

    /// The plan.
    pub fn plan(&self) -> &'a Plan {
        self.graph.plan()
    }

    /// The execution's input; null before the start.
    pub fn input(&self) -> &'a Value {
        self.state.start.as_ref().map_or(&Value::Null, |start| &start.input)
    }

    /// How the execution was started: dry run, given results.
    pub fn mode(&self) -> Option<&'a ExecutionMode> {
        self.state.start.as_ref().map(|start| &start.mode)
    }

    /// True if no agent is asked anything.
    pub fn dry_run(&self) -> bool {
        self.mode().is_some_and(|mode| mode.dry_run)
    }

    /// The activation.
    pub fn act(&self, act: ActivationId) -> &'a Activation {
        self.state.act(act)
    }

    /// The activation's node.
    pub fn node_of(&self, act: ActivationId) -> &'a PlanNode {
        self.plan().node(self.act(act).node)
    }

    /// The latest activation of a node, seen from a scope: the scope itself, then those around it.
    pub fn latest(&self, mut scope: ScopeId, node: NodeIndex) -> Option<ActivationId> {
        loop {
            if let Some(act) = self.state.last(scope, node) {
                return Some(act);
            }
            scope = self.state.scope(scope)?.parent;
        }
    }

    /// How a node stands, seen from a scope.
    pub fn seen(&self, mut scope: ScopeId, node: NodeIndex) -> NodeView<'a> {
        if let Some(act) = self.latest(scope, node) {
            let act = self.act(act);
            return match act.end {
                Some(end) => NodeView::Ended(end, act.output.as_ref().map(|output| &output.value)),
                None => NodeView::Open,
            };
        }
        loop {
            if let Some(reason) = self.state.died(scope, node) {
                return NodeView::Dead(reason);
            }
            match self.state.scope(scope) {
                Some(inner) => scope = inner.parent,
                None => return NodeView::Absent,
            }
        }
    }

    /// The nearest item around a scope: what it is and its position. None in the root.
    pub fn item(&self, scope: ScopeId) -> Option<(&'a SharedJson, u32)> {
        self.state.scope(scope).map(|scope| (&scope.item, scope.index))
    }

    /// True if an edge may still be taken.
    pub fn edge_open(&self, edge: EdgeIndex) -> bool {
        let edge = self.plan().edge(edge);
        edge.budget.is_none_or(|budget| self.state.taken(edge.counter) < budget)
    }

    /// Outputs of the children of a map, loop or fork, in order; null for those that have none.
    pub fn child_outputs(&self, act: ActivationId) -> impl Iterator<Item = SharedJson> + '_ {
        let acts = self.act(act).children.as_ref().map_or(&[][..], |children| &children.acts);
        acts.iter().map(|child| {
            self.act(*child).output.as_ref().map(|output| output.value.clone()).unwrap_or_default()
        })
    }

    /// The fault of the first child that failed.
    pub fn child_fault(&self, act: ActivationId) -> Option<&'a Fault> {
        let children = self.act(act).children.as_ref()?;
        children.failed.and_then(|child| self.act(child).fault.as_ref())
    }

    /// The outcome, once the graph is done (exit nodes see it).
    pub fn outcome(&self) -> Option<&'a ExecutionOutcome> {
        self.state.outcome.as_ref()
    }

    /// The scope of the whole execution.
    pub const fn root(&self) -> ScopeId {
        ROOT
    }

    /// Records a note of the adapter; it becomes a fact before what the hook returns.
    pub fn note(&self, note: Value) {
        self.notes.borrow_mut().push(note);
    }

    /// The notes recorded so far.
    pub(crate) fn into_notes(self) -> Vec<Value> {
        self.notes.into_inner()
    }
}
