//! Webhooks of external programs that receive updates of a task: records of the stream PUSHES.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Token;
use crate::access::read_record;
use crate::message::BadMessage;

/// A webhook, with what was delivered to it. Whoever changes the record names its revision, so two gateways never both
/// move it on.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PushSubscription {
    /// Caller whose task it is.
    pub caller: Token,
    /// Key of the caller; `None` for a caller without key, and in records of earlier versions. The webhook ends when the key is
    /// revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Token>,
    /// Agent or workflow that has the task.
    pub agent: String,
    /// Id of the task, as its agent knows it.
    pub task: String,
    /// Id of the task, as the program outside knows it.
    pub shown_task: String,
    /// Whether the task was named on the endpoint of the whole mesh.
    pub is_mesh_endpoint: bool,
    /// The configuration, as A2A has it: `id`, `url`, `token`, `authentication`.
    pub config: Value,
    /// Number of the last event that was delivered; 0 before the first.
    #[serde(default)]
    pub delivered: u64,
    /// Attempts since the last delivery.
    #[serde(default)]
    pub attempts: u32,
    /// Attempts to read the events of the task since they were read last.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread: u32,
    /// Time of the next attempt, if nobody delivers until then: milliseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_before: u64,
    /// Whether nothing more is delivered: the last event was, or the webhook was given up.
    #[serde(default)]
    pub ended: bool,
    /// Gateway that delivers, and until when it does unless it says so again: milliseconds since 1970 UTC.
    #[serde(default)]
    pub lease: Option<(Token, u64)>,
}

impl PushSubscription {
    /// Reads a record.
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
