//! Subscriptions that outlive their connection.

use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::stream::pull::pause;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError};

/// Longest wait between two attempts to resubscribe.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// A core subscription. When the mesh replaces its connection, it subscribes again; messages in
/// between are lost, like any core message may be.
#[derive(Debug)]
pub struct MeshSubscription {
    mesh: Mesh,
    subject: String,
    group: Option<String>,
    messages: Subscriber,
    line: watch::Receiver<u64>,
    /// The subscription belongs to a connection that was replaced.
    stale: bool,
    /// The subscription has ended: it is not renewed.
    stopped: bool,
}

impl Mesh {
    /// Subscribes to a subject. The server processes the subscription before anything that this
    /// connection sends afterwards.
    pub(crate) async fn listen(&self, subject: String) -> Result<MeshSubscription, MeshError> {
        self.listen_in(subject, None).await
    }

    /// Like [`Mesh::listen`], in a queue group.
    pub(crate) async fn listen_in(
        &self,
        subject: String,
        group: Option<String>,
    ) -> Result<MeshSubscription, MeshError> {
        let mut line = self.line_number();
        line.mark_unchanged();
        let messages = Box::pin(self.subscribed(&subject, group.as_ref())).await?;
        Ok(MeshSubscription {
            mesh: self.clone(),
            subject,
            group,
            messages,
            line,
            stale: false,
            stopped: false,
        })
    }

    async fn subscribed(&self, subject: &str, group: Option<&String>) -> Result<Subscriber, MeshError> {
        const WHAT: &str = "subscribing";
        let refused = |reason: String| MeshError::Refused { what: WHAT, reason };
        let (client, subject) = (self.client(), subject.to_owned());
        let messages = match group {
            Some(group) => client.queue_subscribe(subject, group.clone()).await,
            None => client.subscribe(subject).await,
        };
        let messages = messages.map_err(|error| refused(error.to_string()))?;
        let flushed = client.flush().await;
        flushed.map_err(|error| MeshError::Unreachable { what: WHAT, reason: error.to_string() })?;
        Ok(messages)
    }
}

impl MeshSubscription {
    /// Waits for the next readable message; `None` when the connection was closed, or after the
    /// last message before `MeshSubscription::stop`. Cancel-safe.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            let message = self.next_any().await?;
            if message.headers.as_ref().and_then(undeliverable).is_none() {
                return Some(message);
            }
        }
    }

    /// Like `next`, but includes messages that are malformed on the wire.
    pub(crate) async fn next_any(&mut self) -> Option<Message> {
        loop {
            if self.stale {
                Box::pin(self.renew()).await;
            }
            tokio::select! { biased;
                message = self.messages.next() => match message {
                    Some(message) => return Some(message),
                    None if self.stopped || !self.mesh.is_renewed() => return None,
                    // The client has ended; another one follows.
                    None => {
                        self.stale = true;
                        let _ = self.line.changed().await;
                    }
                },
                _ = self.line.changed(), if !self.stopped => self.stale = true,
            }
        }
    }

    async fn renew(&mut self) {
        let mut attempt = 0;
        loop {
            self.line.mark_unchanged();
            match self.mesh.subscribed(&self.subject, self.group.as_ref()).await {
                Ok(messages) => {
                    (self.messages, self.stale) = (messages, false);
                    return;
                }
                Err(error) => tracing::debug!(subject = self.subject, %error, "cannot subscribe again yet"),
            }
            attempt += 1;
            sleep(pause(attempt, MAX_PAUSE)).await;
        }
    }

    /// Accepts no new messages; those that have arrived are still returned.
    pub(crate) async fn stop(&mut self) -> Result<(), MeshError> {
        self.stopped = true;
        let drained = self.messages.drain().await;
        drained.map_err(|error| MeshError::Refused { what: "leaving", reason: error.to_string() })
    }
}
