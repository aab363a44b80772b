//! Middleware of all pages: sets the headers of every response, and checks forms.
//!
//! A form is accepted if its origin is this console, its token equals that of the cookie, and the
//! cookie was sent to the site that set it. The check runs before all handlers, so no handler can
//! omit it.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use url::form_urlencoded;

use crate::console_error::ConsoleError;
use crate::console_state::{ConsoleCaller, ConsoleMode, ConsoleState};
use crate::form_token::{COOKIE, FormToken, TOKEN_FIELD};
use crate::page_frame::{ConsolePage, PageViewer, error_page};
use crate::page_request::{BASE, PageAddress, PageRequest, mode_of};
use crate::pages::sign_in::{is_sign_in, sign_in_address};

/// Maximum size of a form.
const MAX_FORM_BYTES: usize = 1 << 20;
/// Maximum size of a form with an exported execution.
const MAX_IMPORT_BYTES: usize = 32 << 20;
/// Maximum size of a chat message, which may contain files.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Prefix of the paths of chats.
const CHATS: &str = "/console/chat/";
/// Path of the workflow editor; a workflow file and its cases may be long.
const DESK: &str = "/console/desk";
/// Maximum size of a form of the editor.
const MAX_DESK_BYTES: usize = 4 << 20;
/// Path of the form that opens an exported execution, which changes nothing.
const IMPORT: &str = "/console/import";
/// Prefix of the paths of files, which contain no data of the mesh.
const ASSETS: &str = "/console/assets/";
/// Headers of every response. Pages load and execute only files of this console.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // `no-referrer` would also remove the origin from forms.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// Passes a request to its page or rejects it, and sets the headers of the response.
pub(crate) async fn guard_pages(
    State(state): State<Arc<ConsoleState>>,
    request: Request,
    next: Next,
) -> Response {
    let (token, is_known) = FormToken::of(request.headers());
    let is_form = *request.method() != Method::GET && *request.method() != Method::HEAD;
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(token.clone());
    let viewer = PageViewer::of(&PageRequest::of(&parts, &state));
    let is_sign_in = is_sign_in(parts.uri.path());
    let needs_sign_in = state.sign_in.is_some()
        && parts.extensions.get::<ConsoleCaller>().is_none()
        && !is_sign_in
        && !parts.uri.path().starts_with(ASSETS);
    let mode =
        if is_sign_in || parts.uri.path() == IMPORT { ConsoleMode::Full } else { mode_of(&parts, &state) };
    let checked = if needs_sign_in {
        Err(None)
    } else if is_form {
        let is_trusted = is_known && is_own_origin(&parts.headers, &parts.uri);
        let max_bytes = match parts.uri.path() {
            IMPORT => 2 * MAX_IMPORT_BYTES,
            DESK => MAX_DESK_BYTES,
            path if path.starts_with(CHATS) => MAX_MESSAGE_BYTES,
            _ => MAX_FORM_BYTES,
        };
        checked_form(mode, is_trusted, &token, (body, max_bytes)).await.map_err(Some)
    } else {
        Ok(body)
    };
    let mut response = match checked {
        Ok(body) => next.run(Request::from_parts(parts, body)).await,
        // Do not submit the form again after the sign-in: another person may have signed in.
        Err(None) if is_form => Redirect::to(&PageAddress::of(&["sign-in"]).to_string()).into_response(),
        Err(None) => Redirect::to(&sign_in_address(&parts.uri).to_string()).into_response(),
        Err(Some(error)) => {
            tracing::debug!(path = %parts.uri.path(), %error, "form rejected");
            error_page(&PageRequest::of(&parts, &state), &error).into_response()
        }
    };
    if let Some(page) = response.extensions_mut().remove::<ConsolePage>() {
        *response.body_mut() = page.markup(&viewer).into_string().into();
    }
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        // Images have a stricter policy.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    // Files have their own cache rule; pages must not be cached.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if !is_known && let Ok(cookie) = HeaderValue::from_str(&cookie_of(&token, state.secure_flag())) {
        headers.append(header::SET_COOKIE, cookie);
    }
    response
}

fn cookie_of(token: &FormToken, secure: &str) -> String {
    format!("{COOKIE}={}; Path={BASE}; HttpOnly; SameSite=Strict{secure}", token.as_str())
}

/// Checks a form and returns its body.
async fn checked_form(
    mode: ConsoleMode,
    is_trusted: bool,
    token: &FormToken,
    (body, max_bytes): (Body, usize),
) -> Result<Body, ConsoleError> {
    if mode == ConsoleMode::ReadOnly {
        return Err(ConsoleError::ReadOnly);
    }
    if !is_trusted {
        return Err(ConsoleError::FormNotTrusted("the form did not come from a page of this console"));
    }
    let bytes = to_bytes(body, max_bytes).await.map_err(|_| {
        let limit = crate::shown_text::size(max_bytes as u64);
        ConsoleError::Input(format!("the form is larger than {limit} or incomplete"))
    })?;
    let mut sent = form_urlencoded::parse(&bytes).filter(|(name, _)| name == TOKEN_FIELD);
    match (sent.next(), sent.next()) {
        (Some((_, sent)), None) if is_same(sent.as_bytes(), token.as_str().as_bytes()) => {
            Ok(Body::from(bytes))
        }
        _ => Err(ConsoleError::FormNotTrusted("the form does not contain the token of this browser")),
    }
}

/// Compares in constant time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Returns true if the origin of the request is its own host. Browsers send the origin of every
/// form. HTTP/2 sends the host in the request target instead of a header.
fn is_own_origin(headers: &HeaderMap, address: &Uri) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let fetched_from = text(HeaderName::from_static("sec-fetch-site"));
    let origin = text(header::ORIGIN).and_then(|origin| origin.parse::<Uri>().ok());
    let origin = origin.as_ref().and_then(Uri::authority).map(Authority::as_str);
    let host = text(header::HOST).or_else(|| address.authority().map(Authority::as_str));
    fetched_from.is_none_or(|site| site == "same-origin") && host.is_some() && origin == host
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_own_origins_are_trusted() {
        let check = |pairs: &[(&'static str, &'static str)], expected: bool| {
            assert_eq!(is_own_origin(&headers(pairs), &Uri::from_static("/console")), expected, "{pairs:?}");
            // HTTP/2 has no header for the host.
            let host = pairs.iter().find(|(name, _)| *name == "host");
            let address = host.map_or("/console".to_owned(), |(_, host)| format!("https://{host}/console"));
            let others: Vec<_> = pairs.iter().copied().filter(|(name, _)| *name != "host").collect();
            assert_eq!(is_own_origin(&headers(&others), &address.parse().unwrap()), expected, "{pairs:?}");
        };
        check(&[("host", "a:1"), ("origin", "http://a:1")], true);
        check(&[("host", "a:1"), ("origin", "http://a:1"), ("sec-fetch-site", "same-origin")], true);
        check(&[("host", "a:1"), ("origin", "http://a:1"), ("sec-fetch-site", "cross-site")], false);
        check(&[("host", "a:1"), ("origin", "http://a:2")], false);
        check(&[("host", "a:1"), ("origin", "http://b@a:1")], false);
        check(&[("host", "a:1"), ("origin", "null")], false);
        check(&[("host", "a:1")], false);
        check(&[("origin", "http://a:1")], false);
        check(&[], false);
    }
}
