//! A plan with parsed templates and conditions, for the adapter.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use sinew_engine::IndexedPlan;
use sinew_plan::{NodeIndex, NodeOperation, Plan};
use sinew_protocol::Fault;
use sinew_source::{Schema, SchemaCache};

use super::condition::{Condition, UnreadableCondition};
use super::model::{NodeDef, Work, WorkflowDefinition};
use super::path::{TextPart, parts};
use super::shape::owner_ends;
use super::template::Template;

/// A plan with parsed nodes.
#[derive(Debug)]
pub(super) struct CompiledPlan {
    /// Nodes by index.
    pub(super) nodes: Vec<CompiledNode>,
    /// Nodes by id.
    ids: BTreeMap<String, NodeIndex>,
    /// Nodes that run each node as their body.
    pub(super) owners: Vec<Vec<NodeIndex>>,
    /// The last owner of each node, see [`owner_ends`].
    ends: Vec<Option<NodeIndex>>,
    /// The workflow's output.
    pub(super) output: Template,
    /// Default limit of the items of a map.
    pub(super) max_items: u32,
}

/// A node with parsed templates and conditions.
#[derive(Debug)]
pub(super) struct CompiledNode {
    pub(super) def: NodeDef,
    pub(super) when: Option<Read>,
    /// The input of an agent or workflow, the items of a map, or the data of an approval.
    pub(super) data: Option<Template>,
    /// The instruction, or the prompt of an approval.
    pub(super) instruction: Option<Vec<TextPart>>,
    /// The condition of a conditional or loop, or those of a switch's cases, in order.
    pub(super) conditions: Vec<Read>,
}

/// A parsed condition, or its error. Files with an error are rejected; a plan may still contain
/// one.
pub(super) type Read = Result<Condition, UnreadableCondition>;

/// Cache of parsed plans, by digest.
static PROGRAMS: LazyLock<moka::sync::Cache<String, Arc<CompiledPlan>>> =
    LazyLock::new(|| moka::sync::Cache::new(256));
/// Cache of compiled schemas.
static SCHEMAS: LazyLock<SchemaCache> = LazyLock::new(SchemaCache::default);

impl CompiledPlan {
    /// Returns the program of a graph's plan.
    pub(super) fn of(graph: &IndexedPlan) -> Result<Arc<Self>, Fault> {
        if let Some(known) = PROGRAMS.get(graph.digest()) {
            return Ok(known);
        }
        let read = Arc::new(Self::read(graph.plan())?);
        PROGRAMS.insert(graph.digest().to_owned(), Arc::clone(&read));
        Ok(read)
    }

    fn read(plan: &Plan) -> Result<Self, Fault> {
        let foreign = |error: serde_json::Error| {
            Fault::invalid(
                code::PLAN_OF_OTHER_DIALECT.as_str(),
                format!("the plan is of another dialect: {error}"),
            )
        };
        let mut owners = vec![Vec::new(); plan.nodes.len()];
        let mut nodes = Vec::with_capacity(plan.nodes.len());
        for (ix, node) in plan.nodes.iter().enumerate() {
            let bodies = match &node.op {
                NodeOperation::Map { body } | NodeOperation::Loop { body } => std::slice::from_ref(body),
                NodeOperation::Fork { bodies } => bodies.as_slice(),
                _ => &[],
            };
            for body in bodies {
                owners[*body as usize].push(ix as NodeIndex);
            }
            nodes.push(CompiledNode::read(serde_json::from_value(node.extra.clone()).map_err(foreign)?));
        }
        let definition: WorkflowDefinition = serde_json::from_value(plan.extra.clone()).map_err(foreign)?;
        let ends = owner_ends(owners.len(), |ix| match owners[ix].as_slice() {
            [owner] => Some(*owner as usize),
            _ => None,
        });
        let ends = ends.into_iter().map(|end| end.map(|ix| ix as NodeIndex)).collect();
        Ok(Self {
            nodes,
            ids: plan.nodes.iter().enumerate().map(|(ix, node)| (node.id.clone(), ix as NodeIndex)).collect(),
            ends,
            owners,
            output: Template::parse(&definition.output_mapping),
            max_items: definition.settings.default_max_map_items.unwrap_or(super::lower::MOST),
        })
    }

    pub(super) fn node(&self, ix: NodeIndex) -> &CompiledNode {
        &self.nodes[ix as usize]
    }

    pub(super) fn find(&self, id: &str) -> Option<NodeIndex> {
        self.ids.get(id).copied()
    }

    /// Returns the nodes whose end is the end of `ix`: the node itself, or the nodes that run it.
    pub(super) fn stands_for(&self, ix: NodeIndex) -> BTreeSet<NodeIndex> {
        let mut done = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![ix];
        while let Some(ix) = open.pop() {
            let Some(ix) = self.ends[ix as usize] else { continue };
            let owners = &self.owners[ix as usize];
            if owners.is_empty() {
                done.insert(ix);
            } else if seen.insert(ix) {
                open.extend(owners);
            }
        }
        done
    }
}

impl CompiledNode {
    fn read(def: NodeDef) -> Self {
        let call = def.work.call();
        let data = match &def.work {
            Work::Map { items, .. } => Some(Template::parse(items)),
            Work::Approval(approval) => approval.data.as_ref().map(Template::parse),
            _ => call.and_then(|call| call.input.as_ref()).map(Template::parse),
        };
        let conditions = match &def.work {
            Work::Conditional { condition, .. } | Work::Loop { condition, .. } => {
                vec![Condition::parse(condition)]
            }
            Work::Switch { cases, .. } => {
                cases.iter().map(|case| Condition::parse(&case.condition)).collect()
            }
            _ => Vec::new(),
        };
        Self {
            when: def.when.as_deref().map(Condition::parse),
            instruction: match &def.work {
                Work::Approval(approval) => Some(parts(&approval.prompt)),
                _ => call.and_then(|call| call.instruction.as_deref()).map(parts),
            },
            data,
            conditions,
            def,
        }
    }
}

/// Returns the compiled schema.
pub(super) fn schema(schema: &serde_json::Value) -> Result<Arc<Schema>, sinew_source::SchemaError> {
    SCHEMAS.get(schema)
}
