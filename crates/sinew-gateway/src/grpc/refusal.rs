//! Rejections by the guard as gRPC statuses: gRPC clients do not read problem details.

use axum::http::{StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt as _, Collected, Limited};
use serde_json::{Value, json};
use tonic::Code;

use super::is_grpc;
use super::status::with_details;

/// Maximum size of problem details that are read.
const MAX_PROBLEM_BYTES: usize = 64 << 10;
/// Headers of a rejection that a client needs.
const KEPT_HEADERS: [header::HeaderName; 2] = [header::RETRY_AFTER, header::WWW_AUTHENTICATE];

/// Converts the rejection of a gRPC call to a status; other responses are unchanged.
pub(crate) async fn word_refusal(response: Response) -> Response {
    if is_grpc(response.headers()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let problem = Limited::new(body, MAX_PROBLEM_BYTES).collect().await.map(Collected::to_bytes);
    let problem: Value = problem.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    let text = problem["detail"].as_str().unwrap_or_else(|| parts.status.as_str()).to_owned();
    let details = match problem["code"].as_str() {
        Some(code) => json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": code.replace('-', "_"),
            "domain": "github.com/sinew-mesh/sinew",
            "metadata": {"code": code},
        }]),
        None => json!([]),
    };
    let mut refused = with_details(code_of(parts.status), text, details).into_http();
    for name in KEPT_HEADERS {
        if let Some(value) = parts.headers.get(&name) {
            refused.headers_mut().insert(name, value.clone());
        }
    }
    refused
}

fn code_of(status: StatusCode) -> Code {
    match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Code::Unimplemented,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
        status if status.is_client_error() => Code::InvalidArgument,
        _ => Code::Internal,
    }
}
