//! Event streams over HTTP: `text/event-stream`, with a number for each event, so that clients can
//! resume.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use sinew_protocol::a2a::A2aError;

use crate::operations::{StreamItem, TaskStream};
use crate::state::GatewayState;

/// Idle time after which a comment keeps the stream alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Milliseconds after which a client reconnects when its stream breaks.
const RETRY_MS: u32 = 1_000;

/// Marks a response whose stream already counts against its caller's limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedStream;

/// Encodes the events of a stream.
pub(crate) trait EventEncoder: Send + Sync + 'static {
    /// Encodes an event.
    fn event(&self, body: &Bytes) -> Bytes;
    /// Encodes a failure.
    fn failure(&self, error: &A2aError) -> Bytes;
}

/// State of one stream.
struct OpenStream<W> {
    state: Arc<GatewayState>,
    items: TaskStream,
    wording: W,
    /// Whether no event was sent yet.
    is_first: bool,
    last: Option<u64>,
}

/// Returns a stream as a response.
pub(crate) fn respond<W: EventEncoder>(state: &Arc<GatewayState>, items: TaskStream, wording: W) -> Response {
    let open = OpenStream { state: Arc::clone(state), items, wording, is_first: true, last: None };
    let body = Body::from_stream(stream::unfold(Some(open), |open| async move {
        let mut open = open?;
        let (bytes, goes_on) = open.next().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), goes_on.then_some(open)))
    }));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies must not buffer events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.extensions_mut().insert(CountedStream);
    response
}

impl<W: EventEncoder> OpenStream<W> {
    /// Returns the next bytes, and whether more follow.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        let mut out = BytesMut::new();
        let item = tokio::select! {
            biased;
            item = self.items.next() => item,
            () = self.state.draining.cancelled() => {
                let last = self.last.map_or_else(String::new, |last| format!(" with Last-Event-ID: {last}"));
                out.put_slice(format!(": the gateway is shutting down; subscribe again{last}\n\n").as_bytes());
                return Some((out.freeze(), false));
            }
            () = tokio::time::sleep(KEEP_ALIVE) => {
                out.put_slice(b": alive\n\n");
                return Some((out.freeze(), true));
            }
        };
        let (seq, data, goes_on) = match item? {
            StreamItem::Event { seq, body } => (seq, self.wording.event(&body), true),
            StreamItem::Failed(error) => (None, self.wording.failure(&error), false),
        };
        // Part of the first event: some clients report a block without data as an empty event.
        if std::mem::take(&mut self.is_first) {
            out.put_slice(format!("retry: {RETRY_MS}\n").as_bytes());
        }
        if let Some(seq) = seq {
            self.last = Some(seq);
            out.put_slice(format!("id: {seq}\n").as_bytes());
        }
        out.put_slice(b"data: ");
        out.put_slice(&data);
        out.put_slice(b"\n\n");
        Some((out.freeze(), goes_on))
    }
}
