//! Errors outside A2A as `application/problem+json` (RFC 9457), with the error code.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_protocol::code::{self, Code};

/// Media type of problem details.
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Seconds after which a client may retry a request that was rejected temporarily.
pub(crate) const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// An error response with its HTTP status and error code.
#[derive(Clone, Debug)]
pub(crate) struct HttpProblem {
    status: StatusCode,
    code: String,
    detail: String,
    hint: Option<String>,
    /// Findings in an uploaded file.
    findings: Option<Box<Value>>,
}

/// Problem details (RFC 9457), with the operator code, a hint and diagnostics.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemBody<'a> {
    r#type: &'static str,
    /// Title of the page for the code.
    title: &'a str,
    /// HTTP status.
    status: u16,
    /// Explanation in one sentence.
    detail: &'a str,
    /// Operator code. `sinew explain CODE` prints its page.
    code: &'a str,
    /// Suggested next step. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    /// Diagnostics of files. Absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<serde_json::Map<String, Value>>>")]
    findings: Option<&'a Value>,
}

impl HttpProblem {
    pub(crate) fn new(status: StatusCode, code: Code, detail: impl Into<String>) -> Self {
        Self::coded(status, code.as_str(), detail)
    }

    /// Creates a response from a code given as text.
    pub(crate) fn coded(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), detail: detail.into(), hint: None, findings: None }
    }

    pub(crate) fn with_hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    pub(crate) fn with_findings(self, findings: Option<Value>) -> Self {
        Self { findings: findings.map(Box::new), ..self }
    }

    /// Reports that the path matches no route or no exposed agent.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code::GATEWAY_PATH_UNKNOWN, detail)
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            r#type: "about:blank",
            title: code::title(&self.code).unwrap_or_default(),
            status: self.status.as_u16(),
            detail: &self.detail,
            code: &self.code,
            hint: self.hint.as_deref(),
            findings: self.findings.as_deref(),
        };
        // Plain data with string keys always serializes.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, PROBLEM_JSON);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_SECONDS);
        }
        response
    }
}
