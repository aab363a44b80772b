//! `GET /files/TOKEN/NAME`: the bytes of a file, or a range of them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sinew_mesh::MeshError;
use sinew_mesh::artifact::LARGEST_OBJECT;
use sinew_protocol::artifact::StoredAt;
use sinew_protocol::code;
use tokio::sync::OwnedSemaphorePermit;

use super::byte_range::{WantedBytes, wanted_bytes};
use super::file_permits::{held_body, take_place};
use crate::access::now_ms;
use crate::file_link::read_token;
use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Media type of bytes without a declared type.
const UNKNOWN_MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Returns the file that the token grants.
pub(crate) async fn serve(state: Arc<GatewayState>, token: &str, request: Request) -> Response {
    match file_of(&state, token, request.method(), request.headers()).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn file_of(
    state: &GatewayState,
    token: &str,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, HttpProblem> {
    let absent =
        || HttpProblem::not_found("the file does not exist or its address has expired; read the task again");
    let grant = state.signer.as_ref().and_then(|signer| read_token(signer, token, now_ms()));
    let grant = grant.ok_or_else(absent)?;
    let address: StoredAt = grant.address.parse().map_err(|_| absent())?;
    let tag = format!("\"{}\"", address.sha256);
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let about = |status: StatusCode, body: Body| {
        let mut response = (status, body).into_response();
        let values = [
            (header::ETAG, tag.clone()),
            // A file is data, regardless of its name or type: browsers save it and display nothing.
            (header::CONTENT_DISPOSITION, saved_as(address.uri.artifact.name.as_str())),
            (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            (header::CACHE_CONTROL, "private, max-age=300".to_owned()),
        ];
        for (name, value) in values {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        let media_type = grant.media_type.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
        response.headers_mut().insert(header::CONTENT_TYPE, media_type.unwrap_or(UNKNOWN_MEDIA_TYPE));
        response
    };
    if text(header::IF_NONE_MATCH).is_some_and(|known| known.split(',').any(|one| one.trim() == tag)) {
        return Ok(about(StatusCode::NOT_MODIFIED, Body::empty()));
    }
    let (place, bytes) = stored_bytes(state, &address).await?.ok_or_else(absent)?;
    Ok(FileBytes { bytes, place, tag: tag.clone() }.respond(method, headers, about))
}

/// Returns the `Content-Disposition` of a file that is saved under this name.
pub(crate) fn saved_as(name: &str) -> String {
    format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// The content of a file, with its permit.
pub(crate) struct FileBytes {
    pub(crate) bytes: Bytes,
    pub(crate) place: OwnedSemaphorePermit,
    /// Entity tag of the whole file.
    pub(crate) tag: String,
}

impl FileBytes {
    /// Returns the file, or the range of it that a GET requests. `about` builds a response with the
    /// file's headers.
    pub(crate) fn respond(
        self,
        method: &Method,
        headers: &HeaderMap,
        about: impl Fn(StatusCode, Body) -> Response,
    ) -> Response {
        let Self { bytes, place, tag } = self;
        let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let size = bytes.len();
        // A client with another version needs the whole file, and a range applies to GET only (RFC
        // 9110, 14.2).
        let is_same = text(header::IF_RANGE).is_none_or(|known| known.trim() == tag);
        let range = text(header::RANGE).filter(|_| is_same && *method == Method::GET);
        let (mut response, told) = match wanted_bytes(range, size) {
            WantedBytes::All => (about(StatusCode::OK, held_body(bytes, place)), None),
            WantedBytes::Part(part) => {
                let told = format!("bytes {}-{}/{size}", part.start, part.end - 1);
                (about(StatusCode::PARTIAL_CONTENT, held_body(bytes.slice(part), place)), Some(told))
            }
            WantedBytes::None => {
                (about(StatusCode::RANGE_NOT_SATISFIABLE, Body::empty()), Some(format!("bytes */{size}")))
            }
        };
        response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(told) = told.and_then(|told| HeaderValue::from_str(&told).ok()) {
            response.headers_mut().insert(header::CONTENT_RANGE, told);
        }
        response
    }
}

/// Reads the bytes at an address, with their permit. Returns `None` if the mesh no longer stores
/// them.
async fn stored_bytes(
    state: &GatewayState,
    address: &StoredAt,
) -> Result<Option<(OwnedSemaphorePermit, Bytes)>, HttpProblem> {
    let busy = |text: String| HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text);
    let place = take_place(state).await?;
    let artifacts = state.operations.client().mesh().artifacts();
    match artifacts.fetch_within(&address.to_string(), LARGEST_OBJECT).await {
        Ok(bytes) => Ok(Some((place, bytes))),
        Err(error) if error.is_transient() => Err(busy(error.to_string())),
        Err(error @ MeshError::Forbidden { .. }) => {
            Err(HttpProblem::coded(StatusCode::FORBIDDEN, error.code(), error.to_string()))
        }
        Err(error) => {
            tracing::debug!(%error, "cannot read a file");
            Ok(None)
        }
    }
}
