//! Operations for operators: provisioning, checks, server problems, and access below the messages
//! of the mesh.

pub mod problem;
pub mod provision;
pub(crate) mod server_clock;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Info;
use sinew_protocol::ResultKey;
use sinew_protocol::permission::GrantedRights;

use crate::error::MeshError;
use crate::layout::Layout;
use crate::mesh::Mesh;

/// Settings, state and provisioning of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct MeshAdmin<'a> {
    mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the operations on this mesh as a whole: settings, provisioning, checks, rights of
    /// the connection.
    pub fn admin(&self) -> MeshAdmin<'_> {
        MeshAdmin { mesh: self }
    }
}

impl MeshAdmin<'_> {
    /// Returns the settings of the mesh; read once per connection.
    pub async fn layout(self) -> Result<Layout, MeshError> {
        self.mesh.layout().await
    }

    /// Returns the executors' shared key: `SINEW_RESULT_KEY`, else the one made at provisioning.
    pub async fn result_key(self) -> Result<ResultKey, MeshError> {
        self.mesh.result_key().await
    }

    /// Returns the rights of this connection; `None` if it may do everything in its account.
    pub async fn rights(self) -> Result<Option<GrantedRights>, MeshError> {
        self.mesh.rights().await
    }

    /// Returns configuration and state of a stream of the mesh.
    pub async fn stream_info(self, stream: &str) -> Result<Info, MeshError> {
        self.mesh.stream_info(stream).await?.ok_or_else(|| self.mesh.not_provisioned())
    }

    /// Waits for the next operation that the server denies on this connection. For programs that
    /// perform one operation at a time; with concurrent operations, each call reports its own
    /// denial.
    pub fn denied(self) -> impl Future<Output = MeshError> + Send + 'static {
        self.mesh.denied()
    }

    /// Returns JetStream over the current connection, for streams and consumers that no handle
    /// covers.
    pub fn jetstream(self) -> Context {
        self.mesh.jetstream()
    }

    /// Returns the id of the server process; it changes with every restart of the server.
    pub fn server_process(self) -> String {
        self.mesh.line().client.server_info().server_id
    }

    /// Returns whether the connection is screened because a message broke the direct one.
    pub fn is_screened(self) -> bool {
        self.mesh.is_screened()
    }
}
