//! Settings of a mesh as stored by provisioning and read by every process, and the executors' key.

use std::env;
use std::num::NonZeroU32;
use std::time::Duration;

use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::context::{AccountError, AccountErrorKind};
use async_nats::jetstream::stream::DirectGetErrorKind;
use async_nats::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sinew_protocol::env::RESULT_KEY;
use sinew_protocol::stream::{FLEET, bucket, fleet_key};
use sinew_protocol::{ResultKey, Vocabulary};

use crate::error::MeshError;
use crate::layout::{Layout, MOST_SHARDS};
use crate::mesh::Mesh;
use crate::stream::pull::redirected;
use crate::stream::send::PublishAnswer;

/// The settings as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The version of this format.
    pub(crate) version: u32,
    pub(crate) shards: NonZeroU32,
    pub(crate) replicas: usize,
    /// In seconds.
    pub(crate) retention: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage_limit: Option<u64>,
    /// Meshes of older versions, without this setting, keep events.
    #[serde(default = "keeps_events_of_old", skip_serializing_if = "is_true")]
    pub(crate) keep_events: bool,
    /// Format of the streams; see [`STREAM_FORMAT`].
    #[serde(default = "first_format", skip_serializing_if = "is_first_format")]
    pub(crate) format: u32,
    /// Meshes of older versions, without this setting, use that of Solace Agent Mesh.
    #[serde(default = "vocabulary_of_old")]
    pub(crate) vocabulary: Vocabulary,
}

const fn vocabulary_of_old() -> Vocabulary {
    Vocabulary::Current
}

/// Format of the streams of a new mesh. In format 1 the server rejects the deletion of messages of
/// JOURNAL and HISTORY, which no update can change; format 2 allows it, so that messages can be
/// erased.
pub(crate) const STREAM_FORMAT: u32 = 2;

/// Format of a mesh without this setting.
pub(crate) const fn first_format() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_first_format(format: &u32) -> bool {
    *format == first_format()
}

const fn keeps_events_of_old() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_true(keeps: &bool) -> bool {
    *keeps
}

impl Settings {
    pub(crate) const VERSION: u32 = 1;

    pub(crate) fn read(body: &[u8]) -> Result<Self, MeshError> {
        let bad = |reason: String| MeshError::Malformed { what: "the settings of the mesh", reason };
        let settings: Self = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
        if settings.version != Self::VERSION {
            return Err(bad(format!("version {} is unknown", settings.version)));
        }
        if !(first_format()..=STREAM_FORMAT).contains(&settings.format) {
            return Err(bad(format!("stream format {} is unknown", settings.format)));
        }
        if settings.shards.get() > MOST_SHARDS {
            return Err(bad(format!("{} shards, at most {MOST_SHARDS} are allowed", settings.shards)));
        }
        Ok(settings)
    }
}

impl Mesh {
    /// Returns the settings of the mesh; read once per connection.
    pub(crate) async fn layout(&self) -> Result<Layout, MeshError> {
        self.layout_cell().get_or_try_init(|| self.read_layout()).await.copied()
    }

    async fn read_layout(&self) -> Result<Layout, MeshError> {
        let body = self.fleet_value(fleet_key::SETTINGS).await?.ok_or_else(|| self.not_provisioned())?;
        let settings = Settings::read(&body)?;
        Ok(Layout {
            shards: settings.shards,
            replicas: settings.replicas,
            retention: Duration::from_secs(settings.retention),
            storage_limit: settings.storage_limit,
            keeps_events: settings.keep_events,
            has_erasable_messages: settings.format >= STREAM_FORMAT,
            vocabulary: settings.vocabulary,
            max_payload: self.client().max_payload(),
        })
    }

    /// Returns the executors' shared key: `SINEW_RESULT_KEY`, else the one made at provisioning.
    pub(crate) async fn result_key(&self) -> Result<ResultKey, MeshError> {
        let bad = |reason: &str| MeshError::BadSetting { setting: RESULT_KEY, reason: reason.to_owned() };
        if let Some(key) = env::var_os(RESULT_KEY).filter(|key| !key.is_empty()) {
            let key = key.into_string().map_err(|_| bad("it is not text"))?;
            return read_key(key.as_bytes()).ok_or_else(|| bad("it is not 64 hex digits"));
        }
        // Read it from storage, not from any replica: a value that the server was made to publish
        // is not a key.
        let stored = self.last(&self.fleet_stream(), &self.fleet_subject(fleet_key::RESULT_KEY)).await?;
        match stored.map(|stored| if redirected(&stored.headers) { Bytes::new() } else { stored.payload }) {
            Some(key) => read_key(&key).ok_or(MeshError::Malformed {
                what: "the executors' key",
                reason: "it is not 64 hex digits".to_owned(),
            }),
            // Executors with different keys would reject each other's results, so no key is
            // generated here.
            None => Err(bad("the mesh is provisioned to read the key from this variable, which is not set")),
        }
    }

    /// Returns why the account information is unavailable.
    fn no_account(&self, error: &AccountError) -> MeshError {
        let reason = error.to_string();
        match error.kind() {
            AccountErrorKind::JetStream(_) | AccountErrorKind::JetStreamUnavailable => {
                MeshError::NoJetStream { address: self.client().server_info().host, reason }
            }
            _ => MeshError::Unreachable { what: "query the account", reason },
        }
    }

    /// Returns why a stream returned no message: it does not exist, or is unavailable now. A
    /// starting server reports no responders for an existing stream, and a stream with an observer
    /// never reports them.
    pub(crate) async fn unanswered(&self, stream: &str, what: &'static str, reason: String) -> MeshError {
        if let Err(error) = self.jetstream().query_account().await {
            return self.no_account(&error);
        }
        match self.stream_info(stream).await {
            Ok(Some(_)) => MeshError::Unreachable { what, reason },
            // Most roles may not query the stream itself.
            Ok(None) | Err(MeshError::Forbidden { .. }) => self.not_provisioned(),
            Err(error) => error,
        }
    }

    pub(crate) fn not_provisioned(&self) -> MeshError {
        MeshError::NotProvisioned { namespace: self.namespace().to_owned() }
    }

    /// Returns the stream of the executors' bucket.
    pub(crate) fn fleet_stream(&self) -> String {
        format!("KV_{}", bucket(self.namespace(), FLEET))
    }

    /// Returns the subject of a key in the executors' bucket.
    pub(crate) fn fleet_subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", bucket(self.namespace(), FLEET))
    }

    /// Reads a value of the executors' bucket by the only request that can be permitted for a
    /// single key.
    pub(crate) async fn fleet_value(&self, key: &str) -> Result<Option<Bytes>, MeshError> {
        const WHAT: &str = "read the settings of the mesh";
        let unreachable = |reason: String| MeshError::Unreachable { what: WHAT, reason };
        let stream = self.jetstream().get_stream_no_info(self.fleet_stream()).await;
        let stream = stream.map_err(|error| unreachable(error.to_string()))?;
        let subject = self.fleet_subject(key);
        let call = format!("$JS.API.DIRECT.GET.{}.{subject}", self.fleet_stream());
        match self.permitted(&call, stream.direct_get_last_for_subject(subject)).await? {
            Ok(message) => Ok(Some(message.payload)),
            Err(error) => match error.kind() {
                DirectGetErrorKind::NotFound => Ok(None),
                DirectGetErrorKind::ErrorResponse(StatusCode::NO_RESPONDERS, _)
                | DirectGetErrorKind::TimedOut => {
                    Err(self.unanswered(&self.fleet_stream(), WHAT, error.to_string()).await)
                }
                DirectGetErrorKind::ErrorResponse(status, text) => {
                    Err(MeshError::Refused { what: WHAT, reason: format!("{status} {text}") })
                }
                _ => Err(unreachable(error.to_string())),
            },
        }
    }

    /// Writes a key of the executors' bucket at this revision; returns the new revision, or `None`.
    pub(crate) async fn put_at(
        &self,
        key: &str,
        body: Bytes,
        revision: u64,
    ) -> Result<Option<u64>, MeshError> {
        let subject = self.fleet_subject(key);
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(revision));
        match self.publish(&subject, headers, body.clone()).await? {
            PublishAnswer::At(revision) => Ok(Some(revision)),
            PublishAnswer::Conflict { .. } => Ok(None),
            PublishAnswer::NoRoom(reason) => {
                Err(MeshError::NoRoom { what: "write to the executors' bucket", reason })
            }
            // Unknown outcome: the stored value decides.
            PublishAnswer::Unknown(reason) => match self.last(&self.fleet_stream(), &subject).await? {
                Some(stored) if stored.payload == body && stored.sequence > revision => {
                    Ok(Some(stored.sequence))
                }
                Some(stored) if stored.sequence > revision => Ok(None),
                _ => Err(MeshError::Unreachable { what: "write to the executors' bucket", reason }),
            },
        }
    }
}

/// Parses 64 hex digits.
fn read_key(text: &[u8]) -> Option<ResultKey> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.trim_ascii()).ok()?;
    Some(ResultKey::new(bytes.try_into().ok()?))
}
