//! The caller of a request: the name under which the mesh hears of it, and its rights.

use std::sync::Arc;

use axum::http::Extensions;
use sinew_protocol::Token;
use sinew_protocol::access::{AccessKey, AccessRole, KeyLimits, KeyScope};

/// Caller of a request, as the guard at the door found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerIdentity {
    /// Token of the caller in subjects of the mesh.
    pub(crate) token: Token,
    /// Role that its rights follow from.
    pub(crate) role: AccessRole,
    /// Patterns of the workflows and agents that it may see and use.
    pub(crate) patterns: Arc<[String]>,
    /// Executions that it may see and steer.
    pub(crate) scope: KeyScope,
    /// Limits of its requests.
    pub(crate) limits: KeyLimits,
    /// Id of the key that it has; `None` for the gateway's own user and for callers that an OpenID provider vouches for.
    pub(crate) key: Option<Token>,
    /// End of the token or session that names it, in milliseconds since 1970 UTC; `None` for a caller without either.
    pub(crate) until_ms: Option<u64>,
}

impl CallerIdentity {
    /// The user of the gateway itself: the caller of requests on the loopback interface where no key is asked for.
    pub(crate) fn own(token: Token) -> Self {
        let patterns = Arc::new(["*".to_owned()]);
        Self {
            token,
            role: AccessRole::Admin,
            patterns,
            scope: KeyScope::All,
            limits: KeyLimits::default(),
            key: None,
            until_ms: None,
        }
    }

    /// A caller without credentials, who sees no workflow and no agent.
    pub(crate) fn nobody(token: Token) -> Self {
        Self { role: AccessRole::Operator, patterns: Arc::new([]), ..Self::own(token) }
    }

    /// The owner of a key.
    pub(crate) fn of_key(key: &AccessKey) -> Self {
        Self {
            token: Token::of(&key.name),
            role: key.role,
            patterns: key.patterns.clone().into(),
            scope: key.scope,
            limits: key.limits,
            key: Some(key.id.clone()),
            until_ms: None,
        }
    }

    /// A caller that an OpenID provider vouches for.
    pub(crate) fn vouched(token: Token, role: AccessRole, patterns: Vec<String>) -> Self {
        Self {
            token,
            role,
            patterns: patterns.into(),
            scope: KeyScope::All,
            limits: KeyLimits::default(),
            key: None,
            until_ms: None,
        }
    }

    /// The caller that the guard left with a request. `None` for a request without credentials.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Self>()
    }

    /// Token by which limits and logs tell callers apart.
    pub(crate) fn label(&self) -> &Token {
        self.key.as_ref().unwrap_or(&self.token)
    }
}
