//! Failures of pages.

use axum::http::StatusCode;
use sinew_codes as code;

use crate::api_problem::ApiProblem;

/// Why a page cannot be shown, or a form was not obeyed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ConsoleError {
    /// The API refused.
    #[error("{}", .0.detail)]
    Refused(Box<ApiProblem>),
    /// The answer of the API is not what the page reads.
    #[error("the answer of the API cannot be used: {0}")]
    Answer(String),
    /// A form came from elsewhere, or without its token.
    #[error("{0}")]
    FormNotTrusted(&'static str),
    /// The console is read-only.
    #[error("this console shows the mesh and changes nothing")]
    ReadOnly,
    /// A value of a form or an address is wrong.
    #[error("{0}")]
    Input(String),
    /// No page has this address.
    #[error("there is no page at {0}")]
    NoPage(String),
}

impl ConsoleError {
    /// Status of the page that tells it.
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

    /// Advice, if there is some.
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::Refused(problem) => problem.hint.as_deref(),
            Self::FormNotTrusted(_) => Some("open the page again and repeat what you did"),
            Self::ReadOnly => Some("start the gateway with `--console=full`, or use the command line"),
            _ => None,
        }
    }
}
