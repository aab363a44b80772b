//! Deployed workflows: lists, versions, descriptions and sources.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::timestamp::Timestamp;

/// One deployed workflow in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
    pub deployed: Timestamp,
    /// Caller who deployed it.
    pub by: String,
    /// Agents and workflows that its newest version calls and that are not on the mesh, each in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One version of a deployed workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VersionRow {
    /// Name of the workflow.
    pub name: String,
    /// Digest of its plan.
    pub version: String,
    /// Its dialect.
    pub dialect: String,
    /// When it was deployed (RFC 3339).
    pub deployed: Timestamp,
    /// Caller who deployed it.
    pub by: String,
}

/// Description of a workflow: its nodes in file order, its schemas, its partners and its limits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowDescription {
    /// Its name.
    pub name: String,
    /// Its dialect.
    pub dialect: String,
    /// Its description.
    pub description: String,
    /// Version that its file names.
    pub version: Option<String>,
    /// Digest of its plan.
    pub digest: String,
    /// File that it was read from; its name for a workflow that is deployed.
    pub file: String,
    /// Its nodes, or the first of them.
    pub nodes: Vec<NodeOutline>,
    /// Agents that it asks.
    pub agents: BTreeSet<String>,
    /// Workflows that it calls.
    pub workflows: BTreeSet<String>,
    /// JSON Schema of its input.
    pub input_schema: Option<Value>,
    /// JSON Schema of its output.
    pub output_schema: Option<Value>,
    /// Limits of its executions.
    pub limits: Map<String, Value>,
    /// Rules by which its nodes are scheduled.
    #[schemars(with = "Value")]
    pub profile: Map<String, Value>,
    /// Number of all nodes, for a workflow that is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_count: Option<usize>,
    /// Agents and workflows that it calls and that are not on the mesh, each in words, for a workflow that is deployed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl WorkflowDescription {
    /// Returns the number of all nodes, including those that are not listed.
    pub fn all_nodes(&self) -> usize {
        self.node_count.unwrap_or(self.nodes.len())
    }
}

/// A node of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeOutline {
    /// Its id.
    pub id: String,
    /// Word of the dialect for its type.
    pub kind: String,
    /// Agent or workflow that it asks.
    pub agent: Option<String>,
    /// Nodes whose tokens it receives.
    pub depends_on: Vec<String>,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Map, loop or fork that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_by: Option<String>,
    /// Line in its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// A deployed workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Deployed {
    /// The workflow.
    pub name: String,
    /// Its version: the digest of its plan.
    pub version: String,
    /// Its dialect.
    pub dialect: String,
    /// False if the mesh had this version as its latest already.
    pub new: bool,
    /// Findings of a check of the file against the mesh, each with code, severity, message and place.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Finding>,
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
    /// The workflow file, then the files that it includes; empty if the mesh was not given them.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub files: Vec<SourceFile>,
    /// Findings, as `sinew workflow validate -o json` lists them.
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
