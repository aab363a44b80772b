//! Streams of server-sent events: frames, start, keep-alive and end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use sinew_protocol::code;
use tokio::sync::OwnedSemaphorePermit;

use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Idle time after which a comment keeps the stream alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Sets the reconnection delay of clients in milliseconds. The next frame continues the block: some
/// clients report a block without data as an empty event.
const RETRY_FRAME: &[u8] = b"retry: 1000\n";
const ALIVE_FRAME: &[u8] = b": alive\n\n";

/// Frames that were not sent yet.
pub(super) struct FrameQueue {
    ready: VecDeque<Bytes>,
    is_over: bool,
}

impl FrameQueue {
    pub(super) fn push(&mut self, frame: impl Into<Bytes>) {
        self.ready.push_back(frame.into());
    }

    /// Appends the last frame.
    pub(super) fn end(&mut self, frame: impl Into<Bytes>) {
        self.push(frame);
        self.is_over = true;
    }
}

/// Source of a stream's frames.
pub(super) trait FrameSource: Send + 'static {
    /// Waits for new data and appends its frames. Cancel-safe: no frame is lost.
    fn fill(&mut self, queue: &mut FrameQueue) -> impl Future<Output = ()> + Send;

    /// Returns the last frame of a stream that the gateway's shutdown ends.
    fn stop_frame(&self) -> String {
        ": the gateway is shutting down\n\n".to_owned()
    }
}

/// Permit of an open stream.
pub(super) struct FrameStream {
    state: Arc<GatewayState>,
    pub(super) queue: FrameQueue,
    _permit: OwnedSemaphorePermit,
}

impl FrameStream {
    /// Acquires a permit, or reports that the gateway is busy.
    pub(super) fn open(state: &Arc<GatewayState>) -> Result<Self, HttpProblem> {
        let Ok(permit) = Arc::clone(&state.streams).try_acquire_owned() else {
            let text = "the gateway has reached its limit of open streams; retry later";
            return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text));
        };
        let queue = FrameQueue { ready: VecDeque::from([Bytes::from_static(RETRY_FRAME)]), is_over: false };
        Ok(Self { state: Arc::clone(state), queue, _permit: permit })
    }

    /// Returns the frames as a response: those of the queue, then those of the source.
    pub(super) fn respond(self, source: impl FrameSource) -> Response {
        let frames = stream::unfold((self, source), |(mut open, mut source)| async move {
            let frame = open.next(&mut source).await?;
            Some((Ok::<_, Infallible>(frame), (open, source)))
        });
        let mut response = Body::from_stream(frames).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // Proxies must not buffer events.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }

    /// Returns the next frame, or `None` after the last.
    async fn next(&mut self, source: &mut impl FrameSource) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.queue.ready.pop_front() {
                return Some(frame);
            }
            if self.queue.is_over {
                return None;
            }
            tokio::select! {
                biased;
                () = self.state.draining.cancelled() => self.queue.end(source.stop_frame()),
                () = source.fill(&mut self.queue) => {}
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(ALIVE_FRAME)),
            }
        }
    }
}
