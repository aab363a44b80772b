//! Deployed workflows of a mesh: lists, versions, descriptions, tools, and removal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use sinew_dialects::{Lowered, PlanGraph};
use sinew_documents::workflow::{DeployedRow, NodeOutline, VersionRow, WorkflowDescription};
use sinew_mesh::workflow::{Deployment, WorkflowVersion, Workflows};
use sinew_plan::{NodeIndex, NodeOperation, Plan, PlanNode};
use sinew_protocol::card::{AgentKind, Announcement};
use sinew_protocol::code;
use sinew_protocol::deployment::WorkflowPause;
use sinew_protocol::tool::WorkflowTool;
use sinew_source::Span;

use crate::callee_check::missing_callees;
use crate::catalogue::{CatalogueQuery, selected_names};
use crate::catalogue_records::RecordSet;
use crate::deployment::find_deployed;
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::MeshOperator;
use crate::workflow_file::Loaded;

/// Workflow that is exposed as a tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ToolRow {
    /// Name of the tool.
    pub name: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Purpose of the tool.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the result. `null` if the tool may return any JSON.
    pub output_schema: Option<Value>,
}

/// A deployed workflow that was removed, or would be.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WorkflowRemoval {
    /// Name of the workflow.
    pub name: String,
    /// Digest of the newest version.
    pub version: String,
    /// Open executions of it: they stay as they are.
    pub open_executions: usize,
}

/// Returns the versions of a workflow, newest first: each digest once, as it was deployed last. A
/// pause repeats a deployment.
pub(crate) fn distinct_versions(workflows: &Workflows, name: &str) -> Vec<Arc<WorkflowVersion>> {
    let mut seen = BTreeSet::new();
    let newest_first = workflows.versions(name).into_iter().rev();
    newest_first.filter(|one| seen.insert(one.deployment.digest.clone())).collect()
}

/// Returns the versions of a workflow, newest first; an empty list if it is not deployed.
pub fn version_rows(workflows: &Workflows, name: &str) -> Vec<VersionRow> {
    let current = workflows.get(name).map(|latest| latest.deployment.digest.clone());
    let all = distinct_versions(workflows, name);
    let row = |one: &Deployment| VersionRow {
        name: one.name.clone(),
        version: one.digest.clone(),
        author_version: one.author_version.clone(),
        current: current.as_ref() == Some(&one.digest),
        dialect: one.dialect.clone(),
        deployed: one.at.into(),
        by: one.by.clone(),
    };
    all.iter().map(|one| row(&one.deployment)).collect()
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
                author_version: deployed.author_version.clone(),
                paused: deployed.pause.as_ref().map(WorkflowPause::text),
                versions: distinct_versions(&workflows, &deployed.name).len(),
                deployed: deployed.at.into(),
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

    /// Returns the names of the deployed workflows that a query of the catalogue selects among those that
    /// the caller may see.
    pub async fn select_workflows(
        &self,
        (records, query): (&RecordSet, &CatalogueQuery),
        visible: impl Fn(&str) -> bool,
    ) -> Result<BTreeSet<String>, Failure> {
        let mut deployed = self.workflows().await?.list();
        deployed.retain(|one| visible(&one.deployment.name));
        let card = |one: &Arc<WorkflowVersion>| {
            let Deployment { name, description, card, .. } = &one.deployment;
            // Deployments of older versions have no card.
            serde_json::from_value(card.clone()).unwrap_or_else(|_| {
                let (name, description) = (name.clone(), description.clone());
                let kind = AgentKind::Workflow;
                Announcement { name, description, kind, ..Announcement::default() }.card("")
            })
        };
        Ok(selected_names(deployed.iter().map(card), records, query))
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

/// Describes a workflow of a file.
pub fn describe_file(loaded: &Loaded, lowered: &Lowered) -> WorkflowDescription {
    let plan = &lowered.plan;
    let path = loaded.path.display().to_string();
    describe_plan(plan, sinew_plan::digest(plan), &lowered.places, path, usize::MAX)
}

/// Describes a plan of this digest that is deployed under a name, with up to `nodes` of its nodes
/// and their total number.
pub fn describe_deployed(plan: &Plan, digest: &str, name: &str, nodes: usize) -> WorkflowDescription {
    let node_count = Some(plan.nodes.len());
    let described = describe_plan(plan, digest.to_owned(), &[], name.to_owned(), nodes);
    WorkflowDescription { node_count, ..described }
}

fn describe_plan(
    plan: &Plan,
    digest: String,
    places: &[Option<Span>],
    file: String,
    listed_nodes: usize,
) -> WorkflowDescription {
    let (graph, owners) = (PlanGraph::new(plan), owners(plan));
    let outline = |(ix, node): (usize, &PlanNode)| {
        let place = places.get(ix).copied().flatten();
        let ix = ix as NodeIndex;
        NodeOutline {
            id: node.id.clone(),
            kind: node.kind.clone(),
            agent: node.agent.clone(),
            depends_on: waits_for(&graph, ix).into_iter().map(str::to_owned).collect(),
            label: node.label.clone(),
            run_by: owners.get(&ix).copied().map(str::to_owned),
            line: place.map(|place| place.line),
        }
    };
    let names = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
    WorkflowDescription {
        name: plan.name.clone(),
        dialect: plan.dialect.clone(),
        description: plan.description.clone(),
        version: plan.version.clone(),
        digest,
        paused: None,
        file,
        nodes: plan.nodes.iter().enumerate().take(listed_nodes).map(outline).collect(),
        agents: names(partners(plan, true)),
        workflows: names(partners(plan, false)),
        input_schema: plan.input_schema.clone(),
        output_schema: plan.output_schema.clone(),
        limits: members_of(&plan.limits),
        profile: members_of(&plan.profile),
        node_count: None,
        warnings: Vec::new(),
    }
}

/// Returns the members of a part of a plan.
fn members_of(part: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(part) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
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
