//! Artifacts: small ones travel inside the message that names them, larger ones lie in the object store.
//!
//! A name from an agent is shown and never becomes a key: the key is execution, task and sha256, so bytes under a key
//! cannot change without being noticed. An address says where bytes lie, never who may read them.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::object_store::ObjectInfo;
use bytes::Bytes;
use data_encoding::BASE64;
use serde_json::{Value, json};
use sinew_protocol::a2a::{self, Part, PartContent};
use sinew_protocol::artifact::{ArtifactRef, BadArtifact, sha256};
use sinew_protocol::stream::{ARTIFACTS, INLINE_LIMIT};
use sinew_protocol::{ArtifactMeta, ArtifactName, ArtifactUri, ExecutionId, TaskId};

pub use crate::object::LARGEST_OBJECT;
use crate::object::Objects;
use crate::{Mesh, MeshError, follow};

/// The longest address, in bytes.
const LONGEST_ADDRESS: usize = 4096;
/// The longest media type, in bytes.
const LONGEST_MEDIA_TYPE: usize = 255;

/// Who stores an artifact, for whom and as part of what.
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

/// Where an artifact of the object store lies:
/// `artifact://APP/USER/EXECUTION/NAME?version=N&task=TASK&sha256=HEX`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The agent or workflow that stored it.
    pub app: String,
    /// The user it was stored for.
    pub user: String,
    /// The execution it belongs to.
    pub execution: ExecutionId,
    /// Its name.
    pub name: ArtifactName,
    /// Its version within the task, counted from 0.
    pub version: u32,
    /// The task that made it.
    pub task: TaskId,
    /// sha256 of its bytes, lower-case hex.
    pub sha256: String,
}

impl Address {
    fn key(&self) -> String {
        key(&self.execution, &self.task, &self.sha256)
    }
}

fn key(execution: &ExecutionId, task: &TaskId, sha256: &str) -> String {
    format!("{execution}.{task}.{sha256}")
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = ArtifactUri {
            app: self.app.clone(),
            user: self.user.clone(),
            session: self.execution.to_string(),
            artifact: ArtifactRef { name: self.name.clone(), version: Some(self.version) },
        };
        write!(f, "{uri}&task={}&sha256={}", self.task, self.sha256)
    }
}

impl FromStr for Address {
    type Err = BadArtifact;

    fn from_str(text: &str) -> Result<Self, BadArtifact> {
        let bad = || BadArtifact::Address(text.chars().take(200).collect());
        if text.len() > LONGEST_ADDRESS || text.contains('#') {
            return Err(bad());
        }
        let (path, query) = text.split_once('?').ok_or_else(bad)?;
        let (mut version, mut task, mut sha256) = (None, None, None);
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let slot = match name {
                "version" => &mut version,
                "task" => &mut task,
                "sha256" => &mut sha256,
                _ => return Err(bad()),
            };
            // Twice the same would let two readers see two addresses.
            if slot.replace(value).is_some() {
                return Err(bad());
            }
        }
        let (Some(version), Some(task), Some(sha256)) = (version, task, sha256) else { return Err(bad()) };
        if query.split('&').count() != 3 || !is_sha256(sha256) {
            return Err(bad());
        }
        let number: u32 = version.parse().map_err(|_| bad())?;
        if number.to_string() != version {
            return Err(bad());
        }
        let uri: ArtifactUri = path.parse()?;
        let address = Self {
            app: uri.app,
            user: uri.user,
            execution: ExecutionId::parse(&uri.session).map_err(|_| bad())?,
            name: uri.artifact.name,
            version: number,
            task: TaskId::parse(task).map_err(|_| bad())?,
            sha256: sha256.to_owned(),
        };
        Ok(address)
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// An artifact as it travels: what is known of it, and the part that holds or names its bytes.
#[derive(Clone, Debug)]
pub struct StoredArtifact {
    /// What is known of it.
    pub meta: ArtifactMeta,
    /// Its bytes, or their address.
    pub part: Part,
}

impl StoredArtifact {
    /// As an artifact of an A2A task.
    pub fn into_artifact(self) -> a2a::Artifact {
        let mut artifact =
            a2a::Artifact::new(format!("{}:v{}", self.meta.name, self.meta.version), vec![self.part]);
        artifact.name = Some(self.meta.name.to_string());
        artifact.metadata = Some(metadata(&self.meta));
        artifact
    }
}

fn metadata(meta: &ArtifactMeta) -> Value {
    json!({
        "version": meta.version,
        "sha256": meta.sha256,
        "size": meta.size,
        "media_type": meta.media_type,
    })
}

/// What an A2A artifact says of itself; none of it is true before [`ArtifactStore::get`] has looked at the bytes.
pub fn meta_of(artifact: &a2a::Artifact) -> Result<ArtifactMeta, MeshError> {
    let wrong = |reason: &str| MeshError::Malformed { what: "an artifact", reason: reason.to_owned() };
    let name = ArtifactName::parse(artifact.name.as_deref().ok_or_else(|| wrong("it has no name"))?)?;
    let said = artifact.metadata.as_ref().ok_or_else(|| wrong("it has no metadata"))?;
    let number = |field: &str| said.get(field).and_then(Value::as_u64);
    let text = |field: &str| said.get(field).and_then(Value::as_str);
    let media_type = text("media_type").ok_or_else(|| wrong("its metadata has no media_type"))?;
    let sha256 = text("sha256").filter(|hex| is_sha256(hex)).ok_or_else(|| wrong("its sha256 is none"))?;
    Ok(ArtifactMeta {
        name,
        version: number("version")
            .and_then(|version| u32::try_from(version).ok())
            .ok_or_else(|| wrong("its metadata has no version"))?,
        media_type: plain_media_type(media_type)?.to_owned(),
        sha256: sha256.to_owned(),
        size: number("size").ok_or_else(|| wrong("its metadata has no size"))?,
    })
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
        ArtifactStore { mesh: self.clone(), objects: Objects::new(self, ARTIFACTS, "artifact") }
    }
}

/// The artifacts of a mesh.
#[derive(Clone)]
pub struct ArtifactStore {
    mesh: Mesh,
    objects: Objects,
}

impl ArtifactStore {
    /// Makes bytes ready to travel: inside the part up to [`INLINE_LIMIT`], else stored and named by address.
    pub async fn put(
        &self,
        place: &Place<'_>,
        name: ArtifactName,
        version: u32,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<StoredArtifact, MeshError> {
        if bytes.len() > INLINE_LIMIT {
            return self.put_object(place, name, version, media_type, bytes).await;
        }
        let meta = ArtifactMeta::of(name, version, plain_media_type(media_type)?, &bytes);
        let part = inline(media_type, &bytes).with_media_type(media_type).with_filename(meta.name.as_str());
        Ok(StoredArtifact { meta, part })
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
        let meta = ArtifactMeta::of(name, version, plain_media_type(media_type)?, &bytes);
        let address = Address {
            app: place.app.to_owned(),
            user: place.user.to_owned(),
            execution: place.execution.clone(),
            name: meta.name.clone(),
            version,
            task: place.task.clone(),
            sha256: meta.sha256.clone(),
        };
        let text = address.to_string();
        // An address that nobody can read again must not be handed out.
        if text.parse::<Address>().as_ref() != Ok(&address) {
            return Err(BadArtifact::Address(text).into());
        }
        let about = [
            ("name", meta.name.to_string()),
            ("version", version.to_string()),
            ("media_type", meta.media_type.clone()),
        ];
        self.objects.put(&address.key(), about, &bytes).await?;
        let part = Part::url(text).with_media_type(media_type).with_filename(meta.name.as_str());
        Ok(StoredArtifact { meta, part })
    }

    /// The bytes of an artifact of a message, checked against what the message says of them.
    pub async fn get(&self, artifact: &a2a::Artifact) -> Result<(ArtifactMeta, Bytes), MeshError> {
        let meta = meta_of(artifact)?;
        let [part] = artifact.parts.as_slice() else {
            let reason = format!("it has {} parts instead of one", artifact.parts.len());
            return Err(MeshError::Malformed { what: "an artifact", reason });
        };
        if let PartContent::Url(address) = &part.content
            && address.parse::<Address>()?.sha256 != meta.sha256
        {
            let reason = "its address and its metadata name different bytes".to_owned();
            return Err(MeshError::Malformed { what: "an artifact", reason });
        }
        let bytes = self.get_part(part).await?;
        meta.verify(&bytes)?;
        Ok((meta, bytes))
    }

    /// The bytes that a part holds or names. Inline parts are as true as their message.
    pub async fn get_part(&self, part: &Part) -> Result<Bytes, MeshError> {
        match &part.content {
            PartContent::Text(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            PartContent::Data(value) => serde_json::to_vec(value)
                .map(Bytes::from)
                .map_err(|error| MeshError::Malformed { what: "an artifact", reason: error.to_string() }),
            PartContent::Raw(text) => BASE64
                .decode(text.as_bytes())
                .map(Bytes::from)
                .map_err(|error| MeshError::Malformed { what: "an artifact", reason: error.to_string() }),
            PartContent::Url(address) => self.get_address(&address.parse()?).await,
            _ => Err(MeshError::Malformed {
                what: "an artifact",
                reason: "a part of an unknown kind".to_owned(),
            }),
        }
    }

    /// The bytes at an address, which are those that its sha256 names.
    pub async fn get_address(&self, address: &Address) -> Result<Bytes, MeshError> {
        let (_, bytes) = self.objects.get(&address.key()).await?;
        let found = sha256(&bytes);
        if found == address.sha256 {
            return Ok(bytes);
        }
        Err(BadArtifact::Changed {
            name: address.name.clone(),
            expected: format!("sha256 {}", address.sha256),
            found: format!("sha256 {found}, {} bytes", bytes.len()),
        }
        .into())
    }

    /// What lies in the object store for an execution, by task and name; inline artifacts are in its journal only.
    ///
    /// Reads the description of every object of the mesh: for people, not for the way of data.
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

impl fmt::Debug for ArtifactStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactStore").field("mesh", &self.mesh).finish_non_exhaustive()
    }
}

/// The part that holds these bytes so that exactly they come out of it again: JSON as data only where writing the
/// value again gives the same bytes.
fn inline(media_type: &str, bytes: &Bytes) -> Part {
    let json = media_type.split(';').next().is_some_and(|kind| kind.trim() == "application/json");
    if json
        && let Ok(value) = serde_json::from_slice::<Value>(bytes)
        && serde_json::to_vec(&value).is_ok_and(|again| again == *bytes)
    {
        return Part::data(value);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if json || media_type.starts_with("text/") => Part::text(text),
        _ => Part::raw(BASE64.encode(bytes)),
    }
}

/// What a description says, when it is one of this execution's.
fn described(execution: &ExecutionId, body: &[u8]) -> Option<(TaskId, ArtifactMeta)> {
    let info: ObjectInfo = serde_json::from_slice(body).ok()?;
    let rest = info.name.strip_prefix(execution.as_str())?.strip_prefix('.')?;
    let (task, sha256) = rest.split_once('.')?;
    if info.deleted || !is_sha256(sha256) {
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
