//! Builder and parser of all subjects of the mesh: `{namespace}.v1.{kind}.…`.
//!
//! Names of users and agents become tokens ([`Token::of`]) and are never inserted into a subject
//! unencoded.

use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{ActivationKey, ExecutionId, ResultToken, TaskId, Token, is_token};

/// Default namespace of a mesh.
pub const DEFAULT_NAMESPACE: &str = "sinew";
/// Default number of shards of a mesh.
pub const DEFAULT_SHARDS: NonZeroU32 = NonZeroU32::new(4).unwrap();

/// Last token of control messages that stop or resume the intake of an agent's processes, in place of
/// a task.
pub const INTAKE_CONTROL: &str = "intake";

/// Kinds of subjects in metrics; all others are `other`, to bound the number of label values.
pub const COUNTED_SUBJECT_KINDS: [&str; 21] = [
    "access",
    "artifact",
    "card",
    "command",
    "control",
    "event",
    "history",
    "journal",
    "node",
    "progress",
    "push",
    "quarantine",
    "query",
    "replica",
    "result",
    "rpc",
    "start",
    "step",
    "task",
    "workflow",
    "other",
];

/// Operation that a command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Start an execution.
    Start,
    /// Cancel an execution.
    Cancel,
    /// Pause an execution: dispatch no new tasks.
    Pause,
    /// Resume an execution.
    Resume,
    /// Answer a question of a waiting activation.
    Approve,
    /// Retry failed activations.
    Retry,
    /// Record that a callee waits for a person, or no longer does. Sent by executors, with a proof.
    Wait,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 7] =
        [Self::Start, Self::Cancel, Self::Pause, Self::Resume, Self::Approve, Self::Retry, Self::Wait];

    /// Returns the name of the operation in the subject.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Approve => "approve",
            Self::Retry => "retry",
            Self::Wait => "wait",
        }
    }

    /// Parses the name of an operation.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == word)
    }
}

/// Subject of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the tokens of the table below")]
pub enum Subject {
    /// Commits of a shard.
    Journal { shard: u32 },
    /// Record of a closed execution.
    History { execution: ExecutionId },
    /// Command to the owner of a shard; `id` makes it write-once, publish permissions authenticate
    /// the caller.
    Command { shard: u32, operation: Operation, caller: Token, id: Token },
    /// Start by request and reply, answered once it is stored; `id` is that of the execution, and
    /// publish permissions authenticate the caller.
    Start { shard: u32, caller: Token, id: Token },
    /// Task for an agent.
    Task { agent: Token, execution: ExecutionId, task: TaskId },
    /// Result of a task.
    Result { shard: u32, agent: Token, execution: ExecutionId, task: TaskId, token: ResultToken },
    /// Event of an execution.
    Event { workflow: Token, execution: ExecutionId, kind: Token },
    /// Card of an agent.
    Card { agent: Token },
    /// A2A operation of an agent; the last token is the caller, which publish permissions
    /// authenticate.
    Rpc { agent: Token, method: Token, caller: Token },
    /// Task for an agent by request and reply; only executors may publish to it, so it contains no
    /// caller.
    Node { agent: Token },
    /// Streaming status of a task.
    Progress { execution: ExecutionId, task: TaskId },
    /// Control message to the agent replica that owns a task.
    Control { agent: Token, task: TaskId },
    /// Message between the processes of an agent: to one of them, or to all.
    Replica { agent: Token, process: Token },
    /// Query to the owner of a shard.
    Query { shard: u32 },
    /// Deployed versions of a workflow; the last message is the latest.
    Workflow { name: Token },
    /// Quarantined message, by its original stream and sequence.
    Quarantine { stream: Token, seq: u64 },
    /// Completed step of an agent in an activation, by its position in the log of the activation,
    /// counted from 0.
    Step { agent: Token, execution: ExecutionId, activation: ActivationKey, place: u64 },
    /// Record of the gateways: a key or its last use, a webhook trigger, a shared secret, or an entry
    /// of the catalogue.
    Access { kind: AccessKind, id: Token },
    /// Webhook of an external program for a task; `id` is the one that the program chose.
    Push { agent: Token, task: Token, id: Token },
    /// Encrypted piece of an object. Both tokens are derived from secrets: the execution, and the
    /// key of the object.
    Artifact { group: Token, piece: Token },
}

/// Kind of a record of the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// Key of a program or a person.
    Key,
    /// Trigger that starts executions for third-party requests.
    Hook,
    /// Secret that gateways create and share.
    Secret,
    /// Last use of a key.
    Use,
    /// What administrators set for an entry of the catalogue.
    Entry,
}

impl AccessKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Key, Self::Hook, Self::Secret, Self::Use, Self::Entry];

    /// Returns the name of the kind in the subject.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Hook => "hook",
            Self::Secret => "secret",
            Self::Use => "use",
            Self::Entry => "entry",
        }
    }

    /// Parses the name of a kind.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Kinds of subjects for the documentation: the pattern after `{ns}.v1.`, and its messages.
pub const TABLE: [(&str, &str); 20] = [
    ("journal.{shard}", "facts, the source of truth"),
    ("history.{execution}", "all facts of a closed execution"),
    ("command.{shard}.{operation}.{caller}.{id}", "start, cancel, pause, resume, approve, retry, wait"),
    ("start.{shard}.{caller}.{id}", "starts, request and reply; answered after they are stored"),
    ("task.{agent}.{execution}.{task}", "pending tasks of an agent"),
    ("result.{shard}.{agent}.{execution}.{task}.{token}", "pending results for the owner of the shard"),
    ("event.{workflow}.{execution}.{kind}", "events for operators, live and replayable"),
    ("card.{agent}", "agent cards, republished as heartbeats; an agent without a card is offline"),
    ("rpc.{agent}.{method}.{caller}", "A2A operations, request and reply"),
    ("node.{agent}", "tasks of executions, request and reply"),
    ("progress.{execution}.{task}", "streaming status"),
    ("control.{agent}.{task}", "cancellation, to the replica that owns the task"),
    (
        "replica.{agent}.{process}",
        "among the processes of an agent: who holds a task, and calls for the one that does",
    ),
    ("query.{shard}", "queries to the owner of a shard"),
    ("workflow.{name}", "deployed versions of workflows, newest last"),
    ("quarantine.{stream}.{seq}", "quarantined messages"),
    ("step.{agent}.{execution}.{activation}.{place}", "steps of an activation"),
    ("access.{kind}.{id}", "keys with their last use, webhook triggers and secrets of gateways"),
    ("push.{agent}.{task}.{id}", "webhooks of external programs that receive the events of a task"),
    ("artifact.{group}.{piece}", "encrypted pieces of artifacts, under unguessable subjects"),
];

impl Subject {
    /// Returns the subject in this namespace.
    ///
    /// ```
    /// # use sinew_protocol::{Subject, Token};
    /// assert_eq!(Subject::Card { agent: Token::of("reviewer") }.name("prod"), "prod.v1.card.reviewer");
    /// ```
    pub fn name(&self, namespace: &str) -> String {
        let number = |shard: &u32| shard.to_string();
        match self {
            Self::Journal { shard } => join(namespace, &["journal", &number(shard)]),
            Self::History { execution } => join(namespace, &["history", execution.as_str()]),
            Self::Command { shard, operation, caller, id } => join(
                namespace,
                &["command", &number(shard), operation.as_str(), caller.as_str(), id.as_str()],
            ),
            Self::Start { shard, caller, id } => {
                join(namespace, &["start", &number(shard), caller.as_str(), id.as_str()])
            }
            Self::Task { agent, execution, task } => {
                join(namespace, &["task", agent.as_str(), execution.as_str(), task.as_str()])
            }
            Self::Result { shard, agent, execution, task, token } => join(
                namespace,
                &[
                    "result",
                    &number(shard),
                    agent.as_str(),
                    execution.as_str(),
                    task.as_str(),
                    token.as_str(),
                ],
            ),
            Self::Event { workflow, execution, kind } => {
                join(namespace, &["event", workflow.as_str(), execution.as_str(), kind.as_str()])
            }
            Self::Card { agent } => join(namespace, &["card", agent.as_str()]),
            Self::Rpc { agent, method, caller } => {
                join(namespace, &["rpc", agent.as_str(), method.as_str(), caller.as_str()])
            }
            Self::Node { agent } => join(namespace, &["node", agent.as_str()]),
            Self::Progress { execution, task } => {
                join(namespace, &["progress", execution.as_str(), task.as_str()])
            }
            Self::Control { agent, task } => join(namespace, &["control", agent.as_str(), task.as_str()]),
            Self::Replica { agent, process } => {
                join(namespace, &["replica", agent.as_str(), process.as_str()])
            }
            Self::Query { shard } => join(namespace, &["query", &number(shard)]),
            Self::Workflow { name } => join(namespace, &["workflow", name.as_str()]),
            Self::Quarantine { stream, seq } => {
                join(namespace, &["quarantine", stream.as_str(), &seq.to_string()])
            }
            Self::Step { agent, execution, activation, place } => join(
                namespace,
                &["step", agent.as_str(), execution.as_str(), activation.as_str(), &place.to_string()],
            ),
            Self::Access { kind, id } => join(namespace, &["access", kind.as_str(), id.as_str()]),
            Self::Push { agent, task, id } => {
                join(namespace, &["push", agent.as_str(), task.as_str(), id.as_str()])
            }
            Self::Artifact { group, piece } => join(namespace, &["artifact", group.as_str(), piece.as_str()]),
        }
    }

    /// Parses a subject of this namespace; returns `None` for any other.
    pub fn parse(namespace: &str, subject: &str) -> Option<Self> {
        let rest = subject.strip_prefix(Token::of(namespace).as_str())?.strip_prefix(".v1.")?;
        let tokens: Vec<&str> = rest.split('.').collect();
        if !tokens.iter().all(|token| is_token(token)) {
            return None;
        }
        let token = |text: &str| Token::parse(text).ok();
        let execution = |text: &str| ExecutionId::parse(text).ok();
        let task = |text: &str| TaskId::parse(text).ok();
        Some(match tokens.as_slice() {
            ["journal", shard] => Self::Journal { shard: number(shard)? },
            ["history", eid] => Self::History { execution: execution(eid)? },
            ["command", shard, operation, caller, id] => Self::Command {
                shard: number(shard)?,
                operation: Operation::parse(operation)?,
                caller: token(caller)?,
                id: token(id)?,
            },
            ["start", shard, caller, id] => {
                Self::Start { shard: number(shard)?, caller: token(caller)?, id: token(id)? }
            }
            ["task", agent, eid, stid] => {
                Self::Task { agent: token(agent)?, execution: execution(eid)?, task: task(stid)? }
            }
            ["result", shard, agent, eid, stid, proof] => Self::Result {
                shard: number(shard)?,
                agent: token(agent)?,
                execution: execution(eid)?,
                task: task(stid)?,
                token: ResultToken::parse(proof).ok()?,
            },
            ["event", workflow, eid, kind] => {
                Self::Event { workflow: token(workflow)?, execution: execution(eid)?, kind: token(kind)? }
            }
            ["card", agent] => Self::Card { agent: token(agent)? },
            ["rpc", agent, method, caller] => {
                Self::Rpc { agent: token(agent)?, method: token(method)?, caller: token(caller)? }
            }
            ["node", agent] => Self::Node { agent: token(agent)? },
            ["progress", eid, stid] => Self::Progress { execution: execution(eid)?, task: task(stid)? },
            ["control", agent, stid] => Self::Control { agent: token(agent)?, task: task(stid)? },
            ["replica", agent, process] => Self::Replica { agent: token(agent)?, process: token(process)? },
            ["query", shard] => Self::Query { shard: number(shard)? },
            ["workflow", name] => Self::Workflow { name: token(name)? },
            ["quarantine", stream, seq] => Self::Quarantine { stream: token(stream)?, seq: number(seq)? },
            ["step", agent, eid, activation, place] => Self::Step {
                agent: token(agent)?,
                execution: execution(eid)?,
                activation: ActivationKey::parse(activation).ok()?,
                place: number(place)?,
            },
            ["access", kind, id] => Self::Access { kind: AccessKind::parse(kind)?, id: token(id)? },
            ["push", agent, task, id] => {
                Self::Push { agent: token(agent)?, task: token(task)?, id: token(id)? }
            }
            ["artifact", group, piece] => Self::Artifact { group: token(group)?, piece: token(piece)? },
            _ => return None,
        })
    }
}

/// Returns the pattern of all subjects that start with these tokens: `{namespace}.v1.{tokens}.>`.
/// The tokens must be valid.
pub fn below(namespace: &str, tokens: &[&str]) -> String {
    format!("{}.>", join(namespace, tokens))
}

fn join(namespace: &str, tokens: &[&str]) -> String {
    format!("{}.v1.{}", Token::of(namespace), tokens.join("."))
}

/// Parses a number, only in the form that [`Subject::name`] writes.
fn number<N: FromStr + ToString>(text: &str) -> Option<N> {
    text.parse().ok().filter(|number: &N| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResultKey;

    fn all() -> Vec<Subject> {
        let execution = ExecutionId::of("ns", "caller", "key");
        let activation = ActivationKey::of::<&str>(&execution, "node", &[], 0);
        let task = TaskId::of(&execution, &activation, 1);
        let token = ResultToken::of(&ResultKey::new([0; 32]), &task);
        let agent = Token::of("order reviewer");
        let kind = Token::of("node_started");
        vec![
            Subject::Journal { shard: 3 },
            Subject::History { execution: execution.clone() },
            Subject::Command {
                shard: 3,
                operation: Operation::Start,
                caller: Token::of("cli"),
                id: Token::of("k"),
            },
            Subject::Start { shard: 3, caller: Token::of("cli"), id: Token::of("k") },
            Subject::Task { agent: agent.clone(), execution: execution.clone(), task: task.clone() },
            Subject::Result {
                shard: 15,
                agent: agent.clone(),
                execution: execution.clone(),
                task: task.clone(),
                token,
            },
            Subject::Event { workflow: agent.clone(), execution: execution.clone(), kind },
            Subject::Card { agent: agent.clone() },
            Subject::Rpc { agent: agent.clone(), method: Token::of("SendMessage"), caller: Token::of("cli") },
            Subject::Node { agent: agent.clone() },
            Subject::Progress { execution: execution.clone(), task: task.clone() },
            Subject::Control { agent: agent.clone(), task },
            Subject::Replica { agent: agent.clone(), process: Token::of("all") },
            Subject::Query { shard: 0 },
            Subject::Workflow { name: Token::of("order intake") },
            Subject::Quarantine { stream: Token::of("RESULTS"), seq: u64::MAX },
            Subject::Step { agent: agent.clone(), execution: execution.clone(), activation, place: 0 },
            Subject::Access { kind: AccessKind::Key, id: Token::of("k") },
            Subject::Push { agent, task: Token::of(execution.as_str()), id: Token::of("own") },
            Subject::Artifact { group: Token::of("g"), piece: Token::of("p") },
        ]
    }

    #[test]
    fn subjects_read_back_and_match_the_table() {
        for (subject, (pattern, _)) in all().into_iter().zip(TABLE) {
            let name = subject.name("my mesh");
            assert_eq!(Subject::parse("my mesh", &name), Some(subject), "{name}");
            let (tokens, pattern) =
                (name.split('.').skip(2).collect::<Vec<_>>(), pattern.split('.').collect::<Vec<_>>());
            assert_eq!(tokens.len(), pattern.len(), "{name}");
            assert_eq!(tokens[0], pattern[0]);
            assert!(name.len() < 300, "{name} leaves too little of a control line for a reply subject");
        }
        assert_eq!(all().len(), TABLE.len());
    }

    #[test]
    fn other_subjects_mean_nothing() {
        for subject in [
            "ns.v1.card",
            "ns.v1.card.a.b",
            "ns.v1.card.*",
            "ns.v1.card.>",
            "ns.v1.card.",
            "ns.v2.card.a",
            "other.v1.card.a",
            "ns.v1.journal.03",
            "ns.v1.journal.x",
            "ns.v1.command.1.destroy.c.k",
            "ns.v1.command.1.start.k",
            "ns.v1.quarantine.RESULTS.01",
            "ns.v1.step.a.e.k.00",
            "ns.v1.step.a.e.k.-1",
            "ns.v1.quarantine.RESULTS.18446744073709551616",
            "nsx.v1.card.a",
        ] {
            assert_eq!(Subject::parse("ns", subject), None, "{subject}");
        }
    }

    #[test]
    fn a_name_cannot_reach_into_other_subjects() {
        let name = Subject::Card { agent: Token::of("a.>") }.name("ns.*");
        assert_eq!(name, "__xnzzs4kq.v1.card.__xmexd4");
        assert_eq!(below("ns", &["task", "a"]), "ns.v1.task.a.>");
    }
}
