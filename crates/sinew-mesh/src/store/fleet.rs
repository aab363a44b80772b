//! The executors' bucket: heartbeats, owners of shards, and takeover notes.
//!
//! The assignment of shards is decided elsewhere; only speed depends on it. The position in a
//! shard's journal protects against two owners, because one of them is fenced.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_TTL;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::message::StreamMessage;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sinew_protocol::Token;
use sinew_protocol::stream::fleet_key;

use crate::crash;
use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::stream::follow::sweep;
use crate::stream::pull::{milliseconds, redirected};

/// Header that marks a key of a NATS bucket as deleted.
const OPERATION: &str = "KV-Operation";
const DELETED: &str = "DEL";
/// Lifetime of the heartbeat of an executor that does not return.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);
/// Time without heartbeats after which an executor counts as unreachable. Executors send one heartbeat per
/// second, and take over the shards of an executor after four seconds without one.
const MAX_SILENCE: Duration = Duration::from_secs(5);
/// Maximum size of a heartbeat, in bytes.
const LARGEST_BEAT: usize = 64 * 1024;

/// Heartbeat of an executor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorHeartbeat {
    /// The shards it owns.
    pub shards: Vec<u32>,
    /// Its version.
    pub version: String,
    /// Host and process id, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Increases with every heartbeat, so that no two heartbeats are the same message.
    #[serde(default)]
    pub nth: u64,
}

/// An executor, as of its last heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its last heartbeat.
    pub beat: ExecutorHeartbeat,
    /// Changes with every heartbeat.
    pub revision: u64,
    /// Age of its last heartbeat relative to the newest one in the bucket, by the broker's clock.
    pub silent: Duration,
    /// When the server stored its last heartbeat: milliseconds since 1970 UTC, by the server's
    /// clock.
    pub heard_at: u64,
}

/// Content of the bucket.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Last heartbeat of each executor.
    pub members: BTreeMap<String, Member>,
    /// Owners of shards, with the revision that a claim must name. Shards that never had an owner
    /// are missing.
    pub owners: BTreeMap<u32, (Option<String>, u64)>,
}

/// The fleet of executors of a mesh.
#[derive(Clone, Debug)]
pub struct Fleet {
    mesh: Mesh,
}

#[derive(Serialize, Deserialize)]
struct ShardOwner {
    owner: String,
}

impl Mesh {
    /// Returns the executors of this mesh.
    pub fn fleet(&self) -> Fleet {
        Fleet { mesh: self.clone() }
    }
}

impl Fleet {
    /// Publishes a heartbeat of an executor.
    pub async fn beat(&self, id: &str, beat: &ExecutorHeartbeat) -> Result<(), MeshError> {
        let body = serde_json::to_vec(beat)
            .map_err(|error| MeshError::Malformed { what: "a heartbeat", reason: error.to_string() })?;
        self.put(&fleet_key::executor(&Token::of(id)), HeaderMap::new(), body.into()).await
    }

    /// Removes an executor that leaves.
    pub async fn leave(&self, id: &str) -> Result<(), MeshError> {
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, DELETED);
        self.put(&fleet_key::executor(&Token::of(id)), headers, Bytes::new()).await
    }

    /// Reads the bucket.
    pub async fn look(&self) -> Result<Snapshot, MeshError> {
        let mut seen = Snapshot::default();
        let mut said = BTreeMap::new();
        let mut newest = None;
        let prefix = self.mesh.fleet_subject("").len();
        // Do not read the whole bucket: operators call this, and must not see the executors' key.
        // Read shards first: an owner that is then missing among the executors was already gone,
        // and claims are fenced.
        for kind in ["shard", "executor"] {
            let (stream, keys) = (self.mesh.fleet_stream(), self.mesh.fleet_subject(&format!("{kind}.>")));
            sweep(&self.mesh, &stream, keys, DeliverPolicy::LastPerSubject, |message| {
                if let (Ok(info), Some(key)) = (message.info(), message.subject.get(prefix..)) {
                    newest = newest.max(Some(info.published));
                    if let Some(id) = seen.take(key, &message.payload, info.stream_sequence) {
                        said.insert(id, info.published);
                    }
                }
                true
            })
            .await?;
        }
        for (id, member) in &mut seen.members {
            member.heard_at = said.get(id).map_or(0, |said| milliseconds(*said));
            let silent = newest.zip(said.get(id)).map(|(newest, said)| newest - *said);
            member.silent = silent.and_then(|silent| silent.try_into().ok()).unwrap_or_default();
        }
        Ok(seen)
    }

    /// Claims a shard whose record has this revision (0: no record); returns false if another
    /// executor was faster.
    pub async fn claim(&self, shard: u32, id: &str, revision: u64) -> Result<bool, MeshError> {
        let body = serde_json::to_vec(&ShardOwner { owner: id.to_owned() })
            .map_err(|error| MeshError::Malformed { what: "a claim", reason: error.to_string() })?;
        Ok(self.mesh.put_at(&fleet_key::shard(shard), body.into(), revision).await?.is_some())
    }

    /// Releases a shard if this executor still owns it.
    pub async fn release(&self, shard: u32, id: &str) -> Result<(), MeshError> {
        let Some((Some(owner), revision)) = self.record(shard).await? else { return Ok(()) };
        if owner == id {
            self.mesh
                .put_at(&fleet_key::shard(shard), Bytes::from_static(b"{\"owner\":\"\"}"), revision)
                .await?;
        }
        Ok(())
    }

    /// Returns whether a shard has an owner with a recent heartbeat.
    pub async fn serves(&self, shard: u32) -> Result<bool, MeshError> {
        // Read the clock first: a slow read of the bucket must not make its heartbeats look old.
        let now = self.mesh.admin().server_clock().await?.now();
        Ok(self.look().await?.serves(shard, now))
    }

    /// Returns the owner of a shard according to the bucket.
    pub async fn owner(&self, shard: u32) -> Result<Option<String>, MeshError> {
        Ok(self.record(shard).await?.and_then(|(owner, _)| owner))
    }

    /// Reads the takeover note of a shard's last owner, and the revision that the next note must
    /// name: no bytes and 0 if there is no note.
    pub async fn takeover_note(&self, shard: u32) -> Result<(Bytes, u64), MeshError> {
        let key = self.mesh.fleet_subject(&fleet_key::takeover(shard));
        let found = self.mesh.last(&self.mesh.fleet_stream(), &key).await?;
        // If the server was made to publish something here, it is not a note, but it has a
        // revision.
        let read = |note: StreamMessage| {
            let body = if redirected(&note.headers) { Bytes::new() } else { note.payload };
            (body, note.sequence)
        };
        Ok(found.map_or_else(|| (Bytes::new(), 0), read))
    }

    /// Replaces the note of a shard at this revision. Returns the new revision; `None` if another
    /// owner has stored a note in the meantime.
    pub async fn put_takeover_note(
        &self,
        shard: u32,
        note: Bytes,
        revision: u64,
    ) -> Result<Option<u64>, MeshError> {
        self.mesh.put_at(&fleet_key::takeover(shard), note, revision).await
    }

    async fn record(&self, shard: u32) -> Result<Option<(Option<String>, u64)>, MeshError> {
        let key = self.mesh.fleet_subject(&fleet_key::shard(shard));
        let found = self.mesh.last(&self.mesh.fleet_stream(), &key).await?;
        Ok(found.map(|message| (owner(&message.payload), message.sequence)))
    }

    async fn put(&self, key: &str, mut headers: HeaderMap, body: Bytes) -> Result<(), MeshError> {
        headers.insert(NATS_MESSAGE_TTL, FORGOTTEN_AFTER.as_secs().to_string());
        let (what, subject) = ("write to the executors' bucket", self.mesh.fleet_subject(key));
        let unreachable = |reason: String| MeshError::Unreachable { what, reason };
        crash::before(&subject);
        crash::sent(&self.mesh, &subject, &headers, &body).await;
        let sent = async {
            let sent = self.mesh.jetstream().publish_with_headers(subject.clone(), headers, body).await;
            sent.map_err(|error| unreachable(error.to_string()))?
                .await
                .map_err(|error| unreachable(error.to_string()))
        };
        self.mesh.permitted(&subject, sent).await??;
        crash::after(&subject);
        Ok(())
    }
}

fn owner(body: &[u8]) -> Option<String> {
    let read: ShardOwner = serde_json::from_slice(body).ok()?;
    (!read.owner.is_empty()).then_some(read.owner)
}

impl Member {
    /// Returns the age of the last heartbeat in milliseconds if it is too old for a live executor.
    /// `now` is the server's time, see [`crate::ServerClock`].
    pub fn silence_ms(&self, now: u64) -> Option<u64> {
        let silence = now.saturating_sub(self.heard_at);
        (u128::from(silence) > MAX_SILENCE.as_millis()).then_some(silence)
    }
}

impl Snapshot {
    /// Returns the number of shards with a live owner, at this server time.
    pub fn served_shards(&self, now: u64) -> usize {
        self.owners.keys().filter(|shard| self.serves(**shard, now)).count()
    }

    /// Returns whether the owner of a shard is live, at this server time.
    pub fn serves(&self, shard: u32, now: u64) -> bool {
        let owner = self.owners.get(&shard).and_then(|(owner, _)| owner.as_ref());
        owner.and_then(|owner| self.members.get(owner)).is_some_and(|member| member.silence_ms(now).is_none())
    }

    /// Adds one key; returns the executor's id if it is a heartbeat.
    fn take(&mut self, key: &str, body: &[u8], revision: u64) -> Option<String> {
        match key.split_once('.')? {
            ("executor", id) if !body.is_empty() && body.len() <= LARGEST_BEAT => {
                // A heartbeat that cannot be parsed, perhaps of a newer version, still counts.
                let beat = serde_json::from_slice(body).unwrap_or_default();
                self.members.insert(id.to_owned(), Member { beat, revision, ..Member::default() });
                Some(id.to_owned())
            }
            ("shard", number) => {
                if let Ok(shard) = number.parse() {
                    self.owners.insert(shard, (owner(body), revision));
                }
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "fleet/tests.rs"]
mod tests;
