//! Request metrics: counts, outcomes, durations and open streams.

use std::time::Instant;

use axum::body::Body;
use axum::http::header;
use axum::response::Response;
use http_body_util::BodyExt as _;

/// Interfaces and classes of status that requests are counted by.
const INTERFACES: [&str; 6] = ["a2a", "mcp", "api", "card", "hook", "console"];
const STATUSES: [&str; 5] = ["2xx", "3xx", "4xx", "429", "5xx"];

/// Starts the counters, so that the first request and delivery of a kind appear as an increase.
pub(crate) fn begin_counts() {
    for (interface, status) in INTERFACES.into_iter().flat_map(|name| STATUSES.map(|status| (name, status))) {
        metrics::counter!("sinew_gateway_requests_total", "interface" => interface, "status" => status)
            .increment(0);
    }
    for outcome in ["delivered", "failed", "forbidden", "refused"] {
        metrics::counter!("sinew_gateway_pushes_total", "outcome" => outcome).increment(0);
    }
}

/// A request in progress.
pub(crate) struct MeasuredRequest {
    interface: &'static str,
    began: Instant,
}

impl MeasuredRequest {
    /// Starts the measurement of a request for this path.
    pub(crate) fn begin(path: &str) -> Self {
        Self { interface: interface_of(path), began: Instant::now() }
    }

    /// Returns whether the request calls an agent, reads a card or delivers a webhook, all of which
    /// are short.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self.interface, "a2a" | "card" | "hook")
    }

    /// Counts the request with its response. A stream counts as open until it ends.
    pub(crate) fn end(self, response: Response) -> Response {
        let Self { interface, began } = self;
        let status = match response.status().as_u16() {
            200..=299 => "2xx",
            300..=399 => "3xx",
            429 => "429",
            400..=499 => "4xx",
            _ => "5xx",
        };
        metrics::counter!("sinew_gateway_requests_total", "interface" => interface, "status" => status)
            .increment(1);
        let content_type = response.headers().get(header::CONTENT_TYPE);
        if content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream")) {
            return count_stream(response);
        }
        metrics::histogram!("sinew_gateway_request_seconds", "interface" => interface)
            .record(began.elapsed());
        response
    }
}

/// Counts a stream as open until it ends.
fn count_stream(response: Response) -> Response {
    let open = OpenStreamCount::new();
    let (parts, body) = response.into_parts();
    let body = body.map_frame(move |frame| {
        // Held until the body is dropped.
        let _open = &open;
        frame
    });
    Response::from_parts(parts, Body::new(body))
}

struct OpenStreamCount;

impl OpenStreamCount {
    fn new() -> Self {
        metrics::gauge!("sinew_gateway_streams").increment(1.0);
        Self
    }
}

impl Drop for OpenStreamCount {
    fn drop(&mut self) {
        metrics::gauge!("sinew_gateway_streams").decrement(1.0);
    }
}

/// Returns the interface that a path belongs to.
fn interface_of(path: &str) -> &'static str {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match first {
        "mcp" => "mcp",
        "api" => "api",
        "hooks" => "hook",
        "console" => "console",
        _ if path.contains("/.well-known/") => "card",
        _ => "a2a",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_belong_to_interfaces() {
        for (path, expected) in [
            ("/.well-known/agent-card.json", "card"),
            ("/agents/one/.well-known/agent-card.json", "card"),
            ("/agents/one/message:send", "a2a"),
            ("/a2a", "a2a"),
            ("/mcp", "mcp"),
            ("/api/v1/executions", "api"),
            ("/hooks/x", "hook"),
            ("/console/", "console"),
            ("/", "a2a"),
        ] {
            assert_eq!(interface_of(path), expected, "{path}");
        }
    }
}
