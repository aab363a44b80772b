//! Sign-in at an OpenID provider: the redirect to the provider, and the return.
//!
//! The cookie of a visit is `SameSite=Lax`, because the browser returns from another site. The
//! session cookie is strict, so a redirect from that site would not carry it; the response is a
//! page that refreshes to the requested address.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;

use super::sign_in::{page_after, session_cookie, sign_in_page, with_cookie};
use crate::console_state::{ConsoleState, ProviderSignIn, SignInPort};
use crate::page_frame::ConsolePage;
use crate::page_request::{BASE, PageRequest};

/// Path that starts a visit.
pub(crate) const PROVIDER_VISIT: &str = "/console/sign-in/openid";
/// Path to which a browser returns from an OpenID provider.
pub const PROVIDER_RETURN: &str = "/console/sign-in/openid/return";
/// Cookie of a visit: the state that the gateway needs to complete it, then the requested page.
const VISIT_COOKIE: &str = "sinew-visit";
/// Maximum duration of a visit.
const VISIT_SECONDS: u64 = 600;

/// The page to open after the sign-in.
#[derive(Default, Deserialize)]
struct VisitChoice {
    #[serde(default)]
    next: String,
}

/// Redirects the browser to the provider.
pub(crate) async fn begin(State(state): State<Arc<ConsoleState>>, request: Request) -> Response {
    let Some((_, provider)) = provider_of(&state) else { return Redirect::to(BASE).into_response() };
    let (parts, _) = request.into_parts();
    let page = PageRequest::of(&parts, &state);
    let VisitChoice { next } = page.query().unwrap_or_default();
    match provider.begin(&parts.headers, &parts.uri).await {
        Ok(visit) => {
            let next = utf8_percent_encode(page_after(&next), NON_ALPHANUMERIC);
            let cookie = visit_cookie(&state, &format!("{}~{next}", visit.cookie), VISIT_SECONDS);
            with_cookie(Redirect::to(&visit.address).into_response(), &cookie)
        }
        Err(reason) => sign_in_page(&state, &page, &next, Some(&reason)).into_response(),
    }
}

/// Completes a visit, with a session if the provider identified the user.
pub(crate) async fn end(State(state): State<Arc<ConsoleState>>, request: Request) -> Response {
    let Some((port, provider)) = provider_of(&state) else { return Redirect::to(BASE).into_response() };
    let (parts, _) = request.into_parts();
    let (visit, next) = read_visit(&parts.headers);
    let answer = match provider.end(&parts.headers, &parts.uri, &visit).await {
        Ok(session) => {
            let cookie = session_cookie(&state, port, &session, provider.lifetime_seconds());
            with_cookie(lead_on(page_after(&next)), &cookie)
        }
        Err(reason) => {
            tracing::debug!(reason, "sign-in at the provider failed");
            sign_in_page(&state, &PageRequest::of(&parts, &state), &next, Some(&reason)).into_response()
        }
    };
    // A visit can be completed once, whether it succeeds or fails.
    with_cookie(answer, &visit_cookie(&state, "", 0))
}

fn provider_of(state: &ConsoleState) -> Option<(&SignInPort, &dyn ProviderSignIn)> {
    let port = state.sign_in.as_ref()?;
    Some((port, port.provider()?.as_ref()))
}

fn visit_cookie(state: &ConsoleState, value: &str, seconds: u64) -> String {
    let secure = state.secure_flag();
    format!(
        "{VISIT_COOKIE}={value}; Path={PROVIDER_VISIT}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    )
}

/// The visit of a browser, and the requested page; empty strings if there is none.
fn read_visit(headers: &HeaderMap) -> (String, String) {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut named = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let value = named.find(|(name, _)| *name == VISIT_COOKIE).map_or("", |(_, value)| value);
    let (visit, next) = value.split_once('~').unwrap_or((value, ""));
    (visit.to_owned(), percent_decode_str(next).decode_utf8_lossy().into_owned())
}

/// A page that immediately opens another.
fn lead_on(next: &str) -> Response {
    let body = html! {
        h1 { "Signed in" }
        p { a href=(next) { "Continue" } }
    };
    let mut response = ConsolePage::without_navigation("Signed in", body).into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("0; url={next}")) {
        response.headers_mut().insert(header::REFRESH, value);
    }
    response
}
