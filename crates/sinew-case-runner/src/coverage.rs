//! `--coverage`: nodes, edges and branches of the tested workflows that no case reached.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sinew_diagram::{Direction, Drawing, NodeMark, Status};
use sinew_engine::Fact;
use sinew_execution::Execution;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_plan::{EdgeIndex, NodeIndex, NodeOperation, Plan};
use sinew_protocol::code;

/// Coverage of all tested workflows, by name.
#[derive(Debug, Default)]
pub struct Coverage {
    workflows: BTreeMap<String, Covered>,
}

/// Covered parts of a workflow.
#[derive(Debug)]
pub(crate) struct Covered {
    /// The last execution of a workflow of this name.
    pub(crate) execution: Execution,
    began: Vec<bool>,
    taken: Vec<bool>,
}

impl Coverage {
    /// Adds the coverage of an execution.
    pub(crate) fn add(&mut self, execution: &Execution) {
        let plan = execution.program().graph.plan();
        let name = plan.name.clone();
        let covered = self.workflows.entry(name).or_insert_with(|| Covered::new(execution));
        if covered.plan() != plan {
            *covered = Covered::new(execution);
        }
        execution.replay(|ctx, fact| match fact {
            Fact::Began { act } => covered.began[ctx.act(*act).node as usize] = true,
            Fact::Routed { tokens, .. } | Fact::Yielded { tokens, .. } => {
                for token in tokens.iter().filter(|token| token.value.is_live()) {
                    covered.taken[token.edge as usize] = true;
                }
            }
            _ => {}
        });
    }

    /// Returns the coverage by workflow name.
    pub(crate) fn workflows(&self) -> impl Iterator<Item = (&str, &Covered)> {
        self.workflows.iter().map(|(name, covered)| (name.as_str(), covered))
    }

    /// Formats the coverage for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, covered) in self.workflows() {
            let [nodes, edges, branches] = covered.counts();
            let part = |(hit, all): (usize, usize), what: &str| format!("{hit} of {all} {what}");
            let _ = writeln!(
                text,
                "coverage of {name}: {}, {}, {}",
                part(nodes, "nodes"),
                part(edges, "edges"),
                part(branches, "branches")
            );
            for line in covered.missed_nodes().map(|id| format!("node {id}")).chain(covered.missed_edges()) {
                let _ = writeln!(text, "  not reached: {line}");
            }
        }
        text
    }

    /// Returns the coverage as JSON.
    pub fn json(&self) -> Value {
        let one = |covered: &Covered| {
            let [nodes, edges, branches] = covered.counts();
            let part = |(hit, all): (usize, usize)| json!({ "reached": hit, "all": all });
            json!({
                "nodes": part(nodes),
                "edges": part(edges),
                "branches": part(branches),
                "missed_nodes": covered.missed_nodes().collect::<Vec<_>>(),
                "missed_edges": covered.missed_edges().collect::<Vec<_>>(),
            })
        };
        self.workflows().map(|(name, covered)| (name.to_owned(), one(covered))).collect()
    }

    /// Draws the coverage. With several workflows, inserts their names before the suffix of `out`.
    pub fn write_drawing(&self, out: &Path) -> Result<(), Failure> {
        let several = self.workflows().count() > 1;
        for (name, covered) in self.workflows() {
            let path = if several { numbered(out, name) } else { out.to_owned() };
            let svg = sinew_diagram::svg(&covered.drawing())
                .map_err(|error| Failure::new(FailureKind::Failed, error.code(), error.to_string()))?;
            std::fs::write(&path, svg).map_err(|error| {
                Failure::new(
                    FailureKind::Failed,
                    code::FILE_CANNOT_BE_WRITTEN.as_str(),
                    format!("cannot write {}: {error}", path.display()),
                )
            })?;
        }
        Ok(())
    }
}

impl Covered {
    fn new(execution: &Execution) -> Self {
        let plan = execution.program().graph.plan();
        Self {
            began: vec![false; plan.nodes.len()],
            taken: vec![false; plan.edges.len()],
            execution: execution.clone(),
        }
    }

    /// Returns the workflow's plan.
    pub(crate) fn plan(&self) -> &Plan {
        self.execution.program().graph.plan()
    }

    /// Returns whether a case reached the node.
    pub(crate) fn node(&self, ix: NodeIndex) -> bool {
        self.began[ix as usize]
    }

    /// Returns whether a case took the edge.
    pub(crate) fn edge(&self, ix: EdgeIndex) -> bool {
        self.taken[ix as usize]
    }

    /// Returns the drawing of the workflow, with covered parts as succeeded and the others as skipped.
    pub(crate) fn drawing(&self) -> Drawing {
        let plan = self.plan();
        let mut drawing = sinew_inspection::drawing::draw(plan, Direction::default(), None);
        let reached = |id: &str| plan.find(id).map(|ix| self.node(ix));
        for node in &mut drawing.nodes {
            let status = match reached(&node.id) {
                Some(true) => Status::Succeeded,
                Some(false) => Status::Skipped,
                None => continue,
            };
            node.status = Some(NodeMark { status, note: None });
        }
        for edge in &mut drawing.edges {
            let own = self.edges().find(|ix| {
                let of = plan.edge(*ix);
                plan.node(of.from).id == edge.from && plan.node(of.to).id == edge.to && of.label == edge.label
            });
            // Edges that only the drawing has (start, finish, children) are covered if both ends are.
            let both = [&edge.from, &edge.to].into_iter().all(|id| reached(id).unwrap_or(true));
            edge.taken = Some(u32::from(own.map_or(both, |ix| self.edge(ix))));
        }
        drawing
    }

    fn nodes(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        let plan = self.plan();
        (0..plan.nodes.len() as NodeIndex).filter(|ix| !plan.node(*ix).attached)
    }

    fn edges(&self) -> impl Iterator<Item = EdgeIndex> + '_ {
        let plan = self.plan();
        (0..plan.edges.len() as EdgeIndex).filter(|ix| !plan.edge(*ix).attach)
    }

    /// Returns whether an edge is a branch: its node can take another one instead.
    fn is_branch(&self, ix: EdgeIndex) -> bool {
        let plan = self.plan();
        let edge = plan.edge(ix);
        let pure = plan.node(edge.from).op == NodeOperation::Pure;
        let ways = self.edges().map(|other| plan.edge(other)).filter(|other| other.from == edge.from);
        let ways: Vec<_> = ways.collect();
        let differ = ways.iter().any(|other| other.port != edge.port || other.label != edge.label);
        differ || (pure && ways.len() > 1 && edge.label.is_some())
    }

    /// Returns covered and total counts of nodes, edges, branches.
    fn counts(&self) -> [(usize, usize); 3] {
        let count = |all: Vec<bool>| (all.iter().filter(|hit| **hit).count(), all.len());
        [
            count(self.nodes().map(|ix| self.node(ix)).collect()),
            count(self.edges().map(|ix| self.edge(ix)).collect()),
            count(self.edges().filter(|ix| self.is_branch(*ix)).map(|ix| self.edge(ix)).collect()),
        ]
    }

    fn missed_nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes().filter(|ix| !self.node(*ix)).map(|ix| self.plan().node(ix).id.as_str())
    }

    fn missed_edges(&self) -> impl Iterator<Item = String> + '_ {
        let plan = self.plan();
        self.edges().filter(|ix| !self.edge(*ix)).map(|ix| {
            let edge = plan.edge(ix);
            let kind = if self.is_branch(ix) { "branch" } else { "edge" };
            let label = edge.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
            format!("{kind} {} → {}{label}", plan.node(edge.from).id, plan.node(edge.to).id)
        })
    }
}

/// Inserts a workflow's name: `cover.svg` of workflow `a` becomes `cover.a.svg`.
fn numbered(out: &Path, name: &str) -> PathBuf {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
    out.with_extension(format!("{safe}.svg"))
}
