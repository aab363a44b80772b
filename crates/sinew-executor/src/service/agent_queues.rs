//! Queues of agents known to an executor: which exist, and their positions. After a takeover,
//! thousands of tasks need the state of the same queue; the server is queried once for all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use sinew_mesh::task::QueueProgress;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::Token;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;
use tracing::debug;

/// Age up to which an answer about a queue is used again.
const VIEW_AGE: Duration = Duration::from_secs(1);

/// Queues that are known to exist, each with the place of the last task that it had given out when it was made or found.
#[derive(Default)]
pub(super) struct KnownQueues(DashMap<String, Arc<OnceCell<u64>>>);

impl KnownQueues {
    /// Makes sure that an agent's queue exists, once: agents may not make their own. Where that fails, the next task tries
    /// again, and what is stored meanwhile is in the stream all the same.
    pub(super) async fn ensure(&self, mesh: &Mesh, agent: &str) {
        if self.has(agent) {
            return;
        }
        let queue = Arc::clone(&self.0.entry(agent.to_owned()).or_default());
        // Others that come meanwhile wait for the same answer.
        let made = queue.get_or_try_init(|| async { mesh.tasks().make_queue(&Token::of(agent)).await }).await;
        if let Err(error) = made {
            debug!(agent, %error, "cannot create the agent's queue");
        }
    }

    /// Returns whether an agent's queue is known to exist.
    pub(super) fn has(&self, agent: &str) -> bool {
        self.0.get(agent).is_some_and(|queue| queue.initialized())
    }

    /// Returns whether the queue of an agent passes over what was stored at a place, because it was further before: its stream
    /// lost its end with the power of a cluster. nats-server sets back a consumer that has no copies, and no other.
    pub(super) fn passes_over(&self, agent: &str, place: u64) -> bool {
        let given_out = self.0.get(agent).and_then(|queue| queue.get().copied());
        given_out.is_some_and(|given_out| place <= given_out)
    }

    /// Forgets all queues: the server or its stream may have lost them.
    pub(super) fn clear(&self) {
        self.0.clear();
    }
}

/// How far the queues of agents are, as far as somebody asked a moment ago.
#[derive(Default)]
pub(super) struct QueueViews(Mutex<HashMap<Token, QueueView>>);

/// A queue at one moment; no progress if there is no queue.
struct QueueView {
    seen: Instant,
    progress: Option<QueueProgress>,
}

impl QueueViews {
    /// Returns whether the task that is stored at a place of an agent's queue is over. A view that is a little old takes it
    /// for waiting too long, and for over only if it was, or if a server lost its end meanwhile: the next look knows better.
    pub(super) async fn is_over(&self, mesh: &Mesh, agent: &Token, place: u64) -> Result<bool, MeshError> {
        let progress = self.progress(mesh, agent).await?;
        Ok(progress.is_some_and(|progress| progress.is_acknowledged(place)))
    }

    /// Returns whether a process was given the task that is stored at a place of an agent's queue.
    pub(super) async fn is_given_out(
        &self,
        mesh: &Mesh,
        agent: &Token,
        place: u64,
    ) -> Result<bool, MeshError> {
        let progress = self.progress(mesh, agent).await?;
        Ok(progress.is_some_and(|progress| progress.is_given_out(place)))
    }

    /// Returns how far the queue of an agent is, or was a moment ago.
    async fn progress(&self, mesh: &Mesh, agent: &Token) -> Result<Option<QueueProgress>, MeshError> {
        // Held while the server is asked, so that others wait for the same answer.
        let mut views = self.0.lock().await;
        let progress = match views.get(agent) {
            Some(view) if view.seen.elapsed() < VIEW_AGE => view.progress,
            _ => {
                let progress = mesh.tasks().queue_progress(agent).await?;
                views.retain(|_, view| view.seen.elapsed() < VIEW_AGE);
                views.insert(agent.clone(), QueueView { seen: Instant::now(), progress });
                progress
            }
        };
        Ok(progress)
    }
}

#[cfg(test)]
mod tests;
