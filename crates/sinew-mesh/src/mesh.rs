//! A connection to one mesh: one namespace on one NATS account.

use std::sync::Arc;

use async_nats::jetstream::{self, Context};
use sinew_protocol::{Subject, Token};
use tokio::sync::OnceCell;

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
}

impl Mesh {
    /// The mesh of this namespace over an open connection; `caller` is who publishes.
    pub fn new(client: async_nats::Client, namespace: &str, caller: &str) -> Self {
        let jetstream = jetstream::new(client.clone());
        Self::over(client, jetstream, namespace, Token::of(caller))
    }

    pub(crate) fn over(
        client: async_nats::Client,
        jetstream: Context,
        namespace: &str,
        caller: Token,
    ) -> Self {
        Self(Arc::new(Inner {
            client,
            jetstream,
            namespace: namespace.to_owned(),
            caller,
            layout: OnceCell::new(),
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
