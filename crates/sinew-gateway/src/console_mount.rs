//! The web console on a gateway: its pages ask the API within the process.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::Extensions;
use sinew_console::{ApiPort, ConsoleMode, ConsoleOptions, SignInPort, console_router};
use tower::ServiceExt as _;

use crate::access::{CallerIdentity, SESSION_COOKIE, SESSION_LIFETIME};
use crate::routes::api_router;
use crate::state::GatewayState;

/// Routes of the console of this gateway.
pub(crate) fn console_of<S: Clone + Send + Sync + 'static>(
    state: &Arc<GatewayState>,
    mode: ConsoleMode,
) -> Router<S> {
    let api = api_router(state);
    let port = ApiPort::new(move |page: &Extensions, mut request: Request| {
        // The page's request passed the guard; what it asks is asked by the same caller.
        if let Some(caller) = CallerIdentity::of(page) {
            request.extensions_mut().insert(caller.clone());
        }
        let api = api.clone();
        Box::pin(async move {
            match api.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    });
    let is_secure =
        state.is_tls || state.public_url.as_deref().is_some_and(|url| url.starts_with("https://"));
    let gate = Arc::clone(state);
    let sign_in = state.gate.is_required().then(|| {
        SignInPort::new(SESSION_COOKIE, SESSION_LIFETIME.as_secs(), move |key| gate.gate.begin_session(key))
    });
    // `with_state` gives the router any state it is merged into.
    console_router(ConsoleOptions { api: port, mode, is_secure, sign_in }).with_state(())
}
