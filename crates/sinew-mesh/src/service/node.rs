//! Node endpoints of agents: tasks of executions by request and reply, many in flight over one
//! subscription.
//!
//! Only executors are permitted to publish to a node endpoint. The subject of a reply ends in the
//! task's result token, so an agent that received one task cannot answer another one.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use async_nats::{HeaderMap, Message, StatusCode};
use bytes::Bytes;
use futures_util::FutureExt as _;
use sinew_protocol::header::REPEATED;
use sinew_protocol::{ResultToken, Subject, Token};
use tokio::time::timeout;

use crate::service::MeshServices;
use crate::stream::listen::MeshSubscription;
use crate::stream::pull::redirected;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError, crash};

/// Time for queuing a request on a connection that is busy or lost.
const SEND_TIMEOUT: Duration = Duration::from_millis(250);

/// Sends tasks to node endpoints and receives the replies.
#[derive(Debug)]
pub struct NodeCaller {
    mesh: Mesh,
    /// Prefix of the reply subjects; only called agents know it.
    inbox: String,
    answers: MeshSubscription,
    subjects: HashMap<String, async_nats::Subject>,
}

/// Reply to a task.
#[derive(Clone, Debug)]
pub struct NodeReply {
    /// Token of the task.
    pub token: ResultToken,
    /// The reply, or the reason why it is missing.
    pub said: NodeReplyBody,
}

/// Body of a reply, or the reason why it is missing.
#[derive(Clone, Debug)]
pub enum NodeReplyBody {
    /// The reply.
    Answer(Bytes),
    /// No responders; the task was not delivered.
    NobodyListens,
    /// The reply is malformed on the wire.
    Unreadable(String),
}

/// Tasks for one replica of an agent at its node endpoint.
#[derive(Debug)]
pub struct NodeEndpoint {
    mesh: Mesh,
    requests: MeshSubscription,
}

/// Task as received at a node endpoint.
#[derive(Clone, Debug)]
pub struct NodeTask {
    /// Subject for the reply.
    pub reply: async_nats::Subject,
    /// The request: a [`sinew_protocol::task::WorkflowNodeRequest`].
    pub body: Bytes,
    /// Whether it may have been sent before, to another process of the agent.
    pub is_repeated: bool,
}

impl MeshServices<'_> {
    /// Returns whether this connection may send tasks to node endpoints. Permissions of older
    /// versions lack this right.
    pub async fn may_send_nodes(self) -> Result<bool, MeshError> {
        let any = self.mesh.subject(&Subject::Node { agent: Token::of("any") });
        Ok(self.mesh.rights().await?.is_none_or(|granted| granted.may_publish(&any)))
    }

    /// Returns whether this connection may serve the node endpoint of an agent.
    pub async fn may_serve_node(self, agent: &str) -> Result<bool, MeshError> {
        let agent = Token::of(agent);
        let right = format!("{} {agent}", self.mesh.subject(&Subject::Node { agent: agent.clone() }));
        Ok(self.mesh.rights().await?.is_none_or(|granted| granted.may_subscribe(&right)))
    }

    /// Subscribes to replies from node endpoints, and returns the sender of tasks.
    pub async fn node_caller(self) -> Result<NodeCaller, MeshError> {
        let inbox = self.mesh.reply_inbox();
        let answers = self.mesh.listen(format!("{inbox}.*")).await?;
        Ok(NodeCaller { mesh: self.mesh.clone(), inbox, answers, subjects: HashMap::new() })
    }

    /// Serves the node endpoint of an agent; replicas of one name share the tasks.
    pub async fn serve_node(self, agent: &str) -> Result<NodeEndpoint, MeshError> {
        let agent = Token::of(agent);
        let group = Some(agent.to_string());
        let requests = self.mesh.listen_in(self.mesh.subject(&Subject::Node { agent }), group).await?;
        Ok(NodeEndpoint { mesh: self.mesh.clone(), requests })
    }
}

impl NodeCaller {
    /// Sends a task; returns false if the connection did not accept it in time, so that it has to
    /// be sent again. `is_repeated` states that it may have been sent before, so the agent queries
    /// all its processes for it before it starts.
    pub async fn send(&mut self, agent: &str, token: &ResultToken, body: Bytes, is_repeated: bool) -> bool {
        let subject = if let Some(subject) = self.subjects.get(agent) {
            subject.clone()
        } else {
            let name = self.mesh.subject(&Subject::Node { agent: Token::of(agent) });
            let subject = async_nats::Subject::from(name);
            self.subjects.insert(agent.to_owned(), subject.clone());
            subject
        };
        crash::point("node.before");
        let reply = format!("{}.{}", self.inbox, token.as_str());
        let line = self.mesh.line();
        let mut sending = std::pin::pin!(async move {
            if !is_repeated {
                return line.client.publish_with_reply(subject, reply, body).await;
            }
            let mut headers = HeaderMap::new();
            headers.insert(REPEATED, "1");
            line.client.publish_with_reply_and_headers(subject, reply, headers, body).await
        });
        // Only a connection that is not immediately ready needs a timer.
        let sent = match sending.as_mut().now_or_never() {
            Some(sent) => sent.is_ok(),
            None => matches!(timeout(SEND_TIMEOUT, sending).await, Ok(Ok(()))),
        };
        crash::point("node.sent");
        sent
    }

    /// Waits for the next reply; `None` when the connection was closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<NodeReply> {
        loop {
            let message = self.answers.next_any().await?;
            if let Some(reply) = self.read(message) {
                return Some(reply);
            }
        }
    }

    /// Returns a reply that has already arrived.
    pub fn try_next(&mut self) -> Option<NodeReply> {
        self.next().now_or_never().flatten()
    }

    /// Reads a reply; `None` if the message cannot be one.
    fn read(&self, message: Message) -> Option<NodeReply> {
        let token = message.subject.strip_prefix(self.inbox.as_str())?.strip_prefix('.')?;
        let token = ResultToken::parse(token).ok()?;
        let said = match &message.headers {
            _ if message.status == Some(StatusCode::NO_RESPONDERS) => NodeReplyBody::NobodyListens,
            Some(headers) if redirected(headers) => return None,
            Some(headers) => match undeliverable(headers) {
                Some(reason) => NodeReplyBody::Unreadable(reason.to_owned()),
                None => NodeReplyBody::Answer(message.payload),
            },
            None => NodeReplyBody::Answer(message.payload),
        };
        Some(NodeReply { token, said })
    }

    /// Returns how often the connection was established; replies to requests on an older one are
    /// lost.
    pub fn connections(&self) -> u64 {
        self.mesh.connections()
    }
}

impl NodeEndpoint {
    /// Waits for the next task; `None` when the connection was closed, or after the last task
    /// before [`NodeEndpoint::stop`].
    pub async fn next(&mut self) -> Option<NodeTask> {
        loop {
            let message = self.requests.next().await?;
            if message.headers.as_ref().is_some_and(redirected) {
                continue;
            }
            if let Some(reply) = message.reply.filter(|reply| self.mesh.may_answer(reply)) {
                let is_repeated = message.headers.is_some_and(|headers| headers.get(REPEATED).is_some());
                return Some(NodeTask { reply, body: message.payload, is_repeated });
            }
        }
    }

    /// Accepts no new tasks; [`NodeEndpoint::next`] still returns those that have arrived.
    pub fn stop(&mut self) -> impl Future<Output = Result<(), MeshError>> {
        self.requests.stop()
    }
}

impl MeshServices<'_> {
    /// Replies to a task from a node endpoint.
    pub async fn answer_node(self, reply: async_nats::Subject, body: Bytes) -> Result<(), MeshError> {
        self.mesh.fits("an answer", &HeaderMap::new(), body.len())?;
        crash::point("reply.before");
        let sent = self.mesh.line().client.publish(reply, body).await;
        sent.map_err(|error| MeshError::Refused { what: "reply to a task", reason: error.to_string() })
    }
}
