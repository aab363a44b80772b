//! Bodies of requests, within the limits of size and time.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use sinew_protocol::header;
use sinew_protocol::jsonrpc::A2A_JSON;

use crate::options::GatewayLimits;

/// Reason why a body was not read.
pub(crate) enum BodyError {
    /// Longer than the limit.
    TooLarge,
    /// It did not arrive, or not in time.
    Broken,
}

/// Reads a body within its limits of size and time.
pub(crate) async fn read_body(limits: &GatewayLimits, body: Body) -> Result<Bytes, BodyError> {
    read_body_within(limits, limits.body_bytes, body).await
}

/// Reads a body of at most so many bytes, within the limit of time.
pub(crate) async fn read_body_within(
    limits: &GatewayLimits,
    max_bytes: usize,
    body: Body,
) -> Result<Bytes, BodyError> {
    let read = Limited::new(body, max_bytes).collect();
    match tokio::time::timeout(limits.body_timeout, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if is_too_large(error.as_ref()) => Err(BodyError::TooLarge),
        _ => Err(BodyError::Broken),
    }
}

/// Whether a limit of the gateway or of the caller is the reason.
fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether a media type is one of JSON that a gateway reads.
pub(crate) fn is_json(content_type: Option<&str>) -> bool {
    let bare = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    [header::JSON, A2A_JSON].iter().any(|known| bare.eq_ignore_ascii_case(known))
}
