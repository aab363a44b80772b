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

/// How long an answer waits for its place in a connection that is busy or away.
const SEND_TIMEOUT: Duration = Duration::from_millis(250);

/// Starts by request that reach the owner of a shard.
pub(super) struct StartServer {
    shared: Handle,
    /// `None` without the right to hear starts: they come as commands then.
    requests: Option<StartRequests>,
}

impl StartServer {
    /// Opens the desk of a shard.
    pub(super) async fn open(shared: &Handle, shard: u32) -> Result<Self, MeshError> {
        let requests = if shared.may_serve_starts {
            Some(shared.mesh.services().serve_starts(shard).await?)
        } else {
            None
        };
        Ok(Self { shared: std::sync::Arc::clone(shared), requests })
    }

    /// Waits for a start. Nothing is lost when the wait is given up.
    pub(super) async fn next(&mut self) -> StartRequest {
        let next = match &mut self.requests {
            Some(requests) => requests.next().await,
            None => None,
        };
        match next {
            Some(request) => request,
            // The connection was closed for good; what else comes ends the loop.
            None => pending().await,
        }
    }

    /// Returns a start that has come already.
    pub(super) fn try_next(&mut self) -> Option<StartRequest> {
        self.requests.as_mut()?.try_next()
    }

    /// Sends callers whose starts were not taken to the stream of commands; takes no more.
    pub(super) async fn close(&mut self) {
        let Some(mut requests) = self.requests.take() else { return };
        if let Err(error) = requests.stop().await {
            debug!(%error, "cannot close the subscription for start requests");
        }
        while let Some(request) = requests.try_next() {
            self.refer(request).await;
        }
    }

    /// Sends a caller to the stream of commands.
    pub(super) async fn refer(&self, request: StartRequest) {
        self.send(request.reply, &StartAnswer::NotTaken {}).await;
    }

    /// Answers a start that is stored; `time` is the mesh's, milliseconds since 1970 UTC.
    pub(super) async fn answer(&self, reply: String, decision: StartDecision, time: u64) {
        let answer = match decision {
            StartDecision::Begun => StartAnswer::Stored { new: true, time },
            StartDecision::Known => StartAnswer::Stored { new: false, time },
            StartDecision::Refused(reason) => StartAnswer::Refused { reason },
        };
        self.send(reply.into(), &answer).await;
    }

    /// Sends an answer. A caller that hears none stores its start as a command.
    async fn send(&self, reply: async_nats::Subject, answer: &StartAnswer) {
        let mut sending = std::pin::pin!(self.shared.mesh.services().answer_start(reply, answer));
        // A timer is made only for a connection that has no room at once.
        let sent = match sending.as_mut().now_or_never() {
            Some(sent) => Ok(sent),
            None => timeout(SEND_TIMEOUT, sending).await,
        };
        if let Ok(Err(error)) = sent {
            debug!(%error, "cannot reply to a start request");
        }
    }
}
