//! Events of an execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::timestamp::Timestamp;

/// Event of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    /// Position of the event, `ROUND.INDEX`: the round, starting at 1, and the index within it. The
    /// index of an event that is not stored yet is 0.
    pub seq: String,
    /// When the event occurred (RFC 3339).
    pub at: Timestamp,
    /// Type of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Node of the event, with its index in maps and loops. Absent if it concerns the execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Body of the event.
    pub event: Value,
}

/// Page of events.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The events, in the requested order.
    #[schemars(description = "")]
    pub events: Vec<EventLine>,
    /// `seq` of the last event, to pass as `after` (or as `before` with newest first) for the next
    /// page. `null` on the last page.
    pub next: Option<String>,
}
