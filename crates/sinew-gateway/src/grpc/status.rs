//! A2A errors as gRPC statuses, with the details of `google.rpc.Status`.

use serde_json::{Value, json};
use sinew_protocol::a2a::A2aError;
use tonic::{Code, Status};

use crate::a2a_schema::{encode_named, is_known};
use crate::rest;

/// Maximum size of details: clients limit the total size of response headers.
const MAX_DETAIL_BYTES: usize = 4 << 10;

/// Names of `google.rpc.Code`.
const CODES: [(&str, Code); 10] = [
    ("INVALID_ARGUMENT", Code::InvalidArgument),
    ("NOT_FOUND", Code::NotFound),
    ("FAILED_PRECONDITION", Code::FailedPrecondition),
    ("UNIMPLEMENTED", Code::Unimplemented),
    ("PERMISSION_DENIED", Code::PermissionDenied),
    ("UNAUTHENTICATED", Code::Unauthenticated),
    ("RESOURCE_EXHAUSTED", Code::ResourceExhausted),
    ("UNAVAILABLE", Code::Unavailable),
    ("DEADLINE_EXCEEDED", Code::DeadlineExceeded),
    ("OUT_OF_RANGE", Code::OutOfRange),
];

/// Returns the status that corresponds to an A2A error.
pub(super) fn status_of(error: &A2aError) -> Status {
    let Value::Object(mut worded) = rest::error_body(error, rest::status_of(error))["error"].take() else {
        return Status::internal("");
    };
    let word = worded["status"].as_str().unwrap_or_default();
    let code = CODES.iter().find(|(name, _)| *name == word).map_or(Code::Internal, |(_, code)| *code);
    let message = worded["message"].as_str().unwrap_or_default().to_owned();
    with_details(code, message, worded["details"].take())
}

/// Builds a status with these typed details, given as JSON.
pub(super) fn with_details(code: Code, message: String, details: Value) -> Status {
    let Value::Array(mut details) = details else { return Status::new(code, message) };
    details.retain(|detail| {
        let name = detail["@type"].as_str().and_then(|url| url.rsplit('/').next());
        name.is_some_and(is_known)
    });
    let status = json!({"code": code as i32, "message": message, "details": details});
    match encode_named("google.rpc.Status", status.to_string().as_bytes()) {
        Ok(bytes) if bytes.len() <= MAX_DETAIL_BYTES => Status::with_details(code, message, bytes),
        Ok(_) => Status::new(code, message),
        Err(reason) => {
            sinew_mesh::log_limited!(warn, reason, "cannot encode the details of an error; omitted them");
            Status::new(code, message)
        }
    }
}
