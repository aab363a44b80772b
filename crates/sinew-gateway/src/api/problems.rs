//! Converts failures of operations to HTTP problems.

use axum::http::StatusCode;
use serde_json::Value;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

use crate::http_error::HttpProblem;

impl From<Failure> for HttpProblem {
    fn from(failure: Failure) -> Self {
        let status = match failure.kind {
            FailureKind::Failed => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::Usage => StatusCode::BAD_REQUEST,
            FailureKind::NotFound => StatusCode::NOT_FOUND,
            FailureKind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            FailureKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            FailureKind::Conflict | FailureKind::Waiting => StatusCode::CONFLICT,
            FailureKind::Denied => StatusCode::FORBIDDEN,
        };
        let findings = failure.diagnostics.as_ref().and_then(|found| {
            let document: Value = serde_json::from_str(&sinew_source::render_json(found)).ok()?;
            document.get("diagnostics").cloned()
        });
        // Clients of the API have no command line.
        let code = match failure.code {
            code if code == code::COMMAND_LINE_WRONG.as_str() => code::GATEWAY_REQUEST_WRONG.as_str(),
            code => code,
        };
        Self::coded(status, code, failure.message).with_hint(failure.hint).with_findings(findings)
    }
}
