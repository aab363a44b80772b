//! Artifacts by name: checked names, references, metadata of stored bytes, and `artifact://`
//! addresses.

use crate::code;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use unicode_normalization::is_nfc;

use crate::fault::Fault;

mod address;
mod object_key;

pub use address::{StoredAt, object_id, without_key};
pub use object_key::ObjectKey;

/// Maximum length of an artifact name, in bytes of UTF-8; a limit of common file systems.
pub const MAX_NAME: usize = 255;

/// Error for an invalid artifact name, address or content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadArtifact {
    /// The name is empty or longer than 255 bytes.
    #[error("an artifact name has 1 to {MAX_NAME} bytes, this one has {0}")]
    Length(usize),
    /// A character that could escape the folder, be invisible, or be special to a shell, URI or
    /// terminal.
    #[error("artifact name {name:?} contains the invalid character {character:?}")]
    Character {
        /// Name as given.
        name: String,
        /// First rejected character.
        character: char,
    },
    /// `.`, `..`, a device name, or a name that starts or ends with a blank or ends with a dot.
    #[error("artifact name {0:?} is reserved by file systems")]
    Reserved(String),
    /// Two byte strings that look the same must not be two names.
    #[error("artifact name {0:?} is not in Unicode normal form C")]
    NotNormal(String),
    /// Not `artifact://APP/USER/SESSION/NAME[?version=N]`; other parameters are ignored.
    #[error("{0:?} is not an artifact address: expected artifact://APP/USER/SESSION/NAME?version=N")]
    Address(String),
    /// Address of a stored object without the key that decrypts it.
    #[error("the address {0:?} has no key: it was shortened, or an older version stored the artifact")]
    NoKey(String),
    /// The bytes differ from the stored ones.
    #[error("artifact {name} has the wrong digest: expected {expected}, found {found}")]
    Changed {
        /// The artifact's name.
        name: ArtifactName,
        /// Sha256 and size according to the reference.
        expected: String,
        /// Sha256 and size of the received bytes.
        found: String,
    },
}

impl BadArtifact {
    /// Returns the operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Address(_) => code::ARTIFACT_ADDRESS_CANNOT_BE_READ.as_str(),
            Self::NoKey(_) => code::ARTIFACT_ADDRESS_WITHOUT_KEY.as_str(),
            Self::Changed { .. } => code::ARTIFACT_CONTENT_DIFFERS.as_str(),
            _ => code::ARTIFACT_NAME_NOT_VALID.as_str(),
        }
    }
}

impl From<BadArtifact> for Fault {
    fn from(bad: BadArtifact) -> Self {
        Self::invalid(bad.code(), bad.to_string())
    }
}

/// Artifact name: one path segment, safe as a file name; readable Unicode is allowed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ArtifactName(Arc<str>);

impl Serialize for ArtifactName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl ArtifactName {
    /// Parses an untrusted name.
    ///
    /// ```
    /// # use sinew_protocol::ArtifactName;
    /// assert!(ArtifactName::parse("bericht_größe.json").is_ok());
    /// assert!(ArtifactName::parse("../secret").is_err());
    /// ```
    pub fn parse(name: &str) -> Result<Self, BadArtifact> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(BadArtifact::Length(name.len()));
        }
        if let Some(character) = name.chars().find(|c| is_refused(*c)) {
            return Err(BadArtifact::Character { name: name.to_owned(), character });
        }
        if is_reserved(name) {
            return Err(BadArtifact::Reserved(name.to_owned()));
        }
        if !name.is_ascii() && !is_nfc(name) {
            return Err(BadArtifact::NotNormal(name.to_owned()));
        }
        Ok(Self(name.into()))
    }

    /// Returns the name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether a character is a separator (`:` on Windows and before a version), a control
/// character or an invisible direction character.
fn is_refused(c: char) -> bool {
    c.is_control()
        || matches!(c, '/' | '\\' | ':' | '\u{2028}' | '\u{2029}' | '\u{FEFF}')
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}')
}

fn is_reserved(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end();
    let is_named = |device: &str| stem.eq_ignore_ascii_case(device);
    let numbered = |device: &str| {
        stem.len() == device.len() + 1
            && stem.get(..device.len()).is_some_and(|start| start.eq_ignore_ascii_case(device))
            && stem.ends_with(|last: char| last.is_ascii_digit())
    };
    let device = ["con", "nul", "aux", "prn"].into_iter().any(is_named) || numbered("com") || numbered("lpt");
    device || name.ends_with('.') || name.trim() != name
}

impl TryFrom<String> for ArtifactName {
    type Error = BadArtifact;
    fn try_from(name: String) -> Result<Self, BadArtifact> {
        Self::parse(&name)
    }
}

impl FromStr for ArtifactName {
    type Err = BadArtifact;
    fn from_str(name: &str) -> Result<Self, BadArtifact> {
        Self::parse(name)
    }
}

impl From<ArtifactName> for String {
    fn from(name: ArtifactName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl AsRef<str> for ArtifactName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Reference to an artifact; without a version, to its latest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ArtifactRef {
    /// Name of the artifact. Also read from the older fields `artifact_name` and `filename`.
    #[serde(alias = "artifact_name", alias = "filename")]
    pub name: ArtifactName,
    /// The version, counted from 0.
    #[serde(default, alias = "artifact_version", skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

impl fmt::Display for ArtifactRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}:v{version}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// Description of one stored version, sufficient to check its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactMeta {
    /// Name of the artifact.
    #[schemars(with = "String")]
    pub name: ArtifactName,
    /// Version of the artifact, starting at 0.
    pub version: u32,
    /// Media type, such as `application/json`.
    pub media_type: String,
    /// SHA-256 of the content in lower-case hex.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

impl ArtifactMeta {
    /// Returns the metadata of these bytes under this name and version.
    pub fn of(name: ArtifactName, version: u32, media_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self { name, version, media_type: media_type.into(), sha256: sha256(bytes), size: bytes.len() as u64 }
    }

    /// Returns the reference to exactly this version.
    pub fn reference(&self) -> ArtifactRef {
        ArtifactRef { name: self.name.clone(), version: Some(self.version) }
    }

    /// Returns an error if the bytes differ from the stored ones.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), BadArtifact> {
        self.verify_digest(&sha256(bytes), bytes.len() as u64)
    }

    /// Returns an error if the digest (lower-case hex) or size differs from the stored one.
    pub fn verify_digest(&self, sha256: &str, size: u64) -> Result<(), BadArtifact> {
        if sha256 == self.sha256 && size == self.size {
            return Ok(());
        }
        Err(BadArtifact::Changed {
            name: self.name.clone(),
            expected: format!("sha256 {}, {} bytes", self.sha256, self.size),
            found: format!("sha256 {sha256}, {size} bytes"),
        })
    }
}

/// Returns the sha256 as lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Returns the first 64 bits of the sha256 as 11 characters of base64url.
pub fn hash64(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(bytes)[..8])
}

/// Address of an artifact in an A2A part: `artifact://APP/USER/SESSION/NAME?version=N`.
///
/// The address states where the sender stores the artifact. It grants no rights; these come from
/// the caller's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArtifactUri {
    /// Agent, workflow or gateway that stored the artifact.
    pub app: String,
    /// User for whom the artifact was stored.
    pub user: String,
    /// Session (A2A context) in which the artifact was stored.
    pub session: String,
    /// Name and version.
    pub artifact: ArtifactRef,
}

/// Characters that are not encoded in a segment; all others are percent-encoded.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@');

impl fmt::Display for ArtifactUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("artifact:/")?;
        for segment in [&self.app, &self.user, &self.session, self.artifact.name.as_str()] {
            write!(f, "/{}", utf8_percent_encode(segment, SEGMENT))?;
        }
        self.artifact.version.map_or(Ok(()), |version| write!(f, "?version={version}"))
    }
}

impl FromStr for ArtifactUri {
    type Err = BadArtifact;

    fn from_str(text: &str) -> Result<Self, BadArtifact> {
        let bad = || BadArtifact::Address(text.chars().take(200).collect());
        let (path, query) = match text.strip_prefix("artifact://").ok_or_else(bad)?.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text.trim_start_matches("artifact://"), None),
        };
        let mut version = None;
        for (name, value) in query.into_iter().flat_map(parameters) {
            if name == "version" && value != "latest" {
                version = Some(value.parse().map_err(|_| bad())?);
            }
        }
        let segments: Vec<String> = path
            .split('/')
            .map(|segment| percent_decode_str(segment).decode_utf8().map(Into::into))
            .collect::<Result<_, _>>()
            .map_err(|_| bad())?;
        match <[String; 4]>::try_from(segments) {
            Ok([app, user, session, name]) if !app.is_empty() => {
                let artifact = ArtifactRef { name: ArtifactName::parse(&name)?, version };
                Ok(Self { app, user, session, artifact })
            }
            _ => Err(bad()),
        }
    }
}

/// Parses the parameters after the `?` of an address. A parameter without `=` has an empty value.
fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = query.split('&').filter(|word| !word.is_empty());
    words.map(|word| word.split_once('=').unwrap_or((word, "")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_one_safe_segment() {
        let refused = [
            "",
            ".",
            "..",
            "../a",
            "a/b",
            "/a",
            "a\\b",
            "C:a",
            "a:2",
            "a\0b",
            "a\nb",
            "a\u{202E}gpj",
            "a\u{200B}b",
            "nul",
            "CON.json",
            "com1.txt",
            "lpt9",
            "a.",
            " a",
            "a ",
            "e\u{301}.json",
        ];
        for name in refused {
            assert!(ArtifactName::parse(name).is_err(), "{name:?} was taken");
        }
        assert!(ArtifactName::parse(&"a".repeat(256)).is_err());
        let taken = [
            "a",
            ".hidden",
            "wi_F_0a1b2c3d.json",
            "größe é.json",
            "结果.json",
            "a..b",
            "console.log",
            "com10",
            "com",
        ];
        for name in taken {
            assert_eq!(ArtifactName::parse(name).unwrap().as_str(), name);
        }
        assert!(ArtifactName::parse(&"a".repeat(255)).is_ok());
    }

    #[test]
    fn references_are_read_in_every_wording() {
        let want = ArtifactRef { name: "o.json".parse().unwrap(), version: Some(2) };
        for text in [
            r#"{"name":"o.json","version":2}"#,
            r#"{"artifact_name":"o.json","artifact_version":2}"#,
            r#"{"filename":"o.json","version":2}"#,
        ] {
            assert_eq!(serde_json::from_str::<ArtifactRef>(text).unwrap(), want, "{text}");
        }
        assert_eq!(want.to_string(), "o.json:v2");
        assert!(serde_json::from_str::<ArtifactRef>(r#"{"name":"../o"}"#).is_err());
    }

    #[test]
    fn changed_bytes_are_noticed() {
        let meta = ArtifactMeta::of("a.txt".parse().unwrap(), 0, "text/plain", b"abc");
        assert_eq!(meta.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(meta.verify(b"abc"), Ok(()));
        assert_eq!(meta.verify(b"abd").unwrap_err().code(), "SINEW-5003");
        assert_eq!(meta.reference().to_string(), "a.txt:v0");
    }

    #[test]
    fn addresses_that_mean_nothing_are_refused() {
        for text in [
            "file:///a",
            "artifact://a/u/s",
            "artifact:///u/s/n",
            "artifact://a/u/s/n/m",
            "artifact://a/u/s/..",
            "artifact://a/u/s/%2e%2e%2fetc",
            "artifact://a/u/s/n?version",
            "artifact://a/u/s/n?task=t&version=x",
            "artifact://a/u/s/n?version=-1",
            "artifact://a/u/s/%ff",
        ] {
            assert!(text.parse::<ArtifactUri>().is_err(), "{text} was taken");
        }
        let latest: ArtifactUri = "artifact://a/u/s/n.json?version=latest".parse().unwrap();
        assert_eq!(latest.artifact.version, None);
        let more: ArtifactUri = "artifact://a/u/s/n.json?task=t&version=3&sha256=00".parse().unwrap();
        assert_eq!(more.artifact.version, Some(3));
    }

    proptest! {
        #[test]
        fn addresses_round_trip(app in ".{1,9}", user in ".{0,9}", session in ".{0,9}", name in "[a-z0-9äß结][A-Za-z0-9äß结 %?#&+.-]{0,20}_", version: Option<u32>) {
            let artifact = ArtifactRef { name: name.parse().unwrap(), version };
            let uri = ArtifactUri { app, user, session, artifact };
            prop_assert_eq!(uri.to_string().parse::<ArtifactUri>(), Ok(uri));
        }
    }
}
