//! Rules for all plans, independent of the dialect.

use crate::{JoinRule, NodeIndex, NodeOperation, Plan};

/// Error for a plan that the engine does not run: a dialect has a bug, or the plan was modified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Written in a format that this version does not support.
    #[error("plan format {0} is not supported by this version")]
    Format(u32),
    /// No node has this index.
    #[error("{place} names node {ix}, which does not exist")]
    NoNode {
        /// Location of the index.
        place: String,
        /// The index.
        ix: NodeIndex,
    },
    /// Two nodes have the same id.
    #[error("two nodes have the id '{0}'")]
    DuplicateId(String),
    /// A quorum that can never be reached, or without edges.
    #[error("node '{node}' waits for {quorum} of {edges} edges")]
    Quorum {
        /// Id of the node.
        node: String,
        /// Edges it waits for.
        quorum: u32,
        /// Edges that count.
        edges: u32,
    },
    /// A counter above the number of edges; each would use memory in every execution.
    #[error("edge {edge} is counted by counter {counter}, where there are {edges} edges")]
    Counter {
        /// The edge.
        edge: usize,
        /// Its counter.
        counter: u32,
        /// Number of edges.
        edges: usize,
    },
    /// The plan has no entry node, so no node would start.
    #[error("the plan has no entry node")]
    NoEntry,
    /// A body that is also reached by flow edges would run twice.
    #[error("node '{0}' is a body and must not be an entry or have flow edges")]
    BodyInFlow(String),
}

/// Checks a plan before it runs.
pub fn check(plan: &Plan) -> Result<(), PlanError> {
    if plan.format != Plan::FORMAT {
        return Err(PlanError::Format(plan.format));
    }
    let count = plan.nodes.len() as NodeIndex;
    let exists = |place: &dyn Fn() -> String, ix: NodeIndex| {
        if ix < count { Ok(()) } else { Err(PlanError::NoNode { place: place(), ix }) }
    };
    let mut ids = std::collections::BTreeSet::new();
    for node in &plan.nodes {
        if !ids.insert(node.id.as_str()) {
            return Err(PlanError::DuplicateId(node.id.clone()));
        }
        let place = || format!("node '{}'", node.id);
        match &node.op {
            NodeOperation::Map { body } | NodeOperation::Loop { body } => exists(&place, *body)?,
            NodeOperation::Fork { bodies } => bodies.iter().try_for_each(|body| exists(&place, *body))?,
            NodeOperation::Source
            | NodeOperation::Agent
            | NodeOperation::Pure
            | NodeOperation::Human
            | NodeOperation::Delay
            | NodeOperation::Workflow => {}
        }
    }
    for (n, edge) in plan.edges.iter().enumerate() {
        let place = || format!("edge {n}");
        exists(&place, edge.from)?;
        exists(&place, edge.to)?;
        if edge.counter as usize >= plan.edges.len() {
            return Err(PlanError::Counter { edge: n, counter: edge.counter, edges: plan.edges.len() });
        }
        if !edge.attach && plan.node(edge.to).inner {
            return Err(PlanError::BodyInFlow(plan.node(edge.to).id.clone()));
        }
    }
    for ix in &plan.entry {
        exists(&|| "entry".to_owned(), *ix)?;
        if plan.node(*ix).inner {
            return Err(PlanError::BodyInFlow(plan.node(*ix).id.clone()));
        }
    }
    for exit in &plan.exits {
        exists(&|| "exit".to_owned(), exit.node)?;
    }
    if plan.entry.is_empty() {
        return Err(PlanError::NoEntry);
    }
    check_quorums(plan)
}

fn check_quorums(plan: &Plan) -> Result<(), PlanError> {
    let mut counting = vec![0u32; plan.nodes.len()];
    for edge in plan.edges.iter().filter(|edge| edge.quorum) {
        counting[edge.to as usize] += 1;
    }
    for (node, edges) in plan.nodes.iter().zip(counting) {
        if let JoinRule::Resolved { quorum: Some(quorum) } = node.join
            && (quorum == 0 || quorum > edges)
        {
            return Err(PlanError::Quorum { node: node.id.clone(), quorum, edges });
        }
    }
    Ok(())
}
