//! Records of gateways: keys, webhook triggers and secrets in ACCESS, webhooks of tasks in PUSHES.
//!
//! A record is the last message of its subject. A writer can specify the revision that it replaces.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_STREAM};
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::stream::DirectGetErrorKind;
use async_nats::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use sinew_protocol::Subject;
use sinew_protocol::stream::{ACCESS, PUSHES, bucket};
use tokio::sync::watch;

use crate::stream::follow::{FollowedItem, Follower, Source, follow, sweep};
use crate::stream::pull::redirected;
use crate::stream::send::PublishAnswer;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError};

const WRITE: &str = "write a record of a gateway";
const READ: &str = "read a record of a gateway";

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its revision; a replacement may name it.
    pub revision: u64,
    /// Its content; empty after removal.
    pub body: Bytes,
}

/// Records of the gateways of a mesh, by stream.
#[derive(Clone, Copy, Debug)]
pub struct GatewayRecords<'a> {
    mesh: &'a Mesh,
}

/// The records of one stream.
#[derive(Clone, Copy, Debug)]
pub struct RecordStore<'a> {
    mesh: &'a Mesh,
    stream: &'static str,
}

impl Mesh {
    /// Returns the records of the gateways of this mesh.
    pub fn records(&self) -> GatewayRecords<'_> {
        GatewayRecords { mesh: self }
    }
}

impl<'a> GatewayRecords<'a> {
    /// Keys, webhook triggers and shared secrets of gateways.
    pub fn access(self) -> RecordStore<'a> {
        RecordStore { mesh: self.mesh, stream: ACCESS }
    }

    /// Webhooks of external programs, called with updates of tasks.
    pub fn pushes(self) -> RecordStore<'a> {
        RecordStore { mesh: self.mesh, stream: PUSHES }
    }
}

impl RecordStore<'_> {
    fn name(self) -> String {
        bucket(self.mesh.namespace(), self.stream)
    }

    /// Returns the record of a subject; `None` if there never was one.
    pub async fn get(self, subject: &Subject) -> Result<Option<StoredRecord>, MeshError> {
        let unreachable = |reason: String| MeshError::Unreachable { what: READ, reason };
        let (name, subject) = (self.name(), self.mesh.subject(subject));
        let stream = self.mesh.jetstream().get_stream_no_info(&name).await;
        let stream = stream.map_err(|error| unreachable(error.to_string()))?;
        // The subject is part of the request, so rights can be limited to it.
        let call = format!("$JS.API.DIRECT.GET.{name}.{subject}");
        match self.mesh.permitted(&call, stream.direct_get_last_for_subject(subject)).await? {
            Ok(message) if is_foreign(&message.headers) => {
                Ok(Some(StoredRecord { revision: message.sequence, body: Bytes::new() }))
            }
            Ok(message) => Ok(Some(StoredRecord { revision: message.sequence, body: message.payload })),
            Err(error) => match error.kind() {
                DirectGetErrorKind::NotFound => Ok(None),
                DirectGetErrorKind::ErrorResponse(StatusCode::NO_RESPONDERS, _)
                | DirectGetErrorKind::TimedOut => {
                    Err(self.mesh.unanswered(&name, READ, error.to_string()).await)
                }
                DirectGetErrorKind::ErrorResponse(status, text) => {
                    Err(MeshError::Refused { what: READ, reason: format!("{status} {text}") })
                }
                _ => Err(unreachable(error.to_string())),
            },
        }
    }

    /// Stores a record; an empty body removes it. With a revision (0: no record), only that one is
    /// replaced. Returns the new revision; `None` if another record was stored in the meantime.
    pub async fn put(
        self,
        subject: &Subject,
        body: Bytes,
        revision: Option<u64>,
    ) -> Result<Option<u64>, MeshError> {
        let name = self.mesh.subject(subject);
        let mut headers = HeaderMap::new();
        if let Some(revision) = revision {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(revision));
        }
        self.mesh.state_origin(&mut headers);
        match self.mesh.publish(&name, headers, body.clone()).await? {
            PublishAnswer::At(revision) => Ok(Some(revision)),
            PublishAnswer::Conflict { .. } => Ok(None),
            PublishAnswer::NoRoom(reason) => Err(MeshError::NoRoom { what: WRITE, reason }),
            // Unknown outcome: the stored value decides.
            PublishAnswer::Unknown(reason) => match self.get(subject).await? {
                Some(stored) if stored.body == body && Some(stored.revision) > revision => {
                    Ok(Some(stored.revision))
                }
                _ => Err(MeshError::Unreachable { what: WRITE, reason }),
            },
        }
    }

    /// Returns the records of all subjects of a kind, by subject. `tokens` are the first tokens of
    /// the subjects, without the namespace: `["access", "key"]`.
    pub async fn list(self, tokens: &[&str]) -> Result<BTreeMap<String, StoredRecord>, MeshError> {
        let filter = sinew_protocol::subject::below(self.mesh.namespace(), tokens);
        let mut found = BTreeMap::new();
        sweep(self.mesh, &self.name(), filter, DeliverPolicy::LastPerSubject, |message| {
            let is_own = !message.headers.as_ref().is_some_and(redirected);
            if let Ok(info) = message.info()
                && is_own
                && !message.payload.is_empty()
            {
                let body = message.payload.clone();
                found.insert(
                    message.subject.to_string(),
                    StoredRecord { revision: info.stream_sequence, body },
                );
            }
            true
        })
        .await?;
        Ok(found)
    }

    /// Follows the records of a kind; see [`RecordStore::list`] for the tokens. `read` parses each
    /// record once; records that it cannot parse are skipped.
    pub fn follow<T: Send + Sync + 'static>(
        self,
        tokens: &[&str],
        read: impl Fn(&Subject, &StoredRecord) -> Option<T> + Send + Sync + 'static,
    ) -> RecordView<T> {
        let namespace = self.mesh.namespace().to_owned();
        let source = Source {
            stream: self.name(),
            filter: sinew_protocol::subject::below(&namespace, tokens),
            from: DeliverPolicy::LastPerSubject,
            tick: Duration::from_secs(1),
        };
        let shared = Arc::new(SharedRecords::<T>::default());
        let (board, mut next) = (Arc::clone(&shared), Some(BTreeMap::new()));
        let following = follow(self.mesh.clone(), source, move |item| match item {
            // A pass is shown when it is complete, so records do not disappear while the stream is
            // read again.
            FollowedItem::Begin => next = Some(BTreeMap::new()),
            FollowedItem::Message { subject: name, body, seq, .. } => {
                let Some(subject) = Subject::parse(&namespace, &name) else { return };
                let stored = StoredRecord { revision: seq, body };
                let value = if stored.body.is_empty() { None } else { read(&subject, &stored) };
                let change = |records: &mut BTreeMap<String, Arc<T>>| match value {
                    Some(value) => drop(records.insert(name, Arc::new(value))),
                    None => drop(records.remove(&name)),
                };
                if let Some(records) = &mut next {
                    change(records);
                } else {
                    board.change(change);
                    board.version.send_modify(|version| *version += 1);
                }
            }
            FollowedItem::Whole => {
                if let Some(whole) = next.take() {
                    board.change(|records| *records = whole);
                    board.version.send_modify(|version| *version += 1);
                }
            }
            FollowedItem::Tick => {}
        });
        let changes = shared.version.subscribe();
        let namespace = self.mesh.namespace().to_owned();
        RecordView { shared, changes, namespace, follower: Arc::new(following) }
    }
}

/// Returns whether a record is not what its publisher wrote to its subject. The server adds the
/// stream name to each reply, and a second one to a stored reply that it was made to publish there.
fn is_foreign(headers: &HeaderMap) -> bool {
    headers.get_all(NATS_STREAM).count() > 1 || undeliverable(headers).is_some()
}

/// A live view of records. Clones share it; it ends with the last clone.
pub struct RecordView<T> {
    shared: Arc<SharedRecords<T>>,
    changes: watch::Receiver<u64>,
    namespace: String,
    /// Ends the view with its last clone.
    follower: Arc<Follower>,
}

impl<T> Clone for RecordView<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            changes: self.changes.clone(),
            namespace: self.namespace.clone(),
            follower: Arc::clone(&self.follower),
        }
    }
}

struct SharedRecords<T> {
    records: RwLock<BTreeMap<String, Arc<T>>>,
    version: watch::Sender<u64>,
}

impl<T> Default for SharedRecords<T> {
    fn default() -> Self {
        Self { records: RwLock::default(), version: watch::Sender::default() }
    }
}

impl<T> SharedRecords<T> {
    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<T>>)) {
        change(&mut self.records.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<T> RecordView<T> {
    /// Waits until the view contains everything that was stored when it was created.
    pub async fn ready(&self) {
        self.follower.ready().await;
    }

    /// Waits until the view contains everything that is stored now; an error if that is not known
    /// in time: then a missing record may still be stored.
    pub async fn current(&self) -> Result<(), MeshError> {
        self.follower.current().await
    }

    /// Returns whether the view contains everything that was stored when it was created.
    pub fn is_ready(&self) -> bool {
        self.follower.is_ready()
    }

    /// Returns the record of a subject.
    pub fn get(&self, subject: &Subject) -> Option<Arc<T>> {
        let name = subject.name(&self.namespace);
        self.shared.records.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    }

    /// Returns the record of a subject. If the view lacks it, waits until the view contains
    /// everything that is stored now.
    ///
    /// # Errors
    ///
    /// The mesh does not reply, so a missing record may still be stored.
    pub async fn find(&self, subject: &Subject) -> Result<Option<Arc<T>>, MeshError> {
        if let Some(found) = self.get(subject) {
            return Ok(Some(found));
        }
        self.current().await?;
        Ok(self.get(subject))
    }

    /// Returns all records, ordered by subject.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.shared.records.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Waits for a change since the last call on this handle.
    pub async fn changed(&mut self) {
        let _gone = self.changes.changed().await;
    }
}

impl<T> std::fmt::Debug for RecordView<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordView").finish_non_exhaustive()
    }
}
