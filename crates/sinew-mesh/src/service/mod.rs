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

/// Services of a mesh that answer requests, and the requests to them.
#[derive(Clone, Copy, Debug)]
pub struct MeshServices<'a> {
    mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the services of this mesh that answer requests.
    pub fn services(&self) -> MeshServices<'_> {
        MeshServices { mesh: self }
    }
}

impl MeshServices<'_> {
    /// Subscribes to a subject. The subscription is on its way when this returns: the server knows of it before it reads
    /// what this connection sends next.
    pub async fn listen(self, subject: String) -> Result<MeshSubscription, MeshError> {
        self.mesh.listen(subject).await
    }

    /// Waits until another connection is used than when this was called.
    pub fn renewed(self) -> impl Future<Output = ()> + Send + 'static {
        self.mesh.renewed()
    }

    /// Returns whether an answer may be published to a subject that a request names: to where a caller listens, never to
    /// a subject of the mesh or of the server.
    pub fn may_answer(self, reply: &str) -> bool {
        self.mesh.may_answer(reply)
    }
}
