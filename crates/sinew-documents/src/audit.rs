//! Audit of a mesh: who changed what, why, and from where.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// Changes of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditReport {
    /// The changes, newest first.
    pub rows: Vec<AuditEntry>,
    /// Whether all changes since the requested time are listed. Otherwise the limit was reached.
    pub is_whole: bool,
    /// Kinds of changes that the user may not read: `commands`, `deployments`, `keys`, `hooks`. Absent if
    /// there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// One change. Commands are listed as they were sent, whether or not they were accepted: the execution has
/// the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// When it was made (RFC 3339).
    pub at: Timestamp,
    /// Who made it. `-` if unknown.
    pub who: String,
    /// Present if nothing proves the name: the user could have given any name, as with `--as`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unproven: bool,
    /// What was done: `cancel`, `pause`, `resume`, `retry`, `approve`, `reject`, `deploy`, `delete`,
    /// `create key`, `revoke key`, `deploy hook` or `delete hook`.
    pub what: String,
    /// To what: the id of an execution, or the name of a workflow, key owner or trigger.
    pub target: String,
    /// Details: the node of a decision, the version of a workflow, the id of a key. Absent if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Why: the reason or comment. Absent if none was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// From where: `cli`, `rest`, `console`, `a2a`, `mcp` or `hook`. Absent if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub via: String,
    /// Id of the caller's key at a gateway. Absent without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}
