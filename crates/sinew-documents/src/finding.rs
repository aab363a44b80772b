//! Findings in files, and reports of checks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Severity of a finding: an error makes the file unusable, a warning does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSeverity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably does not do what its author intended.
    Warning,
}

impl FindingSeverity {
    /// Returns `error` or `warning`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A finding in a file, as `sinew workflow validate -o json` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Error or warning.
    pub severity: FindingSeverity,
    /// Operator code.
    pub code: String,
    /// Dialect of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// Code of the dialect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_code: Option<String>,
    /// One sentence.
    pub message: String,
    /// File of the finding; the first of a workflow's files if it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column in characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Line of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_line: Option<u32>,
    /// Column of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_column: Option<u32>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Other places that belong to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<RelatedPlace>,
}

impl Finding {
    /// Creates an error without a place.
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: FindingSeverity::Error,
            code: code.into(),
            dialect: None,
            sub_code: None,
            message: message.into(),
            file: None,
            line: None,
            column: None,
            end_line: None,
            end_column: None,
            hint: None,
            related: Vec::new(),
        }
    }
}

/// Another place that belongs to a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedPlace {
    /// The file.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is there.
    pub message: String,
}

/// Result of a validation: the files and their diagnostics in order.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ValidationReport {
    /// Version of the format.
    pub version: u32,
    /// Number of errors in all files.
    pub errors: usize,
    /// Number of warnings in all files.
    pub warnings: usize,
    /// Validated files.
    pub files: Vec<CheckedFile>,
    /// Diagnostics, each with code, severity, message and location.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub diagnostics: Vec<Finding>,
    /// Drawings of the workflows as SVG, by name. Absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawings: Option<BTreeMap<String, String>>,
    /// Sockets of the nodes. Absent unless drawings are requested and the dialect has sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Vec<NodeSockets>>,
}

/// Validated file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckedFile {
    /// Path or name of the file.
    pub file: String,
    /// Dialect of the file. `null` if the file cannot be read.
    pub dialect: Option<String>,
    /// Names of the workflows in the file.
    pub workflows: Vec<String>,
    /// Number of errors.
    pub errors: usize,
    /// Number of warnings.
    pub warnings: usize,
}

/// Sockets of a node, from the catalog of its kind.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeSockets {
    /// Name of the workflow.
    pub workflow: String,
    /// Id of the node.
    pub node: String,
    /// Kind of the node.
    pub kind: String,
    /// Shape of the node.
    #[schemars(with = "Value")]
    pub shape: String,
    /// Color of the node.
    #[schemars(with = "Value")]
    pub color: String,
    /// Input sockets, each with name, type, color and shape.
    #[schemars(with = "Value")]
    pub inputs: Vec<Socket>,
    /// Output sockets, each with name, type, color and shape.
    #[schemars(with = "Value")]
    pub outputs: Vec<Socket>,
}

/// A socket of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Name of the socket.
    pub name: String,
    /// Type of its values.
    #[serde(rename = "type")]
    pub kind: String,
    /// Colour of the type.
    pub color: String,
    /// Outline of the type.
    pub shape: String,
}
