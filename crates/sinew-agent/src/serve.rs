//! Serves an agent on the mesh: both endpoints, its card, and its shutdown.

use std::sync::Arc;
use std::time::Duration;

use sinew_mesh::listen::MeshSubscription;
use sinew_mesh::live::Control;
use sinew_mesh::{Mesh, MeshError, is_granted, log_limited};
use sinew_protocol::Subject;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card::CARD_INTERVAL;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::agent_host::AgentHost;
use crate::error::AgentError;
use crate::replicas::Replicas;
use crate::task_properties::{TaskProperties, own_ids};
use crate::{agent_endpoint, node_endpoint, queue};

/// Waits before a failed announcement of a card is retried: the first and the longest, doubled in
/// between.
const ANNOUNCE_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Time for the remaining work after the grace time: acknowledging tasks, answering callers.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Agent {
    /// Serves on this mesh until `shutdown` fires; then accepts no new tasks, waits for those in
    /// progress up to the grace time, and returns the others. Ends at most five seconds after the
    /// grace time, whether or not the broker replies.
    ///
    /// # Errors
    ///
    /// Returns why the agent cannot be served: an unusable name or schema, missing rights to
    /// receive the agent's calls, a card that cannot be announced.
    pub async fn serve(mut self, mesh: Mesh, shutdown: CancellationToken) -> Result<(), AgentError> {
        let grace = self.grace;
        mesh.services().check_rpc(&self.name).await?;
        if self.node_requests && !is_granted(mesh.services().may_serve_node(&self.name).await)? {
            tracing::warn!(
                agent = self.name,
                "the agent is called through A2A only; run `sinew mesh permissions` again to let it serve a node endpoint"
            );
            self.node_requests = false;
        }
        let compiled = self.compiled()?;
        let card = compiled.agent.announcement().card(mesh.namespace());
        let host = Arc::new(AgentHost::new(mesh, compiled));
        // Connect to the other processes before the first call, so that they find each other's
        // tasks.
        let (replicas, from_replicas) = Replicas::open(&host).await?.unzip();
        let endpoint = agent_endpoint::open(&host, replicas.clone()).await?;
        let name = host.agent.agent.name.clone();
        find_steps(&host).await;
        let controls = host.mesh.tasks().controls(&name).await?;
        // The subscriptions must exist before the card is announced.
        let mut endpoints = vec![
            tokio::spawn(endpoint.serve(host.draining.clone())),
            tokio::spawn(queue::serve(Arc::clone(&host))),
        ];
        if host.agent.agent.node_requests {
            let nodes = host.mesh.services().serve_node(&name).await?;
            endpoints.push(tokio::spawn(node_endpoint::serve(Arc::clone(&host), nodes, replicas.clone())));
        }
        let hearing = tokio::spawn(hear(Arc::clone(&host), controls));
        let answering = replicas.clone().zip(from_replicas).map(|(replicas, from_replicas)| {
            tokio::spawn(agent_endpoint::serve_replicas(Arc::clone(&host), replicas, from_replicas))
        });
        let mut own_card = own_card(&host).await?;
        let served = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            failed = keep_announced(&host, &card, &mut own_card) => Err(failed.into()),
        };
        drop(own_card);
        tracing::info!(agent = name, "the agent is draining");
        host.draining.cancel();
        let halted_at = Instant::now() + grace;
        // One deadline for all of the following: requests to a broker that hangs must not add up.
        let ended_at = halted_at + LAST_WORDS;
        let closing = async {
            if let Err(error) = host.mesh.cards().retract(&name).await {
                tracing::debug!(%error, "cannot retract the card; it will expire");
            }
            for endpoint in endpoints {
                let _ = endpoint.await;
            }
        };
        let _ = timeout_at(ended_at, timeout(LAST_WORDS, closing)).await;
        host.going_on.close();
        if timeout_at(halted_at, host.going_on.wait()).await.is_err() {
            tracing::warn!(
                agent = name,
                "the drain timeout expired; returning unfinished tasks to the queue"
            );
            host.halt.cancel();
            let _ = timeout_at(ended_at, host.going_on.wait()).await;
        }
        hearing.abort();
        if let (Some(answering), Some(replicas)) = (answering, replicas) {
            answering.abort();
            let _ = timeout_at(ended_at, replicas.leave()).await;
        }
        // Waits until the last messages are sent.
        let _ = timeout_at(ended_at, host.mesh.client().flush()).await;
        served
    }
}

/// Announces the card periodically. Returns the error after which it cannot be announced.
async fn keep_announced(host: &AgentHost, card: &AgentCard, own_card: &mut OwnCard) -> MeshError {
    let mut backoff = ANNOUNCE_BACKOFF.0;
    loop {
        let wait = match host.mesh.cards().announce(card).await {
            Ok(()) => {
                backoff = ANNOUNCE_BACKOFF.0;
                CARD_INTERVAL
            }
            Err(error) if may_pass(&error) => {
                // A lost connection is logged separately, and indicates nothing about the card.
                if host.mesh.connection_problem().is_none() {
                    log_limited!(
                        warn,
                        agent = card.name,
                        %error,
                        code = error.code(),
                        "cannot announce the card; retrying"
                    );
                }
                let wait = backoff;
                backoff = (2 * wait).min(ANNOUNCE_BACKOFF.1);
                wait
            }
            Err(error) => return error,
        };
        // Another process of this name has left and retracted the card, but this one still runs.
        let _ = timeout(wait, own_card.retracted()).await;
    }
}

/// Checks whether the mesh stores the steps of this agent. Meshes and permissions of earlier
/// versions do not.
async fn find_steps(host: &AgentHost) {
    let (execution, task) = own_ids(host.mesh.namespace(), &host.token, host.mesh.caller(), "steps");
    let Some(log) = TaskProperties::new(&host.agent.agent.name, execution, task).step_log() else { return };
    match host.mesh.tasks().steps().read(&log, 0).await {
        Ok(_) | Err(MeshError::Unreachable { .. }) => {}
        Err(error) => {
            tracing::warn!(
                agent = host.agent.agent.name,
                %error,
                "steps of tasks are kept in memory; run `sinew mesh provision` and `sinew mesh permissions` again to store \
                 them on the mesh"
            );
            host.peers.forget_steps();
        }
    }
}

/// Returns whether announcing a card may succeed later: a full or reconfigured server must not end
/// an agent.
fn may_pass(error: &MeshError) -> bool {
    error.is_transient() || matches!(error, MeshError::Refused { .. })
}

/// Cancels tasks that their executions have cancelled.
async fn hear(host: Arc<AgentHost>, mut controls: sinew_mesh::live::ControlSubscription) {
    let agent = &host.agent.agent.name;
    while let Some(said) = controls.next().await {
        let task = &said.task;
        match said.control {
            Control::Intake { process, open } => {
                if process.is_none_or(|process| host.process.get() == Some(&process)) {
                    let was_open = host.intake.send_replace(open);
                    if was_open != open {
                        let text = if open { "takes tasks again" } else { "takes no new tasks" };
                        tracing::info!(%agent, "an operator changed the intake: the process {text}");
                    }
                }
            }
            Control::Cancel { execution } => {
                host.cancelled.insert(&execution, &said.task, Instant::now());
                if host.nodes.cancel(&execution, &said.task) {
                    log_limited!(20, info, %agent, %execution, %task, "the task was cancelled");
                }
                for entry in host.table.open(&execution, said.task.as_str()) {
                    log_limited!(20, info, %agent, %execution, %task, "the task was cancelled");
                    entry.cancel.cancel();
                }
            }
        }
    }
}

/// Subscription to the subject of the agent's own card.
struct OwnCard(MeshSubscription);

async fn own_card(host: &AgentHost) -> Result<OwnCard, MeshError> {
    let subject = host.mesh.subject(&Subject::Card { agent: host.token.clone() });
    host.mesh.services().listen(subject).await.map(OwnCard)
}

impl OwnCard {
    /// Waits until a retraction of the card is published.
    async fn retracted(&mut self) {
        loop {
            match self.0.next().await {
                Some(message) if message.payload.is_empty() => {
                    // Several processes that leave in succession require only one announcement.
                    sleep(Duration::from_millis(50)).await;
                    return;
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
}
