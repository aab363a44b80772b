//! A plan with its adjacency, shared by all of its executions.

use std::sync::Arc;

use sinew_plan::{EdgeIndex, NodeIndex, Plan, PlanError};

/// A checked plan with its indexes.
#[derive(Clone, Debug)]
pub struct IndexedPlan {
    plan: Arc<Plan>,
    digest: String,
    out: Vec<Vec<EdgeIndex>>,
    incoming: Vec<Vec<EdgeIndex>>,
    required: Vec<u32>,
    counters: usize,
}

impl IndexedPlan {
    /// Checks the plan and indexes it.
    pub fn new(plan: Arc<Plan>) -> Result<Self, PlanError> {
        sinew_plan::check(&plan)?;
        let mut out = vec![Vec::new(); plan.nodes.len()];
        let mut incoming = vec![Vec::new(); plan.nodes.len()];
        let mut required = vec![0; plan.nodes.len()];
        for (ix, edge) in plan.edges.iter().enumerate().filter(|(_, edge)| !edge.attach) {
            out[edge.from as usize].push(ix as EdgeIndex);
            incoming[edge.to as usize].push(ix as EdgeIndex);
            required[edge.to as usize] += u32::from(!edge.quorum);
        }
        let counters = plan.edges.iter().map(|edge| edge.counter as usize + 1).max().unwrap_or(0);
        let digest = sinew_plan::digest(&plan);
        Ok(Self { plan, digest, out, incoming, required, counters })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the plan's digest.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the flow edges that leave a node, in sending order.
    pub fn out_edges(&self, node: NodeIndex) -> &[EdgeIndex] {
        &self.out[node as usize]
    }

    /// Returns the flow edges that reach a node.
    pub fn in_edges(&self, node: NodeIndex) -> &[EdgeIndex] {
        &self.incoming[node as usize]
    }

    /// Returns the number of a node's incoming edges that do not count towards its quorum.
    pub(crate) fn required(&self, node: NodeIndex) -> u32 {
        self.required[node as usize]
    }

    /// Returns the number of traversal counters of the edges.
    pub(crate) fn counters(&self) -> usize {
        self.counters
    }
}
