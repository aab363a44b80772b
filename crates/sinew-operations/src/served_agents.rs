//! Agents from files, served on a mesh through the SDK.

use std::sync::Arc;

use sinew_agent::FileAgent;
use sinew_agents::AgentSet;
use sinew_mesh::Mesh;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, FailureKind, known};

/// Served agents. Replaced ones complete their tasks in progress.
pub struct ServedAgents {
    tasks: JoinSet<Result<(), sinew_agent::AgentError>>,
    generation: CancellationToken,
}

impl ServedAgents {
    /// Serves agents until `stop` is cancelled.
    pub fn serve(mesh: &Mesh, agents: &AgentSet, stop: &CancellationToken) -> Self {
        let mut served = Self { tasks: JoinSet::new(), generation: CancellationToken::new() };
        served.replace(mesh, agents, stop);
        served
    }

    /// Replaces the served agents.
    pub fn replace(&mut self, mesh: &Mesh, agents: &AgentSet, stop: &CancellationToken) {
        let generation = stop.child_token();
        for agent in agents.iter() {
            self.tasks.spawn(serve_agent(Arc::clone(agent), mesh.clone(), generation.clone()));
        }
        // The new agents start before the old ones leave.
        std::mem::replace(&mut self.generation, generation).cancel();
    }

    /// Waits for an agent that fails.
    pub async fn failure(&mut self) -> Failure {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Err(error))) => {
                    return Failure::new(FailureKind::Failed, known(error.code()), error.to_string());
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until all agents have stopped.
    pub async fn stopped(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Serves an agent of a file until `stop` is cancelled, after it has loaded the tools that it
/// announces.
///
/// # Errors
/// Those of [`sinew_agent::Agent::serve`].
pub async fn serve_agent(
    agent: Arc<sinew_agents::Agent>,
    mesh: Mesh,
    stop: CancellationToken,
) -> Result<(), sinew_agent::AgentError> {
    FileAgent::of(agent).serve(mesh, stop).await
}
