//! The adapter's view of an execution.

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
    /// Time of the decision. Values derived from it are recorded, so a replay does not read it
    /// again.
    pub now: Time,
    execution: Option<&'a str>,
    notes: RefCell<Vec<Value>>,
}

/// State of a node, as seen by later nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeView<'a> {
    /// Not reached yet.
    Absent,
    /// Open.
    Open,
    /// Not going to run: its branch was not taken.
    Dead(&'a str),
    /// Ended, with this output (null if it has none).
    Ended(ActivationEnd, Option<&'a SharedJson>),
}

impl<'a> AdapterContext<'a> {
    /// Creates a context for one hook.
    pub fn new(graph: &'a IndexedPlan, state: &'a ExecutionState, now: Time) -> Self {
        Self { graph, state, now, execution: None, notes: RefCell::new(Vec::new()) }
    }

    /// Adds the id of the execution, for events and results that contain it, and for random
    /// numbers: a dialect derives them from the id, so that every owner and every replay gets the
    /// same.
    #[must_use]
    pub fn with_execution_id(self, id: &'a str) -> Self {
        Self { execution: Some(id), ..self }
    }

    /// Adds the id of the execution, if it is known.
    #[must_use]
    pub(crate) fn with_id(self, id: Option<&'a str>) -> Self {
        Self { execution: id.or(self.execution), ..self }
    }

    /// Returns the id of the execution, if the caller knows it.
    pub fn execution_id(&self) -> Option<&'a str> {
        self.execution
    }

    /// Returns the plan.
    pub fn plan(&self) -> &'a Plan {
        self.graph.plan()
    }

    /// Returns the execution's input; null before the start.
    pub fn input(&self) -> &'a Value {
        self.state.start.as_ref().map_or(&Value::Null, |start| &start.input)
    }

    /// Returns how the execution was started: dry run, given results.
    pub fn mode(&self) -> Option<&'a ExecutionMode> {
        self.state.start.as_ref().map(|start| &start.mode)
    }

    /// Returns whether no agent is called.
    pub fn dry_run(&self) -> bool {
        self.mode().is_some_and(|mode| mode.dry_run)
    }

    /// Returns the activation.
    pub fn act(&self, act: ActivationId) -> &'a Activation {
        self.state.act(act)
    }

    /// Returns the activation's node.
    pub fn node_of(&self, act: ActivationId) -> &'a PlanNode {
        self.plan().node(self.act(act).node)
    }

    /// Returns the latest activation of a node as seen from a scope: in the scope itself, then in
    /// the enclosing ones.
    pub fn latest(&self, mut scope: ScopeId, node: NodeIndex) -> Option<ActivationId> {
        loop {
            if let Some(act) = self.state.last(scope, node) {
                return Some(act);
            }
            scope = self.state.scope(scope)?.parent;
        }
    }

    /// Returns the state of a node, as seen from a scope.
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

    /// Returns the nearest item of a scope with its position; `None` in the root.
    pub fn item(&self, scope: ScopeId) -> Option<(&'a SharedJson, u32)> {
        self.state.scope(scope).map(|scope| (&scope.item, scope.index))
    }

    /// Returns whether an edge may still be taken.
    pub fn edge_open(&self, edge: EdgeIndex) -> bool {
        let edge = self.plan().edge(edge);
        edge.budget.is_none_or(|budget| self.state.taken(edge.counter) < budget)
    }

    /// Returns the outputs of the children of a map, loop or fork in order; null for those without
    /// an output.
    pub fn child_outputs(&self, act: ActivationId) -> impl Iterator<Item = SharedJson> + '_ {
        let acts = self.act(act).children.as_ref().map_or(&[][..], |children| &children.acts);
        acts.iter().map(|child| {
            self.act(*child).output.as_ref().map(|output| output.value.clone()).unwrap_or_default()
        })
    }

    /// Returns the fault of the first failed child.
    pub fn child_fault(&self, act: ActivationId) -> Option<&'a Fault> {
        let children = self.act(act).children.as_ref()?;
        children.failed.and_then(|child| self.act(child).fault.as_ref())
    }

    /// Returns the outcome, once the graph is complete (for exit nodes).
    pub fn outcome(&self) -> Option<&'a ExecutionOutcome> {
        self.state.outcome.as_ref()
    }

    /// Returns the scope of the whole execution.
    pub const fn root(&self) -> ScopeId {
        ROOT
    }

    /// Records a note of the adapter; it becomes a fact before the hook's result.
    pub fn note(&self, note: Value) {
        self.notes.borrow_mut().push(note);
    }

    /// Returns the recorded notes.
    pub(crate) fn into_notes(self) -> Vec<Value> {
        self.notes.into_inner()
    }
}
