//! A connection to one mesh: one namespace on one NATS account.

use std::sync::Arc;

use async_nats::jetstream::{self, Context};
use sinew_protocol::{Subject, Token};
use tokio::sync::OnceCell;

use crate::denied::Denials;
use crate::layout::Layout;

/// A connection to one mesh. Clones share it.
#[derive(Clone)]
pub struct Mesh(Arc<Inner>);

struct Inner {
    client: async_nats::Client,
    jetstream: Context,
    namespace: String,
    caller: Token,
    layout: OnceCell<Layout>,
    denials: Denials,
}

impl Mesh {
    /// The mesh of this namespace over an open connection; `caller` is who publishes. What the server does not permit is
    /// heard by [`crate::Connect`] only; here it ends as an answer that does not come.
    pub fn new(client: async_nats::Client, namespace: &str, caller: &str) -> Self {
        let jetstream = jetstream::new(client.clone());
        Self::over(client, jetstream, namespace, Token::of(caller), Denials::default())
    }

    pub(crate) fn over(
        client: async_nats::Client,
        jetstream: Context,
        namespace: &str,
        caller: Token,
        denials: Denials,
    ) -> Self {
        Self(Arc::new(Inner {
            client,
            jetstream,
            namespace: namespace.to_owned(),
            caller,
            layout: OnceCell::new(),
            denials,
        }))
    }

    /// The namespace, as it was named.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Who publishes: the token that stands for the caller in subjects.
    pub fn caller(&self) -> &Token {
        &self.0.caller
    }

    /// The connection.
    pub fn client(&self) -> &async_nats::Client {
        &self.0.client
    }

    /// The connection's JetStream.
    pub fn jetstream(&self) -> &Context {
        &self.0.jetstream
    }

    pub(crate) fn layout_cell(&self) -> &OnceCell<Layout> {
        &self.0.layout
    }

    /// Whether an answer may go there: to where a caller listens, never to a subject of the mesh or of the server. There
    /// whoever answers may write what the caller may not.
    pub fn may_answer(&self, reply: &str) -> bool {
        let own = reply.strip_prefix(Token::of(&self.0.namespace).as_str());
        !reply.starts_with('$') && !own.is_some_and(|rest| rest.starts_with('.'))
    }

    pub(crate) fn denials(&self) -> &Denials {
        &self.0.denials
    }

    /// The name of a subject in this mesh.
    pub fn subject(&self, subject: &Subject) -> String {
        subject.name(&self.0.namespace)
    }
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh")
            .field("namespace", &self.0.namespace)
            .field("caller", &self.0.caller)
            .finish_non_exhaustive()
    }
}
