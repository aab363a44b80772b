//! The request of a page: the API on behalf of its sender, the query, and the token of its forms.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use sinew_documents::timestamp::Timestamp;

use crate::api_client::{ApiClient, append_pair, join_segments};
use crate::console_error::ConsoleError;
use crate::console_state::{ConsoleCaller, ConsoleMode, ConsoleState};
use crate::form_token::FormToken;

/// Base path of the pages.
pub const BASE: &str = "/console";

/// Request of a page: the API on behalf of its sender, and the token of its forms.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) api: ApiClient,
    /// Token for the forms of the page.
    pub(crate) token: FormToken,
    pub(crate) mode: ConsoleMode,
    /// Whether the role of the user, and not the console, is read-only.
    pub(crate) is_read_only_role: bool,
    /// Name of the signed-in user; `None` without sign-in.
    pub(crate) signed_in: Option<String>,
    pub(crate) now: Timestamp,
    uri: Uri,
}

impl FromRequestParts<Arc<ConsoleState>> for PageRequest {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<ConsoleState>,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self::of(parts, state))
    }
}

impl PageRequest {
    pub(crate) fn of(parts: &Parts, state: &ConsoleState) -> Self {
        Self {
            api: ApiClient::new(state.api.clone(), parts.extensions.clone()),
            // Without the guard the token is empty, and no form is accepted.
            token: parts.extensions.get::<FormToken>().cloned().unwrap_or_default(),
            mode: mode_of(parts, state),
            is_read_only_role: caller_of(parts).is_some_and(|caller| caller.mode == ConsoleMode::ReadOnly),
            signed_in: state.sign_in.as_ref().and_then(|_| Some(caller_of(parts)?.name.clone())),
            now: u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default().into(),
            uri: parts.uri.clone(),
        }
    }

    /// Parses the query; unknown parameters are ignored.
    pub(crate) fn query<Q: DeserializeOwned>(&self) -> Result<Q, ConsoleError> {
        match Query::<Q>::try_from_uri(&self.uri) {
            Ok(Query(query)) => Ok(query),
            Err(error) => Err(ConsoleError::Input(format!("invalid address: {}", error.body_text()))),
        }
    }

    /// Address of the page, with its query.
    pub(crate) fn address(&self) -> &str {
        self.uri.path_and_query().map_or(self.uri.path(), |address| address.as_str())
    }
}

fn caller_of(parts: &Parts) -> Option<&ConsoleCaller> {
    parts.extensions.get()
}

/// The mode of a page: it can change the mesh if both the console and the user can.
pub(crate) fn mode_of(parts: &Parts, state: &ConsoleState) -> ConsoleMode {
    match caller_of(parts) {
        Some(caller) if caller.mode == ConsoleMode::ReadOnly => ConsoleMode::ReadOnly,
        _ => state.mode,
    }
}

/// Address of a page.
#[derive(Clone, Debug)]
pub(crate) struct PageAddress {
    path: String,
    query: String,
    part: &'static str,
}

impl PageAddress {
    /// Creates the address of a page from segments, each of which may be any text.
    pub(crate) fn of(segments: &[&str]) -> Self {
        Self { path: join_segments(BASE, segments), query: String::new(), part: "" }
    }

    /// Adds a parameter.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        append_pair(&mut self.query, name, value);
        self
    }

    /// Adds a parameter if it has a value.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<&str>) -> Self {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a fragment.
    #[must_use]
    pub(crate) fn part(self, part: &'static str) -> Self {
        Self { part, ..self }
    }

    pub(crate) fn execution(id: &str) -> Self {
        Self::of(&["executions", id])
    }

    pub(crate) fn workflow(name: &str) -> Self {
        Self::of(&["workflows", name])
    }

    pub(crate) fn chat(name: &str) -> Self {
        Self::of(&["chat", name])
    }

    pub(crate) fn agent(name: &str) -> Self {
        Self::of(&["agents", name])
    }
}

impl std::fmt::Display for PageAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if self.part.is_empty() { Ok(()) } else { write!(f, "#{}", self.part) }
    }
}
