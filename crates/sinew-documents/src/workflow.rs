//! Deployed workflows: lists, versions, descriptions and sources.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::timestamp::Timestamp;

/// Deployed workflow in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeployedRow {
    /// Name of the workflow.
    pub name: String,
    /// Dialect of the workflow.
    pub dialect: String,
    /// Description of the workflow.
    pub description: String,
    /// Digest of the newest version.
    pub digest: String,
    /// Version that the file specifies. Absent if it specifies none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author_version: Option<String>,
    /// Why executions do not start: `workflow paused by ada: reason`. Absent unless the workflow is
    /// paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Number of versions.
    pub versions: usize,
    /// When the newest version was deployed (RFC 3339).
    pub deployed: Timestamp,
    /// Caller who deployed the newest version.
    pub by: String,
    /// Warnings about agents and workflows that the newest version calls but that do not exist on
    /// the mesh. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Version of a deployed workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VersionRow {
    /// Name of the workflow.
    pub name: String,
    /// Digest of the plan.
    pub version: String,
    /// Version that the file specifies. Absent if it specifies none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author_version: Option<String>,
    /// Whether new executions run this version.
    #[serde(default)]
    pub current: bool,
    /// Dialect of the workflow.
    pub dialect: String,
    /// When the version was deployed (RFC 3339).
    pub deployed: Timestamp,
    /// Caller who deployed the version.
    pub by: String,
}

/// Description of a workflow: nodes in file order, schemas, callees and limits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowDescription {
    /// Name of the workflow.
    pub name: String,
    /// Dialect of the workflow.
    pub dialect: String,
    /// Description of the workflow.
    pub description: String,
    /// Version that the file specifies. `null` if it specifies none.
    pub version: Option<String>,
    /// Digest of the plan.
    pub digest: String,
    /// Why executions do not start: `workflow paused by ada: reason`. Absent unless the workflow is
    /// deployed and paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Path of the workflow file. For a deployed workflow, its name.
    pub file: String,
    /// Nodes in the order of the file, up to the requested number.
    pub nodes: Vec<NodeOutline>,
    /// Agents that the workflow calls.
    pub agents: BTreeSet<String>,
    /// Workflows that the workflow calls.
    pub workflows: BTreeSet<String>,
    /// JSON Schema of the input. `null` if there is none.
    pub input_schema: Option<Value>,
    /// JSON Schema of the output. `null` if there is none.
    pub output_schema: Option<Value>,
    /// Limits of the workflow's executions.
    pub limits: Map<String, Value>,
    /// Scheduling rules of the nodes.
    #[schemars(with = "Value")]
    pub profile: Map<String, Value>,
    /// Total number of nodes. Absent unless the workflow is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_count: Option<usize>,
    /// Warnings about agents and workflows that a deployed workflow calls but that do not exist on
    /// the mesh. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl WorkflowDescription {
    /// Returns the number of all nodes, including those that are not listed.
    pub fn all_nodes(&self) -> usize {
        self.node_count.unwrap_or(self.nodes.len())
    }
}

/// Node of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeOutline {
    /// Id of the node.
    pub id: String,
    /// Kind of the node in the dialect.
    pub kind: String,
    /// Agent or workflow that the node calls. `null` if there is none.
    pub agent: Option<String>,
    /// Nodes from which the node receives tokens.
    pub depends_on: Vec<String>,
    /// Display name. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Map, loop or fork that runs the node. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_by: Option<String>,
    /// Line in the file. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Deployed workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Deployed {
    /// Name of the workflow.
    pub name: String,
    /// Digest of the deployed version's plan.
    pub version: String,
    /// Dialect of the workflow.
    pub dialect: String,
    /// Whether the version is new. False if it already was the newest version on the mesh.
    pub new: bool,
    /// Diagnostics of the file against the mesh, each with code, severity, message and location.
    /// Absent if there are none.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Finding>,
}

/// State of a workflow after it was paused, resumed or rolled back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowState {
    /// Name of the workflow.
    pub name: String,
    /// Digest of the version that new executions run.
    pub version: String,
    /// Version that the file of this version specifies. Absent if it specifies none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author_version: Option<String>,
    /// Digest of the version before a rollback. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// Why executions do not start: `workflow paused by ada: reason`. Absent unless the workflow is
    /// paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Number of executions that were created and have not started because of the pause.
    pub kept: usize,
}

/// Source of a version of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowSource {
    /// Name of the workflow.
    pub name: String,
    /// Digest of the plan.
    pub version: String,
    /// Dialect of the file.
    pub dialect: String,
    /// The workflow file and the files that it includes. Empty if they were not deployed with the
    /// workflow.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub files: Vec<SourceFile>,
    /// Diagnostics, in the format of `sinew workflow validate -o json`.
    #[schemars(with = "Vec<Value>")]
    pub diagnostics: Vec<Finding>,
}

/// A file of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Name of the file in findings.
    pub name: String,
    /// Text of the file.
    pub text: String,
}
