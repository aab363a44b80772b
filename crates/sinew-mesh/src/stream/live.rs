//! Messages that may be lost: streaming status of a task, and messages to the replica of an agent that works on it.
//!
//! Both are core messages. No durable state depends on them: the result of a task states how it ended, and an agent that
//! missed a message finds a deadline in its task.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sinew_protocol::subject::INTAKE_CONTROL;
use sinew_protocol::{ExecutionId, Subject, TaskId, Token};

use crate::stream::listen::MeshSubscription;
use crate::stream::pull::answer;
use crate::stream::task::TaskExchange;
use crate::{MeshError, trace};

/// Maximum size of a message, in bytes.
pub const LARGEST_STATUS: usize = 64 << 10;

/// Timeout for a control message about the intake.
const INTAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A control message to the replica that works on a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// The result is no longer wanted.
    Cancel {
        /// The execution of the task; the message is ignored if the task belongs to another one.
        execution: ExecutionId,
    },
    /// Take no new tasks, or take them again. For all processes of the agent, or for one; the message
    /// names no task ([`INTAKE_CONTROL`]).
    Intake {
        /// Id of the process in its statistics (`$SRV.STATS`); `None` for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<String>,
        /// Whether new tasks are taken.
        open: bool,
    },
}

/// A received control message.
#[derive(Clone, Debug)]
pub struct ReceivedControl {
    /// The task.
    pub task: TaskId,
    /// The message.
    pub control: Control,
    /// Headers, except those with commands to the server.
    pub headers: HeaderMap,
}

/// Received streaming status.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The execution.
    pub execution: ExecutionId,
    /// The task.
    pub task: TaskId,
    /// Headers, except those with commands to the server.
    pub headers: HeaderMap,
    /// The A2A status as the agent sent it.
    pub body: Bytes,
}

/// Streaming status of tasks.
#[derive(Debug)]
pub struct ProgressFeed {
    namespace: String,
    messages: MeshSubscription,
}

/// Control messages to one agent.
#[derive(Debug)]
pub struct ControlSubscription {
    namespace: String,
    messages: MeshSubscription,
}

impl TaskExchange<'_> {
    /// Publishes the status of a task; subscribers are optional.
    pub async fn report_progress(
        self,
        execution: &ExecutionId,
        task: &TaskId,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), MeshError> {
        if body.len() > LARGEST_STATUS {
            let (size, limit) = (body.len() as u64, LARGEST_STATUS as u64);
            return Err(MeshError::TooLarge { what: "a status", size, limit });
        }
        let subject = Subject::Progress { execution: execution.clone(), task: task.clone() };
        self.say("send a status", &subject, headers, body).await
    }

    /// Subscribes to the status of one task, of all tasks of an execution, or of all tasks.
    pub async fn watch_progress(
        self,
        execution: Option<&ExecutionId>,
        task: Option<&TaskId>,
    ) -> Result<ProgressFeed, MeshError> {
        let token = |id: Option<&str>| id.unwrap_or("*").to_owned();
        let root = Token::of(self.mesh.namespace());
        let (execution, task) = (token(execution.map(ExecutionId::as_str)), token(task.map(TaskId::as_str)));
        let messages = self.mesh.listen(format!("{root}.v1.progress.{execution}.{task}")).await?;
        Ok(ProgressFeed { namespace: self.mesh.namespace().to_owned(), messages })
    }

    /// Publishes a control message to the replica of the agent that works on a task.
    pub async fn control(self, agent: &str, task: &TaskId, control: &Control) -> Result<(), MeshError> {
        let body = serde_json::to_vec(control)
            .map_err(|error| MeshError::Malformed { what: "a control message", reason: error.to_string() })?;
        let subject = Subject::Control { agent: Token::of(agent), task: task.clone() };
        self.say("send a control message", &subject, HeaderMap::new(), body.into()).await
    }

    /// Stops or resumes the intake of an agent's processes. For admins and gateways.
    ///
    /// # Errors
    /// Fails if the permissions of this connection do not include it.
    pub async fn control_intake(
        self,
        agent: &str,
        process: Option<&str>,
        open: bool,
    ) -> Result<(), MeshError> {
        const WHAT: &str = "control the intake of an agent";
        let task = TaskId::parse(INTAKE_CONTROL)
            .map_err(|error| MeshError::Malformed { what: "a control message", reason: error.to_string() })?;
        let control = Control::Intake { process: process.map(str::to_owned), open };
        let subject = self.mesh.subject(&Subject::Control { agent: Token::of(agent), task: task.clone() });
        let sent = async { self.control(agent, &task, &control).await };
        self.mesh.permitted(&subject, answer(self.mesh, WHAT, INTAKE_TIMEOUT, sent)).await??
    }

    /// Subscribes to the control messages to this agent. Every replica receives all of them and
    /// selects its own tasks.
    pub async fn controls(self, agent: &str) -> Result<ControlSubscription, MeshError> {
        let agent = Token::of(agent);
        let subject = sinew_protocol::subject::below(self.mesh.namespace(), &["control", agent.as_str()]);
        Ok(ControlSubscription {
            namespace: self.mesh.namespace().to_owned(),
            messages: self.mesh.listen(subject).await?,
        })
    }

    async fn say(
        self,
        what: &'static str,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), MeshError> {
        let said = self.mesh.client().publish_with_headers(self.mesh.subject(subject), headers, body).await;
        said.map_err(|error| MeshError::Refused { what, reason: error.to_string() })
    }
}

impl ProgressFeed {
    /// Waits for the next status; `None` when the connection was closed.
    pub async fn next(&mut self) -> Option<Progress> {
        loop {
            let message = self.messages.next().await?;
            let subject = Subject::parse(&self.namespace, &message.subject);
            let Some(Subject::Progress { execution, task }) = subject else { continue };
            if message.payload.len() <= LARGEST_STATUS {
                let headers = trace::incoming(message.headers.as_ref());
                return Some(Progress { execution, task, headers, body: message.payload });
            }
        }
    }
}

impl ControlSubscription {
    /// Waits for the next control message; `None` when the connection was closed. Skips malformed
    /// messages.
    pub async fn next(&mut self) -> Option<ReceivedControl> {
        loop {
            let message = self.messages.next().await?;
            let Some(Subject::Control { task, .. }) = Subject::parse(&self.namespace, &message.subject)
            else {
                continue;
            };
            match serde_json::from_slice(&message.payload) {
                Ok(control) => {
                    let headers = trace::incoming(message.headers.as_ref());
                    return Some(ReceivedControl { task, control, headers });
                }
                Err(error) => tracing::debug!(%task, %error, "skipping a control message"),
            }
        }
    }
}
