//! Subscriptions that outlive their connection.

use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::stream::pull::pause;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError};

/// Longest wait between two attempts to subscribe again.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// A core subscription. When the mesh uses another connection, the subscription is made again there; messages of the time
/// in between are lost, as any core message may be.
#[derive(Debug)]
pub struct MeshSubscription {
    mesh: Mesh,
    subject: String,
    group: Option<String>,
    messages: Subscriber,
    line: watch::Receiver<u64>,
    /// The subscription was made on a connection that is not used any more.
    stale: bool,
    /// The subscription is over: nothing is made again.
    stopped: bool,
}

impl Mesh {
    /// Subscribes to a subject. The subscription is on its way when this returns: the server knows of it before it reads
    /// what this connection sends next.
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
    /// The next message that can be read; none when the connection was closed or `MeshSubscription::stop` has let the
    /// last one through. May be given up and called again.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            let message = self.next_any().await?;
            if message.headers.as_ref().and_then(undeliverable).is_none() {
                return Some(message);
            }
        }
    }

    /// Like `next`, but messages that cannot be read off the wire come too.
    pub(crate) async fn next_any(&mut self) -> Option<Message> {
        loop {
            if self.stale {
                Box::pin(self.renew()).await;
            }
            tokio::select! { biased;
                message = self.messages.next() => match message {
                    Some(message) => return Some(message),
                    None if self.stopped || !self.mesh.is_renewed() => return None,
                    // The client is gone; another one is about to come.
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

    /// Takes no new messages; those that are here already still come.
    pub(crate) async fn stop(&mut self) -> Result<(), MeshError> {
        self.stopped = true;
        let drained = self.messages.drain().await;
        drained.map_err(|error| MeshError::Refused { what: "leaving", reason: error.to_string() })
    }
}
