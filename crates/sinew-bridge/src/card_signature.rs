//! Signatures of cards: JWS over the canonical card without its signatures, by keys that the
//! operator configured.
//!
//! The key address of a signature (`jku`) is ignored: a signer could choose its own trust root.

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use serde_json::Value;
use sinew_protocol::a2a::v0_3::remove_old_members;
use sinew_protocol::canonical_json::canonical_json;
use sinew_protocol::unique_keys::read_unique;

/// Maximum number of verified signatures of one card.
const MAX_SIGNATURES: usize = 8;
/// Required fields of a card, which a signature covers even with their default value (A2A 1.0).
/// Other fields are omitted if they have their default value.
const REQUIRED_MEMBERS: [&str; 16] = [
    "name",
    "description",
    "supportedInterfaces",
    "version",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
    "url",
    "protocolBinding",
    "protocolVersion",
    "id",
    "tags",
    "organization",
    "list",
    "schemes",
];

/// Keys that may sign cards.
#[derive(Clone, Debug, Default)]
pub(crate) struct CardKeys(Vec<CardKey>);

#[derive(Clone, Debug)]
struct CardKey {
    id: Option<String>,
    algorithm: CardAlgorithm,
    public_key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum CardAlgorithm {
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl CardAlgorithm {
    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::EdDsa => &ED25519,
        }
    }
}

#[derive(Deserialize)]
struct KeySetFile {
    keys: Vec<KeyEntry>,
}

#[derive(Deserialize)]
struct KeyEntry {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

#[derive(Deserialize)]
struct ProtectedHeader {
    alg: CardAlgorithm,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that a reader must understand; none is supported.
    #[serde(default)]
    crit: Option<Value>,
}

impl CardKeys {
    /// Parses a JSON Web Key Set with keys of P-256 and Ed25519. Fails if it contains no such key.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let set: KeySetFile = read_unique(text.as_bytes()).map_err(|error| error.to_string())?;
        let keys = set.keys.iter().map(KeyEntry::read).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err("the set has no key".to_owned());
        }
        Ok(Self(keys))
    }

    /// Returns the part of the card that one of these keys signed. Fails if there is none. The members that a
    /// card has for clients of A2A 0.3 are removed unless the signature covers them.
    pub(crate) fn signed_part(&self, card: &Value) -> Result<Value, String> {
        let signatures =
            card.get("signatures").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if signatures.is_empty() {
            return Err("it is not signed".to_owned());
        }
        let mut reason = "its signature is by another key".to_owned();
        for signature in signatures.iter().take(MAX_SIGNATURES) {
            match self.part_signed_by(card, signature) {
                Ok(part) => return Ok(part),
                Err(found) => reason = found,
            }
        }
        Err(reason)
    }

    fn part_signed_by(&self, card: &Value, signature: &Value) -> Result<Value, String> {
        let text = |name: &str| signature.get(name).and_then(Value::as_str).unwrap_or_default();
        let protected = text("protected");
        let header = BASE64URL_NOPAD.decode(protected.as_bytes()).map_err(|error| error.to_string())?;
        let header: ProtectedHeader = read_unique(&header).map_err(|error| error.to_string())?;
        if header.crit.is_some() {
            return Err("its signature requires an unsupported JWS extension".to_owned());
        }
        let bytes =
            BASE64URL_NOPAD.decode(text("signature").as_bytes()).map_err(|error| error.to_string())?;
        let known = self.0.iter().filter(|key| {
            // A key is for one algorithm, regardless of the signature's claim.
            key.algorithm == header.alg && (key.id.is_none() || header.kid.is_none() || key.id == header.kid)
        });
        let mut unsigned = card.clone();
        if let Some(members) = unsigned.as_object_mut() {
            members.shift_remove("signatures");
        }
        // A signature of A2A 1.0 may leave out the members that a card also has for clients of 0.3.
        let mut modern = unsigned.clone();
        remove_old_members(&mut modern);
        let fits = |key: &CardKey, card: &Value| {
            [canonical_json(card), canonical_json(&without_defaults(card))].iter().any(|payload| {
                let signed = format!("{protected}.{}", BASE64URL_NOPAD.encode(payload.as_bytes()));
                let key = UnparsedPublicKey::new(key.algorithm.verification(), &key.public_key);
                key.verify(signed.as_bytes(), &bytes).is_ok()
            })
        };
        let keys: Vec<&CardKey> = known.collect();
        let signed = [unsigned, modern].into_iter().find(|card| keys.iter().any(|key| fits(key, card)));
        signed.ok_or_else(|| "its signature is by another key, or the card was modified".to_owned())
    }
}

impl KeyEntry {
    fn read(&self) -> Result<CardKey, String> {
        let part = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|error| error.to_string());
        let (algorithm, public_key) = match (self.kty.as_str(), self.crv.as_str()) {
            ("EC", "P-256") => (CardAlgorithm::Es256, [vec![4], part(&self.x)?, part(&self.y)?].concat()),
            ("OKP", "Ed25519") => (CardAlgorithm::EdDsa, part(&self.x)?),
            (kind, curve) => {
                return Err(format!("a key of type {kind} {curve} is neither P-256 nor Ed25519"));
            }
        };
        let length = if algorithm == CardAlgorithm::Es256 { 65 } else { 32 };
        if public_key.len() != length {
            return Err("a key has a wrong length".to_owned());
        }
        Ok(CardKey { id: self.kid.clone(), algorithm, public_key })
    }
}

/// Returns the card in the form of a signer that omits defaults.
fn without_defaults(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| {
                let is_default = match value {
                    Value::Null | Value::Bool(false) => true,
                    Value::String(text) => text.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    _ => false,
                };
                !is_default || REQUIRED_MEMBERS.contains(&name.as_str())
            });
            kept.map(|(name, value)| (name.clone(), without_defaults(value)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        Value::Array(items) => items.iter().map(without_defaults).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
