//! The web console on a gateway: its pages ask the API within the process.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::Extensions;
use sinew_console::{ApiPort, ConsoleMode, ConsoleOptions, console_router};
use tower::ServiceExt as _;

use crate::caller::CallerIdentity;
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
        if let Some(caller) = page.get::<CallerIdentity>() {
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
    let is_secure = state.public_url.as_deref().is_some_and(|url| url.starts_with("https://"));
    // `with_state` gives the router any state it is merged into.
    console_router(ConsoleOptions { api: port, mode, is_secure }).with_state(())
}
