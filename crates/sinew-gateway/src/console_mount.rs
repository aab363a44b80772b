//! The web console on a gateway: its pages call the API within the process.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, Uri};
use futures_util::future::BoxFuture;
use sinew_console::{
    ApiPort, ConsoleMode, ConsoleOptions, PROVIDER_RETURN, ProviderSignIn, ProviderVisit, SignInPort,
    console_router,
};
use sinew_mesh::log_limited;
use tower::ServiceExt as _;

use crate::access::{CallerIdentity, SESSION_COOKIE, SESSION_LIFETIME, VOUCHED_SESSION_LIFETIME};
use crate::api::ConsoleRequest;
use crate::request_permits::WeakRequestPermits;
use crate::routes::api_router;
use crate::state::GatewayState;

/// Returns the routes of this gateway's console.
pub(crate) fn console_of<S: Clone + Send + Sync + 'static>(
    state: &Arc<GatewayState>,
    mode: ConsoleMode,
) -> Router<S> {
    let api = api_router(state);
    let port = ApiPort::new(move |page: &Extensions, mut request: Request| {
        // The page's request passed the guard; its API requests have the same caller.
        if let Some(caller) = CallerIdentity::of(page) {
            request.extensions_mut().insert(caller.clone());
        }
        request.extensions_mut().insert(WeakRequestPermits::find(page));
        request.extensions_mut().insert(ConsoleRequest);
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
    let (signing, ending) = (Arc::clone(state), Arc::clone(state));
    let sign_in = state.authenticator.is_required().then(|| {
        let provider = signing.authenticator.sign_in_host().map(|_| OpenIdSignIn::shared(&signing));
        SignInPort::new(SESSION_COOKIE, SESSION_LIFETIME.as_secs(), move |key| {
            let session = signing.authenticator.begin_session(key);
            if session.is_none() {
                log_limited!(info, "sign-in with a key failed");
            }
            session
        })
        .with_provider(provider)
        .ending(move |cookie| {
            let state = Arc::clone(&ending);
            Box::pin(async move { state.authenticator.end_session(&cookie).await })
        })
    });
    // `with_state` adapts the router to the state of the router that it is merged into.
    console_router(ConsoleOptions { api: port, mode, is_secure, sign_in }).with_state(())
}

/// Sign-in with a gateway's OpenID provider.
struct OpenIdSignIn {
    state: Arc<GatewayState>,
}

impl OpenIdSignIn {
    fn shared(state: &Arc<GatewayState>) -> Arc<dyn ProviderSignIn> {
        Arc::new(Self { state: Arc::clone(state) })
    }

    /// Returns the address to which the provider redirects the browser.
    fn redirect(&self, headers: &HeaderMap, uri: &Uri) -> String {
        format!("{}{PROVIDER_RETURN}", self.state.base_url(headers, uri))
    }
}

impl ProviderSignIn for OpenIdSignIn {
    fn name(&self) -> String {
        self.state.authenticator.sign_in_host().unwrap_or_default().to_owned()
    }

    fn lifetime_seconds(&self) -> u64 {
        VOUCHED_SESSION_LIFETIME.as_secs()
    }

    fn begin(&self, headers: &HeaderMap, uri: &Uri) -> BoxFuture<'_, Result<ProviderVisit, String>> {
        let redirect = self.redirect(headers, uri);
        Box::pin(async move {
            let (address, cookie) = self
                .state
                .authenticator
                .begin_visit(&redirect)
                .await
                .map_err(|refusal| refusal.to_string())?;
            Ok(ProviderVisit { address, cookie })
        })
    }

    fn end(&self, headers: &HeaderMap, uri: &Uri, cookie: &str) -> BoxFuture<'_, Result<String, String>> {
        let redirect = self.redirect(headers, uri);
        let (cookie, query) = (cookie.to_owned(), uri.query().unwrap_or_default().to_owned());
        Box::pin(async move {
            let ended = self.state.authenticator.end_visit(&redirect, &cookie, &query).await;
            ended.map_err(|refusal| {
                log_limited!(info, %refusal, "sign-in through a provider failed");
                refusal.to_string()
            })
        })
    }
}
