//! Changes of the mesh as a stream: the kinds of changed items, so that clients can reload their
//! lists.
//!
//! A stream contains no data about the changes: the lists show it to callers with permission.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::response::Response;
use sinew_mesh::card::Cards;
use sinew_mesh::event::{EventFilter, EventStart, Events};
use sinew_operations::failure::Failure;
use tokio::time::{Instant, sleep_until};

use super::api_call::ApiCall;
use super::frame_stream::{FrameQueue, FrameSource, FrameStream};
use super::route::{ApiRoute, EVENT_STREAM, get};
use crate::http_error::HttpProblem;
use crate::operations::A2aOperations;

/// Minimum interval between frames: intermediate changes are combined in the second one.
const MIN_FRAME_INTERVAL: Duration = Duration::from_secs(1);
/// Name for executions: one started, progressed or ended.
const EXECUTIONS: &str = "executions";
/// Name for agents and workflows: one was added, changed or removed.
const AGENTS: &str = "agents";

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get(
            "/changes",
            "FollowChanges",
            "Stream which kinds of resources changed (`executions`, `agents`), at most once a second",
            follow_changes,
        )
        .returns_media(EVENT_STREAM),
    ]
}

/// Source of the changes that a caller may see.
struct ChangeFrames {
    events: Events,
    cards: Cards,
    operations: A2aOperations,
    changed: BTreeSet<&'static str>,
    told_at: Instant,
}

/// Returns changes from now on as a stream.
async fn follow_changes(call: ApiCall) -> Result<Response, HttpProblem> {
    let stream = FrameStream::open(&call.state)?;
    let events = call.operator.mesh().events();
    let events = events.follow(&EventFilter::default(), EventStart::Now).await.map_err(Failure::from)?;
    Ok(stream.respond(ChangeFrames {
        events,
        cards: call.operations.cards(),
        operations: call.operations,
        changed: BTreeSet::new(),
        told_at: Instant::now(),
    }))
}

impl ChangeFrames {
    /// Waits for a change and records it.
    async fn note_change(&mut self) {
        tokio::select! {
            event = self.events.next() => {
                if event.workflow.name().is_some_and(|name| self.operations.offers(&name)) {
                    self.changed.insert(EXECUTIONS);
                }
            }
            // The changed card may be invisible to a caller with patterns.
            () = self.cards.changed(), if self.operations.offers_everything() => {
                self.changed.insert(AGENTS);
            }
        }
    }
}

impl FrameSource for ChangeFrames {
    async fn fill(&mut self, queue: &mut FrameQueue) {
        while self.changed.is_empty() {
            self.note_change().await;
        }
        let due = self.told_at + MIN_FRAME_INTERVAL;
        while Instant::now() < due {
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.note_change() => {}
            }
        }
        self.told_at = Instant::now();
        let changed = std::mem::take(&mut self.changed).into_iter().collect::<Vec<_>>().join("\",\"");
        queue.push(format!("event: changed\ndata: [\"{changed}\"]\n\n"));
    }
}
