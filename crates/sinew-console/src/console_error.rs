//! Errors of pages and forms.

use axum::http::StatusCode;
use sinew_codes as code;

use crate::api_problem::ApiProblem;

/// The reason why a page cannot be shown or a form was rejected.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ConsoleError {
    /// The API rejected the request.
    #[error("{}", .0.detail)]
    Refused(Box<ApiProblem>),
    /// The page cannot use the response of the API.
    #[error("invalid response of the API: {0}")]
    Answer(String),
    /// A form has another origin or no valid token.
    #[error("{0}")]
    FormNotTrusted(&'static str),
    /// The console is read-only.
    #[error("this console is read-only")]
    ReadOnly,
    /// A value of a form or an address is invalid.
    #[error("{0}")]
    Input(String),
    /// The page does not exist.
    #[error("page not found: {0}")]
    NoPage(String),
}

impl ConsoleError {
    /// HTTP status of the error page.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Refused(problem) => problem.page_status(),
            Self::Answer(_) => StatusCode::BAD_GATEWAY,
            Self::FormNotTrusted(_) | Self::ReadOnly => StatusCode::FORBIDDEN,
            Self::Input(_) => StatusCode::BAD_REQUEST,
            Self::NoPage(_) => StatusCode::NOT_FOUND,
        }
    }

    /// The operator code.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Refused(problem) => &problem.code,
            Self::Answer(_) => code::CONSOLE_ANSWER_UNUSABLE.as_str(),
            Self::FormNotTrusted(_) => code::CONSOLE_FORM_NOT_TRUSTED.as_str(),
            Self::ReadOnly => code::CONSOLE_READ_ONLY.as_str(),
            Self::Input(_) => code::GATEWAY_REQUEST_WRONG.as_str(),
            Self::NoPage(_) => code::GATEWAY_PATH_UNKNOWN.as_str(),
        }
    }

    /// Next step for the user, if known.
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::Refused(problem) => problem.hint.as_deref(),
            Self::FormNotTrusted(_) => Some("reload the page and repeat the action"),
            Self::ReadOnly => Some("start the gateway with `--console=full`, or use the command line"),
            _ => None,
        }
    }
}
