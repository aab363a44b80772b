//! The quarantine: messages that could not be read or used, stored completely, with the reason, for
//! an operator.
//!
//! Otherwise an unreadable message would be redelivered forever or lost. Its subject is its
//! original position, so quarantining a message twice stores it once.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use sinew_protocol::header::{PART, REASON, SUBJECT, TIME, UNDELIVERABLE};
use sinew_protocol::id::is_token;
use sinew_protocol::stream::{STREAMS, bucket};
use sinew_protocol::subject::below;
use sinew_protocol::{Subject, Token};
use tokio::time::timeout;

use crate::error::MeshError;
use crate::log_limited;
use crate::mesh::Mesh;
use crate::stream::inbox::ReceivedMessage;
use crate::stream::pull::{Item, Reader, Reading, answer, milliseconds, unreachable};
use crate::stream::send::{FENCE, PutOutcome, clean, headers_len, only, value};
use crate::stream::stored::MessageQuery;
use crate::wire::undeliverable;

/// Maximum length of a reason, in characters.
const LONGEST_REASON: usize = 1_000;
/// Characters that a header must not contain; percent-encoded in reasons.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');
/// Headers that this module adds to a message.
const OURS: [&str; 4] = [REASON, SUBJECT, TIME, PART];
/// Divisors for the share of a full quarantine that is deleted to free space, in this order: a
/// tenth, a third, all.
const DROPPED_SHARES: [u64; 3] = [10, 3, 1];
/// Timeout of one request to the server.
const WAIT: Duration = Duration::from_secs(5);

/// A message to quarantine.
#[derive(Clone, Debug)]
pub struct SuspectMessage {
    /// The kind of its original stream.
    pub stream: &'static str,
    /// Its sequence number in that stream.
    pub seq: u64,
    /// When it was stored there: milliseconds since 1970 UTC.
    pub time: u64,
    /// The subject as received.
    pub name: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl From<&ReceivedMessage> for SuspectMessage {
    fn from(received: &ReceivedMessage) -> Self {
        Self {
            stream: received.source.as_str(),
            seq: received.seq,
            time: received.time,
            name: received.name.clone(),
            headers: received.headers.clone(),
            body: received.body.clone(),
        }
    }
}

/// A quarantined message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedMessage {
    /// The kind of its original stream.
    pub stream: String,
    /// Its sequence number in that stream.
    pub seq: u64,
    /// When it was stored there: milliseconds since 1970 UTC.
    pub time: u64,
    /// When it was quarantined: milliseconds since 1970 UTC, by the server's clock.
    pub aside: u64,
    /// The reason.
    pub reason: String,
    /// The subject as received.
    pub subject: String,
    /// Its own headers, except those with commands to the server.
    pub headers: HeaderMap,
    /// Its body; empty in a list.
    pub body: Bytes,
    /// Whether the body is complete. A body of the maximum message size is truncated, because the
    /// reason needs space.
    pub whole: bool,
}

/// Quarantine of a mesh: messages that could not be read or used.
#[derive(Clone, Copy, Debug)]
pub struct QuarantineStore<'a> {
    mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the quarantine of this mesh.
    pub fn quarantine(&self) -> QuarantineStore<'_> {
        QuarantineStore { mesh: self }
    }
}

impl QuarantineStore<'_> {
    /// Quarantines a message with the reason. Repeatable.
    pub async fn put(self, suspect: impl Into<SuspectMessage>, reason: &str) -> Result<(), MeshError> {
        let mut suspect = suspect.into();
        let mut reason = reason.to_owned();
        // With that header, the quarantined message would itself count as malformed.
        if let Some(defect) = undeliverable(&suspect.headers) {
            reason = format!("{reason} (it cannot be parsed: {defect})");
            suspect.headers = only(&suspect.headers, |name| !name.eq_ignore_ascii_case(UNDELIVERABLE));
        }
        let subject = Subject::Quarantine { stream: Token::of(suspect.stream), seq: suspect.seq };
        let reason: String = reason.chars().take(LONGEST_REASON).collect();
        let mut ours = HeaderMap::new();
        ours.insert(REASON, value(&utf8_percent_encode(&reason, ENCODED).to_string())?);
        ours.insert(SUBJECT, value(&utf8_percent_encode(&suspect.name, ENCODED).to_string())?);
        ours.insert(TIME, HeaderValue::from(suspect.time));
        let mut headers = clean(suspect.headers);
        for (name, values) in ours.iter() {
            for value in values {
                headers.insert(name.clone(), value.clone());
            }
        }
        let mut body = suspect.body;
        // The server's own two headers are added last.
        let limit = self.mesh.client().max_payload().saturating_sub(FENCE);
        if headers_len(&headers) + body.len() > limit {
            headers = ours;
            headers.insert(PART, value("1/2")?);
            body.truncate(limit.saturating_sub(headers_len(&headers)));
        }
        // The same position is the same message; a different text of the reason does not matter.
        let (stream, name) = (bucket(self.mesh.namespace(), "QUARANTINE"), self.mesh.subject(&subject));
        for share in DROPPED_SHARES {
            let put =
                self.mesh.put_once_while_full(&stream, &name, headers.clone(), body.clone(), Duration::ZERO);
            match put.await {
                // Only for the limit of this stream: on a full disk or account, other writers would
                // take the freed space.
                Err(MeshError::NoRoom { reason, .. }) if reason.contains("maximum ") => {
                    let size = (headers_len(&headers) + name.len() + body.len()) as u64;
                    self.drop_quarantined(&stream, share, size).await?;
                }
                put => return put.map(drop),
            }
        }
        self.mesh.put_once_while_full(&stream, &name, headers, body, Duration::ZERO).await.map(drop)
    }

    /// Quarantines a message, or drops it if the quarantine cannot store it. Returns false for a
    /// dropped message, which is logged and counted; the original remains in its stream. Fails only
    /// while the server does not reply.
    pub async fn put_or_drop(
        self,
        suspect: impl Into<SuspectMessage>,
        reason: &str,
    ) -> Result<bool, MeshError> {
        let suspect = suspect.into();
        let (stream, seq) = (suspect.stream, suspect.seq);
        match self.put(suspect, reason).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_transient() && !matches!(error, MeshError::NoRoom { .. }) => Err(error),
            Err(error) => {
                metrics::counter!("sinew_quarantine_lost_total").increment(1);
                log_limited!(
                    error,
                    stream,
                    seq,
                    %error,
                    code = error.code(),
                    "cannot quarantine a message"
                );
                Ok(false)
            }
        }
    }

    /// Deletes the oldest messages of a full quarantine: one part of `share`, at least one message.
    /// Fails if a message of this size never fits, so that it does not displace all others.
    async fn drop_quarantined(self, stream: &str, share: u64, size: u64) -> Result<(), MeshError> {
        const WHAT: &str = "free space in the quarantine";
        let call = format!("$JS.API.STREAM.INFO.{stream}");
        let info = self
            .mesh
            .permitted(&call, answer(self.mesh, WHAT, WAIT, self.mesh.jetstream().get_stream(stream)))
            .await??;
        let handle = info.map_err(|error| unreachable(WHAT, &error))?;
        let info = handle.cached_info();
        if u64::try_from(info.config.max_bytes).is_ok_and(|limit| limit > 0 && size > limit) {
            let reason = format!("the message has {size} bytes, more than the quarantine can store");
            return Err(MeshError::NoRoom { what: WHAT, reason });
        }
        let messages = info.state.messages;
        let call = format!("$JS.API.STREAM.PURGE.{stream}");
        let purge = handle.purge().keep(messages - messages.div_ceil(share)).into_future();
        let purged = self.mesh.permitted(&call, answer(self.mesh, WHAT, WAIT, purge)).await??;
        let dropped =
            purged.map_err(|error| MeshError::Refused { what: WHAT, reason: error.to_string() })?.purged;
        metrics::counter!("sinew_quarantine_dropped_total").increment(dropped);
        log_limited!(warn, dropped, "the quarantine is full; removed its oldest messages");
        Ok(())
    }

    /// Lists quarantined messages without their bodies, oldest first; the newest `limit` of them.
    pub async fn list(self, limit: usize) -> Result<Vec<QuarantinedMessage>, MeshError> {
        let reading = Reading {
            stream: bucket(self.mesh.namespace(), "QUARANTINE"),
            filter: below(self.mesh.namespace(), &["quarantine"]),
            after: 0,
            after_stored: 0,
            headers_only: true,
        };
        let (stream, filter) = (reading.stream.clone(), reading.filter.clone());
        let mut reader = Reader::open(self.mesh, reading).await?;
        let mut found = VecDeque::new();
        let (mut pending, mut last) = (reader.pending(), 0);
        while pending > 0 {
            let Ok(item) = timeout(WAIT, reader.next()).await else {
                // Counted messages may be deleted before they are read; an unreachable server
                // deletes none.
                if self.mesh.unread(&stream, &filter, last).await?.is_none() {
                    break;
                }
                let reason = "it does not deliver stored messages".to_owned();
                return Err(MeshError::Unreachable { what: "list quarantined messages", reason });
            };
            let item = item?;
            (pending, last) = (item.pending, item.seq);
            let Item { time, message, .. } = item;
            let headers = message.headers.unwrap_or_default();
            found.extend(self.read_quarantined(&message.subject, time, &headers, Bytes::new()));
            if found.len() > limit {
                found.pop_front();
            }
        }
        Ok(found.into())
    }

    /// Returns one quarantined message by its original position.
    pub async fn get(self, stream: &str, seq: u64) -> Result<QuarantinedMessage, MeshError> {
        let subject = self.mesh.subject(&Subject::Quarantine { stream: Token::of(stream), seq });
        let stored = self.mesh.stored(&bucket(self.mesh.namespace(), "QUARANTINE"), &subject).await?;
        stored
            .and_then(|stored| {
                self.read_quarantined(&subject, milliseconds(stored.time), &stored.headers, stored.payload)
            })
            .ok_or_else(|| MeshError::NotFound { what: "quarantined message", id: format!("{stream}.{seq}") })
    }

    /// Republishes a quarantined message unchanged. It replaces the original in the stream, after
    /// all later messages; it remains quarantined until it is removed.
    pub async fn replay(self, stream: &str, seq: u64) -> Result<PutOutcome, MeshError> {
        const WHAT: &str = "republish a quarantined message";
        let aside = self.get(stream, seq).await?;
        let id = || format!("{stream}.{seq}");
        if !aside.whole {
            let reason = "it was too large to be stored completely".to_owned();
            return Err(MeshError::Damaged { what: "quarantined message", id: id(), reason });
        }
        let kind = STREAMS.iter().find(|known| known.kind == aside.stream && known.write_once);
        let within = kind.map(|kind| below(self.mesh.namespace(), &[kind.subject]));
        let tokens =
            within.as_deref().and_then(|within| aside.subject.strip_prefix(within.strip_suffix('>')?));
        if !tokens.is_some_and(|tokens| tokens.split('.').all(is_token)) {
            let subject = aside.subject;
            return Err(MeshError::WrongSubject { subject, expected: "a subject of its original stream" });
        }
        let name = bucket(self.mesh.namespace(), &aside.stream);
        let handle =
            self.mesh.jetstream().get_stream_no_info(&name).await.map_err(|e| unreachable(WHAT, &e))?;
        // The subject accepts one message, and the original is that message.
        let original = self.mesh.message(&name, &MessageQuery::at(seq)).await?;
        if original.is_some_and(|original| original.subject.as_str() == aside.subject) {
            let deleted = answer(self.mesh, WHAT, WAIT, handle.delete_message(seq)).await?;
            deleted.map_err(|error| MeshError::Refused { what: WHAT, reason: error.to_string() })?;
        }
        // Omit its message id, too: the server would reject it as a duplicate.
        let headers = only(&aside.headers, |name| {
            !name.get(..5).is_some_and(|begins| begins.eq_ignore_ascii_case("nats-"))
        });
        self.mesh.put_once_at(&name, &aside.subject, headers, aside.body).await
    }

    /// Deletes a quarantined message.
    pub async fn remove(self, stream: &str, seq: u64) -> Result<(), MeshError> {
        const WHAT: &str = "remove a quarantined message";
        let subject = self.mesh.subject(&Subject::Quarantine { stream: Token::of(stream), seq });
        let name = bucket(self.mesh.namespace(), "QUARANTINE");
        let handle =
            self.mesh.jetstream().get_stream_no_info(&name).await.map_err(|e| unreachable(WHAT, &e))?;
        let purge = handle.purge().filter(subject).into_future();
        let purged = answer(self.mesh, WHAT, WAIT, purge).await?;
        match purged.map_err(|error| MeshError::Refused { what: WHAT, reason: error.to_string() })?.purged {
            0 => Err(MeshError::NotFound { what: "quarantined message", id: format!("{stream}.{seq}") }),
            _ => Ok(()),
        }
    }

    fn read_quarantined(
        self,
        subject: &str,
        aside: u64,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Option<QuarantinedMessage> {
        let Subject::Quarantine { stream, seq } = Subject::parse(self.mesh.namespace(), subject)? else {
            return None;
        };
        let ours = |name: &'static str| headers.get(name).map(HeaderValue::as_str).unwrap_or_default();
        let text = |name| percent_decode_str(ours(name)).decode_utf8_lossy().into_owned();
        let (reason, subject, time) = (text(REASON), text(SUBJECT), ours(TIME).parse().unwrap_or_default());
        let whole = headers.get(PART).is_none();
        let stream = stream.name().unwrap_or_else(|| stream.to_string());
        let own = only(headers, |name| !OURS.contains(&name));
        Some(QuarantinedMessage { stream, seq, time, aside, reason, subject, headers: own, body, whole })
    }
}
