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

/// How long a request waits for its place in a connection that is busy or away.
const SEND_TIMEOUT: Duration = Duration::from_millis(250);

/// Sends tasks to node endpoints and hears the answers.
#[derive(Debug)]
pub struct NodeCaller {
    mesh: Mesh,
    /// Subject below which answers are heard; only agents that were asked know it.
    inbox: String,
    answers: MeshSubscription,
    subjects: HashMap<String, async_nats::Subject>,
}

/// A message that came back for a task.
#[derive(Clone, Debug)]
pub struct NodeReply {
    /// Token of the task.
    pub token: ResultToken,
    /// The answer, or why there is none.
    pub said: NodeReplyBody,
}

/// The answer to a task, or why there is none.
#[derive(Clone, Debug)]
pub enum NodeReplyBody {
    /// The answer.
    Answer(Bytes),
    /// No replica of the agent listens; the task was not delivered.
    NobodyListens,
    /// The answer cannot be read off the wire.
    Unreadable(String),
}

/// Tasks that reach one replica of an agent at its node endpoint.
#[derive(Debug)]
pub struct NodeEndpoint {
    mesh: Mesh,
    requests: MeshSubscription,
}

/// A task as it arrives at a node endpoint.
#[derive(Clone, Debug)]
pub struct NodeTask {
    /// Subject for the answer.
    pub reply: async_nats::Subject,
    /// The request: a [`sinew_protocol::task::WorkflowNodeRequest`].
    pub body: Bytes,
    /// Whether it may have been sent before, to another process of the agent.
    pub is_repeated: bool,
}

impl MeshServices<'_> {
    /// Returns whether this connection may send tasks to node endpoints. Permissions of older versions do not say so.
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

    /// Opens the way for tasks to node endpoints.
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
    /// Sends a task; false if the connection did not take it in time, so that it has to be sent again. `is_repeated` says that
    /// it may have been sent before, so that the agent asks all its processes for it before it begins.
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
        // A timer is made only for a connection that has no room at once.
        let sent = match sending.as_mut().now_or_never() {
            Some(sent) => sent.is_ok(),
            None => matches!(timeout(SEND_TIMEOUT, sending).await, Ok(Ok(()))),
        };
        crash::point("node.sent");
        sent
    }

    /// Waits for the next answer; `None` when the connection was closed. May be given up and called again.
    pub async fn next(&mut self) -> Option<NodeReply> {
        loop {
            let message = self.answers.next_any().await?;
            if let Some(reply) = self.read(message) {
                return Some(reply);
            }
        }
    }

    /// Returns an answer that has come already.
    pub fn try_next(&mut self) -> Option<NodeReply> {
        self.next().now_or_never().flatten()
    }

    /// Reads an answer; `None` for what nobody can have sent as an answer.
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

    /// Returns how often the connection was made; answers to what was sent on an older one are lost.
    pub fn connections(&self) -> u64 {
        self.mesh.connections()
    }
}

impl NodeEndpoint {
    /// Waits for the next task; `None` when the connection was closed or [`NodeEndpoint::stop`] has let the last one through.
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

    /// Takes no new tasks; those that are here already still come out of [`NodeEndpoint::next`].
    pub fn stop(&mut self) -> impl Future<Output = Result<(), MeshError>> {
        self.requests.stop()
    }
}

impl MeshServices<'_> {
    /// Answers a task that came to a node endpoint.
    pub async fn answer_node(self, reply: async_nats::Subject, body: Bytes) -> Result<(), MeshError> {
        self.mesh.fits("an answer", &HeaderMap::new(), body.len())?;
        crash::point("reply.before");
        let sent = self.mesh.line().client.publish(reply, body).await;
        sent.map_err(|error| MeshError::Refused { what: "reply to a task", reason: error.to_string() })
    }
}
