//! Messages among the processes of one agent: discovery, lookup of the process that holds a task,
//! and forwarded calls.
//!
//! Only processes of the agent are permitted to publish to these subjects, so messages are trusted.
//! All of them may be lost.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sinew_protocol::{Subject, TaskId, Token, header};

use crate::random_token::random_token;
use crate::rpc::{AnswerInbox, RpcReply, RpcRequest, request_reply};
use crate::service::MeshServices;
use crate::stream::listen::MeshSubscription;
use crate::stream::pull::redirected;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError, trace};

/// Subject token that addresses every process of an agent.
const EVERY_PROCESS: &str = "all";

/// A message to one process of an agent, or to all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaMessage {
    /// A process starts. All others reply with [`ReplicaMessage::Here`].
    Hello {
        /// The process that starts.
        process: Token,
    },
    /// A process is running.
    Here {
        /// The process that is running.
        process: Token,
        /// Further processes that it knows; empty without a request.
        #[serde(default)]
        others: Vec<Token>,
    },
    /// A process has left.
    Gone {
        /// The process that has left.
        process: Token,
    },
    /// Query whether the receiver holds a task; the reply is a [`HolderAnswer`].
    Holds(TaskQuestion),
    /// Query whether the sender may start a task that it does not know; the reply is a
    /// [`HolderAnswer`].
    MayBegin {
        /// The task.
        #[serde(flatten)]
        question: TaskQuestion,
        /// Processes that the sender found unreachable.
        #[serde(default)]
        gone: Vec<Token>,
    },
    /// The sender received a task of an execution that may have been sent before. A process that
    /// runs or has completed the task replies with [`HolderAnswer::Held`], and sends the executor
    /// its result.
    WorksOn {
        /// The task.
        task: TaskId,
        /// Subject on which the executor awaits the result.
        result: String,
    },
}

/// Query about a task of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskQuestion {
    /// Process that sends the query.
    pub process: Token,
    /// Caller that the task belongs to.
    pub caller: Token,
    /// The task.
    pub task: TaskId,
}

/// Reply to a query about a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HolderAnswer {
    /// The replying process holds the task.
    Held,
    /// The replying process does not hold the task.
    NotHeld,
    /// This process may start the task: the one that sent the query, or another one that did so
    /// before.
    Begun {
        /// Process that may start the task.
        by: Token,
    },
}

/// Link of one process to the others of its agent. Clones share it.
#[derive(Clone, Debug)]
pub struct ReplicaLink {
    mesh: Mesh,
    agent: Token,
    process: Token,
}

/// Messages and calls to one process from the others of its agent.
#[derive(Debug)]
pub struct ReplicaEndpoint {
    mesh: Mesh,
    to_all: MeshSubscription,
    to_process: MeshSubscription,
}

/// A message or a call from another process.
#[derive(Debug)]
pub enum ReplicaDelivery {
    /// A message, and the subject for a requested reply.
    Message(ReplicaMessage, Option<async_nats::Subject>),
    /// A call that the other process received and checked. Only the body contains its method.
    Call(RpcRequest),
}

impl MeshServices<'_> {
    /// Returns whether this connection may exchange messages among the processes of an agent.
    /// Permissions of older versions lack this right.
    pub async fn may_link_replicas(self, agent: &str) -> Result<bool, MeshError> {
        let agent = Token::of(agent);
        let any = self.mesh.subject(&Subject::Replica { agent, process: Token::of(EVERY_PROCESS) });
        let any = format!("{}*", any.trim_end_matches(EVERY_PROCESS));
        let rights = self.mesh.rights().await?;
        Ok(rights.is_none_or(|granted| granted.may_publish(&any) && granted.may_subscribe(&any)))
    }

    /// Returns the link of a new process to the others of its agent. It receives nothing yet.
    pub fn replica_link(self, agent: &str) -> ReplicaLink {
        // Hexadecimal digits form a valid token.
        let process = Token::of(&random_token());
        ReplicaLink { mesh: self.mesh.clone(), agent: Token::of(agent), process }
    }
}

impl ReplicaLink {
    /// Token of this process.
    pub fn process(&self) -> &Token {
        &self.process
    }

    /// Subscribes to messages to this process and to all processes.
    pub async fn listen(&self) -> Result<ReplicaEndpoint, MeshError> {
        Ok(ReplicaEndpoint {
            mesh: self.mesh.clone(),
            to_process: self.mesh.listen(self.subject(Some(&self.process))).await?,
            to_all: self.mesh.listen(self.subject(None)).await?,
        })
    }

    /// Sends a message to one process, or to all, including this one.
    pub async fn tell(&self, to: Option<&Token>, message: &ReplicaMessage) -> Result<(), MeshError> {
        let sent = self.mesh.client().publish(self.subject(to), to_bytes(message)).await;
        sent.map_err(|error| MeshError::Refused {
            what: "send a message to a process of the agent",
            reason: error.to_string(),
        })
    }

    /// Sends a message to one process, or to all, and waits for the first reply.
    /// [`MeshError::NobodyAnswers`] means that no such process is subscribed.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        to: Option<&Token>,
        message: &ReplicaMessage,
        timeout: Duration,
    ) -> Result<T, MeshError> {
        let reply = self.request(to, HeaderMap::new(), to_bytes(message), timeout).await?;
        serde_json::from_slice(&reply.body).map_err(|error| MeshError::Malformed {
            what: "the response of a process",
            reason: error.to_string(),
        })
    }

    /// Forwards a call of this caller to another process.
    pub async fn forward(
        &self,
        to: &Token,
        caller: &Token,
        mut headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<RpcReply, MeshError> {
        headers.insert(header::CALLER, caller.as_str());
        self.request(Some(to), headers, body, timeout).await
    }

    /// Replies to a message.
    pub async fn answer(&self, reply: async_nats::Subject, answer: &impl Serialize) -> Result<(), MeshError> {
        let sent = self.mesh.client().publish(reply, to_bytes(answer)).await;
        sent.map_err(|error| MeshError::Refused { what: "reply to a process", reason: error.to_string() })
    }

    async fn request(
        &self,
        to: Option<&Token>,
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<RpcReply, MeshError> {
        let what = || format!("a process of agent {}", self.agent);
        self.mesh.fits("a call", &headers, body.len())?;
        let subject = self.subject(to);
        // Processes of one agent may share knowledge of their reply inboxes.
        request_reply(&self.mesh, what, subject, headers, body, timeout, AnswerInbox::Shared).await
    }

    fn subject(&self, to: Option<&Token>) -> String {
        let process = to.cloned().unwrap_or_else(|| Token::of(EVERY_PROCESS));
        self.mesh.subject(&Subject::Replica { agent: self.agent.clone(), process })
    }
}

impl ReplicaEndpoint {
    /// Waits for the next message or call; `None` when the connection was closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<ReplicaDelivery> {
        loop {
            let message = tokio::select! {
                message = self.to_process.next_any() => message?,
                message = self.to_all.next_any() => message?,
            };
            if let Some(delivery) = self.read(message) {
                return Some(delivery);
            }
        }
    }

    /// Reads a message; `None` if no process of the agent can have sent it.
    fn read(&self, message: async_nats::Message) -> Option<ReplicaDelivery> {
        let headers = message.headers.as_ref();
        // If the server was made to publish something here, it added a header or an acknowledgement
        // subject.
        let is_strange = headers
            .is_some_and(|headers| redirected(headers) || undeliverable(headers).is_some())
            || message.reply.as_ref().is_some_and(|reply| !self.mesh.may_answer(reply));
        if is_strange {
            return None;
        }
        let caller = headers.and_then(|headers| headers.get(header::CALLER));
        let Some(caller) = caller else {
            return match serde_json::from_slice(&message.payload) {
                Ok(said) => Some(ReplicaDelivery::Message(said, message.reply)),
                Err(error) => {
                    tracing::debug!(%error, "skipping a message of another process");
                    None
                }
            };
        };
        let caller = Token::parse(caller.as_str()).ok()?;
        let headers = trace::incoming(headers);
        Some(ReplicaDelivery::Call(RpcRequest::forwarded(
            &self.mesh,
            caller,
            headers,
            message.payload,
            message.reply?,
        )))
    }
}

fn to_bytes(message: &impl Serialize) -> Bytes {
    // Serialization of plain data with text keys cannot fail.
    serde_json::to_vec(message).unwrap_or_default().into()
}
