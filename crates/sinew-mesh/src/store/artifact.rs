//! Artifacts: small ones are sent inside the message that references them, larger ones are stored
//! as sealed objects.
//!
//! A name from an agent is displayed but never becomes part of an object's id, which consists of
//! execution, task and sha256. An address contains the key of its object, so only holders of the
//! address can read the object.

use std::fmt;

use bytes::Bytes;
use sinew_protocol::a2a::Part;
use sinew_protocol::artifact::{ArtifactRef, BadArtifact, StoredAt, object_id};
use sinew_protocol::task::{Content, ResultArtifact};
use sinew_protocol::{ArtifactMeta, ArtifactName, ArtifactUri, ExecutionId, TaskId};

pub use crate::store::object::LARGEST_OBJECT;
use crate::store::object::{StoredObject, digest_of};
use crate::store::sealed::{ObjectLocation, SealedObjects};
use crate::{Mesh, MeshError};

/// Maximum length of an address, in bytes.
const LONGEST_ADDRESS: usize = 4096;
/// Maximum length of a media type, in bytes.
const LONGEST_MEDIA_TYPE: usize = 255;

/// Owner of an artifact to store: agent, execution and task.
#[derive(Clone, Copy, Debug)]
pub struct ArtifactOwner<'a> {
    /// The agent or workflow.
    pub app: &'a str,
    /// The user.
    pub user: &'a str,
    /// The execution.
    pub execution: &'a ExecutionId,
    /// The task.
    pub task: &'a TaskId,
}

/// An artifact in a message: its description, and the part that contains or references its bytes.
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
    /// Returns the artifact as it will be stored.
    pub fn shown(&self) -> StoredArtifact {
        ready(self.artifact.clone())
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// Returns a media type that is safe in headers and tables.
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
    /// Returns the artifacts of this mesh.
    pub fn artifacts(&self) -> ArtifactStore {
        ArtifactStore { mesh: self.clone(), objects: SealedObjects::new(self, "artifact") }
    }
}

/// The artifacts of a mesh.
#[derive(Clone)]
pub struct ArtifactStore {
    mesh: Mesh,
    objects: SealedObjects,
}

impl ArtifactStore {
    /// Prepares bytes for a message: inline up to the limit
    /// ([`sinew_protocol::stream::INLINE_LIMIT`]), else stored and referenced by address.
    pub async fn put(
        &self,
        place: &ArtifactOwner<'_>,
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

    /// Stores bytes of any size as an object.
    pub async fn put_object(
        &self,
        place: &ArtifactOwner<'_>,
        name: ArtifactName,
        version: u32,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<StoredArtifact, MeshError> {
        self.store(self.prepare(place, name, version, media_type, bytes).await?).await
    }

    /// Checks an artifact as far as possible before it is stored. Stores nothing.
    pub async fn prepare(
        &self,
        place: &ArtifactOwner<'_>,
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
        let object = object_id(place.execution, place.task, &meta.sha256);
        let address = StoredAt {
            uri: ArtifactUri { app, user, session: place.execution.to_string(), artifact },
            execution: place.execution.clone(),
            task: place.task.clone(),
            sha256: meta.sha256.clone(),
            key: self.objects.place(place.execution, object).key,
        };
        // Do not return an address that could not be parsed again.
        let text = address.to_string();
        if text.len() > LONGEST_ADDRESS || text.parse::<StoredAt>().as_ref() != Ok(&address) {
            return Err(BadArtifact::Address(text.chars().take(200).collect()).into());
        }
        Ok(PreparedArtifact { artifact: ResultArtifact::stored(meta, &address), address, bytes })
    }

    /// Stores a checked artifact.
    pub async fn store(&self, prepared: PreparedArtifact) -> Result<StoredArtifact, MeshError> {
        let PreparedArtifact { artifact, address, bytes } = prepared;
        self.objects.put(&place_of(&address), &bytes).await?;
        Ok(ready(artifact))
    }

    /// Returns the bytes of an artifact of a result, verified against its description in the
    /// result.
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

    /// Returns the bytes that a part contains or references. Inline bytes are as trustworthy as
    /// their message.
    pub async fn get_part(&self, part: &Part) -> Result<Bytes, MeshError> {
        let content = Content::of(part)
            .map_err(|error| MeshError::Malformed { what: "an artifact", reason: error.to_string() })?;
        match &content {
            Content::Url(address) => self.fetch(address).await,
            inline => Ok(inline.bytes().unwrap_or_default()),
        }
    }

    /// Returns the bytes at an address in text form.
    pub async fn fetch(&self, address: &str) -> Result<Bytes, MeshError> {
        self.fetch_within(address, LARGEST_OBJECT).await
    }

    /// Like [`ArtifactStore::fetch`], with a size limit: larger objects are not fetched.
    pub async fn fetch_within(&self, address: &str, max_bytes: usize) -> Result<Bytes, MeshError> {
        self.address_within(&parse_address(address)?, max_bytes).await
    }

    /// Returns the bytes at an address, verified against its sha256.
    pub async fn get_address(&self, address: &StoredAt) -> Result<Bytes, MeshError> {
        self.address_within(address, LARGEST_OBJECT).await
    }

    async fn address_within(&self, address: &StoredAt, max_bytes: usize) -> Result<Bytes, MeshError> {
        let StoredObject { bytes, sha256: found } =
            self.objects.get_within(&place_of(address), max_bytes).await?;
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
}

fn place_of(address: &StoredAt) -> ObjectLocation<'_> {
    ObjectLocation { execution: &address.execution, id: address.object(), key: address.key.clone() }
}

/// Parses an address.
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
