//! Inputs of a shard: commands and results, read from the positions in its journal.
//!
//! Inputs are not acknowledged: a commit contains the positions up to which inputs are part of it.
//! So an input and its facts are stored together or not at all, and a new owner continues from
//! there immediately.

use std::fmt;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::DeliverPolicy;
use bytes::Bytes;
use futures_util::FutureExt as _;
use sinew_protocol::journal::Positions;
use sinew_protocol::stream::bucket;
use sinew_protocol::subject::{Operation, below};
use sinew_protocol::{Subject, Token};

use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::stream::follow::sweep;
use crate::stream::pull::{Item, Reader, Reading, milliseconds, redirected};

/// Stream of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Commands to executions.
    Commands,
    /// Results of agents.
    Results,
}

impl Source {
    /// Returns the stream's kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Commands => "COMMANDS",
            Self::Results => "RESULTS",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One command or result.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    /// Its stream.
    pub source: Source,
    /// Its sequence number in that stream.
    pub seq: u64,
    /// When it was stored: milliseconds since 1970 UTC, by the server's clock.
    pub time: u64,
    /// Its parsed subject; `None` if the subject is not valid.
    pub subject: Option<Subject>,
    /// The subject as received.
    pub name: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Maximum number of stored starts of a shard that are read.
const MAX_STORED_STARTS: usize = 10_000;

/// A stored start.
#[derive(Clone, Debug)]
pub struct StoredStart {
    /// The caller.
    pub caller: Token,
    /// The id of the command.
    pub id: Token,
    /// When it was stored: milliseconds since 1970 UTC, by the server's clock.
    pub stored_at: u64,
    /// The command, JSON.
    pub body: Bytes,
}

/// The commands and results of one shard, each stream in order, each message once.
pub struct Inbox {
    namespace: String,
    commands: Reader,
    results: Reader,
    /// Whether results are polled first next time.
    turn: bool,
}

/// Commands to the shards of a mesh, as callers send them and owners read them.
#[derive(Clone, Copy, Debug)]
pub struct ShardCommands<'a> {
    pub(super) mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the commands to the shards of this mesh.
    pub fn commands(&self) -> ShardCommands<'_> {
        ShardCommands { mesh: self }
    }
}

impl ShardCommands<'_> {
    /// Returns the starts of a shard that are stored after a position, each with its storage time:
    /// those that no owner has accepted. Bodies are as callers wrote them.
    pub async fn stored_starts(self, shard: u32, behind: u64) -> Result<Vec<StoredStart>, MeshError> {
        let stream = bucket(self.mesh.namespace(), Source::Commands.as_str());
        let filter = below(self.mesh.namespace(), &["command", &shard.to_string()]);
        let from = DeliverPolicy::ByStartSequence { start_sequence: behind + 1 };
        let mut starts = Vec::new();
        sweep(self.mesh, &stream, filter, from, |message| {
            let subject = Subject::parse(self.mesh.namespace(), &message.subject);
            if let Some(Subject::Command { operation: Operation::Start, caller, id, .. }) = subject {
                let stored_at = message.info().map_or(0, |info| milliseconds(info.published));
                starts.push(StoredStart { caller, id, stored_at, body: message.payload.clone() });
            }
            starts.len() < MAX_STORED_STARTS
        })
        .await?;
        Ok(starts)
    }

    /// Returns whether this connection may read the starts of all callers. It checks the rights
    /// first, because a denial by the server would end the caller's command.
    pub async fn may_read_starts(self) -> Result<bool, MeshError> {
        let Some(rights) = self.mesh.rights().await? else { return Ok(true) };
        let stream = bucket(self.mesh.namespace(), Source::Commands.as_str());
        let filter = below(self.mesh.namespace(), &["command"]);
        let calls = [
            format!("$JS.API.CONSUMER.CREATE.{stream}.*.{filter}"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.*"),
            format!("$JS.API.CONSUMER.DELETE.{stream}.*"),
        ];
        Ok(calls.iter().all(|call| rights.may_publish(call)))
    }

    /// Returns this caller's start with this id if it is stored after a position.
    pub async fn own_stored_start(
        self,
        shard: u32,
        id: &Token,
        behind: u64,
    ) -> Result<Option<StoredStart>, MeshError> {
        let (operation, caller) = (Operation::Start, self.mesh.caller().clone());
        let subject = Subject::Command { shard, operation, caller: caller.clone(), id: id.clone() };
        let stream = bucket(self.mesh.namespace(), Source::Commands.as_str());
        let stored = self.mesh.stored(&stream, &self.mesh.subject(&subject)).await?;
        Ok(stored.filter(|stored| stored.sequence > behind).map(|stored| StoredStart {
            caller,
            id: id.clone(),
            stored_at: milliseconds(stored.time),
            body: stored.payload,
        }))
    }

    /// Returns the body of the stored result of a task; `None` if this subject has none.
    pub async fn stored_result(self, result: &Subject) -> Result<Option<Bytes>, MeshError> {
        let stream = bucket(self.mesh.namespace(), Source::Results.as_str());
        let message = self.mesh.last(&stream, &self.mesh.subject(result)).await?;
        Ok(message.filter(|message| !redirected(&message.headers)).map(|message| message.payload))
    }

    /// Returns the stored result of a task in the form of an inbox message; `None` if this subject
    /// has none.
    pub async fn result_message(self, result: &Subject) -> Result<Option<ReceivedMessage>, MeshError> {
        let stream = bucket(self.mesh.namespace(), Source::Results.as_str());
        let message = self.mesh.last(&stream, &self.mesh.subject(result)).await?;
        Ok(message.filter(|message| !redirected(&message.headers)).map(|message| ReceivedMessage {
            source: Source::Results,
            seq: message.sequence,
            time: milliseconds(message.time),
            subject: Some(result.clone()),
            name: message.subject.to_string(),
            headers: message.headers,
            body: message.payload,
        }))
    }

    /// Reads the inputs of a shard after these positions; 0 is the start.
    pub async fn inbox(self, shard: u32, behind: Positions) -> Result<Inbox, MeshError> {
        let reading = |source: Source, token: &str, (after, after_stored): (u64, u64)| Reading {
            stream: bucket(self.mesh.namespace(), source.as_str()),
            filter: below(self.mesh.namespace(), &[token, &shard.to_string()]),
            after,
            // Without a position the time has no meaning.
            after_stored: if after == 0 { 0 } else { after_stored },
            headers_only: false,
        };
        let (commands, results) =
            ((behind.commands, behind.commands_stored), (behind.results, behind.results_stored));
        let (commands, results) = tokio::try_join!(
            Reader::open(self.mesh, reading(Source::Commands, "command", commands)),
            Reader::open(self.mesh, reading(Source::Results, "result", results)),
        )?;
        Ok(Inbox { namespace: self.mesh.namespace().to_owned(), commands, results, turn: false })
    }
}

impl Inbox {
    /// Waits for the next input. Fails if a stream was rewound below an input that was already
    /// returned, because other inputs may have its position. Cancel-safe.
    pub async fn next(&mut self) -> Result<ReceivedMessage, MeshError> {
        let results_first = self.turn;
        let (source, item) = {
            let commands = std::pin::pin!(self.commands.next());
            let results = std::pin::pin!(self.results.next());
            // The streams take turns, so that a flood in one does not delay the other.
            if results_first {
                tokio::select! { biased;
                    item = results => (Source::Results, item),
                    item = commands => (Source::Commands, item),
                }
            } else {
                tokio::select! { biased;
                    item = commands => (Source::Commands, item),
                    item = results => (Source::Results, item),
                }
            }
        };
        self.turn = source == Source::Commands;
        Ok(self.received(source, item?))
    }

    /// Returns the number of pending messages when the inbox was opened.
    pub fn waiting(&self) -> u64 {
        self.commands.pending() + self.results.pending()
    }

    /// Returns the sequence numbers of the last received command and result, or of later messages
    /// that the leaders of the streams have.
    pub fn ends(&self) -> impl Future<Output = Result<(u64, u64), MeshError>> + Send + use<> {
        let (commands, results) = (self.commands.end(), self.results.end());
        async move { tokio::try_join!(commands, results) }
    }

    /// Returns an input that has already arrived. Polls the connection once without waiting.
    pub fn try_next(&mut self) -> Result<Option<ReceivedMessage>, MeshError> {
        self.next().now_or_never().transpose()
    }

    fn received(&self, source: Source, item: Item) -> ReceivedMessage {
        let Item { seq, time, message, .. } = item;
        let subject = Subject::parse(&self.namespace, &message.subject);
        ReceivedMessage {
            source,
            seq,
            time,
            subject,
            name: message.subject.as_str().to_owned(),
            headers: message.headers.unwrap_or_default(),
            body: message.payload,
        }
    }
}
