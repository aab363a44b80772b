//! Request bodies, within limits of size and time.

use std::error::Error;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, LengthLimitError};
use sinew_protocol::header;
use sinew_protocol::jsonrpc::A2A_JSON;

use crate::options::GatewayLimits;

/// Maximum size of the rest of a too large body that is read and discarded.
const MAX_DISCARDED_BYTES: usize = 8 << 20;
/// Reason for the rejection of a body above the gateway's limit.
const TOO_LARGE: &str = "the body exceeds the size limit of the gateway";

/// Reason why a body was not read.
pub(crate) enum BodyError {
    /// The body exceeds a limit, which the text names.
    TooLarge(&'static str),
    /// The body did not arrive completely and in time.
    Broken,
}

/// Reads a body within the size and time limits.
pub(crate) async fn read_body(limits: &GatewayLimits, body: Body) -> Result<Bytes, BodyError> {
    read_body_within(limits, limits.body_bytes, body).await
}

/// Reads a body up to this size, within the time limit.
pub(crate) async fn read_body_within(
    limits: &GatewayLimits,
    max_bytes: usize,
    body: Body,
) -> Result<Bytes, BodyError> {
    let reading = tokio::time::timeout(limits.body_timeout, collect(body, max_bytes));
    reading.await.unwrap_or(Err(BodyError::Broken))
}

/// Reads a body up to this size. A larger one is read a little further: many clients send all of their
/// body before they read the response, and lose it if the connection closes first.
async fn collect(mut body: Body, max_bytes: usize) -> Result<Bytes, BodyError> {
    let (mut read, mut size) = (BytesMut::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| exceeded_limit(&error).map_or(BodyError::Broken, BodyError::TooLarge))?;
        let Ok(data) = frame.into_data() else { continue };
        size = size.saturating_add(data.len());
        if size <= max_bytes {
            read.extend_from_slice(&data);
        } else if size - max_bytes > MAX_DISCARDED_BYTES {
            break;
        } else {
            read = BytesMut::new();
        }
    }
    if size > max_bytes { Err(BodyError::TooLarge(TOO_LARGE)) } else { Ok(read.freeze()) }
}

/// Describes the limit of the caller that a body exceeds. Returns `None` if the reason is another one.
fn exceeded_limit(error: &(dyn Error + 'static)) -> Option<&'static str> {
    // The guard wraps the body in the caller's limit, so its error is wrapped as well.
    let mut causes = std::iter::successors(error.source(), |&error| error.source());
    causes
        .any(<dyn Error>::is::<LengthLimitError>)
        .then_some("the body exceeds the size limit of this caller")
}

/// Returns whether a gateway reads this media type as JSON.
pub(crate) fn is_json(content_type: Option<&str>) -> bool {
    let bare = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    [header::JSON, A2A_JSON].iter().any(|known| bare.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_too_large_body_is_read_a_little_further() {
        let whole = collect(Body::from("12345"), 5).await;
        assert!(whole.is_ok_and(|body| body == "12345"));
        for (rest, expected) in [(1, 1), (MAX_DISCARDED_BYTES, MAX_DISCARDED_BYTES)] {
            let pieces = [Bytes::from_static(b"12345"), Bytes::from(vec![0; rest]), Bytes::from_static(b"6")];
            let (sent, count) = (std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0)), pieces.len());
            let seen = std::sync::Arc::clone(&sent);
            let pieces = futures_util::stream::iter(pieces).map(move |piece| {
                seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok::<_, std::convert::Infallible>(piece)
            });
            let read = collect(Body::from_stream(pieces), 5).await;
            assert!(matches!(read, Err(BodyError::TooLarge(_))), "{expected}");
            assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), count, "everything was read");
        }
    }
}
