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

/// Token of a subject that every process of an agent hears.
const EVERY_PROCESS: &str = "all";

/// A message to one process of an agent, or to all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaMessage {
    /// A process begins. Each other one answers with [`ReplicaMessage::Here`].
    Hello {
        /// The process that begins.
        process: Token,
    },
    /// A process is there.
    Here {
        /// The process that is there.
        process: Token,
        /// Further processes that it knows; empty if nobody asked.
        #[serde(default)]
        others: Vec<Token>,
    },
    /// A process has left.
    Gone {
        /// The process that has left.
        process: Token,
    },
    /// A process asks whether this one holds a task; answered with a [`HolderAnswer`].
    Holds(TaskQuestion),
    /// A process asks whether it may begin a task that it does not know; answered with a [`HolderAnswer`].
    MayBegin {
        /// The task.
        #[serde(flatten)]
        question: TaskQuestion,
        /// Processes that the asking one found gone.
        #[serde(default)]
        gone: Vec<Token>,
    },
    /// A process was sent a task of an execution that may have been sent before. One that works on the task or has done it answers
    /// with [`HolderAnswer::Held`], and the executor as well.
    WorksOn {
        /// The task.
        task: TaskId,
        /// Subject where the executor waits for the result.
        result: String,
    },
}

/// Question about a task of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskQuestion {
    /// Process that asks.
    pub process: Token,
    /// Caller that the task belongs to.
    pub caller: Token,
    /// The task.
    pub task: TaskId,
}

/// Answer to a question about a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HolderAnswer {
    /// The process that answers holds the task.
    Held,
    /// The process that answers does not hold the task.
    NotHeld,
    /// This process may begin the task: the one that asks, or another one that asked before.
    Begun {
        /// Process that may begin the task.
        by: Token,
    },
}

/// The way of one process to the others of its agent. Clones share it.
#[derive(Clone, Debug)]
pub struct ReplicaLink {
    mesh: Mesh,
    agent: Token,
    process: Token,
}

/// Messages and calls that reach one process from the others of its agent.
#[derive(Debug)]
pub struct ReplicaEndpoint {
    mesh: Mesh,
    to_all: MeshSubscription,
    to_process: MeshSubscription,
}

/// A message or a call of another process.
#[derive(Debug)]
pub enum ReplicaDelivery {
    /// A message, and the subject for the answer if one is wanted.
    Message(ReplicaMessage, Option<async_nats::Subject>),
    /// A call that the other process took and checked. Its method is in the body only.
    Call(RpcRequest),
}

impl MeshServices<'_> {
    /// Returns whether this connection may exchange messages among the processes of an agent. Permissions of older versions do
    /// not say so.
    pub async fn may_link_replicas(self, agent: &str) -> Result<bool, MeshError> {
        let agent = Token::of(agent);
        let any = self.mesh.subject(&Subject::Replica { agent, process: Token::of(EVERY_PROCESS) });
        let any = format!("{}*", any.trim_end_matches(EVERY_PROCESS));
        let rights = self.mesh.rights().await?;
        Ok(rights.is_none_or(|granted| granted.may_publish(&any) && granted.may_subscribe(&any)))
    }

    /// Returns the way of a new process to the others of its agent. The process hears nothing yet.
    pub fn replica_link(self, agent: &str) -> ReplicaLink {
        // A token from hexadecimal digits is legal as it is.
        let process = Token::of(&random_token());
        ReplicaLink { mesh: self.mesh.clone(), agent: Token::of(agent), process }
    }
}

impl ReplicaLink {
    /// Token of this process.
    pub fn process(&self) -> &Token {
        &self.process
    }

    /// Hears what is sent to this process and to all from now on.
    pub async fn listen(&self) -> Result<ReplicaEndpoint, MeshError> {
        Ok(ReplicaEndpoint {
            mesh: self.mesh.clone(),
            to_process: self.mesh.listen(self.subject(Some(&self.process))).await?,
            to_all: self.mesh.listen(self.subject(None)).await?,
        })
    }

    /// Sends a message to one process, or to all, this one included.
    pub async fn tell(&self, to: Option<&Token>, message: &ReplicaMessage) -> Result<(), MeshError> {
        let sent = self.mesh.client().publish(self.subject(to), to_bytes(message)).await;
        sent.map_err(|error| MeshError::Refused {
            what: "send a message to a process of the agent",
            reason: error.to_string(),
        })
    }

    /// Sends a message to one process, or to all, and waits for the first answer. [`MeshError::NobodyAnswers`] means that no
    /// process listens there.
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

    /// Has a call of this caller answered by another process.
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

    /// Answers a message.
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
        // Processes of one agent may all know where the others hear their answers.
        request_reply(&self.mesh, what, subject, headers, body, timeout, AnswerInbox::Shared).await
    }

    fn subject(&self, to: Option<&Token>) -> String {
        let process = to.cloned().unwrap_or_else(|| Token::of(EVERY_PROCESS));
        self.mesh.subject(&Subject::Replica { agent: self.agent.clone(), process })
    }
}

impl ReplicaEndpoint {
    /// The next message or call; `None` when the connection was closed. May be given up and called again.
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

    /// Reads a message; `None` for what no process of the agent can have sent.
    fn read(&self, message: async_nats::Message) -> Option<ReplicaDelivery> {
        let headers = message.headers.as_ref();
        // A server that is made to deliver something here adds its own header, or a subject for the acknowledgement.
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
    // Plain data with text keys can always be written.
    serde_json::to_vec(message).unwrap_or_default().into()
}
