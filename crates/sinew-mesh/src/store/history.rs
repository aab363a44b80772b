//! The archive: one message per closed execution, found by id, listed by headers.
//!
//! A record that exceeds the size of a message is stored in the artifact store and referenced by
//! the message. A retried execution is archived again, and its newer record replaces the older one.

use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM};
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sinew_protocol::attributes::{ExecutionAttributes, MAX_ATTRIBUTES_BYTES};
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{ExecutionId, Subject, header};
use tokio::time::{Instant, sleep};

use crate::store::card::stream_name;
use crate::store::object::{LARGEST_OBJECT, digest_of};
use crate::store::sealed::{ObjectLocation, SealedObjects};
use crate::stream::follow;
use crate::stream::publisher::{PublishTicket, StreamPublisher};
use crate::stream::pull::{pause, redirected};
use crate::stream::send::{PublishAnswer, value};
use crate::stream::stored::MessageQuery;
use crate::{Mesh, MeshError};

/// Maximum size of a record inside its message, in bytes.
pub const LARGEST_MESSAGE: usize = 900 << 10;
/// Total time for storing a record, across timeouts and lost connections.
const PUT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait between two attempts to store a record.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Maximum length of a header with model calls when reading: eight times the maximum when writing.
const MAX_USAGE_BYTES: usize = 2048;
/// Maximum length of a fault code, when writing and reading; agents may define their own codes.
const MAX_FAULT_CODE_BYTES: usize = 100;
/// Maximum length of a route, when reading.
const MAX_ROUTE_BYTES: usize = 64;
/// Maximum length of a plan's digest, when writing and reading.
const MAX_DIGEST_BYTES: usize = 100;
/// Minimum and maximum number of messages that a list reads at a time.
pub(super) const WINDOWS: (u64, u64) = (256, 8192);

/// Summary of a closed execution, from its headers.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedExecution {
    /// Its id.
    pub execution: ExecutionId,
    /// The workflow's name.
    pub workflow: String,
    /// Its outcome: `success`, `failure` or `cancelled`.
    pub status: String,
    /// When it started, milliseconds since 1970 UTC.
    pub started: u64,
    /// When it ended, milliseconds since 1970 UTC.
    pub ended: u64,
    /// Caller who started it.
    pub caller: String,
    /// Number of rounds and verdicts in the record. It only grows, so the record with the larger
    /// number is newer. 0 in records of older versions.
    pub entries: u64,
    /// Model calls of the execution. Empty in records of older versions.
    pub usage: ModelTotals,
    /// Operator code of the fault that ended it. `None` in records of older versions.
    pub fault_code: Option<String>,
    /// Digest of its plan. `None` in records of older versions.
    pub plan: Option<String>,
    /// True if no agent was called and every output was null. False in records of older versions.
    pub is_dry_run: bool,
    /// Route of the execution. `None` in records of older versions.
    pub route: Option<String>,
    /// Attributes of the execution. Incomplete in records of older versions.
    pub attributes: ExecutionAttributes,
}

/// Filter for closed executions; absent fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Name of the workflow.
    pub workflow: Option<String>,
    /// Outcome.
    pub status: Option<String>,
    /// Caller.
    pub caller: Option<String>,
    /// Ended at or after this time, milliseconds since 1970 UTC.
    pub since: Option<u64>,
    /// Ended before this time, milliseconds since 1970 UTC.
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

/// Like [`READABLE`], for JSON.
const READABLE_JSON: &AsciiSet =
    &READABLE.remove(b'{').remove(b'}').remove(b'[').remove(b']').remove(b'"').remove(b':').remove(b',');

const CONTENT_TYPE: HeaderName = HeaderName::from_static(header::CONTENT_TYPE);
const WORKFLOW: HeaderName = HeaderName::from_static(header::WORKFLOW);
const STATUS: HeaderName = HeaderName::from_static(header::STATUS);
const STARTED: HeaderName = HeaderName::from_static(header::STARTED);
const ENDED: HeaderName = HeaderName::from_static(header::ENDED);
const CALLER: HeaderName = HeaderName::from_static(header::CALLER);
const ENTRIES: HeaderName = HeaderName::from_static(header::ENTRIES);
const USAGE: HeaderName = HeaderName::from_static(header::USAGE);
const FAULT: HeaderName = HeaderName::from_static(header::FAULT);
const PLAN: HeaderName = HeaderName::from_static(header::PLAN);
const DRY_RUN: HeaderName = HeaderName::from_static(header::DRY_RUN);
const ROUTE: HeaderName = HeaderName::from_static(header::ROUTE);
const ATTRIBUTES: HeaderName = HeaderName::from_static(header::ATTRIBUTES);

impl ClosedExecution {
    fn headers(&self) -> HeaderMap {
        let text = |text: &str| utf8_percent_encode(text, READABLE).to_string();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, header::PROTOBUF);
        headers.insert(WORKFLOW, text(&self.workflow));
        headers.insert(STATUS, text(&self.status));
        headers.insert(STARTED, HeaderValue::from(self.started));
        headers.insert(ENDED, HeaderValue::from(self.ended));
        headers.insert(CALLER, text(&self.caller));
        headers.insert(ENTRIES, HeaderValue::from(self.entries));
        if let Some(usage) = self.usage.to_json() {
            headers.insert(USAGE, usage);
        }
        if let Some(code) = self.fault_code.as_deref().filter(|code| code.len() <= MAX_FAULT_CODE_BYTES) {
            headers.insert(FAULT, text(code));
        }
        if let Some(plan) = self.plan.as_deref().filter(|plan| plan.len() <= MAX_DIGEST_BYTES) {
            headers.insert(PLAN, text(plan));
        }
        if let Some(route) = &self.route {
            headers.insert(ROUTE, text(route));
        }
        if let Some(attributes) = self.attributes.to_json() {
            headers.insert(ATTRIBUTES, utf8_percent_encode(&attributes, READABLE_JSON).to_string());
        }
        if self.is_dry_run {
            headers.insert(DRY_RUN, "true");
        }
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
            entries: entries_of(headers),
            // A row without model calls is better than no row.
            usage: raw(header::USAGE)
                .filter(|usage| usage.len() <= MAX_USAGE_BYTES)
                .map(ModelTotals::from_json)
                .unwrap_or_default(),
            fault_code: text(header::FAULT).filter(|code| code.len() <= MAX_FAULT_CODE_BYTES),
            plan: text(header::PLAN).filter(|plan| plan.len() <= MAX_DIGEST_BYTES),
            is_dry_run: raw(header::DRY_RUN) == Some("true"),
            route: text(header::ROUTE).filter(|route| route.len() <= MAX_ROUTE_BYTES),
            attributes: attributes_of(raw(header::ROUTE).is_some(), text(header::ATTRIBUTES)),
        })
    }
}

/// Parses attributes. Records of older versions have none, and no route.
fn attributes_of(is_current: bool, json: Option<String>) -> ExecutionAttributes {
    let json = json.filter(|json| json.len() <= MAX_ATTRIBUTES_BYTES);
    let mut attributes = json.map(|json| ExecutionAttributes::from_json(&json)).unwrap_or_default();
    attributes.incomplete |= !is_current;
    attributes
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
    fn records(self) -> SealedObjects {
        SealedObjects::new(self.mesh, "record")
    }

    /// Archives a closed execution; `record` is protobuf `ExecutionRecord`. Repeatable. A record
    /// never replaces one with more entries: its writer has lost the shard without noticing.
    pub async fn put(self, closed: &ClosedExecution, record: Bytes) -> Result<(), MeshError> {
        const WHAT: &str = "archive an execution";
        let mut headers = closed.headers();
        let mut body = record;
        if body.len() > LARGEST_MESSAGE {
            // Store the object first: a message must not reference a missing object.
            let id = record_id(&closed.execution, &digest_of(&body).await);
            let object = self.records().place(&closed.execution, id);
            self.records().put(&object, &body).await?;
            headers.insert(header::OBJECT, object.reference());
            body = Bytes::new();
        }
        let (stream, subject) = self.place(&closed.execution);
        headers.insert(NATS_EXPECTED_STREAM, value(&stream)?);
        self.mesh.fits("a record", &headers, body.len())?;
        let (began, mut attempt, mut after) = (Instant::now(), 0, 0);
        loop {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(after));
            let reason = match self.mesh.publish(&subject, headers.clone(), body.clone()).await? {
                PublishAnswer::At(_) => return Ok(()),
                PublishAnswer::NoRoom(reason) => return Err(MeshError::NoRoom { what: WHAT, reason }),
                PublishAnswer::Conflict { reason, .. } | PublishAnswer::Unknown(reason) => reason,
            };
            // If reading fails, too, retry, as if the record had not been stored.
            match self.mesh.message(&stream, &MessageQuery::last(&subject)).await {
                Ok(Some(found)) if replaces(&found.headers, closed, &body, &found.payload) => {
                    after = found.sequence;
                }
                Ok(Some(_)) => return Ok(()),
                Ok(None) => after = 0,
                Err(refused @ (MeshError::Refused { .. } | MeshError::Forbidden { .. })) => {
                    return Err(refused);
                }
                Err(_) => {}
            }
            if began.elapsed() > PUT_TIMEOUT {
                return Err(MeshError::Unreachable { what: WHAT, reason });
            }
            attempt += 1;
            sleep(pause(attempt, MAX_PAUSE)).await;
        }
    }

    /// Sends the record of an execution that was never archived, without waiting; `None` if that is
    /// not possible. Unless it is acknowledged as stored, the caller continues with
    /// [`HistoryStore::put`].
    pub async fn send(
        self,
        publisher: &mut StreamPublisher,
        closed: &ClosedExecution,
        record: Bytes,
    ) -> Option<PublishTicket> {
        if record.len() > LARGEST_MESSAGE {
            return None;
        }
        let (stream, subject) = self.place(&closed.execution);
        publisher.send_behind(&stream, subject, 0, closed.headers(), record).await
    }

    /// Returns stream and subject of the record of an execution.
    fn place(self, execution: &ExecutionId) -> (String, String) {
        let subject = self.mesh.subject(&Subject::History { execution: execution.clone() });
        (stream_name("HISTORY", self.mesh.namespace()), subject)
    }

    /// Returns the record of a closed execution and its headers; `None` if it is not archived.
    pub async fn get(self, execution: &ExecutionId) -> Result<Option<(ClosedExecution, Bytes)>, MeshError> {
        self.get_within(execution, LARGEST_OBJECT).await
    }

    /// Like [`HistoryStore::get`], with a size limit: [`MeshError::TooLarge`] states the size of a
    /// larger record.
    pub async fn get_within(
        self,
        execution: &ExecutionId,
        max_bytes: usize,
    ) -> Result<Option<(ClosedExecution, Bytes)>, MeshError> {
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
            return Err(damaged("it was not written by an executor"));
        }
        let closed = ClosedExecution::read(execution.clone(), &message.headers)
            .ok_or_else(|| damaged("its headers cannot be read"))?;
        let Some(reference) = message.headers.get(header::OBJECT) else {
            let (size, limit) = (message.payload.len() as u64, max_bytes as u64);
            if size > limit {
                return Err(MeshError::TooLarge { what: "record", size, limit });
            }
            return Ok(Some((closed, message.payload)));
        };
        let object = ObjectLocation::named(execution, reference.as_str())?;
        // Verify that the object belongs to this execution and has these bytes, independent of the
        // message.
        let other = || damaged("the object that it names is a different one");
        if !object.id.starts_with(&record_id(execution, "")) {
            return Err(other());
        }
        let record = self.records().get_within(&object, max_bytes).await?;
        if record_id(execution, &record.sha256) != object.id {
            return Err(other());
        }
        Ok(Some((closed, record.bytes)))
    }

    /// Lists at most `limit` closed executions, the last archived first. Reads headers only.
    pub async fn list(self, filter: &HistoryFilter, limit: usize) -> Result<Vec<ClosedExecution>, MeshError> {
        let mut list = Vec::new();
        let mut windows = HistoryWindows::open(self.mesh, limit).await?;
        while list.len() < limit
            && let Some(found) = windows.next().await?
        {
            // Older windows have only executions that ended before.
            let is_last =
                filter.since.is_some_and(|since| found.first_archived.saturating_add(found.drift) < since);
            let found = found.executions.into_iter().rev().map(|(_, closed)| closed);
            list.extend(found.filter(|closed| filter.takes(closed)));
            if is_last {
                break;
            }
        }
        list.truncate(limit);
        Ok(list)
    }
}

/// Windows of the history, from the last archived record to the first.
struct HistoryWindows<'m> {
    mesh: &'m Mesh,
    first: u64,
    end: u64,
    window: u64,
}

/// A window of the history, in archiving order.
pub(super) struct HistoryWindow {
    /// Closed executions with the sequence numbers of their records.
    pub(super) executions: Vec<(u64, ClosedExecution)>,
    /// When the first record of the window was archived, milliseconds since 1970 UTC; the maximum
    /// if it has none.
    pub(super) first_archived: u64,
    /// Maximum time in milliseconds by which an execution ended after it was archived, due to clock
    /// differences.
    pub(super) drift: u64,
}

impl<'m> HistoryWindows<'m> {
    async fn open(mesh: &'m Mesh, limit: usize) -> Result<Self, MeshError> {
        let extent = HistoryExtent::read(mesh).await?;
        let window = (limit as u64).saturating_mul(2).clamp(WINDOWS.0, WINDOWS.1);
        Ok(Self { mesh, first: extent.first, end: extent.end, window })
    }

    /// Returns the next window; `None` after the last.
    async fn next(&mut self) -> Result<Option<HistoryWindow>, MeshError> {
        if self.end < self.first {
            return Ok(None);
        }
        let begin = self.end.saturating_sub(self.window - 1).max(self.first);
        let found = HistoryWindow::read(self.mesh, begin, self.end).await?;
        // Windows grow, because selective filters read many records.
        (self.end, self.window) = (begin - 1, (2 * self.window).min(WINDOWS.1));
        Ok(Some(found))
    }
}

/// Sequence numbers of the first and the last record in the history stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryExtent {
    /// When the stream was created, nanoseconds since 1970 UTC: a new stream restarts its sequence
    /// numbers.
    pub(super) created: i128,
    /// Sequence number of the first record, at least 1.
    pub(super) first: u64,
    /// Sequence number of the last record ever archived; 0 if none was.
    pub(super) end: u64,
}

impl HistoryExtent {
    pub(super) async fn read(mesh: &Mesh) -> Result<Self, MeshError> {
        let name = stream_name("HISTORY", mesh.namespace());
        let info = mesh.stream_info(&name).await?.ok_or_else(|| mesh.not_provisioned())?;
        let (created, state) = (info.created.unix_timestamp_nanos(), info.state);
        let end = if state.messages > 0 { state.last_sequence } else { 0 };
        Ok(Self { created, first: state.first_sequence.max(1), end })
    }
}

impl HistoryWindow {
    /// Reads the headers of the records in a range of sequence numbers.
    pub(super) async fn read(mesh: &Mesh, begin: u64, end: u64) -> Result<Self, MeshError> {
        let mut found = Self { executions: Vec::new(), first_archived: u64::MAX, drift: 0 };
        let config = pull::Config {
            headers_only: true,
            filter_subject: sinew_protocol::subject::below(mesh.namespace(), &["history"]),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: begin },
            inactive_threshold: Duration::from_secs(10),
            ..follow::quiet()
        };
        let stream = stream_name("HISTORY", mesh.namespace());
        follow::sweep_with(mesh, &stream, config, |message| {
            let Ok(info) = message.info() else { return true };
            let place = info.stream_sequence;
            if place > end {
                return false;
            }
            let archived =
                u64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).unwrap_or(u64::MAX);
            found.first_archived = found.first_archived.min(archived);
            if let Some(Subject::History { execution }) = Subject::parse(mesh.namespace(), &message.subject)
                && let Some(closed) =
                    message.headers.as_ref().and_then(|headers| ClosedExecution::read(execution, headers))
            {
                found.drift = found.drift.max(closed.ended.saturating_sub(archived));
                found.executions.push((place, closed));
            }
            place < end
        })
        .await?;
        Ok(found)
    }
}

/// Returns the number of entries according to a record's headers; 0 if missing.
fn entries_of(headers: &HeaderMap) -> u64 {
    headers.get(header::ENTRIES).and_then(|entries| entries.as_str().parse().ok()).unwrap_or_default()
}

/// Returns whether a record replaces a stored one: it has more entries, or the stored one has no
/// count and differs.
/// differs.
fn replaces(stored: &HeaderMap, closed: &ClosedExecution, body: &Bytes, stored_body: &Bytes) -> bool {
    let (stored_entries, object) = (entries_of(stored), stored.get(header::OBJECT).is_some());
    closed.entries > stored_entries || (stored_entries == 0 && (object || body != stored_body))
}

/// Id of a record among the stored objects; distinct from task ids, which are hashes.
fn record_id(execution: &ExecutionId, sha256: &str) -> String {
    format!("{execution}.history.{sha256}")
}
