//! Signing in by a key, and out.

use std::sync::Arc;

use axum::extract::{Form, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use serde::Deserialize;

use crate::console_state::{ConsoleState, SignInPort};
use crate::page_frame::{ConsolePage, ConsoleSection, token_field};
use crate::page_request::{BASE, PageAddress, PageRequest};
use crate::shown_text;

/// Path of the page, below the base.
const SIGN_IN: &str = "sign-in";
/// Path of signing out, below the base.
const SIGN_OUT: &str = "sign-out";

/// Whether a path is one of signing in and out, which need no caller.
pub(crate) fn is_sign_in(path: &str) -> bool {
    let below = path.strip_prefix(BASE).and_then(|rest| rest.strip_prefix('/'));
    below.is_some_and(|below| below == SIGN_IN || below == SIGN_OUT)
}

/// The form of signing in.
#[derive(Deserialize)]
pub(crate) struct SignInForm {
    #[serde(default)]
    key: String,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    page(&request, false).into_response()
}

pub(crate) async fn sign_in(
    State(state): State<Arc<ConsoleState>>,
    request: PageRequest,
    Form(form): Form<SignInForm>,
) -> Response {
    let Some(port) = &state.sign_in else { return Redirect::to(BASE).into_response() };
    if let Some(session) = port.begin(&form.key) {
        return with_cookie(&state, port, &session, port.lifetime_seconds);
    }
    tracing::info!("a key did not sign in");
    page(&request, true).into_response()
}

pub(crate) async fn sign_out(State(state): State<Arc<ConsoleState>>) -> Response {
    match &state.sign_in {
        Some(port) => with_cookie(&state, port, "", 0),
        None => Redirect::to(BASE).into_response(),
    }
}

/// Leads to the first page with a session, or without one if it lasts no time.
fn with_cookie(state: &ConsoleState, port: &SignInPort, session: &str, seconds: u64) -> Response {
    let secure = if state.is_secure { "; Secure" } else { "" };
    let name = port.cookie;
    let cookie = format!("{name}={session}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let mut response = Redirect::to(BASE).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

fn page(request: &PageRequest, is_refused: bool) -> ConsolePage {
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
            @if is_refused { div.problem role="alert" { p.message { "This key does not open: it is unknown, expired or revoked." } } }
            form.steer method="post" {
                (token_field(request))
                label { span { "Key " span.quiet { "(sinew gateway key create NAME)" } }
                    input type="password" name="key" required autocomplete="current-password" spellcheck="false"; }
                div.actions { button.primary type="submit" { "Sign in" } }
            }
        }
    };
    let page = ConsolePage::new(ConsoleSection::Help, "Sign in", body);
    if is_refused { page.with_status(StatusCode::UNAUTHORIZED) } else { page }
}
