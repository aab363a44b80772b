//! The agent as a NATS micro service, so that `nats micro ls`, `info` and `stats` show it. Its one endpoint is the A2A
//! door itself, so its figures are those of real calls; `data` has those of all tasks, also from the queue.

use std::collections::HashMap;
use std::sync::Arc;

use sinew_mesh::async_nats::service::endpoint::Endpoint;
use sinew_mesh::async_nats::service::{Service, ServiceExt as _};
use sinew_mesh::micro::semantic;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::Token;
use tokio::sync::Mutex;

use crate::agent::CompiledAgent;

/// The door, and the service that lists it. The service is the one of the connection that the mesh uses now.
pub(crate) struct ListedDoor {
    pub(crate) endpoint: Endpoint,
    pub(crate) service: Arc<Mutex<Option<Service>>>,
}

impl ListedDoor {
    /// Opens the door again on the connection that the mesh uses now.
    pub(crate) async fn reopen(&mut self, mesh: &Mesh, agent: &CompiledAgent) -> Result<(), MeshError> {
        let opened = open(mesh, agent).await?;
        let new = opened.service.lock().await.take();
        let old = std::mem::replace(&mut *self.service.lock().await, new);
        self.endpoint = opened.endpoint;
        if let Some(old) = old {
            stop(old).await;
        }
        Ok(())
    }
}

/// Ends a service. One that is only dropped goes on answering, and keeps its connection open.
pub(crate) async fn stop(service: Service) {
    if let Err(error) = service.stop().await {
        tracing::debug!(%error, "the micro service was not stopped");
    }
}

/// Opens the door and lists it.
pub(crate) async fn open(mesh: &Mesh, compiled: &CompiledAgent) -> Result<ListedDoor, MeshError> {
    let agent = &compiled.agent;
    let token = Token::of(&agent.name);
    let refused = |error: sinew_mesh::async_nats::Error| MeshError::Refused {
        what: "opening the A2A door",
        reason: error.to_string(),
    };
    let metadata = HashMap::from([
        ("sinew_agent".to_owned(), agent.name.clone()),
        ("sinew_namespace".to_owned(), mesh.namespace().to_owned()),
        ("sinew_version".to_owned(), agent.version.clone()),
        ("a2a_version".to_owned(), sinew_protocol::a2a::A2A_VERSION.to_owned()),
    ]);
    let figures = Arc::clone(&compiled.figures);
    let service = mesh
        .client()
        .service_builder()
        .description(&agent.description)
        .metadata(metadata)
        .stats_handler(move |_, _| figures.to_json())
        .queue_group(token.as_str())
        .start(token.as_str(), semantic(&agent.version))
        .await
        .map_err(refused)?;
    let endpoint =
        service.endpoint_builder().name("a2a").add(door(mesh.namespace(), &token)).await.map_err(refused)?;
    Ok(ListedDoor { endpoint, service: Arc::new(Mutex::new(Some(service))) })
}

/// All operations of all callers: `{ns}.v1.rpc.{agent}.*.*`.
fn door(namespace: &str, agent: &Token) -> String {
    let below = sinew_protocol::subject::below(namespace, &["rpc", agent.as_str()]);
    below.trim_end_matches('>').to_owned() + "*.*"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_door_is_for_this_agent_only() {
        assert_eq!(door("ns", &Token::of("greeter")), "ns.v1.rpc.greeter.*.*");
    }
}
