//! Events of one execution as a stream: from any place, until the execution has ended.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use sinew_inspection::events::{self, EventWords};
use sinew_operations::execution_changes::{ExecutionChanges, FoundExecution};
use sinew_protocol::code;

use super::api_call::bad_request;
use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Time without events after which a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Milliseconds after which a client comes back when its stream broke off.
const RETRY_MS: u32 = 1_000;

/// Which events are wanted.
pub(super) struct EventChoice {
    pub(super) words: EventWords,
    /// Only about this node.
    pub(super) node: Option<String>,
    /// Only behind this place: round and index.
    pub(super) after: (usize, usize),
}

/// State of one stream.
struct EventStream {
    state: Arc<GatewayState>,
    changes: ExecutionChanges,
    choice: EventChoice,
    /// Frames that were made and not sent.
    ready: VecDeque<Bytes>,
    is_over: bool,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

/// Reads the `seq` of an event, `12.3`.
pub(super) fn parse_place(text: &str) -> Result<(usize, usize), HttpProblem> {
    let place =
        text.split_once('.').and_then(|(round, index)| Some((round.parse().ok()?, index.parse().ok()?)));
    place.ok_or_else(|| bad_request("expected the `seq` of an event, like 12.3"))
}

/// The events as a response of server-sent events.
pub(super) async fn respond(
    state: &Arc<GatewayState>,
    found: FoundExecution,
    choice: EventChoice,
) -> Result<Response, HttpProblem> {
    let Ok(permit) = Arc::clone(&state.streams).try_acquire_owned() else {
        let text = "as many streams are open at this gateway as may be; try again in a moment";
        return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text));
    };
    let changes = ExecutionChanges::of(found).await?;
    let ready = VecDeque::from([Bytes::from(format!("retry: {RETRY_MS}\n\n"))]);
    let mut open =
        EventStream { state: Arc::clone(state), changes, choice, ready, is_over: false, _permit: permit };
    open.take_events();
    let body = Body::from_stream(stream::unfold(open, |mut open| async move {
        let frame = open.next().await?;
        Some((Ok::<_, Infallible>(frame), open))
    }));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies must not gather events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

impl EventStream {
    /// The next frame; `None` behind the last.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.is_over {
                return None;
            }
            let draining = self.state.draining.clone();
            tokio::select! {
                biased;
                () = draining.cancelled() => {
                    let (round, index) = self.choice.after;
                    self.end(format!(": this gateway stops; go on with Last-Event-ID: {round}.{index}\n\n"));
                }
                changed = self.changes.next() => match changed {
                    Ok(true) => self.take_events(),
                    Ok(false) => self.end("event: end\ndata: {}\n\n".to_owned()),
                    // The client comes back, and goes on behind the last event it has.
                    Err(failure) => self.end(format!(": {}\n\n", failure.code)),
                },
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b": alive\n\n")),
            }
        }
    }

    fn end(&mut self, frame: String) {
        self.ready.push_back(frame.into());
        self.is_over = true;
    }

    /// Makes frames of the events behind the last one that was sent.
    fn take_events(&mut self) {
        for line in events::lines(&self.changes.record, self.choice.words) {
            if line.place() <= self.choice.after {
                continue;
            }
            self.choice.after = line.place();
            if self.choice.node.as_deref().is_none_or(|node| line.is_about(node)) {
                // JSON has no line ends of its own, so the data is one line.
                let data = serde_json::to_string(&line).unwrap_or_default();
                self.ready.push_back(format!("id: {}\ndata: {data}\n\n", line.seq).into());
            }
        }
    }
}
