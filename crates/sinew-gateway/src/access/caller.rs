//! The caller of a request: its name on the mesh, and its rights.

use std::sync::Arc;

use axum::http::Extensions;
use sinew_protocol::Token;
use sinew_protocol::access::{AccessKey, AccessRole, KeyLimits, KeyScope};
use sinew_protocol::origin::{ChangeOrigin, EntryPoint};

/// Caller of a request, as identified by the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerIdentity {
    /// Token of the caller in subjects of the mesh.
    pub(crate) token: Token,
    /// Role that determines its rights.
    pub(crate) role: AccessRole,
    /// Patterns of the workflows and agents that it may see and use.
    pub(crate) patterns: Arc<[String]>,
    /// Groups to which it belongs.
    pub(crate) groups: Arc<[String]>,
    /// Executions that it may see and control.
    pub(crate) scope: KeyScope,
    /// Limits of its requests.
    pub(crate) limits: KeyLimits,
    /// Id of its key; `None` for the gateway's own user and for callers authenticated by an OpenID
    /// provider.
    pub(crate) key: Option<Token>,
    /// Expiry of its token or session, in milliseconds since 1970 UTC; `None` without either.
    pub(crate) until_ms: Option<u64>,
}

impl CallerIdentity {
    /// Returns the gateway's own user: the caller of loopback requests if no key is required.
    pub(crate) fn own(token: Token) -> Self {
        let patterns = Arc::new(["*".to_owned()]);
        Self {
            token,
            role: AccessRole::Admin,
            patterns,
            groups: Arc::default(),
            scope: KeyScope::All,
            limits: KeyLimits::default(),
            key: None,
            until_ms: None,
        }
    }

    /// Returns a caller without credentials, who sees no workflow and no agent.
    pub(crate) fn nobody(token: Token) -> Self {
        Self { role: AccessRole::Operator, patterns: Arc::new([]), ..Self::own(token) }
    }

    /// Returns the owner of a key.
    pub(crate) fn of_key(key: &AccessKey) -> Self {
        Self {
            token: Token::of(&key.name),
            role: key.role,
            patterns: key.patterns.clone().into(),
            groups: key.groups.clone().into(),
            scope: key.scope,
            limits: key.limits,
            key: Some(key.id.clone()),
            until_ms: None,
        }
    }

    /// Returns a caller that an OpenID provider authenticated.
    pub(crate) fn vouched(
        token: Token,
        role: AccessRole,
        patterns: Vec<String>,
        groups: Vec<String>,
    ) -> Self {
        Self {
            token,
            role,
            patterns: patterns.into(),
            groups: groups.into(),
            scope: KeyScope::All,
            limits: KeyLimits::default(),
            key: None,
            until_ms: None,
        }
    }

    /// Returns the caller that the guard attached to a request, or `None` for a request without
    /// credentials.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Self>()
    }

    /// Returns the origin of the changes that the caller makes through an entry point. The gateway
    /// authenticates callers, or acts under its own name.
    pub(crate) fn origin(&self, via: EntryPoint) -> ChangeOrigin {
        ChangeOrigin { via, key: self.key.clone(), is_proven: true }
    }

    /// Returns the token that distinguishes callers in limits and logs.
    pub(crate) fn label(&self) -> &Token {
        self.key.as_ref().unwrap_or(&self.token)
    }
}
