//! Values of an execution for templates and conditions of an activation.

use serde_json::Value;
use sinew_engine::{ActivationEnd, ActivationId, AdapterContext, NodeView, ScopeId, SharedJson};
use sinew_plan::{NodeIndex, NodeOperation};

use super::chance::{ChanceSeed, ConditionPosition, chance_seed};
use super::failure::error_value;
use super::path::{NodeLookup, TemplateScope};
use super::program::CompiledPlan;

/// The values of an execution that one scope can access.
pub(super) struct ScopeView<'c> {
    ctx: &'c AdapterContext<'c>,
    program: &'c CompiledPlan,
    scope: ScopeId,
    /// The activation that decides.
    act: Option<ActivationId>,
    workflow: Option<Value>,
    item: Option<&'c Value>,
    index: Option<u32>,
    iteration: Option<u32>,
}

impl<'c> ScopeView<'c> {
    /// Creates the view of nodes in this scope.
    pub(super) fn new(ctx: &'c AdapterContext<'c>, program: &'c CompiledPlan, scope: ScopeId) -> Self {
        let (item, index, iteration) = (None, None, None);
        let mut view =
            Self { ctx, program, scope, act: None, workflow: workflow(ctx), item, index, iteration };
        let mut at = scope;
        while let Some(inner) = ctx.state.scope(at) {
            match ctx.node_of(inner.owner).op {
                NodeOperation::Map { .. } if view.item.is_none() => {
                    view.item = Some(&inner.item);
                    view.index = Some(inner.index);
                }
                NodeOperation::Loop { .. } if view.iteration.is_none() => view.iteration = Some(inner.index),
                _ => {}
            }
            at = inner.parent;
        }
        view
    }

    /// Creates the view of an activation that is about to start.
    pub(super) fn of_activation(
        ctx: &'c AdapterContext<'c>,
        program: &'c CompiledPlan,
        act: ActivationId,
    ) -> Self {
        Self { act: Some(act), ..Self::new(ctx, program, ctx.act(act).scope) }
    }

    /// Creates the view of a loop's condition, after its latest iteration.
    pub(super) fn after_iteration(
        ctx: &'c AdapterContext<'c>,
        program: &'c CompiledPlan,
        owner: ActivationId,
    ) -> Self {
        let mut view = Self::of_activation(ctx, program, owner);
        let done = ctx.act(owner).children.as_ref().map_or(0, |children| children.acts.len());
        view.iteration = u32::try_from(done).ok().and_then(|done| done.checked_sub(1));
        view
    }

    /// Returns the output of a node, shared; `None` if it has none or was skipped.
    pub(super) fn output(&self, id: &str) -> Option<&'c SharedJson> {
        let ix = self.program.find(id)?;
        if self.ctx.plan().node(ix).inner {
            return self.inner(ix);
        }
        match self.ctx.seen(self.scope, ix) {
            NodeView::Ended(ActivationEnd::Succeeded | ActivationEnd::Failed, output) => output,
            _ => None,
        }
    }

    /// Returns the latest activation of a node, or of the body of a loop.
    fn latest(&self, ix: NodeIndex) -> Option<ActivationId> {
        let in_loop = |owner: &NodeIndex| {
            let is_loop = matches!(self.ctx.plan().node(*owner).op, NodeOperation::Loop { .. });
            let owner = self.ctx.latest(self.scope, *owner).filter(|_| is_loop)?;
            self.ctx.act(owner).children.as_ref()?.acts.last().copied()
        };
        let own = self.ctx.latest(self.scope, ix);
        own.or_else(|| self.program.owners[ix as usize].iter().find_map(in_loop))
    }

    fn skipped(&self, id: &str) -> bool {
        let ix = self.program.find(id);
        ix.is_some_and(|ix| {
            matches!(self.ctx.seen(self.scope, ix), NodeView::Ended(ActivationEnd::Skipped, _))
        })
    }

    /// Returns the latest output of a body: of the previous or the last iteration.
    fn inner(&self, ix: NodeIndex) -> Option<&'c SharedJson> {
        let ended = |act: ActivationId| {
            let one = self.ctx.act(act);
            one.output
                .as_ref()
                .filter(|_| one.end != Some(ActivationEnd::Skipped))
                .map(|output| &output.value)
        };
        let mut at = self.scope;
        loop {
            if let Some(output) = self.ctx.state.last(at, ix).and_then(ended) {
                return Some(output);
            }
            for owner in &self.program.owners[ix as usize] {
                let Some(children) =
                    self.ctx.state.last(at, *owner).and_then(|act| self.ctx.act(act).children.as_ref())
                else {
                    continue;
                };
                match &self.ctx.plan().node(*owner).op {
                    NodeOperation::Loop { .. } => {
                        if let Some(output) = children.acts.iter().rev().find_map(|act| ended(*act)) {
                            return Some(output);
                        }
                    }
                    NodeOperation::Fork { bodies } => {
                        let branch = bodies.iter().position(|body| *body == ix);
                        let act = branch.and_then(|branch| children.acts.get(branch));
                        if let Some(output) = act.and_then(|act| ended(*act)) {
                            return Some(output);
                        }
                    }
                    // The body of a map has one output per item, so it has no single output.
                    _ => {}
                }
            }
            at = self.ctx.state.scope(at)?.parent;
        }
    }
}

impl TemplateScope for ScopeView<'_> {
    fn input(&self) -> Option<&Value> {
        self.ctx.state.start.as_ref().map(|start| &*start.input)
    }

    fn workflow(&self) -> Option<&Value> {
        self.workflow.as_ref()
    }

    fn item(&self) -> Option<&Value> {
        self.item
    }

    fn index(&self) -> Option<u32> {
        self.index
    }

    fn iteration(&self) -> Option<u32> {
        self.iteration
    }

    fn node(&self, id: &str) -> NodeLookup<'_> {
        match self.output(id) {
            Some(output) => NodeLookup::Done(output),
            None if self.skipped(id) => NodeLookup::Skipped,
            None => NodeLookup::Absent,
        }
    }

    fn error(&self, id: &str) -> Option<Value> {
        let ix = self.program.find(id).filter(|ix| self.ctx.plan().node(*ix).handles_failure)?;
        let act =
            self.latest(ix).map(|act| self.ctx.act(act)).filter(|one| one.end == Some(ActivationEnd::Failed));
        Some(act.and_then(|one| one.fault.as_ref()).map(error_value).unwrap_or_default())
    }

    fn chance_seed(&self, place: ConditionPosition) -> ChanceSeed {
        let execution = self.ctx.execution_id().unwrap_or_default();
        let Some(act) = self.act else { return chance_seed(&[execution], 0, place) };
        let (node, label) = (&self.ctx.node_of(act).id, name(self.ctx, act));
        chance_seed(&[execution, node, &label], self.ctx.act(act).ordinal, place)
    }

    fn lenient(&self) -> bool {
        self.ctx.dry_run()
    }
}

/// Returns `workflow.status` and `workflow.error`, once the graph is done.
fn workflow(ctx: &AdapterContext<'_>) -> Option<Value> {
    let outcome = ctx.outcome()?;
    let error = outcome.fault.as_ref().map(|fault| {
        let node = outcome.cause.map(|act| name(ctx, failed_first(ctx, act)));
        serde_json::json!({ "message": fault.message, "node_id": node })
    });
    Some(serde_json::json!({ "status": outcome.status.as_str(), "error": error }))
}

/// Returns the activation whose own failure made this one fail.
pub(super) fn failed_first(ctx: &AdapterContext<'_>, mut act: ActivationId) -> ActivationId {
    while let Some(child) = ctx.act(act).children.as_ref().and_then(|children| children.failed) {
        act = child;
    }
    act
}

/// Returns the name of an activation in events and messages: `a`, `map_0`, `loop_iter_2`, a branch's id.
pub(super) fn name(ctx: &AdapterContext<'_>, act: ActivationId) -> String {
    let one = ctx.act(act);
    let node = ctx.node_of(act);
    let (Some(owner), Some(scope)) = (one.owner, ctx.state.scope(one.scope)) else {
        return node.id.clone();
    };
    match ctx.node_of(owner).op {
        NodeOperation::Map { .. } => format!("{}_{}", name(ctx, owner), scope.index),
        NodeOperation::Loop { .. } => format!("{}_iter_{}", name(ctx, owner), scope.index),
        _ => node.label.clone().unwrap_or_else(|| node.id.clone()),
    }
}
