//! The journal of one shard: its commits in order, appended only by the owner of the shard.
//!
//! The journal's own position is the fence: an append names its preceding message, so an owner that
//! lost the shard without noticing cannot write. A commit that exceeds the size of a message is
//! sent in parts, each fenced by the previous one; readers drop the parts of an unfinished commit.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::HeaderValue;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM};
use async_nats::jetstream::message::StreamMessage;
use bytes::{Bytes, BytesMut};
use sinew_protocol::Subject;
use sinew_protocol::header::{COMMIT, PART};
use sinew_protocol::stream::bucket;
use tokio::time::{Instant, sleep};

use crate::crash;
use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::stream::publisher::{PublishTicket, StreamPublisher};
use crate::stream::pull::{Item, Reader, Reading, answer, pause, redirected, unreachable};
use crate::stream::send::{PublishAnswer, value};

/// Total time for an append, across timeouts and lost connections.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait between two attempts.
const SLOWEST: Duration = Duration::from_secs(1);
/// Timeout of one request to the server.
const WAIT: Duration = Duration::from_secs(5);
/// Bytes of the server's maximum message size that a part leaves free for headers and the subject.
const RESERVE: usize = 64 * 1024;
/// Maximum number of parts of a commit: a reader holds them all in memory.
const MAX_PARTS: u32 = 1_024;

/// Reason for a failed append. In both cases, the journal must be read again before the next
/// append.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another executor has appended: the shard has another owner.
    #[error("the journal of shard {shard} has another writer")]
    Fenced {
        /// The shard.
        shard: u32,
    },
    /// The server rejected the append, or was unreachable for so long that the outcome is unknown.
    #[error(transparent)]
    Mesh(#[from] MeshError),
}

impl AppendError {
    /// The operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => code::JOURNAL_HAS_OTHER_WRITER.as_str(),
            Self::Mesh(error) => error.code(),
        }
    }
}

/// A stored body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The sequence number of its first message, equal to `seq` unless it was stored in parts.
    pub first: u64,
    /// The sequence number of its last message: the journal's position after it.
    pub seq: u64,
    /// When it was stored: milliseconds since 1970 UTC, by the server's clock.
    pub time: u64,
    /// The body.
    pub body: Bytes,
}

/// The journal of one shard.
#[derive(Debug)]
pub struct Journal {
    mesh: Mesh,
    shard: u32,
    stream: String,
    subject: String,
    /// The sequence number of the last message; `None` before reading, and after an append with
    /// unknown outcome.
    position: Option<u64>,
    /// The commit of the message at the position; `None` if no executor wrote it.
    last_commit: Option<String>,
    /// Number of connections when the position was last known to belong to this commit.
    connections: u64,
    /// Start of each commit that was stored in parts, by its end.
    begins: BTreeMap<u64, u64>,
    /// The body that is being appended.
    sent: Option<SentBody>,
}

/// Messages of a journal that no executor wrote: logged once per reading, because there may be
/// millions.
#[derive(Debug, Default)]
struct ForeignMessages {
    count: u64,
    first: u64,
    last: u64,
}

impl ForeignMessages {
    fn count(&mut self, seq: u64) {
        if self.count == 0 {
            self.first = seq;
        }
        self.last = seq;
        self.count += 1;
    }

    fn report(&self, shard: u32) {
        if let Self { count: count @ 1.., first, last } = *self {
            tracing::warn!(
                shard,
                count,
                first,
                last,
                "skipping journal messages that were not written by an executor"
            );
        }
    }
}

/// A body that is being appended to a journal.
#[derive(Debug)]
struct SentBody {
    commit: String,
    after: u64,
    body: Bytes,
    /// Whether it was sent as one message; if not, nothing of it was sent.
    is_sent: bool,
}

impl Mesh {
    /// Returns the journal of a shard; it must be read before the first append.
    pub fn journal(&self, shard: u32) -> Journal {
        Journal {
            mesh: self.clone(),
            shard,
            stream: bucket(self.namespace(), "JOURNAL"),
            subject: self.subject(&Subject::Journal { shard }),
            position: None,
            last_commit: None,
            connections: 0,
            begins: BTreeMap::new(),
            sent: None,
        }
    }
}

impl Journal {
    /// Returns the shard.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Returns the sequence number of the journal's last message, 0 if it is empty; `None` before
    /// it was read.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Passes every commit in order, up to the last one when the reading starts. Appends may
    /// follow: they fail if another owner has appended in the meantime.
    pub async fn replay<E: From<MeshError>>(
        &mut self,
        mut each: impl FnMut(Stored) -> Result<(), E>,
    ) -> Result<(), E> {
        (self.position, self.last_commit, self.sent) = (None, None, None);
        self.connections = self.mesh.connections();
        self.begins.clear();
        let Some(last) = self.mesh.last(&self.stream, &self.subject).await? else {
            self.position = Some(0);
            return Ok(());
        };
        let mut end = last.sequence;
        let reading = Reading {
            stream: self.stream.clone(),
            filter: self.subject.clone(),
            after: 0,
            after_stored: 0,
            headers_only: false,
        };
        let mut reader = Reader::open(&self.mesh, reading).await?;
        let mut parts = PartJoiner { shard: self.shard, pending: None };
        let mut foreign_messages = ForeignMessages::default();
        loop {
            let item = reader.next().await?;
            let seq = item.seq;
            let commit =
                item.message.headers.as_ref().and_then(|headers| text(headers, COMMIT)).map(str::to_owned);
            let stored = if foreign(&item) {
                foreign_messages.count(seq);
                None
            } else {
                parts.take(item)?
            };
            if let Some(stored) = stored {
                if stored.first != stored.seq {
                    self.begins.insert(stored.seq, stored.first);
                }
                each(stored)?;
            }
            if seq < end {
                continue;
            }
            // If an owner compacts while this process reads, the observed end may be gone, and
            // reading may stop inside a commit. Only parts with nothing after them are an
            // unfinished commit.
            if parts.pending.is_some()
                && let Some(last) = self.mesh.last(&self.stream, &self.subject).await?
                && last.sequence > seq
            {
                end = last.sequence;
                continue;
            }
            (self.position, self.last_commit) = (Some(seq), commit);
            foreign_messages.report(self.shard);
            return Ok(());
        }
    }

    /// Appends a body after everything read and appended so far, and returns the new position. On
    /// success, it is stored exactly once, and not after another owner's commit. A cancelled call
    /// leaves the journal unread.
    pub async fn append(&mut self, body: Bytes) -> Result<u64, AppendError> {
        self.check_position().await?;
        self.take_body(body)?;
        self.settle().await
    }

    /// Sends a body for an append like [`Journal::append`], without waiting. An acknowledgement is
    /// passed to [`Journal::handle_stored`]; everything else, and `None`, requires
    /// [`Journal::settle`].
    pub async fn send(
        &mut self,
        publisher: &mut StreamPublisher,
        body: Bytes,
    ) -> Result<Option<PublishTicket>, AppendError> {
        let limit = part_limit(self.mesh.client().max_payload());
        self.check_position().await?;
        let sent = self.take_body(body)?;
        if sent.body.len() > limit {
            return Ok(None);
        }
        let mut headers = HeaderMap::new();
        headers.insert(COMMIT, value(&sent.commit)?);
        // From here on, the body may be in flight, whatever the connection reports.
        sent.is_sent = true;
        let (after, body) = (sent.after, sent.body.clone());
        Ok(publisher.send_behind(&self.stream, self.subject.clone(), after, headers, body).await)
    }

    /// Records the position at which the sent body is stored.
    pub fn handle_stored(&mut self, seq: u64) {
        if let Some(sent) = self.sent.take() {
            (self.position, self.last_commit) = (Some(seq), Some(sent.commit));
        }
    }

    /// Retries the sent body until its outcome is known, and returns the new position.
    pub async fn settle(&mut self) -> Result<u64, AppendError> {
        let shard = self.shard;
        let SentBody { commit, after, body, is_sent } =
            self.sent.take().ok_or(MeshError::JournalUnread { shard })?;
        let limit = part_limit(self.mesh.client().max_payload());
        let count = u32::try_from(body.len().div_ceil(limit).max(1)).unwrap_or(u32::MAX);
        if count > MAX_PARTS {
            self.position = Some(after);
            let limit = limit as u64 * u64::from(MAX_PARTS);
            return Err(MeshError::TooLarge { what: "a commit", size: body.len() as u64, limit }.into());
        }
        let (mut first, mut position, mut rest) = (None, after, body);
        for nth in 1..=count {
            let part = rest.split_to(limit.min(rest.len()));
            let name = (count > 1).then(|| format!("{nth}/{count}"));
            position = self.append_part(position, &commit, name.as_deref(), part, is_sent).await?;
            first.get_or_insert(position);
        }
        if let Some(first) = first.filter(|first| *first != position) {
            self.begins.insert(position, first);
        }
        (self.position, self.last_commit) = (Some(position), Some(commit));
        Ok(position)
    }

    /// Checks that the message at the position is still the one that was read or appended, once
    /// after each lost connection: a server that lost power may have lost the message, and another
    /// owner's may have its position. The fence only compares positions.
    async fn check_position(&mut self) -> Result<(), AppendError> {
        let connections = self.mesh.connections();
        let (Some(position), Some(commit)) = (self.position, &self.last_commit) else { return Ok(()) };
        if connections == self.connections {
            return Ok(());
        }
        let (began, mut attempt) = (Instant::now(), 0);
        let last = loop {
            match self.mesh.last(&self.stream, &self.subject).await {
                Ok(last) => break last,
                Err(error) if !error.is_transient() || began.elapsed() >= PATIENCE => {
                    return Err(error.into());
                }
                Err(_) => attempt += 1,
            }
            sleep(pause(attempt, SLOWEST)).await;
        };
        let is_same = |last: &StreamMessage| {
            last.sequence == position && text(&last.headers, COMMIT) == Some(commit.as_str())
        };
        if !last.as_ref().is_some_and(is_same) {
            self.position = None;
            return Err(AppendError::Fenced { shard: self.shard });
        }
        self.connections = connections;
        Ok(())
    }

    /// Records a body for an append. The position is unknown until its outcome is known.
    fn take_body(&mut self, body: Bytes) -> Result<&mut SentBody, MeshError> {
        let after = self.position.take().ok_or(MeshError::JournalUnread { shard: self.shard })?;
        let commit = uuid::Uuid::now_v7().simple().to_string();
        Ok(self.sent.insert(SentBody { commit, after, body, is_sent: false }))
    }

    async fn append_part(
        &self,
        after: u64,
        commit: &str,
        part: Option<&str>,
        body: Bytes,
        is_sent: bool,
    ) -> Result<u64, AppendError> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(after));
        headers.insert(NATS_EXPECTED_STREAM, value(&self.stream)?);
        headers.insert(COMMIT, value(commit)?);
        if let Some(part) = part {
            headers.insert(PART, value(part)?);
        }
        self.mesh.fits("a commit", &headers, body.len())?;
        let began = Instant::now();
        let (mut attempt, mut is_sent) = (0, is_sent);
        loop {
            let answer = if std::mem::take(&mut is_sent) {
                PublishAnswer::Unknown("it was not acknowledged as stored".to_owned())
            } else {
                self.mesh.publish(&self.subject, headers.clone(), body.clone()).await?
            };
            let (reason, full) = match answer {
                PublishAnswer::At(seq) => return Ok(seq),
                PublishAnswer::Conflict { reason, .. } | PublishAnswer::Unknown(reason) => (reason, false),
                PublishAnswer::NoRoom(reason) => (reason, true),
            };
            tracing::debug!(shard = self.shard, reason, "reading back an append");
            // The stored message decides. If the end of the journal is unchanged, the same message
            // is published again under the same condition: if the first copy still arrives, the
            // second one is rejected.
            match self.mesh.last(&self.stream, &self.subject).await {
                Ok(Some(last))
                    if text(&last.headers, COMMIT) == Some(commit) && text(&last.headers, PART) == part =>
                {
                    return Ok(last.sequence);
                }
                Ok(last) if last.as_ref().map_or(0, |last| last.sequence) != after => {
                    return Err(AppendError::Fenced { shard: self.shard });
                }
                Err(refused @ (MeshError::Refused { .. } | MeshError::Forbidden { .. })) => {
                    return Err(refused.into());
                }
                Ok(_) | Err(_) if began.elapsed() < PATIENCE => {}
                Ok(_) | Err(_) => {
                    let what = "append to a journal";
                    return Err(if full {
                        MeshError::NoRoom { what, reason }.into()
                    } else {
                        MeshError::Unreachable { what, reason }.into()
                    });
                }
            }
            attempt += 1;
            sleep(pause(attempt, SLOWEST)).await;
        }
    }

    /// Purges everything before the body that ends at `seq`; that one and later ones remain, as do
    /// concurrent appends. The caller guarantees that it repeats what is still needed.
    pub fn purge_below(
        &mut self,
        seq: u64,
    ) -> impl Future<Output = Result<(), MeshError>> + Send + 'static + use<> {
        const WHAT: &str = "purge a journal";
        // The last message contains the fence: without it, any append would succeed.
        let first = self.position.map(|position| {
            let seq = seq.min(position);
            let first = self.begins.get(&seq).copied().unwrap_or(seq);
            self.begins = self.begins.split_off(&seq);
            first
        });
        let (mesh, shard) = (self.mesh.clone(), self.shard);
        let (stream, subject) = (self.stream.clone(), self.subject.clone());
        async move {
            let first = first.ok_or(MeshError::JournalUnread { shard })?;
            let stream = mesh.jetstream().get_stream_no_info(&stream).await;
            let stream = stream.map_err(|error| unreachable(WHAT, &error))?;
            let purge = stream.purge().filter(&subject).sequence(first).into_future();
            crash::point("purge.before");
            let done = answer(&mesh, WHAT, WAIT, purge).await?.map_err(|error| unreachable(WHAT, &error))?;
            crash::point("purge.after");
            if done.success {
                Ok(())
            } else {
                Err(MeshError::Refused { what: WHAT, reason: "the server did not purge".to_owned() })
            }
        }
    }
}

/// Returns the maximum size of a part for a server with this maximum message size.
fn part_limit(max_payload: usize) -> usize {
    max_payload.saturating_sub(RESERVE).max(max_payload / 2).max(1)
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    headers.get(name).map(HeaderValue::as_str)
}

/// Returns whether no executor wrote this: the server publishes replies to any subject that a
/// request names.
fn foreign(item: &Item) -> bool {
    let headers = item.message.headers.as_ref();
    headers.is_none_or(|headers| headers.get(COMMIT).is_none() || redirected(headers))
}

/// Joins the parts of a commit.
struct PartJoiner {
    shard: u32,
    pending: Option<PendingAppend>,
}

struct PendingAppend {
    commit: String,
    first: u64,
    have: u32,
    of: u32,
    body: BytesMut,
}

impl PartJoiner {
    /// Returns the body that this message completes, if any.
    fn take(&mut self, item: Item) -> Result<Option<Stored>, MeshError> {
        let Item { seq, time, message, .. } = item;
        let headers = message.headers.unwrap_or_default();
        let damaged = |reason: String| MeshError::Damaged {
            what: "the journal of shard",
            id: self.shard.to_string(),
            reason: format!("message {seq}: {reason}"),
        };
        let Some(part) = text(&headers, PART) else {
            // The previous commit is unfinished: its writer crashed and another owner continued.
            self.pending = None;
            return Ok(Some(Stored { first: seq, seq, time, body: message.payload }));
        };
        let (nth, of) = part
            .split_once('/')
            .and_then(|(nth, of)| Some((nth.parse::<u32>().ok()?, of.parse::<u32>().ok()?)))
            .filter(|(nth, of)| (1..=*of).contains(nth) && *of <= MAX_PARTS)
            .ok_or_else(|| damaged("its part has no number".to_owned()))?;
        let commit = text(&headers, COMMIT).unwrap_or_default();
        if nth == 1 {
            let pending =
                PendingAppend { commit: commit.to_owned(), first: seq, have: 0, of, body: BytesMut::new() };
            self.pending = Some(pending);
        }
        let Some(pending) = &mut self.pending else {
            return Err(damaged(format!("part {nth} of {of} without the preceding parts")));
        };
        if pending.commit != commit || pending.of != of || pending.have + 1 != nth {
            return Err(damaged(format!(
                "part {nth} of {of} follows part {} of {}",
                pending.have, pending.of
            )));
        }
        pending.have = nth;
        pending.body.extend_from_slice(&message.payload);
        if nth < of {
            return Ok(None);
        }
        let whole = self.pending.take().map(|pending| Stored {
            first: pending.first,
            seq,
            time,
            body: pending.body.freeze(),
        });
        Ok(whole)
    }
}
