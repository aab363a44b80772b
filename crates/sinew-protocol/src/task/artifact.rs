//! An artifact inside a result: its bytes if it is small, otherwise its address.

use bytes::Bytes;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD};
use serde_json::{Value, json};

use super::{bad, members};
use crate::a2a::{Artifact, Part, PartContent};
use crate::artifact::{ArtifactMeta, ArtifactName, ArtifactRef, StoredAt, sha256};
use crate::deployment::is_digest;
use crate::message::BadMessage;
use crate::stream::INLINE_LIMIT;
use crate::unique_keys::{BadJson, check_unique_keys};

/// Field of an artifact in the journal whose bytes are the compact JSON of its reply's output.
const IS_OUTPUT: &str = "is_output";

/// One version of an artifact in a result.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultArtifact {
    /// Description of the bytes.
    pub meta: ArtifactMeta,
    /// Bytes of the artifact, or their address.
    pub content: Content,
}

/// Bytes inside a message, or their address.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// JSON whose compact form is the bytes.
    Data(Value),
    /// Text.
    Text(String),
    /// Any other bytes.
    Raw(Bytes),
    /// Address, see [`StoredAt`]; not validated here.
    Url(String),
}

impl Content {
    /// Creates content with these bytes inside a message; `None` if they are too large.
    pub fn inline(media_type: &str, bytes: &Bytes) -> Option<Self> {
        if bytes.len() > INLINE_LIMIT {
            return None;
        }
        if is_json(media_type) {
            // Only JSON in the form that Sinew writes keeps its sha256 when decoded and encoded
            // again.
            let value = serde_json::from_slice::<Value>(bytes).ok();
            let exact = value.filter(|value| value.to_string().as_bytes() == bytes.as_ref());
            if let Some(value) = exact {
                return Some(Self::Data(value));
            }
        }
        Some(match std::str::from_utf8(bytes) {
            Ok(text) if is_text(media_type) => Self::Text(text.to_owned()),
            _ => Self::Raw(bytes.clone()),
        })
    }

    /// Returns the bytes, if they are included.
    pub fn bytes(&self) -> Option<Bytes> {
        match self {
            Self::Data(value) => Some(value.to_string().into()),
            Self::Text(text) => Some(text.clone().into()),
            Self::Raw(bytes) => Some(bytes.clone()),
            Self::Url(_) => None,
        }
    }

    /// Returns the content as the part of an A2A message.
    pub fn to_part(&self) -> Part {
        match self {
            Self::Data(value) => Part::data(value.clone()),
            Self::Text(text) => Part::text(text.clone()),
            Self::Raw(bytes) => Part::raw(BASE64.encode(bytes)),
            Self::Url(address) => Part::url(address.clone()),
        }
    }

    /// Parses the part of an A2A message.
    pub fn of(part: &Part) -> Result<Self, BadMessage> {
        Ok(match &part.content {
            PartContent::Data(value) => Self::Data(value.clone()),
            PartContent::Text(text) => Self::Text(text.clone()),
            PartContent::Url(address) => Self::Url(address.clone()),
            PartContent::Raw(text) => {
                Self::Raw(base64(text).ok_or_else(|| bad("raw", "is not base64"))?.into())
            }
            _ => return Err(bad("part", "is of an unknown kind")),
        })
    }
}

/// Decodes any of the four forms of base64, as A2A requires of readers.
fn base64(text: &str) -> Option<Vec<u8>> {
    let ways = [BASE64, BASE64URL, BASE64_NOPAD, BASE64URL_NOPAD];
    ways.iter().find_map(|way| way.decode(text.as_bytes()).ok())
}

/// Returns whether a media type is `application/json`, `application/ld+json`, …, with any
/// parameters.
fn is_json(media_type: &str) -> bool {
    let bare = media_type.split(';').next().unwrap_or_default().trim();
    bare.eq_ignore_ascii_case("application/json") || bare.to_ascii_lowercase().ends_with("+json")
}

fn is_text(media_type: &str) -> bool {
    is_json(media_type) || media_type.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"))
}

impl ResultArtifact {
    /// Creates an artifact with its bytes inside the result; `None` if they are too large and must
    /// be stored first.
    pub fn inline(name: ArtifactName, version: u32, media_type: &str, bytes: &Bytes) -> Option<Self> {
        let content = Content::inline(media_type, bytes)?;
        Some(Self { meta: ArtifactMeta::of(name, version, media_type, bytes), content })
    }

    /// Creates an artifact whose bytes are stored.
    pub fn stored(meta: ArtifactMeta, at: &StoredAt) -> Self {
        Self { meta, content: Content::Url(at.to_string()) }
    }

    /// Returns the reference to exactly this version.
    pub fn reference(&self) -> ArtifactRef {
        self.meta.reference()
    }

    /// Returns the artifact in A2A's format.
    pub fn to_a2a(&self) -> Artifact {
        let ArtifactMeta { name, version, media_type, sha256, size } = &self.meta;
        let part = self.content.to_part().with_filename(name.to_string()).with_media_type(media_type.clone());
        let mut artifact = Artifact::new(format!("{name}:{version}"), vec![part]);
        artifact.name = Some(name.to_string());
        artifact.metadata =
            Some(json!({"version": version, "sha256": sha256, "size": size, "media_type": media_type}));
        artifact
    }

    /// Returns the artifact as the journal stores it with the output of its result: its metadata,
    /// and its bytes or their address. An artifact whose JSON is the output has a marker instead of
    /// a copy.
    pub fn to_value(&self, output: Option<&Value>) -> Value {
        let mut value = serde_json::to_value(&self.meta).unwrap_or_default();
        let (key, content) = match &self.content {
            Content::Data(data) if output == Some(data) => (IS_OUTPUT, Value::Bool(true)),
            Content::Data(data) => ("data", data.clone()),
            Content::Text(text) => ("text", text.clone().into()),
            Content::Raw(bytes) => ("raw", BASE64.encode(bytes).into()),
            Content::Url(address) => ("url", address.clone().into()),
        };
        value[key] = content;
        value
    }

    /// Parses [`ResultArtifact::to_value`]; `output` is the output of the same reply.
    pub fn from_value(value: &Value, output: &Value) -> Option<Self> {
        let meta: ArtifactMeta = serde::Deserialize::deserialize(value).ok()?;
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let content = if value.get(IS_OUTPUT) == Some(&Value::Bool(true)) {
            Content::Data(output.clone())
        } else if let Some(data) = value.get("data") {
            Content::Data(data.clone())
        } else if let Some(text) = text("text") {
            Content::Text(text.to_owned())
        } else if let Some(raw) = text("raw") {
            Content::Raw(base64(raw)?.into())
        } else {
            Content::Url(text("url")?.to_owned())
        };
        Some(Self { meta, content })
    }

    /// Returns the value of the bytes in a workflow: JSON as is, other text as a string, other
    /// bytes as their metadata. Returns `None` if the bytes are stored elsewhere.
    pub fn value(&self) -> Option<Value> {
        let meta = || serde_json::to_value(&self.meta).unwrap_or_default();
        Some(match &self.content {
            Content::Data(value) => value.clone(),
            Content::Text(text) => value_of(&self.meta.media_type, text),
            Content::Raw(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if is_text(&self.meta.media_type) => value_of(&self.meta.media_type, text),
                _ => meta(),
            },
            Content::Url(_) => return None,
        })
    }

    /// Returns an error if JSON in a text part has duplicate keys. Text that is not JSON is a plain
    /// string.
    pub(super) fn check_keys(&self) -> Result<(), BadMessage> {
        let text = match &self.content {
            Content::Text(text) => text.as_bytes(),
            Content::Raw(bytes) => bytes.as_ref(),
            Content::Data(_) | Content::Url(_) => return Ok(()),
        };
        match check_unique_keys(text) {
            Err(BadJson::DuplicateKey(key)) if is_json(&self.meta.media_type) => {
                Err(BadMessage::DuplicateKey(key))
            }
            _ => Ok(()),
        }
    }

    /// Parses the `n`-th artifact of an A2A task. The sha256 and size in the task must match those
    /// of included bytes; the bytes of a `data` part are its compact JSON.
    pub(super) fn read(artifact: &Artifact, n: usize) -> Result<Self, BadMessage> {
        let part = artifact.parts.first().ok_or_else(|| bad("artifacts", "one has no part"))?;
        let content = Content::of(part)?;
        let said = members(artifact.metadata.as_ref());
        let said = |key: &str| said.and_then(|said| said.get(key));
        let named = artifact.name.as_deref().or(part.filename.as_deref());
        let named = named.map_or_else(|| format!("artifact_{n}"), str::to_owned);
        let name = ArtifactName::parse(&named).map_err(|e| bad("artifacts", &e.to_string()))?;
        let version = match said("version") {
            None => 0,
            Some(version) => {
                let version = version.as_u64().and_then(|version| u32::try_from(version).ok());
                version.ok_or_else(|| bad("artifacts", "a version is not a small number"))?
            }
        };
        let media_type = said("media_type").and_then(Value::as_str).or(part.media_type.as_deref());
        let usual = match &content {
            Content::Data(_) => "application/json",
            Content::Text(_) => "text/plain",
            _ => "application/octet-stream",
        };
        let media_type = super::cut(media_type.unwrap_or(usual), 200);
        let meta = match content.bytes() {
            Some(bytes) => {
                let meta = ArtifactMeta {
                    sha256: sha256(&bytes),
                    size: bytes.len() as u64,
                    name,
                    version,
                    media_type,
                };
                compare(&meta, "sha256", said("sha256"), &json!(meta.sha256))?;
                compare(&meta, "size", said("size"), &json!(meta.size))?;
                meta
            }
            None => ArtifactMeta {
                sha256: said("sha256")
                    .and_then(Value::as_str)
                    .filter(|hash| is_digest(hash))
                    .unwrap_or_default()
                    .to_owned(),
                size: said("size").and_then(Value::as_u64).unwrap_or_default(),
                name,
                version,
                media_type,
            },
        };
        Ok(Self { meta, content })
    }
}

/// Returns an error if the metadata of an artifact contradicts its bytes.
fn compare(
    meta: &ArtifactMeta,
    field: &'static str,
    claimed: Option<&Value>,
    found: &Value,
) -> Result<(), BadMessage> {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match claimed {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) if found.as_str().is_some_and(|found| found.eq_ignore_ascii_case(text)) => {
            Ok(())
        }
        Some(claimed) if claimed == found => Ok(()),
        Some(claimed) => Err(BadMessage::Content {
            name: meta.name.to_string(),
            field,
            found: plain(found),
            claimed: super::cut(&plain(claimed), 80),
        }),
    }
}

fn value_of(media_type: &str, text: &str) -> Value {
    let json = is_json(media_type).then(|| serde_json::from_str(text).ok()).flatten();
    json.unwrap_or_else(|| text.into())
}
