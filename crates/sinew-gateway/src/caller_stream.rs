//! Ends streams whose caller loses access because a key is revoked or expires, or a token expires.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use tokio::time::{Interval, MissedTickBehavior};

use crate::access::CallerIdentity;
use crate::state::GatewayState;

/// Interval of access checks for an open stream.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Media types of streaming responses.
const STREAM_TYPES: [&[u8]; 2] = [b"text/event-stream", b"application/grpc"];

/// Body of a stream and the caller who may read it.
struct CallerStream {
    body: Body,
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    looks: Interval,
}

/// Ends a stream soon after its caller loses access; other responses are unchanged.
pub(crate) fn end_with_caller(
    response: Response,
    state: &Arc<GatewayState>,
    caller: &CallerIdentity,
) -> Response {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let is_stream = content_type
        .is_some_and(|value| STREAM_TYPES.iter().any(|known| value.as_bytes().starts_with(known)));
    if !is_stream || (caller.key.is_none() && caller.until_ms.is_none()) {
        return response;
    }
    let (state, caller) = (Arc::clone(state), caller.clone());
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    // A slow reader must not cause a burst of checks.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    response.map(|body| Body::new(CallerStream { body, state, caller, looks }))
}

impl HttpBody for CallerStream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let stream = self.get_mut();
        while stream.looks.poll_tick(cx).is_ready() {
            if !stream.state.authenticator.still_opens(&stream.caller) {
                let caller = stream.caller.label();
                sinew_mesh::log_limited!(20, info, %caller, "closed a stream because its caller lost access");
                return Poll::Ready(None);
            }
        }
        Pin::new(&mut stream.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
