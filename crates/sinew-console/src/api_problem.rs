//! Error responses of the REST API.

use axum::http::StatusCode;
use serde::Deserialize;

/// An error response of the API: problem details with an operator code.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ApiProblem {
    #[serde(default)]
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) code: String,
    pub(crate) hint: Option<String>,
}

impl ApiProblem {
    /// HTTP status of the error page.
    pub(crate) fn page_status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
