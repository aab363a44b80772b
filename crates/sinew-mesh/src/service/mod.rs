//! Requests that are answered immediately: direct calls of agents, node endpoints, and queries and
//! starts for owners of shards.

pub mod a2a_endpoint;
pub mod micro;
pub mod node;
pub mod query;
pub mod replica;
pub mod rpc;
pub mod start;
mod waiting_calls;

use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::stream::listen::MeshSubscription;

/// Request and reply on a mesh: services, and requests to them.
#[derive(Clone, Copy, Debug)]
pub struct MeshServices<'a> {
    mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the request and reply services of this mesh.
    pub fn services(&self) -> MeshServices<'_> {
        MeshServices { mesh: self }
    }
}

impl MeshServices<'_> {
    /// Subscribes to a subject. The server processes the subscription before anything that this
    /// connection sends afterwards.
    pub async fn listen(self, subject: String) -> Result<MeshSubscription, MeshError> {
        self.mesh.listen(subject).await
    }

    /// Waits until the current connection is replaced.
    pub fn renewed(self) -> impl Future<Output = ()> + Send + 'static {
        self.mesh.renewed()
    }

    /// Returns whether a reply may be published to the subject that a request names: to inboxes of
    /// callers, never to subjects of the mesh or of the server.
    pub fn may_answer(self, reply: &str) -> bool {
        self.mesh.may_answer(reply)
    }
}
