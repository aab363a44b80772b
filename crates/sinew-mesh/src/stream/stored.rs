//! Single messages of a stream, read from its leader in JSON, so that no message breaks the
//! connection.

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use sinew_protocol::header::UNDELIVERABLE;
use time::OffsetDateTime;

use crate::stream::pull::{answer, unreachable};
use crate::wire::parse_headers;
use crate::{Mesh, MeshError};

/// Timeout of one reply.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
/// The server's error code for a missing message.
const NO_MESSAGE_FOUND: u64 = 10_037;

/// Selects a message of a stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MessageQuery<'a> {
    /// The message with this sequence number, or the first one from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// The last message of this subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_by_subj: Option<&'a str>,
    /// The first message of this subject at or after the sequence number.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_by_subj: Option<&'a str>,
}

impl<'a> MessageQuery<'a> {
    /// The last message of a subject.
    pub(crate) fn last(subject: &'a str) -> Self {
        Self { seq: None, last_by_subj: Some(subject), next_by_subj: None }
    }

    /// The first message of a subject at or after a sequence number.
    pub(crate) fn next(subject: &'a str, seq: u64) -> Self {
        Self { seq: Some(seq), last_by_subj: None, next_by_subj: Some(subject) }
    }

    /// The message with a sequence number.
    pub(crate) fn at(seq: u64) -> Self {
        Self { seq: Some(seq), last_by_subj: None, next_by_subj: None }
    }
}

/// A message in the server's JSON format.
#[derive(Deserialize)]
struct WrittenMessage {
    #[serde(default)]
    subject: String,
    seq: u64,
    /// The body, base64; absent if empty.
    #[serde(default)]
    data: String,
    /// The header block, base64; absent if missing.
    #[serde(default)]
    hdrs: String,
    time: String,
}

#[derive(Deserialize)]
struct WrittenAnswer {
    message: WrittenMessage,
}

/// Parses the server's reply with a message; `None` if the message does not exist. If the client
/// library cannot parse its headers, one header replaces them, see [`crate::wire::undeliverable`].
pub fn read_stored(answer: &[u8]) -> Result<Option<StreamMessage>, MeshError> {
    const WHAT: &str = "read a stored message";
    let malformed =
        |reason: String| MeshError::Malformed { what: "the server's response for a message", reason };
    let written: Response<WrittenAnswer> =
        serde_json::from_slice(answer).map_err(|error| malformed(error.to_string()))?;
    let written = match written {
        Response::Ok(WrittenAnswer { message }) => message,
        Response::Err { error } if error.error_code().0 == NO_MESSAGE_FOUND => return Ok(None),
        // A server without a leader or in shutdown returns 503: the request can be retried.
        Response::Err { error } => {
            let (status, code) = (error.code() as u64, error.error_code().0);
            return Err(MeshError::of_answer(WHAT, status, code, error.to_string()));
        }
    };
    let bytes = |text: &str| BASE64.decode(text.as_bytes()).map_err(|error| malformed(error.to_string()));
    let (payload, block) = (Bytes::from(bytes(&written.data)?), bytes(&written.hdrs)?);
    let headers = if block.is_empty() { Ok(HeaderMap::new()) } else { parse_headers(&block) };
    let headers = headers.unwrap_or_else(|defect| unreadable_headers(&defect.to_string()));
    let time =
        async_nats::datetime::parse_rfc3339(&written.time).map_err(|error| malformed(error.to_string()))?;
    let subject = written.subject.into();
    Ok(Some(StreamMessage { subject, sequence: written.seq, headers, payload, time }))
}

/// Returns the headers that replace unreadable ones.
fn unreadable_headers(reason: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(reason) = reason.parse::<HeaderValue>() {
        headers.insert(UNDELIVERABLE, reason);
    }
    headers
}

/// Returns a placeholder for a message that exists but cannot be read.
pub(crate) fn unreadable_message(subject: &str, reason: &str) -> StreamMessage {
    StreamMessage {
        subject: subject.into(),
        sequence: 0,
        headers: unreadable_headers(reason),
        payload: Bytes::new(),
        time: OffsetDateTime::UNIX_EPOCH,
    }
}

impl Mesh {
    /// Returns one message of a stream from its leader; `None` if it does not exist.
    pub(crate) async fn message(
        &self,
        stream: &str,
        query: &MessageQuery<'_>,
    ) -> Result<Option<StreamMessage>, MeshError> {
        const WHAT: &str = "read a stored message";
        let jetstream = self.jetstream();
        let asked = jetstream
            .request::<_, _, Box<serde_json::value::RawValue>>(format!("STREAM.MSG.GET.{stream}"), query);
        let call = format!("$JS.API.STREAM.MSG.GET.{stream}");
        let got = self.permitted(&call, answer(self, WHAT, ANSWER_TIMEOUT, asked)).await??;
        let got = got.map_err(|error| unreachable(WHAT, &error))?;
        read_stored(got.get().as_bytes())
    }

    /// Returns the first message with matching subjects after a sequence number, from the stream's
    /// leader: readers of a replica that lags or is being restored may never receive it.
    pub(crate) async fn unread(
        &self,
        stream: &str,
        filter: &str,
        behind: u64,
    ) -> Result<Option<StreamMessage>, MeshError> {
        self.message(stream, &MessageQuery::next(filter, behind + 1)).await
    }
}
