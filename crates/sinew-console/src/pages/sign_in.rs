//! Sign-in with a key, and sign-out.

use std::sync::Arc;

use axum::extract::{Form, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use serde::Deserialize;

use super::provider_visit::{PROVIDER_RETURN, PROVIDER_VISIT};
use crate::console_state::{ConsoleState, SignInPort};
use crate::page_frame::{ConsolePage, token_field};
use crate::page_request::{BASE, PageAddress, PageRequest};
use crate::shown_text;

/// Path of the sign-in page, relative to the base.
const SIGN_IN: &str = "sign-in";
/// Path of the sign-out form, relative to the base.
const SIGN_OUT: &str = "sign-out";
/// Maximum length of the address that is opened after a sign-in.
const MAX_NEXT_BYTES: usize = 2_000;
/// Message for a rejected key.
const KEY_REFUSED: &str = "This key is not valid: it is unknown, expired or revoked.";

/// Returns true for the paths of sign-in and sign-out, which need no caller.
pub(crate) fn is_sign_in(path: &str) -> bool {
    let below = path.strip_prefix(BASE).and_then(|rest| rest.strip_prefix('/'));
    below.is_some_and(|below| below == SIGN_IN || below == SIGN_OUT)
        || path == PROVIDER_VISIT
        || path == PROVIDER_RETURN
}

/// The sign-in page, with the requested page as its next page.
pub(crate) fn sign_in_address(asked: &Uri) -> PageAddress {
    let next = asked.path_and_query().map_or("", |next| next.as_str());
    let next = Some(next).filter(|next| next.starts_with(BASE) && *next != BASE);
    PageAddress::of(&[SIGN_IN]).with_some("next", next)
}

/// The page to open after a sign-in: the requested page if it belongs to this console, otherwise
/// the first.
pub(super) fn page_after(next: &str) -> &str {
    let is_page = next.strip_prefix(BASE).is_some_and(|rest| rest.starts_with(['/', '?']));
    // Browsers treat a backslash as a slash, and ignore line breaks and tabs.
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_page && is_plain && next.len() <= MAX_NEXT_BYTES { next } else { BASE }
}

/// The page to open after a sign-in.
#[derive(Default, Deserialize)]
struct SignInChoice {
    #[serde(default)]
    next: String,
}

/// The sign-in form.
#[derive(Deserialize)]
pub(crate) struct SignInForm {
    #[serde(default)]
    key: String,
    #[serde(default)]
    next: String,
}

pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, request: PageRequest) -> Response {
    let SignInChoice { next } = request.query().unwrap_or_default();
    sign_in_page(&state, &request, &next, None).into_response()
}

pub(crate) async fn sign_in(
    State(state): State<Arc<ConsoleState>>,
    request: PageRequest,
    Form(form): Form<SignInForm>,
) -> Response {
    let Some(port) = &state.sign_in else { return Redirect::to(BASE).into_response() };
    if let Some(session) = port.begin(&form.key) {
        let cookie = session_cookie(&state, port, &session, port.lifetime_seconds);
        return with_cookie(Redirect::to(page_after(&form.next)).into_response(), &cookie);
    }
    tracing::debug!("sign-in with a key failed");
    sign_in_page(&state, &request, &form.next, Some(KEY_REFUSED)).into_response()
}

pub(crate) async fn sign_out(State(state): State<Arc<ConsoleState>>, headers: HeaderMap) -> Response {
    let page = Redirect::to(BASE).into_response();
    let Some(port) = &state.sign_in else { return page };
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let session = pairs.find(|(name, _)| *name == port.cookie).map(|(_, session)| session.to_owned());
    if let Some(session) = session
        && !port.end(session).await
    {
        // Keep the cookie, so that the user can retry.
        let text = "The gateway could not end the session. Try again later.";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    with_cookie(page, &session_cookie(&state, port, "", 0))
}

/// The session cookie; with zero seconds the browser deletes it.
pub(super) fn session_cookie(state: &ConsoleState, port: &SignInPort, session: &str, seconds: u64) -> String {
    let (name, secure) = (port.cookie, state.secure_flag());
    format!("{name}={session}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Adds a cookie to a response.
pub(super) fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// The sign-in page, with the reason why the last attempt failed.
pub(super) fn sign_in_page(
    state: &ConsoleState,
    request: &PageRequest,
    next: &str,
    refusal: Option<&str>,
) -> ConsolePage {
    let next = page_after(next);
    let provider = state.sign_in.as_ref().and_then(SignInPort::provider);
    let body = html! {
        div.narrow {
            h1 { "Sign in" }
            @if let Some(name) = &request.signed_in {
                p { "Signed in as " strong { (shown_text::line(name, 80)) } }
                form.steer method="post" action=(PageAddress::of(&[SIGN_OUT])) {
                    (token_field(request))
                    div.actions { button type="submit" { "Sign out" } }
                }
            }
            @if let Some(refusal) = refusal { div.problem role="alert" { p.message { (shown_text::paragraph(refusal)) } } }
            @if let Some(provider) = provider {
                div.actions { a.button.primary href=(PageAddress::of(&[SIGN_IN, "openid"]).with("next", next)) { "Sign in with " (shown_text::line(&provider.name(), 80)) } }
                p.quiet { "or with a key of this gateway:" }
            }
            form.steer method="post" action=(PageAddress::of(&[SIGN_IN])) {
                (token_field(request))
                input type="hidden" name="next" value=(next);
                // Password managers need a user name.
                input type="text" name="owner" value="key" autocomplete="username" hidden;
                label { span { "Gateway key" }
                    input type="password" name="key" required autocomplete="current-password" spellcheck="false"; }
                p.hint { "An administrator creates a key with " code { "sinew gateway key create NAME" } "." }
                div.actions { button.primary[provider.is_none()] type="submit" { "Sign in" } }
            }
        }
    };
    let page = ConsolePage::without_navigation("Sign in", body);
    if refusal.is_some() { page.with_status(StatusCode::UNAUTHORIZED) } else { page }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_pages_of_this_console_only() {
        let check = |next: &str, expected: &str| assert_eq!(page_after(next), expected, "{next}");
        check("/console/executions?status=failed&node=a%20b", "/console/executions?status=failed&node=a%20b");
        check("/console?x=1", "/console?x=1");
        for other in [
            "",
            "/console",
            "//evil.example/console/",
            "https://evil.example/console/",
            "/consolez",
            "/console@evil.example",
            "/console/\\evil",
            "/console/\n//evil",
            "/console/a b",
            "/api/v1/executions",
        ] {
            check(other, BASE);
        }
        let asked = |uri: &str| sign_in_address(&uri.parse().unwrap()).to_string();
        assert_eq!(asked("/console"), "/console/sign-in");
        assert_eq!(asked("/"), "/console/sign-in");
        assert_eq!(asked("/console/agents?text=a"), "/console/sign-in?next=%2Fconsole%2Fagents%3Ftext%3Da");
    }
}
