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

/// Time for which the state of a queue is cached.
const VIEW_AGE: Duration = Duration::from_secs(1);

/// Existing queues, each with the position of its last delivered task when it was created or found.
#[derive(Default)]
pub(super) struct KnownQueues(DashMap<String, Arc<OnceCell<u64>>>);

impl KnownQueues {
    /// Creates an agent's queue if it is missing, once: agents may lack the right. If that fails,
    /// the next task retries; meanwhile, tasks are stored in the stream all the same.
    pub(super) async fn ensure(&self, mesh: &Mesh, agent: &str) {
        if self.has(agent) {
            return;
        }
        let queue = Arc::clone(&self.0.entry(agent.to_owned()).or_default());
        // Concurrent callers wait for the same reply.
        let made = queue.get_or_try_init(|| async { mesh.tasks().make_queue(&Token::of(agent)).await }).await;
        if let Err(error) = made {
            debug!(agent, %error, "cannot create the agent's queue");
        }
    }

    /// Returns whether an agent's queue is known to exist.
    pub(super) fn has(&self, agent: &str) -> bool {
        self.0.get(agent).is_some_and(|queue| queue.initialized())
    }

    /// Returns whether an agent's queue skips a stored position because it was already further: the
    /// stream lost its end when the cluster lost power. nats-server only rewinds consumers without
    /// replicas.
    pub(super) fn passes_over(&self, agent: &str, place: u64) -> bool {
        let given_out = self.0.get(agent).and_then(|queue| queue.get().copied());
        given_out.is_some_and(|given_out| place <= given_out)
    }

    /// Drops all queues: the server or its stream may have lost them.
    pub(super) fn clear(&self) {
        self.0.clear();
    }
}

/// Cached state of agents' queues.
#[derive(Default)]
pub(super) struct QueueViews(Mutex<HashMap<Token, QueueView>>);

/// Cached state of a queue; without progress if it does not exist.
struct QueueView {
    seen: Instant,
    progress: Option<QueueProgress>,
}

impl QueueViews {
    /// Returns whether the task at a position of an agent's queue is done. A stale cache may report
    /// a done task as pending, but a pending one as done only if a server lost its end in the
    /// meantime; the next check corrects that.
    pub(super) async fn is_over(&self, mesh: &Mesh, agent: &Token, place: u64) -> Result<bool, MeshError> {
        let progress = self.progress(mesh, agent).await?;
        Ok(progress.is_some_and(|progress| progress.is_acknowledged(place)))
    }

    /// Returns whether the task at a position of an agent's queue was delivered to a process.
    pub(super) async fn is_given_out(
        &self,
        mesh: &Mesh,
        agent: &Token,
        place: u64,
    ) -> Result<bool, MeshError> {
        let progress = self.progress(mesh, agent).await?;
        Ok(progress.is_some_and(|progress| progress.is_given_out(place)))
    }

    /// Returns the progress of an agent's queue, possibly cached.
    async fn progress(&self, mesh: &Mesh, agent: &Token) -> Result<Option<QueueProgress>, MeshError> {
        // Locked during the query, so that concurrent callers wait for the same reply.
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
