//! Version of a deployed workflow, as stored in the stream of workflows.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::BadMessage;

/// Maximum size of a deployment, in bytes of JSON.
pub const MAX_DEPLOYMENT: usize = 512 * 1024;

/// Start of the reason of an execution whose start is kept because its workflow is paused. Reasons of
/// operators start with `by`.
pub const WORKFLOW_PAUSE_PREFIX: &str = "workflow paused by ";

/// Pause of a workflow: its executions are created, and start when the workflow is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowPause {
    /// User who paused it.
    pub by: String,
    /// Reason, for people; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When it was paused, milliseconds since 1970 UTC.
    pub at: u64,
}

impl WorkflowPause {
    /// Returns why an execution is kept: `workflow paused by ada: reason`.
    pub fn text(&self) -> String {
        let reason = if self.reason.is_empty() { String::new() } else { format!(": {}", self.reason) };
        format!("{WORKFLOW_PAUSE_PREFIX}{}{reason}", self.by)
    }
}

/// Version of a workflow. The plan itself is stored in the store of plans, under its digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    /// Name of the workflow; its token is the last token of the subject.
    pub name: String,
    /// Digest of the plan, which identifies the version.
    pub digest: String,
    /// Dialect of the workflow.
    pub dialect: String,
    /// Purpose of the workflow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Card that executors announce for the workflow.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub card: Value,
    /// Picture of the workflow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mermaid: String,
    /// Deployment time, milliseconds since 1970 UTC.
    pub at: u64,
    /// User who deployed it.
    pub by: String,
    /// The author's own version, from the file. Absent in deployments of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author_version: Option<String>,
    /// Present while the workflow is paused. A later deployment of the name keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<WorkflowPause>,
}

impl Deployment {
    /// Parses a deployment.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        if body.len() > MAX_DEPLOYMENT {
            return Err(BadMessage::Bytes(format!("a deployment has at most {MAX_DEPLOYMENT} bytes")));
        }
        let read: Self = serde_json::from_slice(body).map_err(|e| BadMessage::Bytes(e.to_string()))?;
        let field =
            |reason: &str| BadMessage::Field { kind: "deployment".to_owned(), reason: reason.to_owned() };
        if read.name.is_empty() || read.name.chars().any(char::is_control) {
            return Err(field("name: empty, or with control characters"));
        }
        if !is_digest(&read.digest) {
            return Err(field("digest: not 64 hex digits"));
        }
        Ok(read)
    }

    /// Returns the deployment as JSON.
    pub fn to_json(&self) -> String {
        // Serialising plain data with string keys cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns whether this string is a sha256 in lower-case hex, as plan digests are.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_names_a_plan() {
        let good = Deployment {
            name: "order intake".to_owned(),
            digest: "a1".repeat(32),
            dialect: "sam".to_owned(),
            description: String::new(),
            card: Value::Null,
            mermaid: "graph TD".to_owned(),
            at: 7,
            by: "ops".to_owned(),
            author_version: None,
            pause: None,
        };
        assert_eq!(Deployment::read(good.to_json().as_bytes()), Ok(good.clone()));
        for (name, digest) in [
            ("", "a1".repeat(32)),
            ("a\nb", "a1".repeat(32)),
            ("a", "A1".repeat(32)),
            ("a", "../x".to_owned()),
        ] {
            let bad = Deployment { name: name.to_owned(), digest, ..good.clone() };
            assert!(Deployment::read(bad.to_json().as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Deployment::read(&vec![b' '; MAX_DEPLOYMENT + 1]).is_err());
    }
}
