//! API documents; only the members that pages show. Other members are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use sinew_documents::timestamp::Timestamp;

/// An execution that was started.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StartedDocument {
    pub(crate) execution: String,
}

/// A deployed workflow of a list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkflowListRow {
    pub(crate) name: String,
    pub(crate) dialect: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) digest: String,
    #[serde(default)]
    pub(crate) versions: usize,
    pub(crate) deployed: Timestamp,
    #[serde(default)]
    pub(crate) by: String,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
}

/// Description of a workflow.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkflowDocument {
    pub(crate) name: String,
    pub(crate) dialect: String,
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) digest: String,
    #[serde(default)]
    pub(crate) nodes: Vec<PlanNodeDocument>,
    /// Number of all nodes, including those that are not listed.
    pub(crate) node_count: usize,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    #[serde(default)]
    pub(crate) agents: Vec<String>,
    #[serde(default)]
    pub(crate) workflows: Vec<String>,
    #[serde(default)]
    pub(crate) input_schema: Value,
    #[serde(default)]
    pub(crate) output_schema: Value,
    #[serde(default)]
    pub(crate) limits: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) profile: BTreeMap<String, Value>,
}

/// A node of a plan.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PlanNodeDocument {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) agent: Option<String>,
    #[serde(default)]
    pub(crate) depends_on: Vec<Value>,
}

/// A version of a workflow.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct VersionDocument {
    pub(crate) version: String,
    pub(crate) deployed: Timestamp,
    #[serde(default)]
    pub(crate) by: String,
}

/// Findings in a file, with its drawings.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ValidationDocument {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
    #[serde(default)]
    pub(crate) diagnostics: Vec<FindingDocument>,
    /// Drawings as SVG, by workflow.
    #[serde(default)]
    pub(crate) drawings: BTreeMap<String, String>,
    /// Sockets of the nodes of covalt.
    #[serde(default)]
    pub(crate) sockets: Vec<NodeSocketsDocument>,
}

/// A finding in a file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FindingDocument {
    #[serde(default)]
    pub(crate) severity: String,
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
    /// File of the finding; the first of a workflow's files if it names none.
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) end_line: Option<u32>,
    pub(crate) end_column: Option<u32>,
    pub(crate) hint: Option<String>,
}

/// A workflow that was deployed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DeployedDocument {
    pub(crate) name: String,
}

/// Sockets of a node of covalt.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeSocketsDocument {
    pub(crate) node: String,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) shape: String,
    #[serde(default)]
    pub(crate) color: String,
    #[serde(default)]
    pub(crate) inputs: Vec<SocketDocument>,
    #[serde(default)]
    pub(crate) outputs: Vec<SocketDocument>,
}

/// A socket.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SocketDocument {
    pub(crate) name: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) color: String,
    #[serde(default)]
    pub(crate) shape: String,
}
