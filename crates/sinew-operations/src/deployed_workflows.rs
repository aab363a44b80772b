//! Deployed workflows of a mesh: lists, versions, descriptions, tools, and removal.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use sinew_dialects::{Lowered, PlanGraph};
use sinew_documents::words;
use sinew_mesh::workflow::{WorkflowVersion, Workflows};
use sinew_plan::{NodeIndex, NodeOperation, Plan, PlanLimits, PlanNode, SchedulingProfile};
use sinew_protocol::code;
use sinew_protocol::tool::WorkflowTool;
use sinew_source::Span;

use crate::callee_check::missing_callees;
use crate::deployment::find_deployed;
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::MeshOperator;
use crate::workflow_file::Loaded;

/// One deployed workflow in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeployedRow {
    /// Its name.
    pub name: String,
    /// Its dialect.
    pub dialect: String,
    /// Its description.
    pub description: String,
    /// Digest of the newest version.
    pub digest: String,
    /// Number of versions.
    pub versions: usize,
    /// When the newest was deployed (RFC 3339).
    pub deployed: String,
    /// Caller who deployed it.
    pub by: String,
    /// Agents and workflows that its newest version calls and that are not on the mesh, each in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One version of a deployed workflow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VersionRow {
    /// Name of the workflow.
    pub name: String,
    /// Digest of its plan.
    pub version: String,
    /// Its dialect.
    pub dialect: String,
    /// When it was deployed (RFC 3339).
    pub deployed: String,
    /// Caller who deployed it.
    pub by: String,
}

/// A workflow as a tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ToolRow {
    /// Name of the tool.
    pub name: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Purpose of the tool.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its answer; `None` for any JSON.
    pub output_schema: Option<Value>,
}

/// A deployed workflow that was removed, or would be.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WorkflowRemoval {
    /// Its name.
    pub name: String,
    /// Digest of its newest version.
    pub version: String,
    /// Open executions of it: they stay as they are.
    pub open_executions: usize,
}

impl VersionRow {
    /// Returns the versions of a workflow, newest first; an empty list if it is not deployed.
    pub fn all(workflows: &Workflows, name: &str) -> Vec<Self> {
        let mut all = workflows.versions(name);
        all.reverse();
        let row = |one: &sinew_mesh::workflow::Deployment| Self {
            name: one.name.clone(),
            version: one.digest.clone(),
            dialect: one.dialect.clone(),
            deployed: words::instant(one.at),
            by: one.by.clone(),
        };
        all.iter().map(|one| row(&one.deployment)).collect()
    }
}

impl MeshOperator {
    /// Lists the deployed workflows, each with its missing callees.
    pub async fn list_workflows(&self) -> Result<Vec<DeployedRow>, Failure> {
        let workflows = self.workflows().await?;
        let row = async |version: &WorkflowVersion| {
            let deployed = &version.deployment;
            let warnings = match self.client.programs().by_digest(&deployed.digest).await {
                Ok(program) => self.start_warnings(program.graph.plan()).await,
                Err(_) => Vec::new(),
            };
            DeployedRow {
                name: deployed.name.clone(),
                dialect: deployed.dialect.clone(),
                description: deployed.description.clone(),
                digest: deployed.digest.clone(),
                versions: workflows.versions(&deployed.name).len(),
                deployed: words::instant(deployed.at),
                by: deployed.by.clone(),
                warnings,
            }
        };
        let mut rows = Vec::new();
        for version in workflows.list() {
            rows.push(row(&version).await);
        }
        Ok(rows)
    }

    /// Describes the missing callees of a plan; empty if they are unknown, because neither a list
    /// nor a start fails for this reason.
    pub async fn start_warnings(&self, plan: &Plan) -> Vec<String> {
        let missing = missing_callees(self.mesh(), self.client.cards(), plan).await;
        missing.unwrap_or_default().into_iter().map(|one| one.text).collect()
    }

    /// Returns tools by workflow: of deployed workflows, and of workflows announced by others.
    pub async fn tools(&self) -> Result<BTreeMap<String, WorkflowTool>, Failure> {
        let announced = self.online().await?.list();
        let mut found: Vec<WorkflowTool> =
            announced.iter().filter_map(|one| WorkflowTool::from_card(&one.card)).collect();
        for version in self.workflows().await?.list() {
            let card = serde_json::from_value(version.deployment.card.clone()).ok();
            found.extend(card.as_ref().and_then(WorkflowTool::from_card));
        }
        Ok(found.into_iter().map(|tool| (tool.workflow.clone(), tool)).collect())
    }

    /// Returns what removing a workflow would remove.
    pub async fn preview_removal(&self, name: &str) -> Result<WorkflowRemoval, Failure> {
        let (name, version) = find_deployed(self, name, None).await?;
        let open_executions =
            self.client.open().await?.into_iter().filter(|one| one.workflow == name).count();
        Ok(WorkflowRemoval { name, version, open_executions })
    }

    /// Removes a workflow and its card; no new execution of it can start.
    pub async fn remove_workflow(&self, removal: &WorkflowRemoval) -> Result<(), Failure> {
        Ok(self.mesh().workflows().undeploy(&removal.name).await?)
    }
}

impl ToolRow {
    /// Returns the row of a tool.
    pub fn of(tool: &WorkflowTool) -> Self {
        Self {
            name: tool.declaration().short_name(),
            workflow: tool.workflow.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: tool.output_schema.clone(),
        }
    }
}

/// Finds a tool by the name of its workflow, or by its own long or short name.
pub fn find_tool<'t>(
    tools: &'t BTreeMap<String, WorkflowTool>,
    name: &str,
) -> Result<&'t WorkflowTool, Failure> {
    let named = |tool: &&WorkflowTool| tool.name() == name || tool.declaration().short_name() == name;
    tools.get(name).or_else(|| tools.values().find(named)).ok_or_else(|| {
        let text = format!("no workflow provides the tool '{name}'");
        let failure = Failure::new(FailureKind::NotFound, code::NO_SUCH_TOOL.as_str(), text);
        match sinew_source::did_you_mean(name, tools.keys().map(String::as_str)) {
            Some(near) => failure.hint(format!("did you mean '{near}'?")),
            None => failure.hint("see `sinew tool list`; add one with `sinew workflow deploy FILE`"),
        }
    })
}

/// Description of a workflow: its nodes in file order, its schemas, its partners and its limits.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WorkflowDescription<'p> {
    /// Its name.
    pub name: &'p str,
    /// Its dialect.
    pub dialect: &'p str,
    /// Its description.
    pub description: &'p str,
    /// Version that its file names.
    pub version: Option<&'p str>,
    /// Digest of its plan.
    pub digest: String,
    /// File that it was read from; its name for a workflow that is deployed.
    pub file: String,
    /// Its nodes, or the first of them.
    pub nodes: Vec<NodeOutline<'p>>,
    /// Agents that it asks.
    pub agents: BTreeSet<&'p str>,
    /// Workflows that it calls.
    pub workflows: BTreeSet<&'p str>,
    /// JSON Schema of its input.
    pub input_schema: Option<&'p Value>,
    /// JSON Schema of its output.
    pub output_schema: Option<&'p Value>,
    /// Limits of its executions.
    #[schemars(with = "Map<String, Value>")]
    pub limits: &'p PlanLimits,
    /// Rules by which its nodes are scheduled.
    #[schemars(with = "Value")]
    pub profile: &'p SchedulingProfile,
    /// Number of all nodes, for a workflow that is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_count: Option<usize>,
    /// Agents and workflows that it calls and that are not on the mesh, each in words, for a workflow that is deployed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A node of a workflow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeOutline<'p> {
    /// Its id.
    pub id: &'p str,
    /// Word of the dialect for its type.
    pub kind: &'p str,
    /// Agent or workflow that it asks.
    pub agent: Option<&'p str>,
    /// Nodes whose tokens it receives.
    pub depends_on: Vec<&'p str>,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<&'p str>,
    /// Map, loop or fork that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_by: Option<&'p str>,
    /// Line in its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl<'p> WorkflowDescription<'p> {
    /// Describes a workflow of a file.
    pub fn of_file(loaded: &Loaded, lowered: &'p Lowered) -> Self {
        let plan = &lowered.plan;
        let path = loaded.path.display().to_string();
        Self::of(plan, sinew_plan::digest(plan), &lowered.places, path, usize::MAX)
    }

    /// Describes a plan of this digest that is deployed under a name, with up to `nodes` of its
    /// nodes and their total number.
    pub fn of_deployed(plan: &'p Plan, digest: &str, name: &str, nodes: usize) -> Self {
        let node_count = Some(plan.nodes.len());
        Self { node_count, ..Self::of(plan, digest.to_owned(), &[], name.to_owned(), nodes) }
    }

    fn of(
        plan: &'p Plan,
        digest: String,
        places: &[Option<Span>],
        file: String,
        listed_nodes: usize,
    ) -> Self {
        let (graph, owners) = (PlanGraph::new(plan), owners(plan));
        let outline = |(ix, node): (usize, &'p PlanNode)| {
            let place = places.get(ix).copied().flatten();
            let ix = ix as NodeIndex;
            NodeOutline {
                id: &node.id,
                kind: &node.kind,
                agent: node.agent.as_deref(),
                depends_on: waits_for(&graph, ix),
                label: node.label.as_deref(),
                run_by: owners.get(&ix).copied(),
                line: place.map(|place| place.line),
            }
        };
        Self {
            name: &plan.name,
            dialect: &plan.dialect,
            description: &plan.description,
            version: plan.version.as_deref(),
            digest,
            file,
            nodes: plan.nodes.iter().enumerate().take(listed_nodes).map(outline).collect(),
            agents: partners(plan, true),
            workflows: partners(plan, false),
            input_schema: plan.input_schema.as_ref(),
            output_schema: plan.output_schema.as_ref(),
            limits: &plan.limits,
            profile: &plan.profile,
            node_count: None,
            warnings: Vec::new(),
        }
    }
}

/// Returns the ids of the nodes whose tokens a node receives.
pub fn waits_for<'p>(graph: &PlanGraph<'p>, ix: NodeIndex) -> Vec<&'p str> {
    let mut seen = BTreeSet::new();
    let before = graph.edges_into(ix).map(|(_, edge)| edge.from);
    before.filter(|from| seen.insert(*from)).map(|from| graph.plan().node(from).id.as_str()).collect()
}

/// Returns the agents (true) or workflows (false) that the plan calls, by name.
pub fn partners(plan: &Plan, agents: bool) -> BTreeSet<&str> {
    plan.nodes
        .iter()
        .filter(|node| !node.attached)
        .filter(
            |node| if agents { node.op == NodeOperation::Agent } else { node.op == NodeOperation::Workflow },
        )
        .filter_map(|node| node.agent.as_deref())
        .collect()
}

/// Returns the node that runs the body of each map, loop and fork.
pub fn owners(plan: &Plan) -> BTreeMap<NodeIndex, &str> {
    let mut owners = BTreeMap::new();
    for node in &plan.nodes {
        let bodies = match &node.op {
            NodeOperation::Map { body } | NodeOperation::Loop { body } => std::slice::from_ref(body),
            NodeOperation::Fork { bodies } => bodies.as_slice(),
            _ => &[],
        };
        for body in bodies {
            owners.entry(*body).or_insert(node.id.as_str());
        }
    }
    owners
}
