//! Start requests of one shard, received by its loop and answered after they are stored.

use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt as _;
use sinew_mesh::start::{StartRequest, StartRequests};
use sinew_mesh::{MeshError, async_nats};
use sinew_protocol::start::StartAnswer;
use sinew_shard::StartDecision;
use tokio::time::timeout;
use tracing::debug;

use super::intake::Handle;

/// Time for queuing a reply on a connection that is busy or lost.
const SEND_TIMEOUT: Duration = Duration::from_millis(250);

/// Server of the start requests to the owner of a shard.
pub(super) struct StartServer {
    shared: Handle,
    /// `None` without the right to subscribe to starts: then they arrive as commands.
    requests: Option<StartRequests>,
}

impl StartServer {
    /// Subscribes to the start requests of a shard.
    pub(super) async fn open(shared: &Handle, shard: u32) -> Result<Self, MeshError> {
        let requests = if shared.may_serve_starts {
            Some(shared.mesh.services().serve_starts(shard).await?)
        } else {
            None
        };
        Ok(Self { shared: std::sync::Arc::clone(shared), requests })
    }

    /// Waits for a start. Cancel-safe.
    pub(super) async fn next(&mut self) -> StartRequest {
        let next = match &mut self.requests {
            Some(requests) => requests.next().await,
            None => None,
        };
        match next {
            Some(request) => request,
            // The connection was closed permanently; other branches end the loop.
            None => pending().await,
        }
    }

    /// Returns a start that has already arrived.
    pub(super) fn try_next(&mut self) -> Option<StartRequest> {
        self.requests.as_mut()?.try_next()
    }

    /// Refers callers of unprocessed starts to the command stream, and accepts no more.
    pub(super) async fn close(&mut self) {
        let Some(mut requests) = self.requests.take() else { return };
        if let Err(error) = requests.stop().await {
            debug!(%error, "cannot close the subscription for start requests");
        }
        while let Some(request) = requests.try_next() {
            self.refer(request).await;
        }
    }

    /// Refers a caller to the command stream.
    pub(super) async fn refer(&self, request: StartRequest) {
        self.send(request.reply, &StartAnswer::NotTaken {}).await;
    }

    /// Replies to a stored start; `time` is the mesh's, in milliseconds since 1970 UTC.
    pub(super) async fn answer(&self, reply: String, decision: StartDecision, time: u64) {
        let answer = match decision {
            StartDecision::Begun => StartAnswer::Stored { new: true, time },
            StartDecision::Known => StartAnswer::Stored { new: false, time },
            StartDecision::Refused(reason) => StartAnswer::Refused { reason },
        };
        self.send(reply.into(), &answer).await;
    }

    /// Sends a reply. A caller without a reply stores its start as a command.
    async fn send(&self, reply: async_nats::Subject, answer: &StartAnswer) {
        let mut sending = std::pin::pin!(self.shared.mesh.services().answer_start(reply, answer));
        // Only a connection that is not immediately ready needs a timer.
        let sent = match sending.as_mut().now_or_never() {
            Some(sent) => Ok(sent),
            None => timeout(SEND_TIMEOUT, sending).await,
        };
        if let Ok(Err(error)) = sent {
            debug!(%error, "cannot reply to a start request");
        }
    }
}
