//! `--coverage`: nodes, edges, branches and outcomes of the tested workflows that no case reached.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sinew_diagram::{Direction, Drawing, NodeMark, Status};
use sinew_engine::{ActivationEnd, Fact};
use sinew_execution::Execution;
use sinew_inspection::drawing::taken_edges;
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
    /// Outcomes of nodes, and whether a case had each.
    outcomes: Vec<(NodeOutcome, bool)>,
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
        execution.replay(|ctx, fact| {
            if let Fact::Began { act } = fact {
                covered.began[ctx.act(*act).node as usize] = true;
            }
            for edge in taken_edges(plan, ctx.state, fact) {
                covered.taken[edge as usize] = true;
            }
        });
        let seen = outcomes_of(execution);
        for (outcome, hit) in &mut covered.outcomes {
            *hit |= seen.contains(outcome);
        }
    }

    /// Returns the coverage by workflow name.
    pub(crate) fn workflows(&self) -> impl Iterator<Item = (&str, &Covered)> {
        self.workflows.iter().map(|(name, covered)| (name.as_str(), covered))
    }

    /// Formats the coverage for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, covered) in self.workflows() {
            let [nodes, edges, branches, outcomes] = covered.counts();
            let part = |(hit, all): (usize, usize), what: &str| format!("{hit} of {all} {what}");
            let mut parts = vec![part(nodes, "nodes"), part(edges, "edges"), part(branches, "branches")];
            if outcomes.1 > 0 {
                parts.push(part(outcomes, "outcomes"));
            }
            let _ = writeln!(text, "coverage of {name}: {}", parts.join(", "));
            let missed_nodes = covered.missed_nodes().map(|id| format!("node {id}"));
            for line in missed_nodes.chain(covered.missed_edges()).chain(covered.missed_outcomes()) {
                let _ = writeln!(text, "  not reached: {line}");
            }
        }
        text
    }

    /// Returns the coverage as JSON.
    pub fn json(&self) -> Value {
        let one = |covered: &Covered| {
            let [nodes, edges, branches, outcomes] = covered.counts();
            let part = |(hit, all): (usize, usize)| json!({ "reached": hit, "all": all });
            json!({
                "nodes": part(nodes),
                "edges": part(edges),
                "branches": part(branches),
                "outcomes": part(outcomes),
                "missed_nodes": covered.missed_nodes().collect::<Vec<_>>(),
                "missed_edges": covered.missed_edges().collect::<Vec<_>>(),
                "missed_outcomes": covered.missed_outcomes().collect::<Vec<_>>(),
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
            outcomes: possible_outcomes(plan).into_iter().map(|outcome| (outcome, false)).collect(),
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

    /// Returns covered and total counts of nodes, edges, branches and outcomes.
    fn counts(&self) -> [(usize, usize); 4] {
        let count = |all: Vec<bool>| (all.iter().filter(|hit| **hit).count(), all.len());
        [
            count(self.nodes().map(|ix| self.node(ix)).collect()),
            count(self.edges().map(|ix| self.edge(ix)).collect()),
            count(self.edges().filter(|ix| self.is_branch(*ix)).map(|ix| self.edge(ix)).collect()),
            count(self.outcomes.iter().map(|(_, hit)| *hit).collect()),
        ]
    }

    fn missed_nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes().filter(|ix| !self.node(*ix)).map(|ix| self.plan().node(ix).id.as_str())
    }

    fn missed_outcomes(&self) -> impl Iterator<Item = String> + '_ {
        let missed = self.outcomes.iter().filter(|(_, hit)| !hit);
        missed.map(|(outcome, _)| format!("{}: {}", self.plan().node(outcome.node).id, outcome.kind.words()))
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

/// An outcome of a node that its edges do not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeOutcome {
    node: NodeIndex,
    kind: OutcomeKind,
}

/// Kinds of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OutcomeKind {
    /// Its `when` holds.
    WhenHolds,
    /// Its `when` does not hold.
    WhenSkips,
    /// A loop ends by its condition.
    LoopEnds,
    /// A loop ends because it reached its maximum of iterations.
    LoopExhausted,
    /// An attempt is repeated.
    Retried,
    /// An item of a map fails.
    ItemFails,
}

impl OutcomeKind {
    const fn words(self) -> &'static str {
        match self {
            Self::WhenHolds => "its 'when' holds",
            Self::WhenSkips => "its 'when' does not hold",
            Self::LoopEnds => "it ends by its condition",
            Self::LoopExhausted => "it reaches its maximum of iterations",
            Self::Retried => "it is retried",
            Self::ItemFails => "an item fails",
        }
    }
}

/// Returns the outcomes that a plan can have.
fn possible_outcomes(plan: &Plan) -> Vec<NodeOutcome> {
    use OutcomeKind as Kind;
    let mut found = Vec::new();
    for (ix, node) in plan.nodes.iter().enumerate().filter(|(_, node)| !node.attached) {
        let mut add = |kinds: &[Kind]| {
            found.extend(kinds.iter().map(|kind| NodeOutcome { node: ix as NodeIndex, kind: *kind }));
        };
        if node.extra.get("when").is_some_and(Value::is_string) {
            add(&[Kind::WhenHolds, Kind::WhenSkips]);
        }
        match node.op {
            NodeOperation::Loop { .. } => add(&[Kind::LoopEnds, Kind::LoopExhausted]),
            NodeOperation::Map { .. } => add(&[Kind::ItemFails]),
            _ => {}
        }
        if node.retry.limit > 0 {
            add(&[Kind::Retried]);
        }
    }
    found
}

/// Returns the outcomes that nodes had in an execution.
fn outcomes_of(execution: &Execution) -> BTreeSet<NodeOutcome> {
    use OutcomeKind as Kind;
    let state = execution.state();
    let mut found = BTreeSet::new();
    for one in &state.acts {
        let mut add = |kind: Kind| found.insert(NodeOutcome { node: one.node, kind });
        if one.end == Some(ActivationEnd::Skipped) {
            add(Kind::WhenSkips);
        } else if one.began_at.is_some() {
            add(Kind::WhenHolds);
        }
        if one.tries > 1 {
            add(Kind::Retried);
        }
        if let Some(children) = &one.children {
            if children.acts.iter().any(|act| state.act(*act).end == Some(ActivationEnd::Failed)) {
                add(Kind::ItemFails);
            }
            let output = one.output.as_ref().map(|output| &output.value);
            match output.and_then(|output| output.get("stopped_reason")).and_then(Value::as_str) {
                Some("max_iterations") => drop(add(Kind::LoopExhausted)),
                Some(_) => drop(add(Kind::LoopEnds)),
                None => {}
            }
        }
    }
    found
}

/// Inserts a workflow's name: `cover.svg` of workflow `a` becomes `cover.a.svg`.
fn numbered(out: &Path, name: &str) -> PathBuf {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
    out.with_extension(format!("{safe}.svg"))
}
