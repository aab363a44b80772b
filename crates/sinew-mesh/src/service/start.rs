//! Starts by request and reply: the owner of a shard replies once the start is part of its journal.
//!
//! A missing reply has no meaning: the caller then stores the same start as a command.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use futures_util::FutureExt as _;
use sinew_protocol::start::StartAnswer;
use sinew_protocol::subject::below;
use sinew_protocol::{Subject, Token};

use crate::service::MeshServices;
use crate::stream::listen::MeshSubscription;
use crate::stream::pull::{answer, redirected};
use crate::trace::TraceParent;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError, crash};

/// Timeout of an owner's reply: it waits for a journal append, and so for a disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Start requests to the owner of a shard.
#[derive(Debug)]
pub struct StartRequests {
    mesh: Mesh,
    messages: MeshSubscription,
}

/// Start request that awaits its reply.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// The caller in the subject.
    pub caller: Token,
    /// Id of the execution.
    pub id: Token,
    /// The start, JSON.
    pub body: Bytes,
    /// Trace that the start belongs to; `None` without one.
    pub trace: Option<TraceParent>,
    /// Subject for the reply.
    pub reply: async_nats::Subject,
}

impl MeshServices<'_> {
    /// Returns whether this connection may request starts. Permissions of older versions lack this
    /// right.
    pub async fn may_request_starts(self) -> Result<bool, MeshError> {
        let any = Subject::Start { shard: 0, caller: self.mesh.caller().clone(), id: Token::of("any") };
        let any = self.mesh.subject(&any);
        Ok(self.mesh.rights().await?.is_none_or(|granted| granted.may_publish(&any)))
    }

    /// Returns whether this connection may serve start requests.
    pub async fn may_serve_starts(self) -> Result<bool, MeshError> {
        let all = below(self.mesh.namespace(), &["start", "0"]);
        Ok(self.mesh.rights().await?.is_none_or(|granted| granted.may_subscribe(&all)))
    }

    /// Subscribes to the start requests of a shard; only its owner does.
    pub async fn serve_starts(self, shard: u32) -> Result<StartRequests, MeshError> {
        let messages = self.mesh.listen(below(self.mesh.namespace(), &["start", &shard.to_string()])).await?;
        Ok(StartRequests { mesh: self.mesh.clone(), messages })
    }

    /// Requests the owner of a shard to start an execution, as this connection's caller. `None`
    /// without a readable reply: the start may be stored or not.
    pub async fn request_start(
        self,
        shard: u32,
        id: &Token,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Option<StartAnswer>, MeshError> {
        self.mesh.fits("a start", &headers, body.len())?;
        let subject = Subject::Start { shard, caller: self.mesh.caller().clone(), id: id.clone() };
        // The wait below already has a timer.
        let request = Request::new().headers(headers).payload(body).timeout(None);
        let client = self.mesh.client();
        let asked = client.send_request(self.mesh.subject(&subject), request);
        match answer(self.mesh, "request a start", ANSWER_TIMEOUT, asked).await {
            Ok(Ok(reply)) => Ok(StartAnswer::read(&reply.payload).ok()),
            Ok(Err(error)) => match error.kind() {
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    Err(MeshError::Refused { what: "request a start", reason: error.to_string() })
                }
                _ => Ok(None),
            },
            Err(_) => Ok(None),
        }
    }

    /// Replies to a start.
    pub async fn answer_start(
        self,
        reply: async_nats::Subject,
        answer: &StartAnswer,
    ) -> Result<(), MeshError> {
        crash::point("start.committed");
        let sent = self.mesh.line().client.publish(reply, answer.to_json().into()).await;
        if crash::is_told() {
            // Otherwise the process might end before the reply is sent.
            let _ = self.mesh.client().flush().await;
        }
        crash::point("start.answered");
        sent.map_err(|error| MeshError::Refused {
            what: "reply to a start request",
            reason: error.to_string(),
        })
    }
}

impl StartRequests {
    /// Waits for the next start; `None` when the connection was closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<StartRequest> {
        loop {
            let message = self.messages.next_any().await?;
            if let Some(request) = self.read(message) {
                return Some(request);
            }
        }
    }

    /// Returns a start that has already arrived.
    pub fn try_next(&mut self) -> Option<StartRequest> {
        self.next().now_or_never().flatten()
    }

    /// Accepts no new starts; [`StartRequests::try_next`] still returns those that have arrived.
    pub async fn stop(&mut self) -> Result<(), MeshError> {
        self.messages.stop().await
    }

    /// Reads a start; `None` if the message cannot be one.
    fn read(&self, message: Message) -> Option<StartRequest> {
        let headers = message.headers.as_ref();
        if headers.is_some_and(|headers| redirected(headers) || undeliverable(headers).is_some()) {
            return None;
        }
        let subject = Subject::parse(self.mesh.namespace(), &message.subject);
        let (Some(Subject::Start { caller, id, .. }), Some(reply)) = (subject, message.reply) else {
            return None;
        };
        let trace = headers.and_then(TraceParent::of);
        self.mesh.may_answer(&reply).then_some(StartRequest {
            caller,
            id,
            body: message.payload,
            trace,
            reply,
        })
    }
}
