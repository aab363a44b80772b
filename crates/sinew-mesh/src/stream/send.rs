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

/// How long one publish waits for its acknowledgement before the subject is read back.
const ACK: Duration = Duration::from_secs(5);
/// How long a publish is pursued through timeouts and lost connections before the caller hears of it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a publish is repeated while the server says that it is full.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait between two attempts.
const SLOWEST: Duration = Duration::from_secs(1);
/// Publishes of [`TaskExchange::put_all`] that are under way at once.
const AT_ONCE: usize = 256;
/// More than the headers take with which a message is stored once: the stream's name and the condition.
pub(crate) const FENCE: usize = 256;

/// Outcome of a message that may be stored once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is stored, by this call.
    New,
    /// The same body is stored already.
    Same,
    /// Another body is stored under this subject.
    Taken,
}

/// A message for [`TaskExchange::put_all`].
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    /// Where to.
    pub subject: Subject,
    /// Headers; what commands the server is dropped.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Mesh {
    /// Stores a message under a subject that takes one message ever.
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

    /// Refuses what is larger than the server takes, headers counted, before anything is sent.
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

    /// Stores a message under a subject that takes one. Repeats it for `room_timeout` if the server is full.
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

    /// Stores a message under a subject that takes one. Its headers may be orders to the server.
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

    /// Stores a message, and tells the place of the one that is stored. Unless it `compares`, one that the server names as
    /// stored before counts as taken, and is not read.
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
            // A server that cannot be read either is asked again, like one that has not stored the message.
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

    /// Publishes once and says what the server says; an error is final, and nothing was stored.
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
                    // No stream takes the subject: it does not exist, or the server's JetStream has not started yet.
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

    /// The message under a subject that takes one; a replica may answer that has not seen it yet, so "none" is not proof.
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
                // A stream that is not ready yet has a leader at most, whom not everybody may ask.
                DirectGetErrorKind::ErrorResponse(StatusCode::NO_RESPONDERS, _) => {
                    match self.last(stream, subject).await {
                        Err(MeshError::Forbidden { .. }) => Err(unreachable(WHAT, &error)),
                        found => found,
                    }
                }
                // The screen has replaced the headers, and with them where the message lies.
                DirectGetErrorKind::Other if self.is_screened() => {
                    Ok(Some(unreadable_message(subject, "it cannot be parsed")))
                }
                _ => Err(unreachable(WHAT, &error)),
            },
        }
    }

    /// The last message under a subject, as the stream's leader knows it.
    pub(crate) async fn last(&self, stream: &str, subject: &str) -> Result<Option<StreamMessage>, MeshError> {
        self.message(stream, &MessageQuery::last(subject)).await
    }

    fn no_stream(&self, subject: &Subject) -> MeshError {
        MeshError::WrongSubject { subject: self.subject(subject), expected: "a subject that a stream stores" }
    }
}

impl ShardCommands<'_> {
    /// Asks something of an execution, as this connection's caller. For a start, `id` is the execution's id; for the rest
    /// it makes the request one that is heeded once.
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

    /// Whether the stored start asks for the same as this one. Addresses of one content differ by the process that stored it.
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
    /// Stores a message under a subject that takes one message ever.
    pub async fn put_once(
        self,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<PutOutcome, MeshError> {
        self.mesh.put_once(subject, headers, body).await
    }

    /// Stores a task, and tells its place in the stream. One that was stored before may count as taken: it is compared only
    /// if the server does not name its place.
    pub async fn put_task(
        self,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(PutOutcome, u64), MeshError> {
        let (stream, name) = (bucket(self.mesh.namespace(), "TASKS"), self.mesh.subject(subject));
        self.mesh.put_while_full(&stream, &name, passed_on(&headers), body, ROOM_TIMEOUT, false).await
    }

    /// Stores many messages, many at once; the outcomes are in the order of the messages.
    pub async fn put_all(self, parcels: Vec<OutgoingMessage>) -> Vec<Result<PutOutcome, MeshError>> {
        let puts = parcels.into_iter().map(|parcel| async move {
            self.mesh.put_once(&parcel.subject, parcel.headers, parcel.body).await
        });
        futures_util::stream::iter(puts).buffered(AT_ONCE).collect().await
    }

    /// Stores the result of a task under the subject that the task named. Anything but a result's subject of this mesh is
    /// refused: whoever sent the task must not choose where an agent writes.
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

/// Answer of the server to a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublishAnswer {
    /// Stored, at this place in the stream.
    At(u64),
    /// Not stored: the condition on what is stored already does not hold.
    Conflict {
        /// Words of the server.
        reason: String,
        /// Place of the last message under the subject, if the server names one.
        place: Option<u64>,
    },
    /// Not stored: disk, account or stream is full.
    NoRoom(String),
    /// No answer, or one that leaves open whether it is stored.
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
            // The server has seen this message id before; that it still has the message is not said.
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
            // A lost race has two codes: another message came before, or is being stored at this moment. The third is the
            // stream's own limit of one message per subject, told by its words only.
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
            // Not now: no leader, no quorum, shutting down.
            (503, _) => Ok(PublishAnswer::Unknown(reason)),
            _ => Err(MeshError::Refused { what: "store a message", reason }),
        }
    }
}

/// The kind of the stream that keeps a subject; none for what travels without one.
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

/// Headers without commands to the server.
pub(crate) fn clean(headers: HeaderMap) -> HeaderMap {
    if headers.iter().all(|(name, _)| may_pass(name.as_ref())) {
        return headers;
    }
    only(&headers, may_pass)
}

/// The headers that go along with a message that its subject takes once. No orders to the server, nor a message id: the server
/// compares it over the whole stream, so that a stranger who used it first would keep this message out. That a subject takes
/// one message is what makes a repetition harmless.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    only(headers, |name| may_pass(name) && !name.eq_ignore_ascii_case(MESSAGE_ID))
}

/// The headers whose names these are, with all their values.
pub(crate) fn only(headers: &HeaderMap, wanted: impl Fn(&str) -> bool) -> HeaderMap {
    let mut found = HeaderMap::new();
    for (name, values) in headers.iter().filter(|(name, _)| wanted((*name).as_ref())) {
        for value in values {
            found.append(name.clone(), value.clone());
        }
    }
    found
}

/// A header's value; text with line breaks is none.
pub(crate) fn value(text: &str) -> Result<HeaderValue, MeshError> {
    text.parse().map_err(|_| MeshError::Malformed {
        what: "a header's value",
        reason: "it contains a line break".to_owned(),
    })
}

/// Bytes of headers on the wire; the server counts them against its largest message.
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

/// Text from outside, short enough for a message to a person.
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
