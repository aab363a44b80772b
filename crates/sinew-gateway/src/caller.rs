//! The caller of a request: the name under which the mesh hears of it.

use sinew_protocol::Token;

/// Caller of a request, as the guard at the door found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerIdentity {
    /// Token of the caller in subjects of the mesh.
    pub(crate) token: Token,
}
