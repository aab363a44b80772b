//! Bodies of commands: requests to an execution.
//!
//! The subject contains caller, operation and id of a command
//! ([`Subject::Command`](crate::Subject::Command)), where publish rights make them trustworthy. A
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
use crate::journal::ParentRef;
use crate::person_wait::{CallingRef, MAX_PEOPLE, MAX_PROMPT_BYTES, PersonWait, WaitReport};
use crate::subject::Operation;
use crate::unique_keys::check_unique_keys;
use crate::{ExecutionId, Token};

/// The largest body, in bytes; larger inputs lie in the store of artifacts.
pub const MAX_BODY: usize = 512 * 1024;
/// The most labels of an execution.
pub const MAX_LABELS: usize = 32;
/// The longest settings of a user, in bytes of JSON.
pub const MAX_USER_CONFIG_BYTES: usize = 16 << 10;
/// The longest label, key and value each, and the longest name of a user, a session or a workflow, in bytes.
pub const MAX_NAME: usize = 256;
/// The longest reason, comment or address, in bytes.
pub const MAX_TEXT: usize = 4 * 1024;
/// The most names in a list: nodes to retry, workflows above.
pub const MAX_NAMES: usize = 1024;

/// Why a command cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// More than [`MAX_BODY`] bytes.
    #[error("a command has at most {MAX_BODY} bytes, this one has {0}")]
    Size(usize),
    /// Not the JSON that this operation asks for.
    #[error("a {operation} command cannot be read: {reason}")]
    Body {
        /// Operation that the subject names.
        operation: &'static str,
        /// Description of the defect.
        reason: String,
    },
    /// A field that is too long, empty or contradicts another.
    #[error("a {operation} command has a bad `{field}`: {reason}")]
    Field {
        /// Operation that the subject names.
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

/// Begin an execution. Its id is the command's id, so a start that was sent twice begins one execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// The workflow's name.
    pub workflow: String,
    /// The digest of the version; the latest one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The input, unless it is in an artifact.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// The address of the artifact that holds the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_artifact: Option<String>,
    /// Partial and dry runs, as the engine words them.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub mode: Value,
    /// How many workflows called each other before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// Their names, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// The task it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Settings of that user for the request (`a2aUserConfig`), an object; null if there are none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub user_config: Value,
    /// The session (A2A context).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Labels that lists can be filtered by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Key that identifies repeated requests; the execution's id is derived from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Caller on whose behalf an executor starts the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behalf: Option<OnBehalf>,
    /// The task during which the start was requested; believed only with a `behalf` that holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calling: Option<CallingRef>,
}

impl StartCommand {
    /// The start of this workflow with this input.
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
        }
    }

    /// Returns the sha256 of what the start asks for, in hex. Fields that only say who sends the start, or on whose way,
    /// do not count: two executors that send the start of one task differ in them.
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
        // The key of an object differs with the process that stored it; the address names its content without it.
        if text.contains("artifact://") {
            remove_keys(&mut asked);
            text = asked.to_string();
        }
        sha256(text.as_bytes())
    }

    /// Whether the execution's id is the one that this caller's idempotency key makes; true without a key.
    pub fn id_follows(&self, namespace: &str, caller: &Token) -> bool {
        let of = |key: &String| ExecutionId::of(namespace, caller.as_str(), key) == self.execution;
        self.idempotency_key.as_ref().is_none_or(of)
    }
}

/// Removes the keys from addresses of artifacts.
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

/// End an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Dispatch nothing new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeCommand {
    /// The execution.
    pub execution: ExecutionId,
}

/// Answer a question that an activation waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproveCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// The node that waits; whichever waits when absent, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Which of the node's activations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<u32>,
    /// Decision of the person.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// A word to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// True to say no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reject: bool,
}

/// Run again what failed. What depends on a node that runs again starts afresh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryCommand {
    /// The execution.
    pub execution: ExecutionId,
    /// The nodes to run again, beside those that were cancelled; all that failed, too, when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// These nodes and no others: what else failed or was cancelled stays as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    /// Input that replaces the input of the one node. Without a node it replaces the input of the execution, which then
    /// begins anew.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Why, for people.
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
    /// Reads the body of this operation, whose subject ends with `id`.
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

    /// The body.
    pub fn to_json(&self) -> String {
        // Serialising plain data with text keys cannot fail.
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

    /// The execution it is about.
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

    /// Sizes, and fields that depend on each other; what a sender checks too.
    pub fn check(&self) -> Result<(), BadCommand> {
        match self {
            Self::Start(body) => self.check_start(body),
            Self::Cancel(CancelCommand { reason, .. }) | Self::Pause(PauseCommand { reason, .. }) => {
                self.most("reason", reason, MAX_TEXT)
            }
            Self::Resume(_) => Ok(()),
            Self::Approve(body) => {
                self.most("node", body.node.as_deref().unwrap_or_default(), MAX_TEXT)?;
                self.most("comment", body.comment.as_deref().unwrap_or_default(), MAX_TEXT)
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

/// Tells null, which is an input, from nothing.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
