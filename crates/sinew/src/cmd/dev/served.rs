//! The agents that `sinew dev` serves, and their replacement when files change.

use std::sync::Arc;

use sinew_agents::AgentSet;
use sinew_mesh::Mesh;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cmd::serve::{Stop, serve_one};
use crate::exit::{Exit, Failure, known};

/// Agents that are served. Those that were replaced finish what they have begun.
pub(super) struct ServedAgents {
    tasks: JoinSet<Result<(), sinew_agent::AgentError>>,
    generation: CancellationToken,
}

impl ServedAgents {
    /// Serves agents until `stop` is asked for.
    pub(super) fn serve(mesh: &Mesh, agents: &AgentSet, stop: &Stop) -> Self {
        let mut served = Self { tasks: JoinSet::new(), generation: CancellationToken::new() };
        served.replace(mesh, agents, stop);
        served
    }

    /// Serves other agents from now on.
    pub(super) fn replace(&mut self, mesh: &Mesh, agents: &AgentSet, stop: &Stop) {
        let generation = stop.token.child_token();
        for agent in agents.iter() {
            self.tasks.spawn(serve_one(Arc::clone(agent), mesh.clone(), generation.clone()));
        }
        // The new ones are there before the old ones leave.
        std::mem::replace(&mut self.generation, generation).cancel();
    }

    /// Waits for an agent that fails.
    pub(super) async fn failure(&mut self) -> Failure {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Err(error))) => {
                    return Failure::new(Exit::Failed, known(error.code()), error.to_string());
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until all have ended.
    pub(super) async fn stopped(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
