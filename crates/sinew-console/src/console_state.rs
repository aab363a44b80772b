//! Settings of a console, and the state that its pages share.

use std::sync::Arc;

use axum::http::{HeaderMap, Uri};
use futures_util::future::BoxFuture;

use crate::api_client::ApiPort;

/// Whether a console changes a mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsoleMode {
    /// People start, steer and decide.
    #[default]
    Full,
    /// People look; every form is refused.
    ReadOnly,
}

/// Person who looks at a page. What stands before the console leaves it with the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleCaller {
    /// Name, as executions record it.
    pub name: String,
    /// Whether this person changes the mesh.
    pub mode: ConsoleMode,
}

/// Begins the session of the owner of a key: gives the value of a cookie, or `None` for a key that does not open.
type StartSession = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Sign-in of a console whose pages need a caller.
#[derive(Clone)]
pub struct SignInPort {
    /// Name of the cookie that holds a session.
    pub cookie: &'static str,
    /// Seconds that a session lasts.
    pub lifetime_seconds: u64,
    begin: Arc<StartSession>,
    end: Option<Arc<EndSession>>,
    provider: Option<Arc<dyn ProviderSignIn>>,
}

/// Ends the session of a cookie. Says whether that was done.
type EndSession = dyn Fn(String) -> BoxFuture<'static, bool> + Send + Sync;

/// Visit of a browser to an OpenID provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVisit {
    /// Address of the provider's page.
    pub address: String,
    /// Value of the cookie that the browser keeps until it comes back. It has no `~` and nothing that a cookie cannot hold.
    pub cookie: String,
}

/// Sign-in at an OpenID provider, as the gateway does it. The browser comes back to [`PROVIDER_RETURN`]; failures are sentences
/// for people.
///
/// [`PROVIDER_RETURN`]: crate::PROVIDER_RETURN
pub trait ProviderSignIn: Send + Sync {
    /// Name by which people know the provider.
    fn name(&self) -> String;

    /// Seconds that a session lasts.
    fn lifetime_seconds(&self) -> u64;

    /// Begins a visit, for the browser that sent a request with these headers and this address.
    fn begin(&self, headers: &HeaderMap, uri: &Uri) -> BoxFuture<'_, Result<ProviderVisit, String>>;

    /// Ends a visit whose browser came back with this address: gives the value of the cookie of its session.
    fn end(&self, headers: &HeaderMap, uri: &Uri, cookie: &str) -> BoxFuture<'_, Result<String, String>>;
}

impl SignInPort {
    /// A port that begins sessions with this function.
    pub fn new(
        cookie: &'static str,
        lifetime_seconds: u64,
        begin: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { cookie, lifetime_seconds, begin: Arc::new(begin), end: None, provider: None }
    }

    /// The same with sign-in at an OpenID provider.
    #[must_use]
    pub fn with_provider(self, provider: Option<Arc<dyn ProviderSignIn>>) -> Self {
        Self { provider, ..self }
    }

    /// The same with a function that ends sessions.
    #[must_use]
    pub fn ending(self, end: impl Fn(String) -> BoxFuture<'static, bool> + Send + Sync + 'static) -> Self {
        Self { end: Some(Arc::new(end)), ..self }
    }

    /// Ends the session of a cookie. Says whether that was done.
    pub(crate) async fn end(&self, cookie: String) -> bool {
        match &self.end {
            Some(end) => end(cookie).await,
            None => true,
        }
    }

    pub(crate) fn provider(&self) -> Option<&Arc<dyn ProviderSignIn>> {
        self.provider.as_ref()
    }

    /// Begins the session of the owner of a key.
    pub(crate) fn begin(&self, key: &str) -> Option<String> {
        (self.begin)(key)
    }
}

impl std::fmt::Debug for SignInPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignInPort").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}

/// Settings of a console.
#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    /// The API that its pages ask.
    pub api: ApiPort,
    /// Whether it changes the mesh.
    pub mode: ConsoleMode,
    /// Whether browsers reach it by HTTPS only: cookies are then sent by HTTPS only.
    pub is_secure: bool,
    /// Sign-in by key; `None` where every request has a caller.
    pub sign_in: Option<SignInPort>,
}

/// State that all pages share.
pub(crate) struct ConsoleState {
    pub(crate) api: ApiPort,
    pub(crate) mode: ConsoleMode,
    pub(crate) is_secure: bool,
    pub(crate) sign_in: Option<SignInPort>,
}

impl ConsoleState {
    /// Flag of cookies that keeps them from being sent without TLS, where browsers reach the console by HTTPS only.
    pub(crate) fn secure_flag(&self) -> &'static str {
        if self.is_secure { "; Secure" } else { "" }
    }
}
