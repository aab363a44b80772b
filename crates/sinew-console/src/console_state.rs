//! Settings of a console, and shared state of its pages.

use std::sync::Arc;

use axum::http::{HeaderMap, Uri};
use futures_util::future::BoxFuture;

use crate::api_client::ApiPort;

/// Whether a console can change a mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsoleMode {
    /// Users can start executions, send commands and decide.
    #[default]
    Full,
    /// Read-only: every form is rejected.
    ReadOnly,
}

/// The user of a page, set on the request by the authenticator of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleCaller {
    /// Name as recorded by executions.
    pub name: String,
    /// Whether this user can change the mesh.
    pub mode: ConsoleMode,
}

/// Starts a session with a key: returns the value of the cookie, or `None` if the key is not valid.
type StartSession = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Sign-in of a console whose pages need a caller.
#[derive(Clone)]
pub struct SignInPort {
    /// Name of the session cookie.
    pub cookie: &'static str,
    /// Lifetime of a session in seconds.
    pub lifetime_seconds: u64,
    begin: Arc<StartSession>,
    end: Option<Arc<EndSession>>,
    provider: Option<Arc<dyn ProviderSignIn>>,
}

/// Ends the session of a cookie. Returns true on success.
type EndSession = dyn Fn(String) -> BoxFuture<'static, bool> + Send + Sync;

/// Visit of a browser to an OpenID provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVisit {
    /// Address of the provider's page.
    pub address: String,
    /// Value of the cookie that the browser keeps until it returns. It contains no `~` and is valid
    /// in a cookie.
    pub cookie: String,
}

/// Sign-in at an OpenID provider, implemented by the gateway. The browser returns to
/// [`PROVIDER_RETURN`]; errors are sentences for people.
///
/// [`PROVIDER_RETURN`]: crate::PROVIDER_RETURN
pub trait ProviderSignIn: Send + Sync {
    /// Display name of the provider.
    fn name(&self) -> String;

    /// Lifetime of a session in seconds.
    fn lifetime_seconds(&self) -> u64;

    /// Starts a visit for the browser that sent a request with these headers and this address.
    fn begin(&self, headers: &HeaderMap, uri: &Uri) -> BoxFuture<'_, Result<ProviderVisit, String>>;

    /// Completes a visit whose browser returned with this address. Returns the value of the session
    /// cookie.
    fn end(&self, headers: &HeaderMap, uri: &Uri, cookie: &str) -> BoxFuture<'_, Result<String, String>>;
}

impl SignInPort {
    /// Creates a port that starts sessions with this function.
    pub fn new(
        cookie: &'static str,
        lifetime_seconds: u64,
        begin: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { cookie, lifetime_seconds, begin: Arc::new(begin), end: None, provider: None }
    }

    /// Adds sign-in at an OpenID provider.
    #[must_use]
    pub fn with_provider(self, provider: Option<Arc<dyn ProviderSignIn>>) -> Self {
        Self { provider, ..self }
    }

    /// Sets the function that ends sessions.
    #[must_use]
    pub fn ending(self, end: impl Fn(String) -> BoxFuture<'static, bool> + Send + Sync + 'static) -> Self {
        Self { end: Some(Arc::new(end)), ..self }
    }

    /// Ends the session of a cookie. Returns true on success.
    pub(crate) async fn end(&self, cookie: String) -> bool {
        match &self.end {
            Some(end) => end(cookie).await,
            None => true,
        }
    }

    pub(crate) fn provider(&self) -> Option<&Arc<dyn ProviderSignIn>> {
        self.provider.as_ref()
    }

    /// Starts a session with a key.
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
    /// The API that its pages call.
    pub api: ApiPort,
    /// Whether it can change the mesh.
    pub mode: ConsoleMode,
    /// Whether browsers use HTTPS only; cookies are then marked `Secure`.
    pub is_secure: bool,
    /// Sign-in by key; `None` if every request has a caller.
    pub sign_in: Option<SignInPort>,
}

/// Shared state of all pages.
pub(crate) struct ConsoleState {
    pub(crate) api: ApiPort,
    pub(crate) mode: ConsoleMode,
    pub(crate) is_secure: bool,
    pub(crate) sign_in: Option<SignInPort>,
}

impl ConsoleState {
    /// The `Secure` flag of cookies, if browsers use HTTPS only.
    pub(crate) fn secure_flag(&self) -> &'static str {
        if self.is_secure { "; Secure" } else { "" }
    }
}
