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

/// How long an owner may take for its answer: it waits for its journal, which waits for a disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts that reach the owner of a shard.
#[derive(Debug)]
pub struct StartRequests {
    mesh: Mesh,
    messages: MeshSubscription,
}

/// A start that waits for its answer.
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
    /// Subject for the answer.
    pub reply: async_nats::Subject,
}

impl MeshServices<'_> {
    /// Returns whether this connection may request starts. Permissions of older versions do not say so.
    pub async fn may_request_starts(self) -> Result<bool, MeshError> {
        let any = Subject::Start { shard: 0, caller: self.mesh.caller().clone(), id: Token::of("any") };
        let any = self.mesh.subject(&any);
        Ok(self.mesh.rights().await?.is_none_or(|granted| granted.may_publish(&any)))
    }

    /// Returns whether this connection may take starts by request.
    pub async fn may_serve_starts(self) -> Result<bool, MeshError> {
        let all = below(self.mesh.namespace(), &["start", "0"]);
        Ok(self.mesh.rights().await?.is_none_or(|granted| granted.may_subscribe(&all)))
    }

    /// Hears the starts of a shard; only its owner listens.
    pub async fn serve_starts(self, shard: u32) -> Result<StartRequests, MeshError> {
        let messages = self.mesh.listen(below(self.mesh.namespace(), &["start", &shard.to_string()])).await?;
        Ok(StartRequests { mesh: self.mesh.clone(), messages })
    }

    /// Asks the owner of a shard to start an execution, as this connection's caller. `None` if there was no answer that can
    /// be read: the start may be stored or not.
    pub async fn request_start(
        self,
        shard: u32,
        id: &Token,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Option<StartAnswer>, MeshError> {
        self.mesh.fits("a start", &headers, body.len())?;
        let subject = Subject::Start { shard, caller: self.mesh.caller().clone(), id: id.clone() };
        // The wait below has a timer already.
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

    /// Answers a start.
    pub async fn answer_start(
        self,
        reply: async_nats::Subject,
        answer: &StartAnswer,
    ) -> Result<(), MeshError> {
        crash::point("start.committed");
        let sent = self.mesh.line().client.publish(reply, answer.to_json().into()).await;
        if crash::is_told() {
            // Otherwise the process would end before the answer has left.
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
    /// Waits for the next start; `None` when the connection was closed. May be given up and called again.
    pub async fn next(&mut self) -> Option<StartRequest> {
        loop {
            let message = self.messages.next_any().await?;
            if let Some(request) = self.read(message) {
                return Some(request);
            }
        }
    }

    /// Returns a start that has come already.
    pub fn try_next(&mut self) -> Option<StartRequest> {
        self.next().now_or_never().flatten()
    }

    /// Takes no new starts; those that are here already still come out of [`StartRequests::try_next`].
    pub async fn stop(&mut self) -> Result<(), MeshError> {
        self.messages.stop().await
    }

    /// Reads a start; `None` for what nobody can have sent as one.
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
