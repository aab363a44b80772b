//! JSON-RPC batches: a client of MCP 2025-03-26 may send several messages in one request (Streamable
//! HTTP, "Sending Messages to the Server"). Other versions have none.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt as _, Full};
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::handler::McpHandler;
use super::http_endpoint::{BEGIN_SESSION, SESSION_HEADER, VERSION_HEADER, is_priming};

/// The version with batches. Its clients name it in no header.
const BATCH_VERSION: &str = "2025-03-26";
/// Maximum number of messages in a batch.
const MAX_MESSAGES: usize = 100;

/// Returns the messages of a batch, or why it is rejected; `None` for a request that is no batch in
/// a session of a version with batches.
pub(super) fn messages(parts: &Parts, body: &Bytes) -> Option<Result<Vec<Value>, &'static str>> {
    let version = parts.headers.get(VERSION_HEADER);
    let is_possible = parts.headers.contains_key(SESSION_HEADER)
        && version.is_none_or(|version| version == BATCH_VERSION)
        && body.trim_ascii_start().starts_with(b"[");
    let messages = serde_json::from_slice::<Vec<Value>>(body).ok().filter(|_| is_possible)?;
    Some(if messages.is_empty() || messages.len() > MAX_MESSAGES {
        Err("a batch has 1 to 100 messages")
    } else if messages.iter().any(|message| message["method"] == BEGIN_SESSION) {
        Err("initialize cannot be part of a batch")
    } else {
        Ok(messages)
    })
}

/// Handles the messages concurrently. Their responses are messages of one event stream.
pub(super) async fn answer(
    service: &StreamableHttpService<McpHandler, LocalSessionManager>,
    parts: &Parts,
    messages: Vec<Value>,
    permit: OwnedSemaphorePermit,
) -> Response {
    let mut head = parts.clone();
    head.headers.remove(header::CONTENT_LENGTH);
    let handled = messages.iter().map(|message| {
        let body = Full::new(Bytes::from(message.to_string()));
        service.handle(axum::http::Request::from_parts(head.clone(), body))
    });
    let mut streams = Vec::new();
    for answer in join_all(handled).await {
        let (parts, body) = answer.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        match content_type {
            Some(name) if name.starts_with(b"text/event-stream") => {
                streams.push(StreamExt::boxed(Body::new(body).into_data_stream()));
            }
            // A notification, or a response, has no answer.
            _ if parts.status == StatusCode::ACCEPTED => {}
            _ => {
                let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                if let Ok(message) = serde_json::from_slice::<Value>(&body) {
                    let event = Bytes::from(format!("event: message\ndata: {message}\n\n"));
                    streams.push(StreamExt::boxed(stream::iter([Ok(event)])));
                }
            }
        }
    }
    if streams.is_empty() {
        return StatusCode::ACCEPTED.into_response();
    }
    let events = stream::select_all(streams).filter(move |piece| {
        // The stream counts until its body is dropped.
        let _held = &permit;
        std::future::ready(!piece.as_ref().is_ok_and(|piece| is_priming(piece)))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(events)).into_response()
}
