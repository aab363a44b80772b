//! Changes of the mesh as a stream: which kinds of things changed, so that whoever shows a list reads it again.
//!
//! A stream says that something changed, not what: the list tells that to those who may see it.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::response::Response;
use sinew_mesh::card::Cards;
use sinew_mesh::event::{EventFilter, EventStart, Events};
use sinew_operations::failure::Failure;
use tokio::time::{Instant, sleep_until};

use super::api_call::ApiCall;
use super::frame_stream::{FrameQueue, FrameSource, FrameStream};
use crate::http_error::HttpProblem;
use crate::operations::A2aOperations;

/// Shortest time between two frames: what changes meanwhile is in the second.
const MIN_FRAME_INTERVAL: Duration = Duration::from_secs(1);
/// Word for executions: one was started, went on, or ended.
const EXECUTIONS: &str = "executions";
/// Word for agents and workflows: one came, changed or went.
const AGENTS: &str = "agents";

/// Source of the changes that a caller may know of.
struct ChangeFrames {
    events: Events,
    cards: Cards,
    operations: A2aOperations,
    changed: BTreeSet<&'static str>,
    told_at: Instant,
}

/// Answers with changes from now on, as a stream.
pub(super) async fn follow_changes(call: ApiCall) -> Result<Response, HttpProblem> {
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
    /// Waits for a change and keeps it.
    async fn note_change(&mut self) {
        tokio::select! {
            event = self.events.next() => {
                if event.workflow.name().is_some_and(|name| self.operations.offers(&name)) {
                    self.changed.insert(EXECUTIONS);
                }
            }
            // A card may be one that a caller with patterns does not see.
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
