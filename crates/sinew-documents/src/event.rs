//! Events of an execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::timestamp::Timestamp;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    /// `round.index`: the round, counted from 1, and the index in it.
    pub seq: String,
    /// Milliseconds since 1970 UTC.
    pub at: Timestamp,
    /// Kind of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// The node of the event, with its index in maps and loops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The event itself.
    pub event: Value,
}

/// A page of events.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The events, in the requested order.
    #[schemars(description = "")]
    pub events: Vec<EventLine>,
    /// The `seq` of the last event, if more follow; what `after` takes, and `before` where the newest come first.
    pub next: Option<String>,
}
