//! Plans in their bucket, in the format of NATS object stores, without the rights that the client's
//! implementation requires.
//!
//! The client's object store queries the stream's configuration, creates a consumer to read, and
//! rolls up its writes. Agents are not permitted to do that. This implementation reads by direct
//! gets, and leaves an existing object unchanged: keys identify contents, so the stored object
//! equals the new one.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::object_store::{ObjectInfo, ObjectOptions};
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use bytes::{Bytes, BytesMut};
use data_encoding::{BASE64URL, HEXLOWER};
use sinew_protocol::artifact::sha256;
use sinew_protocol::id::is_token;
use sinew_protocol::stream::bucket;

use crate::stream::pull::answer;
use crate::stream::stored::MessageQuery;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError, crash};

/// Bytes of one piece of an object.
pub(crate) const CHUNK: usize = 128 << 10;
/// Minimum average size of the pieces of an object when reading; other clients write 128 KiB, too.
const MIN_CHUNK: usize = 16 << 10;
/// Pieces in flight.
const WINDOW: usize = 8;
/// Maximum size of an object, in bytes: it is held in memory.
pub const LARGEST_OBJECT: usize = 256 << 20;

/// Size from which a digest is computed on another thread, because it takes longer than a small
/// message.
const LARGE_DIGEST_BYTES: usize = 256 << 10;

/// An object that was read.
pub(crate) struct StoredObject {
    pub(crate) bytes: Bytes,
    /// sha256 of the bytes, as lower-case hex.
    pub(crate) sha256: String,
}

/// One bucket.
#[derive(Clone)]
pub(crate) struct ObjectBucket {
    mesh: Mesh,
    bucket: String,
    what: &'static str,
}

impl ObjectBucket {
    /// Returns the bucket of this kind; `what` names its objects in errors.
    pub(crate) fn new(mesh: &Mesh, kind: &str, what: &'static str) -> Self {
        Self { mesh: mesh.clone(), bucket: bucket(mesh.namespace(), kind), what }
    }

    /// Returns the stream of the bucket.
    pub(crate) fn stream_name(&self) -> String {
        format!("OBJ_{}", self.bucket)
    }

    fn description(&self, key: &str) -> String {
        format!("$O.{}.M.{}", self.bucket, BASE64URL.encode(key.as_bytes()))
    }

    /// Stores bytes under a key that identifies them; `sha256` is their digest, see [`digest_of`].
    pub(crate) async fn put(
        &self,
        key: &str,
        sha256: &str,
        metadata: impl IntoIterator<Item = (&'static str, String)>,
        bytes: &Bytes,
    ) -> Result<(), MeshError> {
        if bytes.len() > LARGEST_OBJECT {
            let (size, limit) = (bytes.len() as u64, LARGEST_OBJECT as u64);
            return Err(MeshError::TooLarge { what: self.what, size, limit });
        }
        let subject = self.description(key);
        let digest = object_digest(sha256);
        let before = match self.last(&subject, true).await? {
            None => 0,
            Some(message) => {
                let info = serde_json::from_slice::<ObjectInfo>(&message.payload).ok();
                if info.is_some_and(|info| !info.deleted && info.digest.as_ref() == Some(&digest)) {
                    return Ok(());
                }
                message.sequence
            }
        };
        let nuid = uuid::Uuid::now_v7().simple().to_string();
        let pieces = format!("$O.{}.C.{nuid}", self.bucket);
        let chunks = self.pieces(key, &pieces, bytes).await?;
        let info = ObjectInfo {
            name: key.to_owned(),
            description: None,
            metadata: metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            headers: None,
            options: Some(ObjectOptions { link: None, max_chunk_size: Some(CHUNK) }),
            bucket: self.bucket.clone(),
            nuid,
            size: bytes.len(),
            chunks,
            modified: Some(time::OffsetDateTime::now_utc()),
            digest: Some(digest),
            deleted: false,
        };
        let info = serde_json::to_vec(&info)
            .map_err(|error| MeshError::Malformed { what: self.what, reason: error.to_string() })?;
        match store(&self.mesh, STORING, subject.clone(), Some(before), info.into()).await {
            // Another process has stored the same key; equal names mean equal bytes.
            Err(MeshError::Refused { .. })
                if self.last(&subject, true).await?.is_some_and(|found| found.sequence > before) =>
            {
                Ok(())
            }
            stored => stored.map(drop),
        }
    }

    /// Publishes the pieces of an object, several in flight, in stream order.
    async fn pieces(&self, key: &str, subject: &str, bytes: &Bytes) -> Result<usize, MeshError> {
        let starts: Vec<usize> = (0..bytes.len()).step_by(CHUNK).collect();
        let (mut sent, mut last) = (VecDeque::new(), 0);
        for n in 0..starts.len() + WINDOW {
            if let Some(start) = starts.get(n) {
                let piece = bytes.slice(*start..bytes.len().min(start + CHUNK));
                crash::before(subject);
                crash::sent(&self.mesh, subject, &HeaderMap::new(), &piece).await;
                let ack = self.mesh.jetstream().publish(subject.to_owned(), piece).await;
                sent.push_back(ack.map_err(|error| failed(STORING, &error))?);
            }
            if n + 1 < WINDOW {
                continue;
            }
            let Some(ack) = sent.pop_front() else { break };
            let ack = self.mesh.permitted(subject, ack.into_future()).await?;
            let seq = ack.map_err(|error| failed(STORING, &error))?.sequence;
            if seq <= last {
                let reason = "its pieces were stored out of order".to_owned();
                return Err(MeshError::Damaged { what: self.what, id: key.to_owned(), reason });
            }
            last = seq;
            crash::after(subject);
        }
        Ok(starts.len())
    }

    /// Reads the bytes under a key up to a size limit, and verifies them against the stored digest.
    pub(crate) async fn get_within(&self, key: &str, max_bytes: usize) -> Result<StoredObject, MeshError> {
        let missing = || MeshError::NotFound { what: self.what, id: key.to_owned() };
        let damaged = |reason: &str| MeshError::Damaged {
            what: self.what,
            id: key.to_owned(),
            reason: reason.to_owned(),
        };
        let message = self.last(&self.description(key), false).await?.ok_or_else(missing)?;
        let info: ObjectInfo = serde_json::from_slice(&message.payload)
            .map_err(|_| damaged("its description cannot be read"))?;
        if info.deleted {
            return Err(missing());
        }
        if info.size > max_bytes {
            let (size, limit) = (info.size as u64, max_bytes as u64);
            return Err(MeshError::TooLarge { what: self.what, size, limit });
        }
        // Each piece is a request, so many small pieces would slow down the reader.
        if info.chunks > info.size.div_ceil(MIN_CHUNK) {
            return Err(damaged("its pieces are too small"));
        }
        // Any writer to the bucket may have written the description; it must not reference anything
        // else.
        if info.name != key || !is_token(&info.nuid) {
            return Err(damaged("its description belongs to an object with another key"));
        }
        let pieces = format!("$O.{}.C.{}", self.bucket, info.nuid);
        let mut bytes = BytesMut::with_capacity(info.size);
        let mut from = 0;
        for _ in 0..info.chunks {
            let piece = self.next(&pieces, from + 1).await?.ok_or_else(|| damaged("a piece is missing"))?;
            if bytes.len() + piece.payload.len() > info.size {
                return Err(damaged("it is longer than its description states"));
            }
            bytes.extend_from_slice(&piece.payload);
            from = piece.sequence;
        }
        let bytes = bytes.freeze();
        let sha256 = digest_of(&bytes).await;
        if bytes.len() != info.size || info.digest.as_ref() != Some(&object_digest(&sha256)) {
            return Err(damaged("its sha256 differs from the stored one"));
        }
        Ok(StoredObject { bytes, sha256 })
    }

    /// Returns the last message of a subject: from any replica if that suffices, else from the
    /// leader.
    async fn last(&self, subject: &str, leader: bool) -> Result<Option<StreamMessage>, MeshError> {
        let stream = self.stream().await?;
        let call = format!("$JS.API.DIRECT.GET.{}.{subject}", self.stream_name());
        let got = answer(&self.mesh, READING, DIRECT_TIMEOUT, stream.direct_get_last_for_subject(subject));
        if !leader && let Some(found) = direct(self.mesh.permitted(&call, got).await??)? {
            return Ok(Some(found));
        }
        self.told(&MessageQuery::last(subject)).await
    }

    /// Returns the next message of a subject at or after a sequence number.
    async fn next(&self, subject: &str, from: u64) -> Result<Option<StreamMessage>, MeshError> {
        let stream = self.stream().await?;
        let got = stream.direct_get_next_for_subject(subject, Some(from));
        if let Some(found) = direct(answer(&self.mesh, READING, DIRECT_TIMEOUT, got).await?)? {
            return Ok(Some(found));
        }
        self.told(&MessageQuery::next(subject, from)).await
    }

    /// Returns a message from the leader. One that is malformed on the wire never becomes readable.
    async fn told(&self, query: &MessageQuery<'_>) -> Result<Option<StreamMessage>, MeshError> {
        let found = self.mesh.message(&self.stream_name(), query).await?;
        if let Some(reason) = found.as_ref().and_then(|found| undeliverable(&found.headers)) {
            let (id, reason) = (self.stream_name(), reason.to_owned());
            return Err(MeshError::Damaged { what: self.what, id, reason });
        }
        Ok(found)
    }

    async fn stream(&self) -> Result<Stream<()>, MeshError> {
        let named = self.mesh.jetstream().get_stream_no_info(self.stream_name()).await;
        named.map_err(|error| MeshError::Refused { what: READING, reason: error.to_string() })
    }
}

/// Timeout of a replica's reply.
const DIRECT_TIMEOUT: Duration = Duration::from_secs(5);
const READING: &str = "read a stored message";

/// Reads from a replica; if it lacks the message, reads from the leader.
fn direct(
    found: Result<StreamMessage, async_nats::jetstream::stream::DirectGetError>,
) -> Result<Option<StreamMessage>, MeshError> {
    match found {
        Ok(message) => Ok(Some(message)),
        Err(error) => match error.kind() {
            DirectGetErrorKind::TimedOut => {
                Err(MeshError::Unreachable { what: READING, reason: error.to_string() })
            }
            _ => Ok(None),
        },
    }
}

/// Publishes and waits for the acknowledgement; `after` is the required last sequence of the
/// subject.
pub(crate) async fn store(
    mesh: &Mesh,
    what: &'static str,
    subject: String,
    after: Option<u64>,
    body: Bytes,
) -> Result<u64, MeshError> {
    let mut headers = HeaderMap::new();
    if let Some(after) = after {
        headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, after.to_string());
    }
    mesh.state_origin(&mut headers);
    let failed = |error| failed(what, &error);
    crash::before(&subject);
    crash::sent(mesh, &subject, &headers, &body).await;
    let sent = async { mesh.jetstream().publish_with_headers(subject.clone(), headers, body).await?.await };
    let sequence = mesh.permitted(&subject, sent).await?.map_err(failed)?.sequence;
    crash::after(&subject);
    Ok(sequence)
}

const STORING: &str = "store an object";

fn failed(what: &'static str, error: &PublishError) -> MeshError {
    let reason = error.to_string();
    match error.kind() {
        // Either no stream has the subject, or JetStream on the server has not started yet.
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe | PublishErrorKind::StreamNotFound => {
            MeshError::Unreachable { what, reason }
        }
        _ => match answer_of(error) {
            Some((code, err_code)) => MeshError::of_answer(what, code, err_code, reason),
            None => MeshError::Refused { what, reason },
        },
    }
}

/// Returns status and error code of the server's reply, if a reply caused this error.
fn answer_of(error: &PublishError) -> Option<(u64, u64)> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(answer) = error.downcast_ref::<async_nats::jetstream::Error>() {
            return Some((answer.code() as u64, answer.error_code().0));
        }
        cause = error.source();
    }
    None
}

/// Returns the sha256 of bytes as lower-case hex, computed on another thread if they are large.
pub(crate) async fn digest_of(bytes: &Bytes) -> String {
    if bytes.len() > LARGE_DIGEST_BYTES {
        let shared = bytes.clone();
        if let Ok(digest) = tokio::task::spawn_blocking(move || sha256(&shared)).await {
            return digest;
        }
    }
    sha256(bytes)
}

/// Formats a digest like object stores.
fn object_digest(sha256: &str) -> String {
    format!("SHA-256={}", BASE64URL.encode(&HEXLOWER.decode(sha256.as_bytes()).unwrap_or_default()))
}
