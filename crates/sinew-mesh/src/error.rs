//! Errors between this process and the broker.

use sinew_protocol::code;
use std::path::PathBuf;

use sinew_protocol::Fault;
use sinew_protocol::artifact::BadArtifact;

use crate::card_check::BadCard;
use crate::version::{OLDEST, Version};

/// An error of the mesh.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// The broker was unreachable or did not respond in time. The operation may have been
    /// performed.
    #[error("the NATS server did not respond ({what}): {reason}")]
    Unreachable {
        /// Operation that failed.
        what: &'static str,
        /// Error of the client library.
        reason: String,
    },
    /// The broker refused the request.
    #[error("the NATS server refused the request ({what}): {reason}")]
    Refused {
        /// Operation that failed.
        what: &'static str,
        /// Error of the server.
        reason: String,
    },
    /// The disk of the broker, the account or the stream is full. Nothing was stored.
    #[error("the NATS server has no space left ({what}): {reason}")]
    NoRoom {
        /// Operation that failed.
        what: &'static str,
        /// Error of the server.
        reason: String,
    },
    /// No suitable nats-server program was found.
    #[error("no nats-server {OLDEST} or newer was found; install one with deploy/get-nats.sh{}", looked_at(.seen))]
    NoServer {
        /// Programs that were tried, each with the reason for its rejection.
        seen: String,
    },
    /// The server is older than the oldest supported version.
    #[error("{what} is nats-server {version}; Sinew needs {OLDEST} or newer")]
    OldServer {
        /// The program or address.
        what: String,
        /// Its version.
        version: Version,
    },
    /// The managed server did not start, or cannot be signalled.
    #[error("the managed nats-server failed: {reason}")]
    ServerFailed {
        /// Description, with the end of the server's log.
        reason: String,
    },
    /// No server accepts connections at the address.
    #[error("cannot connect to a NATS server at {address}: {reason}")]
    NothingListens {
        /// The address without its secrets.
        address: String,
        /// Error of the client library.
        reason: String,
    },
    /// The server does not accept the credentials.
    #[error("the NATS server at {address} rejected the credentials: {reason}")]
    NotAllowed {
        /// The address without its secrets.
        address: String,
        /// Error of the client library.
        reason: String,
    },
    /// The user lacks the right to do this.
    #[error("{user} is not permitted to {verb} {subject}: {takes}")]
    Forbidden {
        /// Caller of the connection.
        user: String,
        /// Refused operation on the subject.
        verb: &'static str,
        /// The subject.
        subject: String,
        /// Roles that have the right.
        takes: String,
    },
    /// A context of the `nats` command line is unusable.
    #[error("NATS context {name}: {reason}")]
    BadContext {
        /// Its name.
        name: String,
        /// Defect of the context.
        reason: String,
    },
    /// JetStream is not enabled for the server or the account.
    #[error("JetStream is not enabled at {address}: {reason}")]
    NoJetStream {
        /// The address without its secrets.
        address: String,
        /// Error of the server.
        reason: String,
    },
    /// A connection setting is unusable.
    #[error("{setting}: {reason}")]
    BadSetting {
        /// Name of the setting on the command line or in the environment.
        setting: &'static str,
        /// Defect of the setting; never its value if that is secret.
        reason: String,
    },
    /// The streams of this mesh do not exist.
    #[error("the mesh {namespace} is not provisioned on this server; run `sinew mesh provision`")]
    NotProvisioned {
        /// The namespace.
        namespace: String,
    },
    /// Streams or settings on the server differ from the required ones.
    #[error("the mesh {namespace} is not set up as required: {differences}")]
    Differs {
        /// The namespace.
        namespace: String,
        /// Every difference.
        differences: String,
    },
    /// The number of shards of a mesh cannot be changed.
    #[error("the mesh {namespace} has {have} shards, which cannot be changed to {asked}")]
    ShardsFixed {
        /// The namespace.
        namespace: String,
        /// Number of shards of the mesh.
        have: u32,
        /// Requested number of shards.
        asked: u32,
    },
    /// Another server uses the same files.
    #[error("the store {} is in use by another nats-server", store.display())]
    StoreInUse {
        /// The folder.
        store: PathBuf,
    },
    /// A journal was not read to its end, or the outcome of its last append is unknown.
    #[error("the journal of shard {shard} must be read to its end before it is written to")]
    JournalUnread {
        /// The shard.
        shard: u32,
    },
    /// A subject is unsuitable for the operation.
    #[error("{subject} is not {expected}")]
    WrongSubject {
        /// The rejected subject.
        subject: String,
        /// Form of a valid subject.
        expected: &'static str,
    },
    /// A card violates a rule.
    #[error("the card of agent {agent} is rejected: {reason}")]
    BadCard {
        /// The agent's token in the subject.
        agent: String,
        /// The rule it breaks.
        reason: BadCard,
    },
    /// An artifact's name, address or content is invalid.
    #[error(transparent)]
    Artifact(#[from] BadArtifact),
    /// No object with this name exists.
    #[error("{what} {id} not found")]
    NotFound {
        /// The kind of thing.
        what: &'static str,
        /// Its name.
        id: String,
    },
    /// Stored bytes differ from the digest in their name.
    #[error("{what} {id} is damaged: {reason}")]
    Damaged {
        /// The kind of thing.
        what: &'static str,
        /// Its name.
        id: String,
        /// The detected damage.
        reason: String,
    },
    /// The size exceeds the limit.
    #[error("{what} has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// The kind of thing.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A task has as many steps as its log can hold.
    #[error("the task has more than {limit} steps")]
    TooManySteps {
        /// The limit.
        limit: u64,
    },
    /// The end of a stream was lost in a power failure of the server, and other messages may have
    /// replaced it.
    #[error("stream {stream} was rewound below message {seq}, which was already read")]
    StreamRewound {
        /// The stream's name on the server.
        stream: String,
        /// Sequence of the last message that was read.
        seq: u64,
    },
    /// A request has no responders: the agent is offline, or the shard has no owner.
    #[error("no responders for {what}")]
    NobodyAnswers {
        /// The requested service.
        what: String,
    },
    /// No response arrived in time. The request may have been performed.
    #[error("{what} did not respond within {} ms", within.as_millis())]
    NoAnswer {
        /// The requested service.
        what: String,
        /// The timeout.
        within: std::time::Duration,
    },
    /// A received message does not have its required form.
    #[error("{what} cannot be read: {reason}")]
    Malformed {
        /// Kind of the message.
        what: &'static str,
        /// Defect of the message.
        reason: String,
    },
}

/// Lists the searched locations, for the end of a message.
fn looked_at(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" (tried {text})") }
}

impl MeshError {
    /// Returns whether a retry may succeed: the broker was unreachable, did not reply, or was full.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::NoRoom { .. }
                | Self::NoAnswer { .. }
                | Self::NobodyAnswers { .. }
                | Self::StreamRewound { .. }
        )
    }

    /// The operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::JournalUnread { .. } => code::JOURNAL_NOT_READ.as_str(),
            Self::WrongSubject { .. } => code::SUBJECT_DOES_NOT_FIT.as_str(),
            Self::BadCard { .. } => code::AGENT_CARD_REFUSED.as_str(),
            Self::Artifact(bad) => bad.code(),
            Self::NotFound { .. } => code::STORED_OBJECT_MISSING.as_str(),
            Self::Damaged { .. } => code::STORED_CONTENT_DIFFERS.as_str(),
            Self::TooLarge { .. } | Self::TooManySteps { .. } => code::MESSAGE_TOO_LARGE.as_str(),
            Self::NobodyAnswers { .. } => code::NOBODY_ANSWERS.as_str(),
            Self::NoAnswer { .. } => code::NO_ANSWER_ON_MESH.as_str(),
            Self::Malformed { .. } => code::MESSAGE_CANNOT_BE_READ.as_str(),
            Self::Unreachable { .. } => code::NATS_DID_NOT_ANSWER.as_str(),
            Self::Refused { .. } => code::NATS_SERVER_REFUSED.as_str(),
            Self::NoServer { .. } => code::NO_NATS_SERVER_FOUND.as_str(),
            Self::OldServer { .. } => code::NATS_SERVER_TOO_OLD.as_str(),
            Self::ServerFailed { .. } => code::MANAGED_NATS_SERVER_FAILED.as_str(),
            Self::StoreInUse { .. } => code::STORE_IN_USE.as_str(),
            Self::NothingListens { .. } => code::NATS_NOT_REACHABLE.as_str(),
            Self::NotAllowed { .. } => code::NATS_CREDENTIALS_REFUSED.as_str(),
            Self::BadContext { .. } => code::NATS_CONTEXT_UNUSABLE.as_str(),
            Self::NoJetStream { .. } => code::JETSTREAM_NOT_ENABLED.as_str(),
            Self::BadSetting { .. } => code::CONNECTION_SETTING_UNUSABLE.as_str(),
            Self::NotProvisioned { .. } => code::MESH_NOT_PROVISIONED.as_str(),
            Self::Differs { .. } => code::MESH_SET_UP_WRONG.as_str(),
            Self::ShardsFixed { .. } => code::SHARD_COUNT_FIXED.as_str(),
            Self::Forbidden { .. } => code::CREDENTIALS_FORBID_THIS.as_str(),
            Self::StreamRewound { .. } => code::STREAM_BEHIND_SHARD.as_str(),
            Self::NoRoom { .. } => code::NATS_SERVER_NO_ROOM.as_str(),
        }
    }

    /// Turns a negative reply of the server into an error: `code` is the status, `err_code` the
    /// precise reason.
    pub(crate) fn of_answer(what: &'static str, code: u64, err_code: u64, reason: String) -> Self {
        match code {
            _ if is_lack_of_room(err_code, &reason) => Self::NoRoom { what, reason },
            // Temporary: no leader, no quorum, shutting down.
            503 => Self::Unreachable { what, reason },
            _ => Self::Refused { what, reason },
        }
    }

    /// Returns whether the request had no responders, so nothing was done.
    pub const fn is_no_responders(&self) -> bool {
        matches!(self, Self::NobodyAnswers { .. })
    }
}

/// Returns whether a reply of the server means that a disk, a store, an account or a stream is
/// full.
pub(crate) fn is_lack_of_room(err_code: u64, description: &str) -> bool {
    match err_code {
        // Limits of the account, of the server, of its memory, of its files.
        10_002 | 10_023 | 10_028 | 10_047 => true,
        // "Store failed" has one code for many reasons.
        10_077 => ["maximum bytes", "maximum messages exceeded", "no space left"]
            .iter()
            .any(|words| description.contains(words)),
        _ => false,
    }
}

impl From<MeshError> for Fault {
    fn from(error: MeshError) -> Self {
        let retryable = error.is_transient();
        Self::error(error.code(), error.to_string()).with_retryable(retryable)
    }
}
