//! Direct calls of agents: A2A operations by request and reply.
//!
//! If no process serves the agent, the caller is informed immediately. The caller is part of the
//! subject, which only that caller is permitted to publish to.

use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{HeaderMap, Request};
use bytes::Bytes;
use sinew_protocol::{Subject, Token};

use crate::denied::DeniedOperation;
use crate::service::MeshServices;
use crate::stream::listen::MeshSubscription;
use crate::stream::pull::answer;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError, crash, trace};

/// Additional time for a request to end by its own timeout.
const GRACE_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls to one replica of an agent.
#[derive(Debug)]
pub struct RpcServer {
    mesh: Mesh,
    calls: MeshSubscription,
}

/// One call.
#[derive(Debug)]
pub struct RpcRequest {
    /// Operation, for instance `SendMessage`; empty for a call that another process of the agent
    /// forwards.
    pub method: String,
    /// Caller of the request.
    pub caller: Token,
    /// Headers, except those with commands to the server.
    pub headers: HeaderMap,
    /// JSON-RPC body.
    pub body: Bytes,
    /// Why the call was malformed on the wire; `None` for all other calls.
    pub defect: Option<String>,
    mesh: Mesh,
    reply: async_nats::Subject,
}

/// Reply to a call.
#[derive(Clone, Debug)]
pub struct RpcReply {
    /// Headers, except those with commands to the server.
    pub headers: HeaderMap,
    /// JSON-RPC body.
    pub body: Bytes,
}

/// Subject of all calls of an agent.
fn rpc_subject(mesh: &Mesh, agent: &Token) -> String {
    sinew_protocol::subject::below(mesh.namespace(), &["rpc", agent.as_str()])
}

impl MeshServices<'_> {
    /// Checks that this connection may receive the calls of an agent. A server that denies the
    /// subscription reports it only on the connection, and callers would get no reply.
    ///
    /// # Errors
    ///
    /// [`MeshError::Forbidden`] if it may not. Rights that cannot be read are not an error.
    pub async fn check_rpc(self, agent: &str) -> Result<(), MeshError> {
        let agent = Token::of(agent);
        let subject = rpc_subject(self.mesh, &agent);
        let Ok(Some(rights)) = self.mesh.rights().await else { return Ok(()) };
        if rights.may_subscribe(&format!("{subject} {agent}")) {
            return Ok(());
        }
        Err(self.mesh.forbidden(&DeniedOperation::Subscribe(subject, Some(agent.to_string()))))
    }

    /// Serves direct calls of an agent; replicas of one name share the calls.
    pub async fn serve_rpc(self, agent: &str) -> Result<RpcServer, MeshError> {
        let agent = Token::of(agent);
        let subject = rpc_subject(self.mesh, &agent);
        let calls = self.mesh.listen_in(subject, Some(agent.to_string())).await?;
        Ok(RpcServer { mesh: self.mesh.clone(), calls })
    }

    /// Calls an agent. [`MeshError::NobodyAnswers`] means that the call was not delivered; after
    /// [`MeshError::NoAnswer`], and after [`MeshError::Unreachable`] for a connection that was lost
    /// in the meantime, it may have been.
    pub async fn call_rpc(
        self,
        agent: &str,
        method: &str,
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<RpcReply, MeshError> {
        let what = || format!("agent {}", agent.chars().take(128).collect::<String>());
        self.mesh.fits("a call", &headers, body.len())?;
        let subject = self.mesh.subject(&Subject::Rpc {
            agent: Token::of(agent),
            method: Token::of(method),
            caller: self.mesh.caller().clone(),
        });
        crash::point("rpc.before");
        // The agent sees the reply subject, and must not learn the inbox of other replies from it.
        let inbox = AnswerInbox::Own(self.mesh.reply_inbox());
        let reply = request_reply(self.mesh, what, subject, headers, body, timeout, inbox).await?;
        crash::point("rpc.after");
        Ok(reply)
    }
}

/// Inbox for the reply to a request.
pub(super) enum AnswerInbox {
    /// A separate subject.
    Own(String),
    /// The connection's shared inbox.
    Shared,
}

/// Sends a request to an agent and waits for the reply.
pub(super) async fn request_reply(
    mesh: &Mesh,
    what: impl Fn() -> String,
    subject: String,
    headers: HeaderMap,
    body: Bytes,
    timeout: Duration,
    inbox: AnswerInbox,
) -> Result<RpcReply, MeshError> {
    let mut request = Request::new().headers(headers).payload(body).timeout(Some(timeout));
    if let AnswerInbox::Own(inbox) = inbox {
        request = request.inbox(inbox);
    }
    let client = mesh.client();
    // The request has its own timeout; this one only detects that its connection has ended.
    let wait = timeout.saturating_add(GRACE_TIMEOUT);
    let asked = answer(mesh, "call an agent", wait, client.send_request(subject.clone(), request));
    match mesh.permitted(&subject, asked).await?? {
        Ok(reply) => {
            if let Some(reason) = reply.headers.as_ref().and_then(undeliverable) {
                return Err(MeshError::Malformed { what: "an agent's response", reason: reason.to_owned() });
            }
            Ok(RpcReply { headers: trace::incoming(reply.headers.as_ref()), body: reply.payload })
        }
        Err(error) => Err(match error.kind() {
            RequestErrorKind::NoResponders => MeshError::NobodyAnswers { what: what() },
            RequestErrorKind::TimedOut => MeshError::NoAnswer { what: what(), within: timeout },
            RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                MeshError::Refused { what: "call an agent", reason: error.to_string() }
            }
            RequestErrorKind::Other => {
                MeshError::Unreachable { what: "call an agent", reason: error.to_string() }
            }
        }),
    }
}

impl RpcServer {
    /// Waits for the next call; `None` when the connection was closed, or after the last call
    /// before [`RpcServer::stop`].
    pub async fn next(&mut self) -> Option<RpcRequest> {
        loop {
            let message = self.calls.next_any().await?;
            let subject = Subject::parse(self.mesh.namespace(), &message.subject);
            let reply = message.reply.filter(|reply| self.mesh.may_answer(reply));
            let (Some(Subject::Rpc { method, caller, .. }), Some(reply)) = (subject, reply) else {
                continue;
            };
            let Some(method) = method.name() else { continue };
            return Some(RpcRequest {
                method,
                caller,
                defect: message.headers.as_ref().and_then(undeliverable).map(str::to_owned),
                headers: trace::incoming(message.headers.as_ref()),
                body: message.payload,
                mesh: self.mesh.clone(),
                reply,
            });
        }
    }

    /// Accepts no new calls; [`RpcServer::next`] still returns those that have arrived.
    pub async fn stop(&mut self) -> Result<(), MeshError> {
        self.calls.stop().await
    }
}

impl RpcRequest {
    /// Creates a call that another process of the agent forwards.
    pub(super) fn forwarded(
        mesh: &Mesh,
        caller: Token,
        headers: HeaderMap,
        body: Bytes,
        reply: async_nats::Subject,
    ) -> Self {
        Self { method: String::new(), caller, headers, body, defect: None, mesh: mesh.clone(), reply }
    }

    /// Publishes the reply.
    pub async fn respond(self, headers: HeaderMap, body: Bytes) -> Result<(), MeshError> {
        self.mesh.fits("an answer", &headers, body.len())?;
        let sent = self.mesh.client().publish_with_headers(self.reply, headers, body).await;
        sent.map_err(|error| MeshError::Refused { what: "reply to a call", reason: error.to_string() })
    }
}
