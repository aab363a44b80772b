//! Events of one execution as a stream: from any position, until the execution has ended.

use std::sync::Arc;

use axum::response::Response;
use sinew_inspection::events::{EventWords, RecordedEvent};
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::execution_events::ExecutionEvents;

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
    events: ExecutionEvents,
    /// Only events of this node.
    node: Option<String>,
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
    let mut events = ExecutionEvents::of(found, choice.words, choice.after).await?;
    let first = events.take_stored();
    let frames = EventFrames { events, node: choice.node };
    frames.push(first, &mut stream.queue);
    Ok(stream.respond(frames))
}

impl FrameSource for EventFrames {
    async fn fill(&mut self, queue: &mut FrameQueue) {
        match self.events.next().await {
            Ok(Some(events)) => self.push(events, queue),
            Ok(None) => queue.end("event: end\ndata: {}\n\n"),
            // The client reconnects and resumes after its last event.
            Err(failure) => queue.end(format!(": {}\n\n", failure.code)),
        }
    }

    fn stop_frame(&self) -> String {
        let (round, index) = self.events.after();
        format!(": the gateway is shutting down; continue with Last-Event-ID: {round}.{index}\n\n")
    }
}

impl EventFrames {
    /// Appends frames for events. A client resumes after the last stored one, so others have no id.
    fn push(&self, events: Vec<RecordedEvent>, queue: &mut FrameQueue) {
        for event in events {
            if self.node.as_deref().is_none_or(|node| event.is_about(node)) {
                // JSON output contains no line breaks, so the data is one line.
                let data = serde_json::to_string(&event.line).unwrap_or_default();
                let id = if event.is_stored() { format!("id: {}\n", event.line.seq) } else { String::new() };
                queue.push(format!("{id}data: {data}\n\n"));
            }
        }
    }
}
