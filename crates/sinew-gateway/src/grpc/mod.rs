//! A2A's gRPC binding: protobuf messages become the JSON of operations, and results become
//! protobuf.
//!
//! The path of a call names no agent; the member `tenant` does: `agents/NAME` is the endpoint of
//! one agent.

mod operation_call;
mod refusal;
mod status;

pub(crate) use operation_call::serve;
pub(crate) use refusal::word_refusal;

use axum::http::{HeaderMap, HeaderValue, header};

/// Returns whether a message uses gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    content_type
        .strip_prefix(b"application/grpc")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+proto") || rest.starts_with(b";"))
}
