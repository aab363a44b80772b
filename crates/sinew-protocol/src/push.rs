//! Webhooks of external programs that receive updates of a task: records of the stream PUSHES.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Token;
use crate::access::read_record;
use crate::message::BadMessage;

/// Webhook and the state of its deliveries. Every update of the record states the expected
/// revision, so two gateways cannot both advance it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PushSubscription {
    /// Caller of the task.
    pub caller: Token,
    /// Key of the caller; `None` for a caller without a key, and in records of earlier versions.
    /// Revoking the key ends the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Token>,
    /// Agent or workflow of the task.
    pub agent: String,
    /// Id of the task at its agent.
    pub task: String,
    /// Id of the task for the external program.
    pub shown_task: String,
    /// Whether the webhook was registered at the endpoint of the whole mesh.
    pub is_mesh_endpoint: bool,
    /// Whether the caller uses A2A 0.3, so that notifications have the form of that version.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub is_old: bool,
    /// Gateway that accepted the webhook; `None` in records of earlier versions. A gateway whose
    /// settings forbid the address names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<Token>,
    /// Configuration in the format of A2A: `id`, `url`, `token`, `authentication`.
    pub config: Value,
    /// Number of the last delivered event; 0 before the first.
    #[serde(default)]
    pub delivered: u64,
    /// Delivery attempts since the last delivery.
    #[serde(default)]
    pub attempts: u32,
    /// Attempts to read the events of the task since the last successful read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread: u32,
    /// Time of the next attempt, unless an event is delivered before: milliseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_before: u64,
    /// Whether deliveries have ended: after the last event, or because the webhook was abandoned.
    #[serde(default)]
    pub ended: bool,
    /// Gateway that delivers, and the end of its lease unless renewed: milliseconds since 1970 UTC.
    #[serde(default)]
    pub lease: Option<(Token, u64)>,
}

impl PushSubscription {
    /// Parses a record.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        read_record(body)
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl std::fmt::Debug for PushSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushSubscription")
            .field("agent", &self.agent)
            .field("task", &self.task)
            .field("delivered", &self.delivered)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
