//! Artifacts: small ones travel inside the message that names them, larger ones lie in the object store.
//!
//! A name from an agent is shown and never becomes a key: the key is execution, task and sha256, so bytes under a key
//! cannot change without being noticed. An address says where bytes lie, never who may read them.

use std::collections::HashMap;
use std::fmt;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::object_store::ObjectInfo;
use bytes::Bytes;
use sinew_protocol::a2a::Part;
use sinew_protocol::artifact::{ArtifactRef, BadArtifact, StoredAt};
use sinew_protocol::deployment::is_digest;
use sinew_protocol::stream::ARTIFACTS;
use sinew_protocol::task::{Content, ResultArtifact};
use sinew_protocol::{ArtifactMeta, ArtifactName, ArtifactUri, ExecutionId, TaskId};

pub use crate::store::object::LARGEST_OBJECT;
use crate::store::object::{ObjectBucket, StoredObject, digest_of};
use crate::stream::follow;
use crate::{Mesh, MeshError};

/// The longest address, in bytes.
const LONGEST_ADDRESS: usize = 4096;
/// The longest media type, in bytes.
const LONGEST_MEDIA_TYPE: usize = 255;

/// Owner of an artifact to store: agent, execution and task.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The agent or workflow.
    pub app: &'a str,
    /// The user.
    pub user: &'a str,
    /// The execution.
    pub execution: &'a ExecutionId,
    /// The task.
    pub task: &'a TaskId,
}

/// An artifact as it travels: what is known of it, and the part that holds or names its bytes.
#[derive(Clone, Debug)]
pub struct StoredArtifact {
    /// Description of the artifact.
    pub meta: ArtifactMeta,
    /// Its bytes, or their address.
    pub part: Part,
}

/// An artifact that was checked and is not stored yet. Its address follows from its bytes.
#[derive(Clone, Debug)]
pub struct PreparedArtifact {
    artifact: ResultArtifact,
    address: StoredAt,
    bytes: Bytes,
}

impl PreparedArtifact {
    /// The artifact as it will be once it is stored.
    pub fn shown(&self) -> StoredArtifact {
        ready(self.artifact.clone())
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// A media type that may stand in headers and tables.
fn plain_media_type(media_type: &str) -> Result<&str, MeshError> {
    let good = (1..=LONGEST_MEDIA_TYPE).contains(&media_type.len())
        && media_type.bytes().all(|b| (b' '..=b'~').contains(&b));
    let bad = || MeshError::Malformed {
        what: "a media type",
        reason: "it is not 1 to 255 ASCII characters".to_owned(),
    };
    if good { Ok(media_type) } else { Err(bad()) }
}

impl Mesh {
    /// The artifacts of this mesh.
    pub fn artifacts(&self) -> ArtifactStore {
        ArtifactStore { mesh: self.clone(), objects: ObjectBucket::new(self, ARTIFACTS, "artifact") }
    }
}

/// The artifacts of a mesh.
#[derive(Clone)]
pub struct ArtifactStore {
    mesh: Mesh,
    objects: ObjectBucket,
}

impl ArtifactStore {
    /// Makes bytes ready to travel: inside the part up to the limit ([`sinew_protocol::stream::INLINE_LIMIT`]), else stored and named by address.
    pub async fn put(
        &self,
        place: &Place<'_>,
        name: ArtifactName,
        version: u32,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<StoredArtifact, MeshError> {
        let media_type = plain_media_type(media_type)?;
        let Some(artifact) = ResultArtifact::inline(name.clone(), version, media_type, &bytes) else {
            return self.put_object(place, name, version, media_type, bytes).await;
        };
        Ok(ready(artifact))
    }

    /// Stores bytes of any size in the object store.
    pub async fn put_object(
        &self,
        place: &Place<'_>,
        name: ArtifactName,
        version: u32,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<StoredArtifact, MeshError> {
        self.store(self.prepare(place, name, version, media_type, bytes).await?).await
    }

    /// Checks what can be known of an artifact before it is stored, and stores nothing.
    pub async fn prepare(
        &self,
        place: &Place<'_>,
        name: ArtifactName,
        version: u32,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<PreparedArtifact, MeshError> {
        let media_type = plain_media_type(media_type)?.to_owned();
        if bytes.len() > LARGEST_OBJECT {
            let (size, limit) = (bytes.len() as u64, LARGEST_OBJECT as u64);
            return Err(MeshError::TooLarge { what: "an artifact", size, limit });
        }
        let (sha256, size) = (digest_of(&bytes).await, bytes.len() as u64);
        let meta = ArtifactMeta { name, version, media_type, sha256, size };
        let artifact = ArtifactRef { name: meta.name.clone(), version: Some(version) };
        let (app, user) = (place.app.to_owned(), place.user.to_owned());
        let address = StoredAt {
            uri: ArtifactUri { app, user, session: place.execution.to_string(), artifact },
            execution: place.execution.clone(),
            task: place.task.clone(),
            sha256: meta.sha256.clone(),
        };
        // An address that nobody can read again must not be handed out.
        let text = address.to_string();
        if text.len() > LONGEST_ADDRESS || text.parse::<StoredAt>().as_ref() != Ok(&address) {
            return Err(BadArtifact::Address(text.chars().take(200).collect()).into());
        }
        Ok(PreparedArtifact { artifact: ResultArtifact::stored(meta, &address), address, bytes })
    }

    /// Stores an artifact that was checked.
    pub async fn store(&self, prepared: PreparedArtifact) -> Result<StoredArtifact, MeshError> {
        let PreparedArtifact { artifact, address, bytes } = prepared;
        let about = [
            ("name", artifact.meta.name.to_string()),
            ("version", artifact.meta.version.to_string()),
            ("media_type", artifact.meta.media_type.clone()),
        ];
        self.objects.put(&address.key(), &address.sha256, about, &bytes).await?;
        Ok(ready(artifact))
    }

    /// The bytes of an artifact of a result, checked against what the result says of them.
    pub async fn get(&self, artifact: &ResultArtifact) -> Result<Bytes, MeshError> {
        let (bytes, sha256) = match &artifact.content {
            Content::Url(address) => {
                let address = parse_address(address)?;
                (self.get_address(&address).await?, address.sha256)
            }
            inline => {
                let bytes = inline.bytes().unwrap_or_default();
                let sha256 = digest_of(&bytes).await;
                (bytes, sha256)
            }
        };
        artifact.meta.verify_digest(&sha256, bytes.len() as u64)?;
        Ok(bytes)
    }

    /// The bytes that a part holds or names. Bytes in the part are as true as its message.
    pub async fn get_part(&self, part: &Part) -> Result<Bytes, MeshError> {
        let content = Content::of(part)
            .map_err(|error| MeshError::Malformed { what: "an artifact", reason: error.to_string() })?;
        match &content {
            Content::Url(address) => self.fetch(address).await,
            inline => Ok(inline.bytes().unwrap_or_default()),
        }
    }

    /// The bytes at an address that came as text.
    pub async fn fetch(&self, address: &str) -> Result<Bytes, MeshError> {
        self.fetch_within(address, LARGEST_OBJECT).await
    }

    /// The same for at most so many bytes: larger ones are not fetched.
    pub async fn fetch_within(&self, address: &str, max_bytes: usize) -> Result<Bytes, MeshError> {
        self.address_within(&parse_address(address)?, max_bytes).await
    }

    /// The bytes at an address, which are those that its sha256 names.
    pub async fn get_address(&self, address: &StoredAt) -> Result<Bytes, MeshError> {
        self.address_within(address, LARGEST_OBJECT).await
    }

    async fn address_within(&self, address: &StoredAt, max_bytes: usize) -> Result<Bytes, MeshError> {
        let StoredObject { bytes, sha256: found } =
            self.objects.get_within(&address.key(), max_bytes).await?;
        if found == address.sha256 {
            return Ok(bytes);
        }
        Err(BadArtifact::Changed {
            name: address.uri.artifact.name.clone(),
            expected: format!("sha256 {}", address.sha256),
            found: format!("sha256 {found}, {} bytes", bytes.len()),
        }
        .into())
    }

    /// Lists the artifacts of an execution in the object store, by task and name; inline artifacts are in its journal only.
    ///
    /// Reads the description of every object of the mesh: for people, not for the path of data.
    pub async fn list(&self, execution: &ExecutionId) -> Result<Vec<(TaskId, ArtifactMeta)>, MeshError> {
        let objects = &self.objects;
        let from = DeliverPolicy::LastPerSubject;
        let mut found = HashMap::new();
        let stream = objects.stream_name();
        follow::sweep(&self.mesh, &stream, objects.descriptions(), from, |message| {
            if let Some((task, meta)) = described(execution, &message.payload) {
                found.insert((task, meta.sha256.clone()), meta);
            }
            true
        })
        .await?;
        let mut list: Vec<_> = found.into_iter().map(|((task, _), meta)| (task, meta)).collect();
        list.sort_by(|a, b| (&a.0, &a.1.name, a.1.version).cmp(&(&b.0, &b.1.name, b.1.version)));
        Ok(list)
    }
}

/// Reads an address that came as text.
fn parse_address(address: &str) -> Result<StoredAt, BadArtifact> {
    if address.len() > LONGEST_ADDRESS {
        return Err(BadArtifact::Address(address.chars().take(200).collect()));
    }
    address.parse()
}

impl fmt::Debug for ArtifactStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactStore").field("mesh", &self.mesh).finish_non_exhaustive()
    }
}

fn ready(artifact: ResultArtifact) -> StoredArtifact {
    let part = artifact.content.to_part();
    let part = part.with_media_type(&artifact.meta.media_type).with_filename(artifact.meta.name.as_str());
    StoredArtifact { meta: artifact.meta, part }
}

/// Decodes a description; `None` unless it belongs to this execution.
fn described(execution: &ExecutionId, body: &[u8]) -> Option<(TaskId, ArtifactMeta)> {
    let info: ObjectInfo = serde_json::from_slice(body).ok()?;
    let rest = info.name.strip_prefix(execution.as_str())?.strip_prefix('.')?;
    let (task, sha256) = rest.split_once('.')?;
    if info.deleted || !is_digest(sha256) {
        return None;
    }
    let said = |field: &str| info.metadata.get(field);
    let meta = ArtifactMeta {
        name: ArtifactName::parse(said("name")?).ok()?,
        version: said("version")?.parse().ok()?,
        media_type: plain_media_type(said("media_type")?).ok()?.to_owned(),
        sha256: sha256.to_owned(),
        size: info.size as u64,
    };
    Some((TaskId::parse(task).ok()?, meta))
}
