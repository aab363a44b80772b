//! Events of one execution as a stream: from any position, until the execution has ended.

use std::sync::Arc;

use axum::response::Response;
use sinew_inspection::events::{self, EventWords};
use sinew_operations::execution_changes::{ExecutionChanges, FoundExecution};

use super::api_call::bad_request;
use super::frame_stream::{FrameQueue, FrameSource, FrameStream};
use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Selection of events.
pub(super) struct EventChoice {
    pub(super) words: EventWords,
    /// Only events of this node.
    pub(super) node: Option<String>,
    /// Only events after this position: round and index.
    pub(super) after: (usize, usize),
}

/// Source of the events of one execution.
struct EventFrames {
    changes: ExecutionChanges,
    choice: EventChoice,
}

/// Parses the `seq` of an event, `12.3`.
pub(super) fn parse_place(text: &str) -> Result<(usize, usize), HttpProblem> {
    let place =
        text.split_once('.').and_then(|(round, index)| Some((round.parse().ok()?, index.parse().ok()?)));
    place.ok_or_else(|| bad_request("expected the `seq` of an event, like 12.3"))
}

/// Returns the events as server-sent events.
pub(super) async fn respond(
    state: &Arc<GatewayState>,
    found: FoundExecution,
    choice: EventChoice,
) -> Result<Response, HttpProblem> {
    let mut stream = FrameStream::open(state)?;
    let mut events = EventFrames { changes: ExecutionChanges::of(found).await?, choice };
    events.take(&mut stream.queue);
    Ok(stream.respond(events))
}

impl FrameSource for EventFrames {
    async fn fill(&mut self, queue: &mut FrameQueue) {
        match self.changes.next().await {
            Ok(true) => self.take(queue),
            Ok(false) => queue.end("event: end\ndata: {}\n\n"),
            // The client reconnects and resumes after its last event.
            Err(failure) => queue.end(format!(": {}\n\n", failure.code)),
        }
    }

    fn stop_frame(&self) -> String {
        let (round, index) = self.choice.after;
        format!(": the gateway is shutting down; continue with Last-Event-ID: {round}.{index}\n\n")
    }
}

impl EventFrames {
    /// Appends frames for the events after the last sent one.
    fn take(&mut self, queue: &mut FrameQueue) {
        for event in events::lines(&self.changes.record, self.choice.words) {
            if event.place() <= self.choice.after {
                continue;
            }
            self.choice.after = event.place();
            if self.choice.node.as_deref().is_none_or(|node| event.is_about(node)) {
                // JSON output contains no line breaks, so the data is one line.
                let data = serde_json::to_string(&event.line).unwrap_or_default();
                queue.push(format!("id: {}\ndata: {data}\n\n", event.line.seq));
            }
        }
    }
}
