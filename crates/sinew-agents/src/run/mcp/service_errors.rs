//! Errors of the MCP client library: rate limits, and messages for people.

use std::time::{Duration, SystemTime};

use rmcp::ServiceError;
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{HttpStatusError, StreamableHttpError};

use crate::run::http::retry_after;

/// Attempts of a request that the server's rate limit rejects.
const MAX_ATTEMPTS: u32 = 4;
/// Maximum delay that a server can request.
const MAX_DELAY: Duration = Duration::from_mins(1);
/// HTTP status of a rate limit.
pub(super) const TOO_MANY_REQUESTS: u16 = 429;

/// A rejection by the rate limit of a server, which did not process the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateLimit {
    /// Delay that the server requests.
    pub(super) retry_after: Option<Duration>,
}

impl RateLimit {
    /// Returns the rate limit in an error of a request.
    pub(super) fn of_request(error: &ServiceError) -> Option<Self> {
        match error {
            ServiceError::TransportSend(error) => Self::of_transport(error),
            _ => None,
        }
    }

    /// Returns the rate limit in an error of the start of a connection.
    pub(super) fn of_start(error: &ClientInitializeError) -> Option<Self> {
        match error {
            ClientInitializeError::TransportError { error, .. } => Self::of_transport(error),
            ClientInitializeError::LegacyFallbackFailed { discover, fallback } => {
                Self::of_start(fallback).or_else(|| Self::of_start(discover))
            }
            _ => None,
        }
    }

    fn of_transport(error: &DynamicTransportError) -> Option<Self> {
        let first: &(dyn std::error::Error + 'static) = error.error.as_ref();
        let status = std::iter::successors(Some(first), |cause| (*cause).source()).find_map(|cause| {
            match cause.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
                Some(StreamableHttpError::HttpStatus(status)) => Some(status),
                _ => cause.downcast_ref::<HttpStatusError>(),
            }
        })?;
        let delay = || retry_after(status.retry_after.as_deref()?, SystemTime::now());
        (status.status == TOO_MANY_REQUESTS).then(|| Self { retry_after: delay() })
    }

    /// Returns the delay before the next attempt; `None` if no further attempt is made.
    pub(super) fn delay(self, attempt: u32) -> Option<Duration> {
        let doubled = Duration::from_secs(1).saturating_mul(1 << attempt.saturating_sub(1).min(10));
        let delay = self.retry_after.unwrap_or(doubled);
        (attempt < MAX_ATTEMPTS && delay <= MAX_DELAY).then_some(delay)
    }
}

/// Words of the library about its own types, and their replacements.
const REPLACED: [(&str, &str); 8] = [
    ("Transport send error: ", ""),
    ("Send message error ", "a message could not be sent: "),
    ("Mcp error: ", ""),
    ("UnexpectedServerResponse: ", ""),
    (" as ServerJsonRpcMessage", ""),
    ("ServerJsonRpcMessage", "a message of MCP"),
    ("JsonRpcMessage", "a message of MCP"),
    ("Unexpected response type", "the answer has an unknown form"),
];

/// Returns the text of an error without names of types.
pub(super) fn plain_message(error: &str) -> String {
    const TRANSPORT: (&str, &str) = ("Transport [", "] error: ");
    const UNTAGGED: &str = "data did not match any variant of untagged enum ";
    if error.starts_with("expect initialize") {
        return "the server did not answer the initialization as MCP requires".to_owned();
    }
    let mut text = error.to_owned();
    while let Some(start) = text.find(TRANSPORT.0) {
        let Some(length) = text[start..].find(TRANSPORT.1) else { break };
        text.replace_range(start..start + length + TRANSPORT.1.len(), "");
    }
    while let Some(start) = text.find(UNTAGGED) {
        let name = start + UNTAGGED.len();
        let rest = text[name..].find(|c: char| !c.is_alphanumeric()).map_or(text.len(), |at| name + at);
        text.replace_range(start..rest, "it is not a message of MCP");
    }
    REPLACED.iter().fold(text, |text, (words, other)| text.replace(words, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_no_types() {
        for (error, expected) in [
            ("Transport send error: Transport [a::WorkerTransport<a::B<c::D>>] error: slow", "slow"),
            (
                "Send message error Transport [a::B<[u8]>] error: closed, when send initialize request",
                "a message could not be sent: closed, when send initialize request",
            ),
            ("Mcp error: -32602: no tool x", "-32602: no tool x"),
            (
                "Deserialize error: data did not match any variant of untagged enum JsonRpcMessage at line 1",
                "Deserialize error: it is not a message of MCP at line 1",
            ),
            (
                "could not parse JSON response as ServerJsonRpcMessage: EOF: <empty>",
                "could not parse JSON response: EOF: <empty>",
            ),
            (
                "expect initialized response, but received: Some(Response(JsonRpcResponse { id: 1 }))",
                "the server did not answer the initialization as MCP requires",
            ),
            ("Transport closed", "Transport closed"),
        ] {
            assert_eq!(plain_message(error), expected, "{error}");
        }
    }

    #[test]
    fn delays_are_bounded() {
        let seconds = Duration::from_secs;
        for (asked, attempt, expected) in [
            (None, 1, Some(1)),
            (None, 3, Some(4)),
            (None, MAX_ATTEMPTS, None),
            (Some(2), 1, Some(2)),
            (Some(0), 3, Some(0)),
            (Some(61), 1, None),
        ] {
            let limit = RateLimit { retry_after: asked.map(seconds) };
            assert_eq!(limit.delay(attempt), expected.map(seconds), "{asked:?} {attempt}");
        }
    }
}
