//! Contents of a shard's journal and of the history, as plain data next to its protobuf
//! (`proto/sinew/v1/journal.proto`).
//!
//! Rounds are opaque bytes, because only the engine decodes facts. Decoding is strict about ids and
//! kinds, and ignores unknown fields.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::BadMessage;
use crate::pb;
use crate::person_wait::CallingRef;
use crate::subject::Operation;
use crate::{ExecutionId, TaskId, Token};

/// Message of a shard's journal: inputs up to `positions` and all facts that follow from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Executor that wrote the commit.
    pub owner: Token,
    /// Positions up to which commands and results are included in the journal after this commit.
    pub positions: Positions,
    /// One entry per execution with new facts or verdicts.
    pub entries: Vec<Entry>,
}

/// Sequences in the input streams of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Positions {
    /// Sequence in COMMANDS.
    pub commands: u64,
    /// Sequence in RESULTS.
    pub results: u64,
    /// Creation time of COMMANDS, in milliseconds since 1970 UTC; 0 if unknown.
    pub commands_created: u64,
    /// Creation time of RESULTS, in milliseconds since 1970 UTC; 0 if unknown.
    pub results_created: u64,
    /// Storage time of the message at the position in COMMANDS, in milliseconds since 1970 UTC; 0
    /// if unknown.
    pub commands_stored: u64,
    /// Storage time of the message at the position in RESULTS, in milliseconds since 1970 UTC; 0 if
    /// unknown.
    pub results_stored: u64,
}

impl Positions {
    /// Returns positions in streams with unknown creation times.
    pub const fn at(commands: u64, results: u64) -> Self {
        Self {
            commands,
            results,
            commands_created: 0,
            results_created: 0,
            commands_stored: 0,
            results_stored: 0,
        }
    }
}

/// One execution's part of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The execution.
    pub execution: ExecutionId,
    /// Present only in the first entry of an execution and in checkpoints.
    pub meta: Option<ExecutionMeta>,
    /// Encoded rounds, in order.
    pub rounds: Vec<Bytes>,
    /// Verdicts on commands.
    pub commands: Vec<Verdict>,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Present when the owner stops processing the execution; a checkpoint without a hold ends the hold.
    pub hold: Option<ExecutionHold>,
}

/// Reason why no owner processes an execution until an operator resumes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionHold {
    /// Operator code.
    pub code: String,
    /// Explanation for people.
    pub reason: String,
}

/// Kind of a journal entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// New rounds, or only verdicts.
    Rounds,
    /// All rounds of an open execution, repeated so that older messages can be purged.
    Checkpoint,
    /// The execution is archived and its caller answered; the shard removes its state.
    Closed,
}

/// Outcome of a command. Also the body of the event `command`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Id of the command.
    #[schemars(with = "String")]
    pub id: Token,
    /// Operation of the command.
    #[schemars(with = "String")]
    pub op: Operation,
    /// Caller of the command.
    #[schemars(with = "String")]
    pub caller: Token,
    /// Whether the command was accepted.
    pub accepted: bool,
    /// Why the command was rejected. Absent if it was accepted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Constant properties of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionMeta {
    /// The execution.
    pub execution: ExecutionId,
    /// Name of the workflow.
    pub workflow: String,
    /// Dialect of the workflow.
    pub dialect: String,
    /// Digest of the plan.
    pub plan: String,
    /// Caller who started it: the token in the command's subject.
    pub caller: Token,
    /// User on whose behalf the execution runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Settings of that user for the request, or null.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub user_config: Value,
    /// The session (A2A context).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Labels by which lists can be filtered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Time at which the command was accepted, milliseconds since 1970 UTC.
    pub created: u64,
    /// Task that this execution answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// W3C trace context of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Digest of the requested work
    /// ([`StartCommand::digest`](crate::command::StartCommand::digest)); `None` in journals of
    /// older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_digest: Option<String>,
    /// Task of another execution that requested the start, if this execution does not answer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calling: Option<CallingRef>,
    /// Idempotency key of the start. `None` without one, and in journals of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Conversation of the execution whose task started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
}

/// Conversation that the agents of an execution remember. Agents of called workflows belong to the
/// conversation of the execution that called them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// The A2A context that the caller named.
    pub context_id: String,
    /// Caller that started the first execution.
    pub caller: String,
    /// User on whose behalf it runs.
    pub user: String,
}

impl ExecutionMeta {
    /// Returns the conversation of the execution: the own one, or that of the calling execution.
    /// `None` if the first caller named no context. The context of a start by a task is not used:
    /// its caller is an executor or an agent, for which many people can use the same context.
    pub fn conversation(&self) -> Option<Conversation> {
        if self.caller_task().is_some() || self.session.is_empty() {
            return self.conversation.clone();
        }
        Some(Conversation {
            context_id: self.session.clone(),
            caller: self.caller.to_string(),
            user: self.on_behalf_of().to_owned(),
        })
    }

    /// Returns the user on whose behalf the execution runs: that of its conversation, else the named
    /// one, else its caller.
    pub fn on_behalf_of(&self) -> &str {
        match &self.conversation {
            Some(conversation) => &conversation.user,
            None if self.user.is_empty() => self.caller.as_str(),
            None => &self.user,
        }
    }

    /// Returns the task that this execution works for: the one that it answers, or the one that
    /// requested the start.
    pub fn caller_task(&self) -> Option<(&ExecutionId, &TaskId)> {
        let parent = self.parent.as_ref().map(|parent| (&parent.execution, &parent.task));
        parent.or_else(|| self.calling.as_ref().map(|calling| (&calling.execution, &calling.task)))
    }
}

/// Task of another execution that an execution answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParentRef {
    /// Execution of the task.
    pub execution: ExecutionId,
    /// Id of the task.
    pub task: TaskId,
    /// Subject to which the result of the task is published.
    pub result_subject: String,
    /// Name to which the task was sent: the name of the workflow.
    pub agent: String,
}

/// Complete record of an execution: the body of the history and of an owner's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionRecord {
    /// Constant properties.
    pub meta: ExecutionMeta,
    /// Encoded rounds, in order.
    pub rounds: Vec<Bytes>,
    /// Verdicts on commands.
    pub commands: Vec<Verdict>,
    /// Present while no owner processes the execution.
    pub hold: Option<ExecutionHold>,
}

impl Commit {
    /// Encodes the commit (`sinew.v1.Commit`).
    pub fn encode(&self) -> Bytes {
        let wire = pb::Commit {
            owner: self.owner.to_string(),
            positions: Some(pb::Positions {
                commands: self.positions.commands,
                results: self.positions.results,
                commands_created: self.positions.commands_created,
                results_created: self.positions.results_created,
                commands_stored: self.positions.commands_stored,
                results_stored: self.positions.results_stored,
            }),
            entries: self.entries.iter().map(Into::into).collect(),
        };
        wire.encode_to_vec().into()
    }

    /// Decodes a commit (`sinew.v1.Commit`).
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let wire = pb::Commit::decode(bytes).map_err(unreadable)?;
        let wired = wire.positions.unwrap_or_default();
        let positions = Positions {
            commands: wired.commands,
            results: wired.results,
            commands_created: wired.commands_created,
            results_created: wired.results_created,
            commands_stored: wired.commands_stored,
            results_stored: wired.results_stored,
        };
        Ok(Self {
            owner: token("owner", &wire.owner)?,
            positions,
            entries: wire.entries.into_iter().map(Entry::try_from).collect::<Result<_, _>>()?,
        })
    }
}

impl Entry {
    /// Creates an entry with new rounds of a known execution.
    pub fn rounds(execution: ExecutionId, rounds: Vec<Bytes>) -> Self {
        Self { execution, meta: None, rounds, commands: Vec::new(), kind: EntryKind::Rounds, hold: None }
    }

    /// Creates an entry that closes an execution in this shard.
    pub fn closed(execution: ExecutionId) -> Self {
        Self { kind: EntryKind::Closed, ..Self::rounds(execution, Vec::new()) }
    }

    /// Creates an entry with the complete record of an open execution.
    pub fn checkpoint(record: ExecutionRecord) -> Self {
        Self {
            execution: record.meta.execution.clone(),
            meta: Some(record.meta),
            rounds: record.rounds,
            commands: record.commands,
            kind: EntryKind::Checkpoint,
            hold: record.hold,
        }
    }

    /// Returns an upper estimate of the size in a commit, in bytes.
    pub fn size(&self) -> usize {
        pb::Entry::from(self).encoded_len() + 8
    }
}

impl ExecutionRecord {
    /// Returns the number of rounds and verdicts, which never decreases.
    pub fn entry_count(&self) -> u64 {
        (self.rounds.len() + self.commands.len()) as u64
    }

    /// Returns the size of all rounds in bytes, which dominates the size of a large record.
    pub fn round_bytes(&self) -> usize {
        self.rounds.iter().map(Bytes::len).sum()
    }

    /// Encodes the record (`sinew.v1.ExecutionRecord`).
    pub fn encode(&self) -> Bytes {
        let wire = pb::ExecutionRecord {
            meta: Some((&self.meta).into()),
            rounds: self.rounds.clone(),
            commands: self.commands.iter().map(Into::into).collect(),
            hold: self.hold.as_ref().map(Into::into),
        };
        wire.encode_to_vec().into()
    }

    /// Decodes a record (`sinew.v1.ExecutionRecord`).
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let wire = pb::ExecutionRecord::decode(bytes).map_err(unreadable)?;
        Ok(Self {
            meta: wire.meta.ok_or_else(|| bad("meta", "missing"))?.try_into()?,
            rounds: wire.rounds,
            commands: wire.commands.into_iter().map(Verdict::try_from).collect::<Result<_, _>>()?,
            hold: wire.hold.map(Into::into),
        })
    }
}

impl From<&ExecutionHold> for pb::ExecutionHold {
    fn from(hold: &ExecutionHold) -> Self {
        Self { code: hold.code.clone(), reason: hold.reason.clone() }
    }
}

impl From<pb::ExecutionHold> for ExecutionHold {
    fn from(wire: pb::ExecutionHold) -> Self {
        Self { code: wire.code, reason: wire.reason }
    }
}

impl From<&Entry> for pb::Entry {
    fn from(entry: &Entry) -> Self {
        let kind = match entry.kind {
            EntryKind::Rounds => pb::EntryKind::Rounds,
            EntryKind::Checkpoint => pb::EntryKind::Checkpoint,
            EntryKind::Closed => pb::EntryKind::Closed,
        };
        Self {
            execution_id: entry.execution.to_string(),
            meta: entry.meta.as_ref().map(Into::into),
            rounds: entry.rounds.clone(),
            commands: entry.commands.iter().map(Into::into).collect(),
            kind: kind.into(),
            hold: entry.hold.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<pb::Entry> for Entry {
    type Error = BadMessage;

    fn try_from(wire: pb::Entry) -> Result<Self, BadMessage> {
        // An entry of unknown kind is rejected, because its effect on the execution is unknown.
        let kind = match wire.kind() {
            pb::EntryKind::Rounds => EntryKind::Rounds,
            pb::EntryKind::Checkpoint => EntryKind::Checkpoint,
            pb::EntryKind::Closed => EntryKind::Closed,
            pb::EntryKind::Unspecified => return Err(bad("kind", &format!("{} is none", wire.kind))),
        };
        let execution = execution("execution_id", &wire.execution_id)?;
        let meta = wire.meta.map(ExecutionMeta::try_from).transpose()?;
        if meta.as_ref().is_some_and(|meta| meta.execution != execution) {
            return Err(bad("meta", "is of another execution"));
        }
        if kind == EntryKind::Checkpoint && meta.is_none() {
            return Err(bad("meta", "missing on a checkpoint"));
        }
        let commands = wire.commands.into_iter().map(Verdict::try_from).collect::<Result<_, _>>()?;
        let hold = wire.hold.map(Into::into);
        Ok(Self { execution, meta, rounds: wire.rounds, commands, kind, hold })
    }
}

impl From<&Verdict> for pb::CommandVerdict {
    fn from(verdict: &Verdict) -> Self {
        Self {
            id: verdict.id.to_string(),
            op: verdict.op.as_str().to_owned(),
            caller: verdict.caller.to_string(),
            accepted: verdict.accepted,
            reason: verdict.reason.clone(),
        }
    }
}

impl TryFrom<pb::CommandVerdict> for Verdict {
    type Error = BadMessage;

    fn try_from(wire: pb::CommandVerdict) -> Result<Self, BadMessage> {
        Ok(Self {
            id: token("id", &wire.id)?,
            op: Operation::parse(&wire.op).ok_or_else(|| bad("op", "unknown"))?,
            caller: token("caller", &wire.caller)?,
            accepted: wire.accepted,
            reason: wire.reason,
        })
    }
}

impl From<&ExecutionMeta> for pb::ExecutionMeta {
    fn from(meta: &ExecutionMeta) -> Self {
        Self {
            execution: meta.execution.to_string(),
            workflow: meta.workflow.clone(),
            dialect: meta.dialect.clone(),
            plan: meta.plan.clone(),
            caller: meta.caller.to_string(),
            user: meta.user.clone(),
            user_config_json: match &meta.user_config {
                Value::Null => Bytes::new(),
                config => config.to_string().into(),
            },
            session: meta.session.clone(),
            labels: meta.labels.clone(),
            created: meta.created,
            parent: meta.parent.as_ref().map(|parent| pb::ParentRef {
                execution: parent.execution.to_string(),
                task: parent.task.to_string(),
                result_subject: parent.result_subject.clone(),
                agent: parent.agent.clone(),
            }),
            traceparent: meta.traceparent.clone().unwrap_or_default(),
            start_digest: meta.start_digest.clone().unwrap_or_default(),
            calling: meta.calling.as_ref().map(|calling| pb::CallingRef {
                execution: calling.execution.to_string(),
                task: calling.task.to_string(),
            }),
            idempotency_key: meta.idempotency_key.clone().unwrap_or_default(),
            conversation: meta.conversation.as_ref().map(|conversation| pb::Conversation {
                context_id: conversation.context_id.clone(),
                caller: conversation.caller.clone(),
                user: conversation.user.clone(),
            }),
        }
    }
}

impl TryFrom<pb::ExecutionMeta> for ExecutionMeta {
    type Error = BadMessage;

    fn try_from(wire: pb::ExecutionMeta) -> Result<Self, BadMessage> {
        let parent = wire.parent.map(|parent| {
            Ok(ParentRef {
                execution: execution("parent.execution", &parent.execution)?,
                task: TaskId::parse(&parent.task).map_err(|e| bad("parent.task", &e.to_string()))?,
                result_subject: parent.result_subject,
                agent: parent.agent,
            })
        });
        let calling = wire.calling.map(|calling| {
            Ok::<_, BadMessage>(CallingRef {
                execution: execution("calling.execution", &calling.execution)?,
                task: TaskId::parse(&calling.task).map_err(|e| bad("calling.task", &e.to_string()))?,
            })
        });
        Ok(Self {
            execution: execution("execution", &wire.execution)?,
            workflow: wire.workflow,
            dialect: wire.dialect,
            plan: wire.plan,
            caller: token("caller", &wire.caller)?,
            user: wire.user,
            user_config: match &*wire.user_config_json {
                [] => Value::Null,
                bytes => serde_json::from_slice(bytes).map_err(|e| bad("user_config", &e.to_string()))?,
            },
            session: wire.session,
            labels: wire.labels,
            created: wire.created,
            parent: parent.transpose()?,
            traceparent: Some(wire.traceparent).filter(|trace| !trace.is_empty()),
            start_digest: Some(wire.start_digest).filter(|digest| !digest.is_empty()),
            calling: calling.transpose()?,
            idempotency_key: Some(wire.idempotency_key).filter(|key| !key.is_empty()),
            conversation: wire.conversation.map(|conversation| Conversation {
                context_id: conversation.context_id,
                caller: conversation.caller,
                user: conversation.user,
            }),
        })
    }
}

fn execution(field: &str, text: &str) -> Result<ExecutionId, BadMessage> {
    ExecutionId::parse(text).map_err(|e| bad(field, &e.to_string()))
}

fn token(field: &str, text: &str) -> Result<Token, BadMessage> {
    Token::parse(text).map_err(|e| bad(field, &e.to_string()))
}

fn unreadable(error: impl std::fmt::Display) -> BadMessage {
    BadMessage::Bytes(error.to_string())
}

fn bad(field: &str, reason: &str) -> BadMessage {
    BadMessage::Field { kind: "journal".to_owned(), reason: format!("{field}: {reason}") }
}
