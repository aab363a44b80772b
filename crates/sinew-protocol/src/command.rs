//! Bodies of commands: requests to an execution.
//!
//! The subject contains caller, operation and id of a command
//! ([`Subject::Command`](crate::Subject::Command)), because publish permissions authenticate it. A
//! body never names its sender.

#[cfg(test)]
mod tests;

use crate::code;
use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::artifact::{ArtifactUri, sha256, without_key};
use crate::behalf::OnBehalf;
use crate::deployment::is_digest;
use crate::fault::Fault;
use crate::journal::{Conversation, ParentRef};
use crate::person_wait::{CallingRef, MAX_PEOPLE, MAX_PROMPT_BYTES, PersonWait, WaitReport};
use crate::subject::Operation;
use crate::unique_keys::check_unique_keys;
use crate::{ExecutionId, Token};

/// Maximum size of a body, in bytes; larger inputs are stored as artifacts.
pub const MAX_BODY: usize = 512 * 1024;
/// Maximum number of labels of an execution.
pub const MAX_LABELS: usize = 32;
/// Maximum size of a user's settings, in bytes of JSON.
pub const MAX_USER_CONFIG_BYTES: usize = 16 << 10;
/// Maximum length of a label's key or value and of the name of a user, a session or a workflow, in
/// bytes.
pub const MAX_NAME: usize = 256;
/// Maximum length of a reason, comment or address, in bytes.
pub const MAX_TEXT: usize = 4 * 1024;
/// Maximum number of names in a list: nodes to retry, calling workflows.
pub const MAX_NAMES: usize = 1024;

/// Error for an invalid command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// More than [`MAX_BODY`] bytes.
    #[error("a command has at most {MAX_BODY} bytes, this one has {0}")]
    Size(usize),
    /// Not the JSON that this operation requires.
    #[error("command {operation} cannot be read: {reason}")]
    Body {
        /// Operation in the subject.
        operation: &'static str,
        /// Description of the defect.
        reason: String,
    },
    /// A field that is too long, empty or inconsistent with another.
    #[error("command {operation}: `{field}` {reason}")]
    Field {
        /// Operation in the subject.
        operation: &'static str,
        /// The field.
        field: &'static str,
        /// Description of the defect.
        reason: String,
    },
}

impl BadCommand {
    /// The operator code.
    pub const CODE: &str = code::COMMAND_CANNOT_BE_READ.as_str();
}

impl From<BadCommand> for Fault {
    fn from(bad: BadCommand) -> Self {
        Self::invalid(BadCommand::CODE, bad.to_string())
    }
}

/// Start an execution. The execution has the id of the command, so a repeated start starts only one
/// execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// The workflow's name.
    pub workflow: String,
    /// Digest of the version; the latest version if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The input, unless it is in an artifact.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// Address of the artifact that contains the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_artifact: Option<String>,
    /// Partial and dry runs, in the format of the engine.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub mode: Value,
    /// Number of nested workflow calls above this execution.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// Names of the calling workflows, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// Task that the execution answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// User on whose behalf the execution runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Settings of that user for the request (`a2aUserConfig`): an object, or null.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub user_config: Value,
    /// The session (A2A context).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Labels by which lists can be filtered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Idempotency key; the execution's id is derived from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Caller on whose behalf an executor starts the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behalf: Option<OnBehalf>,
    /// Task that requested the start; accepted only with a valid `behalf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calling: Option<CallingRef>,
    /// Conversation of the execution whose task requested the start; accepted only from executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
}

impl StartCommand {
    /// Creates a start of this workflow with this input.
    pub fn new(execution: ExecutionId, workflow: impl Into<String>, input: Value) -> Self {
        Self {
            execution,
            workflow: workflow.into(),
            version: None,
            input,
            input_artifact: None,
            mode: Value::Null,
            depth: 0,
            chain: Vec::new(),
            parent: None,
            user: String::new(),
            user_config: Value::Null,
            session: String::new(),
            labels: BTreeMap::new(),
            idempotency_key: None,
            behalf: None,
            calling: None,
            conversation: None,
        }
    }

    /// Returns the sha256 of the requested work, in hex. Excludes fields that only describe the
    /// sender or the path of the start, because they differ between two executors that send the
    /// start of one task.
    pub fn digest(&self) -> String {
        let mut asked = serde_json::json!([
            self.workflow,
            self.version,
            self.input,
            self.input_artifact,
            self.mode,
            self.user,
            self.session,
            self.labels,
        ]);
        if let Some(asked) = asked.as_array_mut().filter(|_| !self.user_config.is_null()) {
            asked.push(self.user_config.clone());
        }
        let mut text = asked.to_string();
        // The object key depends on the process that stored the object; the rest of the address
        // identifies the content.
        if text.contains("artifact://") {
            remove_keys(&mut asked);
            text = asked.to_string();
        }
        sha256(text.as_bytes())
    }

    /// Returns whether the execution's id is derived from the idempotency key of this caller; true
    /// without a key.
    pub fn id_follows(&self, namespace: &str, caller: &Token) -> bool {
        let of = |key: &String| ExecutionId::of(namespace, caller.as_str(), key) == self.execution;
        self.idempotency_key.as_ref().is_none_or(of)
    }
}

/// Removes the object keys from artifact addresses.
fn remove_keys(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(address) = without_key(text) {
                *text = address;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(remove_keys),
        Value::Object(members) => members.values_mut().for_each(remove_keys),
        _ => {}
    }
}

/// Cancel an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// Reason, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Pause: dispatch no new tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// Reason, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Resume an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeCommand {
    /// The execution.
    pub execution: ExecutionId,
}

/// Answer a question of a waiting activation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproveCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// Waiting node; if absent, any waiting node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Activation of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<u32>,
    /// Decision of the person.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// Comment on the decision; the reason of a rejection, which must have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether the person rejects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reject: bool,
    /// Person who decides as a member of the group that is the caller; only for such callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Token>,
}

/// Returns true for a rejection without a comment: people who read the record need the reason.
pub fn lacks_reason(reject: bool, comment: Option<&str>) -> bool {
    reject && comment.is_none_or(|comment| comment.trim().is_empty())
}

/// Retry the failed nodes. Nodes that depend on a retried node start again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// Nodes to retry in addition to the cancelled ones; all failed nodes if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Retry only these nodes; other failed or cancelled nodes stay as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    /// Input that replaces the input of the one node. Without a node it replaces the input of the
    /// execution, which then starts again.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Reason, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Any command.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the types say it")]
pub enum Command {
    Start(Box<StartCommand>),
    Cancel(CancelCommand),
    Pause(PauseCommand),
    Resume(ResumeCommand),
    Approve(ApproveCommand),
    Retry(RetryCommand),
    Wait(Box<WaitReport>),
}

impl Command {
    /// Parses the body of this operation, whose subject ends with `id`.
    pub fn read(operation: Operation, id: &Token, body: &[u8]) -> Result<Self, BadCommand> {
        if body.len() > MAX_BODY {
            return Err(BadCommand::Size(body.len()));
        }
        let bad_body = |reason: String| BadCommand::Body {
            operation: operation.as_str(),
            reason: reason.chars().take(300).collect(),
        };
        check_unique_keys(body).map_err(|error| bad_body(error.to_string()))?;
        let read = match operation {
            Operation::Start => serde_json::from_slice(body).map(Self::Start),
            Operation::Cancel => serde_json::from_slice(body).map(Self::Cancel),
            Operation::Pause => serde_json::from_slice(body).map(Self::Pause),
            Operation::Resume => serde_json::from_slice(body).map(Self::Resume),
            Operation::Approve => serde_json::from_slice(body).map(Self::Approve),
            Operation::Retry => serde_json::from_slice(body).map(Self::Retry),
            Operation::Wait => serde_json::from_slice(body).map(Self::Wait),
        };
        let read = read.map_err(|error| bad_body(error.to_string()))?;
        read.check()?;
        if operation == Operation::Start && read.execution().as_str() != id.as_str() {
            return Err(read.bad("execution", "is not the id in the subject"));
        }
        Ok(read)
    }

    /// Returns the body as JSON.
    pub fn to_json(&self) -> String {
        // Serialising plain data with string keys cannot fail.
        match self {
            Self::Start(body) => serde_json::to_string(body),
            Self::Cancel(body) => serde_json::to_string(body),
            Self::Pause(body) => serde_json::to_string(body),
            Self::Resume(body) => serde_json::to_string(body),
            Self::Approve(body) => serde_json::to_string(body),
            Self::Retry(body) => serde_json::to_string(body),
            Self::Wait(body) => serde_json::to_string(body),
        }
        .unwrap_or_default()
    }

    /// Returns the operation of the command.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Start(_) => Operation::Start,
            Self::Cancel(_) => Operation::Cancel,
            Self::Pause(_) => Operation::Pause,
            Self::Resume(_) => Operation::Resume,
            Self::Approve(_) => Operation::Approve,
            Self::Retry(_) => Operation::Retry,
            Self::Wait(_) => Operation::Wait,
        }
    }

    /// Returns the execution of the command.
    pub const fn execution(&self) -> &ExecutionId {
        match self {
            Self::Start(body) => &body.execution,
            Self::Cancel(body) => &body.execution,
            Self::Pause(body) => &body.execution,
            Self::Resume(body) => &body.execution,
            Self::Approve(body) => &body.execution,
            Self::Retry(body) => &body.execution,
            Self::Wait(body) => &body.execution,
        }
    }

    /// Checks sizes and fields that depend on each other. Senders call it too.
    pub fn check(&self) -> Result<(), BadCommand> {
        match self {
            Self::Start(body) => self.check_start(body),
            Self::Cancel(CancelCommand { reason, .. }) | Self::Pause(PauseCommand { reason, .. }) => {
                self.most("reason", reason, MAX_TEXT)
            }
            Self::Resume(_) => Ok(()),
            Self::Approve(body) => {
                self.most("node", body.node.as_deref().unwrap_or_default(), MAX_TEXT)?;
                self.most("comment", body.comment.as_deref().unwrap_or_default(), MAX_TEXT)?;
                if lacks_reason(body.reject, body.comment.as_deref()) {
                    return Err(self.bad("comment", "is empty, but a rejection needs a reason"));
                }
                Ok(())
            }
            Self::Retry(body) => {
                self.most("reason", &body.reason, MAX_TEXT)?;
                self.names("nodes", &body.nodes)?;
                if body.only && body.nodes.is_empty() {
                    return Err(self.bad("only", "names no node"));
                }
                Ok(())
            }
            Self::Wait(report) => report.wait.as_ref().map_or(Ok(()), |wait| self.check_wait(wait)),
        }
    }

    fn check_wait(&self, wait: &PersonWait) -> Result<(), BadCommand> {
        self.most("prompt", &wait.prompt, MAX_PROMPT_BYTES)?;
        self.most("workflow", &wait.workflow, MAX_NAME)?;
        self.most("node", &wait.node, MAX_TEXT)?;
        if wait.allowed.len() > MAX_PEOPLE {
            return Err(self.bad("allowed", &format!("are more than {MAX_PEOPLE}")));
        }
        self.names("allowed", &wait.allowed)
    }

    fn check_start(&self, body: &StartCommand) -> Result<(), BadCommand> {
        if body.workflow.is_empty() {
            return Err(self.bad("workflow", "is empty"));
        }
        self.most("workflow", &body.workflow, MAX_NAME)?;
        self.most("user", &body.user, MAX_NAME)?;
        self.most("session", &body.session, MAX_NAME)?;
        if !body.user_config.is_null() {
            if !body.user_config.is_object() {
                return Err(self.bad("user_config", "is not an object"));
            }
            self.most("user_config", &body.user_config.to_string(), MAX_USER_CONFIG_BYTES)?;
        }
        self.most("idempotency_key", body.idempotency_key.as_deref().unwrap_or_default(), MAX_TEXT)?;
        // Clients with an empty key would share one execution per caller.
        if body.idempotency_key.as_deref() == Some("") {
            return Err(self.bad("idempotency_key", "is empty"));
        }
        self.names("chain", &body.chain)?;
        if body.labels.len() > MAX_LABELS {
            return Err(self.bad("labels", &format!("are more than {MAX_LABELS}")));
        }
        for (key, value) in &body.labels {
            self.most("labels", key, MAX_NAME)?;
            self.most("labels", value, MAX_NAME)?;
        }
        if body.version.as_deref().is_some_and(|version| !is_digest(version)) {
            return Err(self.bad("version", "is not a digest"));
        }
        if let Some(address) = &body.input_artifact {
            self.most("input_artifact", address, MAX_TEXT)?;
            if !body.input.is_null() {
                return Err(self.bad("input_artifact", "stands beside an input"));
            }
            address.parse::<ArtifactUri>().map_err(|error| self.bad("input_artifact", &error.to_string()))?;
        }
        if let Some(parent) = &body.parent {
            self.most("parent", &parent.result_subject, MAX_TEXT)?;
            self.most("parent", &parent.agent, MAX_NAME)?;
        }
        Ok(())
    }

    fn names(&self, field: &'static str, names: &[String]) -> Result<(), BadCommand> {
        if names.len() > MAX_NAMES {
            return Err(self.bad(field, &format!("are more than {MAX_NAMES}")));
        }
        names.iter().try_for_each(|name| self.most(field, name, MAX_TEXT))
    }

    fn most(&self, field: &'static str, text: &str, most: usize) -> Result<(), BadCommand> {
        if text.len() > most {
            return Err(self.bad(field, &format!("has {} bytes, {most} are allowed", text.len())));
        }
        Ok(())
    }

    fn bad(&self, field: &'static str, reason: &str) -> BadCommand {
        BadCommand::Field { operation: self.operation().as_str(), field, reason: reason.to_owned() }
    }
}

macro_rules! into_command {
    ($($variant:ident($body:ident)),*) => {$(
        impl From<$body> for Command {
            fn from(body: $body) -> Self {
                Self::$variant(body)
            }
        }
    )*};
}

impl From<StartCommand> for Command {
    fn from(body: StartCommand) -> Self {
        Self::Start(Box::new(body))
    }
}

into_command!(
    Cancel(CancelCommand),
    Pause(PauseCommand),
    Resume(ResumeCommand),
    Approve(ApproveCommand),
    Retry(RetryCommand)
);

/// Distinguishes null, which is a valid input, from an absent field.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
