//! Storing messages: write-once publishes with a definite outcome, and events that no caller waits
//! for.
//!
//! An unacknowledged publish has neither succeeded nor failed. The stored message is read back and
//! decides; only if none exists is the same message published again, under the same subject and
//! condition, so that it cannot be stored twice even if the first one arrives late.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::DirectGetErrorKind;
use async_nats::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use sinew_protocol::command::Command;
use sinew_protocol::header::{MESSAGE_ID, may_pass};
use sinew_protocol::stream::{STREAMS, bucket};
use sinew_protocol::subject::Operation;
use sinew_protocol::{Subject, Token};
use tokio::time::{Instant, sleep};

use crate::crash;
use crate::error::{MeshError, is_lack_of_room};
use crate::mesh::Mesh;
use crate::stream::event::EventLog;
use crate::stream::inbox::ShardCommands;
use crate::stream::pull::{answer, pause, unreachable};
use crate::stream::stored::{MessageQuery, unreadable_message};
use crate::stream::task::TaskExchange;

/// Timeout for the acknowledgement of one publish, before the subject is read back.
const ACK: Duration = Duration::from_secs(5);
/// Total time for a publish, across timeouts and lost connections.
const PATIENCE: Duration = Duration::from_secs(30);
/// Total time for repeating a publish while the server reports that it is full.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait between two attempts.
const SLOWEST: Duration = Duration::from_secs(1);
/// Concurrent publishes of [`TaskExchange::put_all`].
const AT_ONCE: usize = 256;
/// Upper bound for the headers of a write-once message: the stream's name and the condition.
pub(crate) const FENCE: usize = 256;

/// Outcome of a write-once message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// This call stored it.
    New,
    /// The same body is stored already.
    Same,
    /// Another body is stored under this subject.
    Taken,
}

/// A message for [`TaskExchange::put_all`].
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    /// Its subject.
    pub subject: Subject,
    /// Headers; those with commands to the server are dropped.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Mesh {
    /// Stores a message under a write-once subject.
    pub(crate) async fn put_once(
        &self,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PutOutcome, MeshError> {
        let stream = stream_of(subject).ok_or_else(|| self.no_stream(subject))?;
        let (stream, name) = (bucket(self.namespace(), stream), self.subject(subject));
        self.put_once_while_full(&stream, &name, headers, body, ROOM_TIMEOUT).await
    }

    /// Rejects a message that exceeds the server's limit, including headers, before it is sent.
    pub(crate) fn fits(&self, what: &'static str, headers: &HeaderMap, body: usize) -> Result<(), MeshError> {
        let (size, limit) = (headers_len(headers) + body, self.line().client.max_payload());
        if size > limit {
            return Err(MeshError::TooLarge { what, size: size as u64, limit: limit as u64 });
        }
        Ok(())
    }

    pub(crate) async fn put_once_at(
        &self,
        stream: &str,
        subject: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PutOutcome, MeshError> {
        self.put_once_while_full(stream, subject, headers, body, ROOM_TIMEOUT).await
    }

    /// Stores a message under a write-once subject. Retries for `room_timeout` if the server is
    /// full.
    pub(crate) async fn put_once_while_full(
        &self,
        stream: &str,
        subject: &str,
        headers: HeaderMap,
        body: Bytes,
        room_timeout: Duration,
    ) -> Result<PutOutcome, MeshError> {
        let put = self.put_while_full(stream, subject, passed_on(&headers), body, room_timeout, true);
        put.await.map(|(outcome, _)| outcome)
    }

    /// Stores a message under a write-once subject. Its headers may contain commands to the server.
    pub(crate) async fn put_once_ordered(
        &self,
        stream: &str,
        subject: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PutOutcome, MeshError> {
        let put = self.put_while_full(stream, subject, headers, body, ROOM_TIMEOUT, true);
        put.await.map(|(outcome, _)| outcome)
    }

    /// Stores a message, and returns the position of the stored one. Unless it `compares`, an
    /// earlier message that the server reports counts as taken and is not read.
    async fn put_while_full(
        &self,
        stream: &str,
        subject: &str,
        mut headers: HeaderMap,
        body: Bytes,
        room_timeout: Duration,
        compares: bool,
    ) -> Result<(PutOutcome, u64), MeshError> {
        const WHAT: &str = "store a message";
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(0_u64));
        headers.insert(NATS_EXPECTED_STREAM, value(stream)?);
        self.fits("a message", &headers, body.len())?;
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            let (reason, full) = match self.publish(subject, headers.clone(), body.clone()).await? {
                PublishAnswer::At(seq) => return Ok((PutOutcome::New, seq)),
                PublishAnswer::Conflict { place: Some(place), .. } if !compares => {
                    return Ok((PutOutcome::Taken, place));
                }
                PublishAnswer::Conflict { reason, .. } | PublishAnswer::Unknown(reason) => (reason, false),
                PublishAnswer::NoRoom(reason) => (reason, true),
            };
            // If reading fails, too, retry, as if the message had not been stored.
            let stored = self.stored(stream, subject).await;
            if let Ok(Some(stored)) = &stored {
                let outcome = if stored.payload == body { PutOutcome::Same } else { PutOutcome::Taken };
                return Ok((outcome, stored.sequence));
            }
            if let Err(refused @ (MeshError::Refused { .. } | MeshError::Forbidden { .. })) = stored {
                return Err(refused);
            }
            if full && began.elapsed() >= room_timeout {
                return Err(MeshError::NoRoom { what: WHAT, reason });
            }
            if began.elapsed() > PATIENCE {
                return Err(MeshError::Unreachable { what: WHAT, reason });
            }
            attempt += 1;
            sleep(pause(attempt, SLOWEST)).await;
        }
    }

    /// Publishes once and returns the server's reply; an error is final, and nothing was stored.
    pub(crate) async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PublishAnswer, MeshError> {
        const WHAT: &str = "store a message";
        crash::before(subject);
        crash::sent(self, subject, &headers, &body).await;
        let request = Request::new().headers(headers).payload(body).timeout(Some(ACK));
        let client = self.client();
        let asked = client.send_request(subject.to_owned(), request);
        let acknowledged = match self.permitted(subject, answer(self, WHAT, ACK, asked)).await? {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => match error.kind() {
                RequestErrorKind::NoResponders => {
                    // No stream has the subject: it does not exist, or JetStream on the server has
                    // not started yet.
                    return Ok(PublishAnswer::Unknown("no stream stores the subject".to_owned()));
                }
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    return Err(MeshError::Refused { what: WHAT, reason: error.to_string() });
                }
                RequestErrorKind::TimedOut | RequestErrorKind::Other => {
                    return Ok(PublishAnswer::Unknown(error.to_string()));
                }
            },
            Err(error) => return Ok(PublishAnswer::Unknown(error.to_string())),
        };
        crash::after(subject);
        PublishAcknowledgement::read(&acknowledged.payload)
    }

    /// Reads the message under a write-once subject; a replica may lag, so a missing message is not
    /// proof.
    pub(crate) async fn stored(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<StreamMessage>, MeshError> {
        const WHAT: &str = "read a message back";
        let jetstream = self.jetstream();
        let handle = jetstream.get_stream_no_info(stream).await;
        let handle = handle.map_err(|error| unreachable(WHAT, &error))?;
        let call = format!("$JS.API.DIRECT.GET.{stream}.{subject}");
        let got = answer(self, WHAT, ACK, handle.direct_get_last_for_subject(subject));
        match self.permitted(&call, got).await?? {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                DirectGetErrorKind::NotFound => Ok(None),
                // A stream that is not ready yet has at most a leader, which not every role may
                // query.
                DirectGetErrorKind::ErrorResponse(StatusCode::NO_RESPONDERS, _) => {
                    match self.last(stream, subject).await {
                        Err(MeshError::Forbidden { .. }) => Err(unreachable(WHAT, &error)),
                        found => found,
                    }
                }
                // The screen has replaced the headers, including the position of the message.
                DirectGetErrorKind::Other if self.is_screened() => {
                    Ok(Some(unreadable_message(subject, "it cannot be parsed")))
                }
                _ => Err(unreachable(WHAT, &error)),
            },
        }
    }

    /// Reads the last message under a subject from the stream's leader.
    pub(crate) async fn last(&self, stream: &str, subject: &str) -> Result<Option<StreamMessage>, MeshError> {
        self.message(stream, &MessageQuery::last(subject)).await
    }

    fn no_stream(&self, subject: &Subject) -> MeshError {
        MeshError::WrongSubject { subject: self.subject(subject), expected: "a subject that a stream stores" }
    }
}

impl ShardCommands<'_> {
    /// Sends a command to an execution, as this connection's caller. For a start, `id` is the
    /// execution's id; otherwise it makes the command idempotent.
    pub async fn send(
        self,
        operation: Operation,
        shard: u32,
        id: &Token,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PutOutcome, MeshError> {
        let subject =
            Subject::Command { shard, operation, caller: self.mesh.caller().clone(), id: id.clone() };
        let put = self.mesh.put_once(&subject, headers, body.clone()).await?;
        if put == PutOutcome::Taken
            && operation == Operation::Start
            && self.is_same_start(&subject, id, &body).await?
        {
            return Ok(PutOutcome::Same);
        }
        Ok(put)
    }

    /// Returns whether the stored start equals this one. Addresses of equal content differ by the
    /// storing process.
    async fn is_same_start(self, subject: &Subject, id: &Token, body: &[u8]) -> Result<bool, MeshError> {
        let stream = bucket(self.mesh.namespace(), "COMMANDS");
        let stored = self.mesh.stored(&stream, &self.mesh.subject(subject)).await?;
        let digest = |body: &[u8]| match Command::read(Operation::Start, id, body) {
            Ok(Command::Start(start)) => Some(start.digest()),
            _ => None,
        };
        let stored = stored.and_then(|stored| digest(&stored.payload));
        Ok(stored.is_some() && stored == digest(body))
    }
}

impl TaskExchange<'_> {
    /// Stores a message under a write-once subject.
    pub async fn put_once(
        self,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PutOutcome, MeshError> {
        self.mesh.put_once(subject, headers, body).await
    }

    /// Stores a task, and returns its position in the stream. An earlier one may count as taken: it
    /// is only compared if the server does not report its position.
    pub async fn put_task(
        self,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(PutOutcome, u64), MeshError> {
        let (stream, name) = (bucket(self.mesh.namespace(), "TASKS"), self.mesh.subject(subject));
        self.mesh.put_while_full(&stream, &name, passed_on(&headers), body, ROOM_TIMEOUT, false).await
    }

    /// Stores many messages concurrently; the outcomes are in the order of the messages.
    pub async fn put_all(self, parcels: Vec<OutgoingMessage>) -> Vec<Result<PutOutcome, MeshError>> {
        let puts = parcels.into_iter().map(|parcel| async move {
            self.mesh.put_once(&parcel.subject, parcel.headers, parcel.body).await
        });
        futures_util::stream::iter(puts).buffered(AT_ONCE).collect().await
    }

    /// Stores the result of a task under the subject that the task names. Rejects anything but a
    /// result subject of this mesh: the sender of a task must not choose where an agent publishes.
    pub async fn put_result(
        self,
        subject: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PutOutcome, MeshError> {
        match Subject::parse(self.mesh.namespace(), subject) {
            Some(result @ Subject::Result { .. }) => self.mesh.put_once(&result, headers, body).await,
            _ => {
                Err(MeshError::WrongSubject { subject: shown(subject), expected: "the subject of a result" })
            }
        }
    }
}

impl EventLog<'_> {
    /// Publishes an event and does not wait for it to be stored.
    pub async fn publish(self, event: &Subject, headers: HeaderMap, body: Bytes) -> Result<(), MeshError> {
        let name = self.mesh.subject(event);
        if !matches!(event, Subject::Event { .. }) {
            return Err(MeshError::WrongSubject { subject: name, expected: "the subject of an event" });
        }
        self.mesh.fits("an event", &headers, body.len())?;
        crash::before(&name);
        let published = self.mesh.client().publish_with_headers(name, clean(headers), body).await;
        published.map_err(|error| unreachable("publish an event", &error))
    }
}

/// Reply of the server to a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublishAnswer {
    /// Stored, with this sequence number.
    At(u64),
    /// Not stored: the condition on the stored messages does not hold.
    Conflict {
        /// Error text of the server.
        reason: String,
        /// Sequence number of the last message under the subject, if the server returns it.
        place: Option<u64>,
    },
    /// Not stored: disk, account or stream is full.
    NoRoom(String),
    /// No reply, or one that does not state whether it is stored.
    Unknown(String),
}

#[derive(Deserialize)]
pub(crate) struct PublishAcknowledgement {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<PublishRefusal>,
}

#[derive(Deserialize)]
struct PublishRefusal {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

impl PublishAcknowledgement {
    pub(crate) fn read(body: &[u8]) -> Result<PublishAnswer, MeshError> {
        let read: Self = match serde_json::from_slice(body) {
            Ok(read) => read,
            Err(error) => {
                return Ok(PublishAnswer::Unknown(format!("invalid acknowledgement: {error}")));
            }
        };
        match read.error {
            Some(refusal) => refusal.meaning(),
            // The server has seen this message id before, but may no longer have the message.
            None if read.duplicate => {
                Ok(PublishAnswer::Conflict { reason: "duplicate message id".to_owned(), place: None })
            }
            None if read.seq == 0 => {
                Ok(PublishAnswer::Unknown("acknowledgement without a sequence".to_owned()))
            }
            None => Ok(PublishAnswer::At(read.seq)),
        }
    }
}

impl PublishRefusal {
    fn meaning(self) -> Result<PublishAnswer, MeshError> {
        let reason = format!("{} (error {})", self.description, self.err_code);
        match (self.code, self.err_code) {
            // A lost race has two codes: another message was stored before, or is being stored now.
            // The third code is the stream's limit of one message per subject, recognized by its
            // text.
            (_, 10_071 | 10_164) => {
                let place = self.description.strip_prefix("wrong last sequence: ");
                let place = place.and_then(|place| place.parse().ok()).filter(|place| *place > 0);
                Ok(PublishAnswer::Conflict { reason, place })
            }
            (_, 10_077) if self.description.contains("maximum messages per subject") => {
                Ok(PublishAnswer::Conflict { reason, place: None })
            }
            (_, err_code) if is_lack_of_room(err_code.into(), &self.description) => {
                Ok(PublishAnswer::NoRoom(reason))
            }
            // Temporary: no leader, no quorum, shutting down.
            (503, _) => Ok(PublishAnswer::Unknown(reason)),
            _ => Err(MeshError::Refused { what: "store a message", reason }),
        }
    }
}

/// Returns the kind of the stream that stores a subject; `None` for core messages.
pub(crate) fn stream_of(subject: &Subject) -> Option<&'static str> {
    let token = match subject {
        Subject::Journal { .. } => "journal",
        Subject::History { .. } => "history",
        Subject::Command { .. } => "command",
        Subject::Task { .. } => "task",
        Subject::Result { .. } => "result",
        Subject::Event { .. } => "event",
        Subject::Card { .. } => "card",
        Subject::Workflow { .. } => "workflow",
        Subject::Quarantine { .. } => "quarantine",
        Subject::Step { .. } => "step",
        Subject::Access { .. } => "access",
        Subject::Push { .. } => "push",
        Subject::Artifact { .. } => "artifact",
        Subject::Rpc { .. }
        | Subject::Node { .. }
        | Subject::Start { .. }
        | Subject::Progress { .. }
        | Subject::Control { .. }
        | Subject::Replica { .. }
        | Subject::Query { .. } => return None,
    };
    STREAMS.iter().find(|stream| stream.subject == token).map(|stream| stream.kind)
}

/// Removes headers with commands to the server.
pub(crate) fn clean(headers: HeaderMap) -> HeaderMap {
    if headers.iter().all(|(name, _)| may_pass(name.as_ref())) {
        return headers;
    }
    only(&headers, may_pass)
}

/// Returns the headers to store with a write-once message. Commands to the server are removed, and
/// the message id, too: the server compares it over the whole stream, so another client could use
/// it first and block this message. The write-once subject already makes repetitions harmless.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    only(headers, |name| may_pass(name) && !name.eq_ignore_ascii_case(MESSAGE_ID))
}

/// Returns the headers with matching names, with all their values.
pub(crate) fn only(headers: &HeaderMap, wanted: impl Fn(&str) -> bool) -> HeaderMap {
    let mut found = HeaderMap::new();
    for (name, values) in headers.iter().filter(|(name, _)| wanted((*name).as_ref())) {
        for value in values {
            found.append(name.clone(), value.clone());
        }
    }
    found
}

/// Converts a header's value; fails for text with line breaks.
pub(crate) fn value(text: &str) -> Result<HeaderValue, MeshError> {
    text.parse().map_err(|_| MeshError::Malformed {
        what: "a header's value",
        reason: "it contains a line break".to_owned(),
    })
}

/// Size of headers on the wire; the server counts it towards its maximum message size.
pub(crate) fn headers_len(headers: &HeaderMap) -> usize {
    if headers.is_empty() {
        return 0;
    }
    let lines = headers.iter().flat_map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(move |value| name.len() + ": ".len() + value.as_str().len() + "\r\n".len())
    });
    "NATS/1.0\r\n\r\n".len() + lines.sum::<usize>()
}

/// Truncates and escapes external text for a message to a person.
fn shown(text: &str) -> String {
    text.chars().take(200).filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_has_one_meaning_each() {
        let says = |body: &str| PublishAcknowledgement::read(body.as_bytes()).map_err(|error| error.code());
        let error = |code: u32, err_code: u32, text: &str| {
            says(&format!(
                r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"{text}"}},"stream":"S","seq":0}}"#
            ))
        };
        assert_eq!(says(r#"{"stream":"S","seq":7}"#), Ok(PublishAnswer::At(7)));
        for (conflict, expected) in [
            (error(400, 10_071, "wrong last sequence: 3"), Some(3)),
            (error(400, 10_071, "wrong last sequence: 0"), None),
            (error(400, 10_071, "wrong last sequence: it has changed"), None),
            (error(400, 10_164, "wrong last sequence"), None),
            (error(503, 10_077, "maximum messages per subject exceeded"), None),
            (says(r#"{"stream":"S","seq":7,"duplicate":true}"#), None),
        ] {
            let Ok(PublishAnswer::Conflict { place, .. }) = conflict else { panic!("{conflict:?}") };
            assert_eq!(place, expected);
        }
        for unknown in [
            error(503, 10_008, "JetStream system temporarily unavailable"),
            error(503, 10_077, "the store was closed"),
            says("{}"),
            says(""),
            says(r#"{"seq":-1}"#),
            says("[[[["),
        ] {
            assert!(matches!(unknown, Ok(PublishAnswer::Unknown(_))), "{unknown:?}");
        }
        for full in [
            error(400, 10_002, "resource limits exceeded for account"),
            error(503, 10_023, "insufficient resources"),
            error(500, 10_028, "insufficient memory resources available"),
            error(500, 10_047, "insufficient storage resources available"),
            error(503, 10_077, "maximum bytes exceeded"),
            error(503, 10_077, "maximum messages exceeded"),
            error(503, 10_077, "write 1.blk: no space left on device"),
        ] {
            assert!(matches!(full, Ok(PublishAnswer::NoRoom(_))), "{full:?}");
        }
        assert_eq!(error(400, 10_060, "expected stream does not match"), Err("SINEW-7011"));
    }

    #[test]
    fn headers_are_counted_as_the_wire_has_them_and_commands_to_the_server_dropped() {
        let mut headers = HeaderMap::new();
        assert_eq!(headers_len(&headers), 0);
        headers.insert("a", "b");
        headers.append("traceparent", "00-1");
        headers.append("traceparent", "00-2");
        headers.insert("Nats-Rollup", "all");
        headers.insert("Nats-Msg-Id", "x");
        let clean = clean(headers);
        assert!(clean.get("Nats-Rollup").is_none());
        assert_eq!(clean.get_all("traceparent").count(), 2);
        assert_eq!(
            headers_len(&clean),
            "NATS/1.0\r\na: b\r\ntraceparent: 00-1\r\ntraceparent: 00-2\r\nNats-Msg-Id: x\r\n\r\n".len()
        );
        assert!(value("a\r\nb").is_err());
    }
}
