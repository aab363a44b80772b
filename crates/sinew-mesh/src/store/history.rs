//! The archive: one message per closed execution, found by id, listed by headers.
//!
//! A record above the size of a message lies in the artifact store, and the message names it. A retried execution is
//! archived again, and its newer record takes the older one's place.

use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sinew_protocol::artifact::sha256;
use sinew_protocol::stream::ARTIFACTS;
use sinew_protocol::{ExecutionId, Subject, header};

use crate::store::card::stream_name;
use crate::store::object::{self, ObjectBucket};
use crate::stream::follow;
use crate::stream::pull::redirected;
use crate::stream::stored::MessageQuery;
use crate::{Mesh, MeshError};

/// The largest record that travels in its message, in bytes.
pub const LARGEST_MESSAGE: usize = 900 << 10;
/// The fewest and the most messages that a list looks at in one go.
const WINDOWS: (u64, u64) = (256, 8192);

/// Summary of a closed execution, from its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedExecution {
    /// Its id.
    pub execution: ExecutionId,
    /// The workflow's name.
    pub workflow: String,
    /// How it ended: `success`, `failure` or `cancelled`.
    pub status: String,
    /// When it began, milliseconds since 1970 UTC.
    pub started: u64,
    /// When it ended, milliseconds since 1970 UTC.
    pub ended: u64,
    /// Caller who started it.
    pub caller: String,
}

/// Which closed executions are wanted; what is not said does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Of this workflow.
    pub workflow: Option<String>,
    /// That ended like this.
    pub status: Option<String>,
    /// Of this caller.
    pub caller: Option<String>,
    /// That ended at or after this time, milliseconds since 1970 UTC.
    pub since: Option<u64>,
    /// That ended before this time, milliseconds since 1970 UTC.
    pub until: Option<u64>,
}

impl HistoryFilter {
    fn takes(&self, closed: &ClosedExecution) -> bool {
        let same = |want: &Option<String>, is: &str| want.as_deref().is_none_or(|want| want == is);
        same(&self.workflow, &closed.workflow)
            && same(&self.status, &closed.status)
            && same(&self.caller, &closed.caller)
            && self.since.is_none_or(|since| closed.ended >= since)
            && self.until.is_none_or(|until| closed.ended < until)
    }
}

/// Characters that stay readable in a header; all others are percent-encoded.
const READABLE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@').remove(b' ');

impl ClosedExecution {
    fn headers(&self) -> HeaderMap {
        let text = |text: &str| utf8_percent_encode(text, READABLE).to_string();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, header::PROTOBUF);
        headers.insert(header::WORKFLOW, text(&self.workflow));
        headers.insert(header::STATUS, text(&self.status));
        headers.insert(header::STARTED, self.started.to_string());
        headers.insert(header::ENDED, self.ended.to_string());
        headers.insert(header::CALLER, text(&self.caller));
        headers
    }

    fn read(execution: ExecutionId, headers: &HeaderMap) -> Option<Self> {
        let raw = |name: &'static str| headers.get(name).map(HeaderValue::as_str);
        let text = |name| Some(percent_decode_str(raw(name)?).decode_utf8().ok()?.into_owned());
        Some(Self {
            execution,
            workflow: text(header::WORKFLOW)?,
            status: text(header::STATUS)?,
            started: raw(header::STARTED)?.parse().ok()?,
            ended: raw(header::ENDED)?.parse().ok()?,
            caller: text(header::CALLER)?,
        })
    }
}

/// History of a mesh: the records of closed executions.
#[derive(Clone, Copy, Debug)]
pub struct HistoryStore<'a> {
    mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the history of this mesh.
    pub fn history(&self) -> HistoryStore<'_> {
        HistoryStore { mesh: self }
    }
}

impl HistoryStore<'_> {
    fn records(self) -> ObjectBucket {
        ObjectBucket::new(self.mesh, ARTIFACTS, "record")
    }

    /// Archives a closed execution; `record` is protobuf `ExecutionRecord`. The same again is the same.
    pub async fn put(self, closed: &ClosedExecution, record: Bytes) -> Result<(), MeshError> {
        let mut headers = closed.headers();
        let mut body = record;
        if body.len() > LARGEST_MESSAGE {
            // The object first: a message must not name what is not there yet.
            let key = record_key(&closed.execution, &sha256(&body));
            self.records().put(&key, [], &body).await?;
            headers.insert(header::OBJECT, key);
            body = Bytes::new();
        }
        let subject = self.mesh.subject(&Subject::History { execution: closed.execution.clone() });
        object::store_with(self.mesh, "archiving an execution", subject, headers, body).await.map(drop)
    }

    /// The record of a closed execution, and what its headers say; none when it is not archived.
    pub async fn get(self, execution: &ExecutionId) -> Result<Option<(ClosedExecution, Bytes)>, MeshError> {
        let stream = stream_name("HISTORY", self.mesh.namespace());
        let subject = self.mesh.subject(&Subject::History { execution: execution.clone() });
        let Some(message) = self.mesh.message(&stream, &MessageQuery::last(&subject)).await? else {
            return Ok(None);
        };
        let damaged = |reason: &str| MeshError::Damaged {
            what: "the record of execution",
            id: execution.to_string(),
            reason: reason.to_owned(),
        };
        if redirected(&message.headers) {
            return Err(damaged("no executor wrote it"));
        }
        let closed = ClosedExecution::read(execution.clone(), &message.headers)
            .ok_or_else(|| damaged("its headers cannot be read"))?;
        let Some(key) = message.headers.get(header::OBJECT) else {
            return Ok(Some((closed, message.payload)));
        };
        let (_, record) = self.records().get(key.as_str()).await?;
        // The key must be this execution's and name these bytes, whatever the message says.
        if record_key(execution, &sha256(&record)) != key.as_str() {
            return Err(damaged("the object it names is another one"));
        }
        Ok(Some((closed, record)))
    }

    /// Closed executions, those archived last first, at most `limit`. Reads headers only.
    pub async fn list(self, filter: &HistoryFilter, limit: usize) -> Result<Vec<ClosedExecution>, MeshError> {
        let what = "listing the archive";
        let name = stream_name("HISTORY", self.mesh.namespace());
        let call = format!("$JS.API.STREAM.INFO.{name}");
        let stream = self.mesh.permitted(&call, self.mesh.jetstream().get_stream(&name)).await?;
        let stream = stream.map_err(|error| MeshError::Refused { what, reason: error.to_string() })?;
        let state = &stream.cached_info().state;
        let (first, mut end) = (state.first_sequence.max(1), state.last_sequence);
        let mut window = (limit as u64).saturating_mul(2).clamp(WINDOWS.0, WINDOWS.1);
        let mut list = Vec::new();
        while list.len() < limit && state.messages > 0 && end >= first {
            let begin = end.saturating_sub(window - 1).max(first);
            let mut found = Vec::new();
            let config = pull::Config {
                headers_only: true,
                filter_subject: sinew_protocol::subject::below(self.mesh.namespace(), &["history"]),
                deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: begin },
                inactive_threshold: Duration::from_secs(10),
                ..follow::quiet()
            };
            follow::sweep_with(self.mesh, &name, config, |message| {
                if message.info().is_ok_and(|info| info.stream_sequence > end) {
                    return false;
                }
                let Some(Subject::History { execution }) =
                    Subject::parse(self.mesh.namespace(), &message.subject)
                else {
                    return true;
                };
                let closed =
                    message.headers.as_ref().and_then(|headers| ClosedExecution::read(execution, headers));
                found.extend(closed.filter(|closed| filter.takes(closed)));
                true
            })
            .await?;
            list.extend(found.into_iter().rev());
            // Filters that take little look at much: the windows grow.
            (end, window) = (begin - 1, (2 * window).min(WINDOWS.1));
        }
        list.truncate(limit);
        Ok(list)
    }
}

/// The key of a record in the artifact store; no task has this name, for a task's id is a hash.
fn record_key(execution: &ExecutionId, sha256: &str) -> String {
    format!("{execution}.history.{sha256}")
}
