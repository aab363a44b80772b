//! Permits for files that are read from the mesh: files are held completely in memory, so their
//! number is limited.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use sinew_protocol::code;
use tokio::sync::OwnedSemaphorePermit;

use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Waits for a permit for a file. Fails if none becomes available in time.
pub(crate) async fn take_place(state: &GatewayState) -> Result<OwnedSemaphorePermit, HttpProblem> {
    let busy = |text: String| HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text);
    let place = Arc::clone(&state.file_permits).acquire_owned();
    match tokio::time::timeout(state.limits.file_wait, place).await {
        Ok(place) => place.map_err(|error| busy(error.to_string())),
        Err(_) => Err(busy(
            "the gateway has reached its limit of concurrent file transfers; retry later".to_owned(),
        )),
    }
}

/// A body that holds its file's permit until it was sent or dropped: slow clients count as well.
pub(crate) fn held_body(bytes: Bytes, place: OwnedSemaphorePermit) -> Body {
    Body::new(HeldBody { bytes: Full::new(bytes), _place: place })
}

/// The content of a file, with its permit.
struct HeldBody {
    bytes: Full<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.bytes).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_end_stream()
    }

    /// The size is known, so responses have a `Content-Length`.
    fn size_hint(&self) -> SizeHint {
        self.bytes.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_body_keeps_its_place_until_it_is_gone() {
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let body = held_body(Bytes::from_static(b"abc"), place);
        assert_eq!(places.available_permits(), 0);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
        assert_eq!(places.available_permits(), 1);
    }
}
