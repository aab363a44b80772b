//! Request bodies, within limits of size and time.

use std::error::Error;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use sinew_protocol::header;
use sinew_protocol::jsonrpc::A2A_JSON;

use crate::options::GatewayLimits;

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
    let read = Limited::new(body, max_bytes).collect();
    match tokio::time::timeout(limits.body_timeout, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(exceeded_limit(error.as_ref()).map_or(BodyError::Broken, BodyError::TooLarge)),
        Err(_) => Err(BodyError::Broken),
    }
}

/// Describes the limit that a body exceeds. Returns `None` if the reason is another one.
fn exceeded_limit(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if error.is::<LengthLimitError>() {
        return Some("the body exceeds the size limit of the gateway");
    }
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
