//! Keys of programs and people that call a gateway: their records in the stream ACCESS, and their
//! form in requests.
//!
//! The secret of a key has 160 random bits and is shown once. The mesh stores only a digest of it.

use std::fmt;

use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::Token;
use crate::id::is_token;
use crate::message::BadMessage;

/// The largest record of a gateway, in bytes of JSON.
pub const MAX_ACCESS_RECORD: usize = 64 * 1024;
/// First characters of each key, by which scanners of secrets recognise it.
pub const KEY_PREFIX: &str = "sinew_";
/// First characters of the names of callers that an OpenID provider vouches for; no key may have such a name.
pub const OIDC_CALLER_PREFIX: &str = "oidc-";
/// First characters of the names of callers that webhooks stand for; no key may have such a name.
pub const HOOK_CALLER_PREFIX: &str = "hook-";
/// Characters of the id of a key.
pub const KEY_ID_CHARS: usize = 12;
/// Characters of the secret of a key.
pub const KEY_SECRET_CHARS: usize = 32;
/// Most patterns of a key.
const MAX_PATTERNS: usize = 100;

/// Role of a key: one of three roles of the mesh, each with the rights of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessRole {
    /// Looks at everything that its patterns allow.
    Operator,
    /// Also starts, steers and answers.
    Client,
    /// Also deploys and removes workflows.
    Admin,
}

impl AccessRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Client, Self::Admin];

    /// The word for it, that of the role on the mesh.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Client => "client",
            Self::Admin => "admin",
        }
    }

    /// The role of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

/// Executions that a key opens, among those of its patterns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Executions of every caller. Keys that do not say a scope have this one.
    #[default]
    All,
    /// Executions that the owner of the key started, with what they started.
    Own,
}

impl KeyScope {
    /// The scope of a new key of this role that names none: who starts executions sees those, who looks or deploys sees all.
    pub const fn of_new_key(role: AccessRole) -> Self {
        match role {
            AccessRole::Client => Self::Own,
            AccessRole::Operator | AccessRole::Admin => Self::All,
        }
    }

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Own => "own",
        }
    }

    /// The scope of this word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::All, Self::Own].into_iter().find(|scope| scope.as_str() == word)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// Proof that a request must carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyProof {
    /// A secret with this digest; see [`secret_digest`].
    Digest(String),
    /// A client certificate with this DNS name, of an authority that the gateway trusts.
    CertificateName(String),
}

/// Limits of the requests of one caller. `None`: the gateway's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Requests a second, on average over ten seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Requests that are answered at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Streams that are open at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Bytes of a request's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKey {
    /// Id of the key, which is not a secret.
    pub id: Token,
    /// Name of its owner: the caller in commands and approvals.
    pub name: String,
    /// Role that its rights follow from.
    pub role: AccessRole,
    /// Patterns of the workflows and agents that it may see and use; `*` stands for any text.
    pub patterns: Vec<String>,
    /// Executions that it opens.
    #[serde(default, skip_serializing_if = "KeyScope::is_all")]
    pub scope: KeyScope,
    /// Proof that a request must carry.
    pub proof: KeyProof,
    /// When it was made, milliseconds since 1970 UTC.
    pub created_at: u64,
    /// User who made it.
    pub created_by: String,
    /// When it ends to be valid, milliseconds since 1970 UTC. `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// When it was revoked, milliseconds since 1970 UTC. `None`: it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<u64>,
    /// Limits of its requests.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// Standing of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStanding {
    /// It opens.
    Valid,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
}

impl KeyStanding {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl AccessKey {
    /// Reads the record of the key with this id.
    pub fn read(id: &Token, body: &[u8]) -> Result<Self, BadMessage> {
        let read: Self = read_record(body)?;
        let bad = |reason: String| BadMessage::Field { kind: "key".to_owned(), reason };
        if read.id != *id {
            return Err(bad("id: not that of the subject".to_owned()));
        }
        read.check().map_err(bad)?;
        Ok(read)
    }

    /// Fails with a text if the key would not say clearly whose it is and what it may do.
    pub fn check(&self) -> Result<(), String> {
        check_caller_name(&self.name)?;
        if self.patterns.is_empty() || self.patterns.len() > MAX_PATTERNS {
            return Err(format!("patterns: expected 1 to {MAX_PATTERNS}"));
        }
        match &self.proof {
            KeyProof::Digest(digest) if digest.len() != 64 => Err("digest: not 64 hex digits".to_owned()),
            KeyProof::CertificateName(name) if name.is_empty() || name.contains('*') => {
                Err("certificate name: expected a DNS name without wildcards".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Standing of the key at a time, in milliseconds since 1970 UTC.
    pub fn standing(&self, now: u64) -> KeyStanding {
        if self.revoked_at.is_some() {
            KeyStanding::Revoked
        } else if self.expires_at.is_some_and(|end| now >= end) {
            KeyStanding::Expired
        } else {
            KeyStanding::Valid
        }
    }

    /// Whether this secret is the one of the key. Takes the same time for every wrong secret.
    pub fn proves(&self, secret: &str) -> bool {
        let KeyProof::Digest(digest) = &self.proof else { return false };
        let Ok(digest) = data_encoding::HEXLOWER.decode(digest.as_bytes()) else { return false };
        digest_of(&self.id, secret).is_some_and(|mac| mac.verify_slice(&digest).is_ok())
    }
}

/// Fails with a text if a caller could not have this name, or could be taken for another kind of caller.
pub fn check_caller_name(name: &str) -> Result<(), String> {
    if !is_token(name) || name.starts_with("__") {
        return Err(format!(
            "name {name:?}: expected 1 to 64 letters, digits, underscores or hyphens, and no two underscores first"
        ));
    }
    match [OIDC_CALLER_PREFIX, HOOK_CALLER_PREFIX].iter().find(|taken| name.starts_with(**taken)) {
        Some(taken) => Err(format!("name {name:?}: names that begin with {taken} belong to other callers")),
        None => Ok(()),
    }
}

/// Digest of the secret of a key, as its record holds it.
pub fn secret_digest(id: &Token, secret: &str) -> String {
    let bytes = digest_of(id, secret).map(|mac| mac.finalize().into_bytes()).unwrap_or_default();
    data_encoding::HEXLOWER.encode(&bytes)
}

/// `None` never happens: HMAC takes keys of any length.
fn digest_of(id: &Token, secret: &str) -> Option<Hmac<Sha256>> {
    let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(format!("sinew key {id}").as_bytes()).ok()?;
    mac.update(secret.as_bytes());
    Some(mac)
}

/// A key as a request carries it: `sinew_ID_SECRET`.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedKey {
    /// Id of the key.
    pub id: Token,
    /// Secret of the key.
    pub secret: String,
}

impl PresentedKey {
    /// Reads a key. `None` for a text of another form.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let is_whole = id.len() == KEY_ID_CHARS && secret.len() == KEY_SECRET_CHARS;
        if !is_whole || !is_plain(id) || !is_plain(secret) {
            return None;
        }
        Some(Self { id: Token::parse(id).ok()?, secret: secret.to_owned() })
    }

    /// The text that its owner keeps, with the secret in it.
    pub fn text(&self) -> String {
        format!("{KEY_PREFIX}{}_{}", self.id, self.secret)
    }
}

impl fmt::Debug for PresentedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PresentedKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Reads a record of the stream ACCESS or PUSHES, within its limit.
pub fn read_record<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, BadMessage> {
    if body.len() > MAX_ACCESS_RECORD {
        return Err(BadMessage::Bytes(format!("a record has at most {MAX_ACCESS_RECORD} bytes")));
    }
    serde_json::from_slice(body).map_err(|error| BadMessage::Bytes(error.to_string()))
}

/// Whether a name matches a pattern in which `*` stands for any text.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    name.len() >= last.len() && name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> AccessKey {
        let id = Token::of("abcdefghijkl");
        AccessKey {
            name: "billing".to_owned(),
            role: AccessRole::Client,
            patterns: vec!["*".to_owned()],
            scope: KeyScope::Own,
            proof: KeyProof::Digest(secret_digest(&id, "right")),
            created_at: 1,
            created_by: "admin".to_owned(),
            expires_at: Some(100),
            revoked_at: None,
            limits: KeyLimits::default(),
            id,
        }
    }

    #[test]
    fn a_secret_proves_one_key_until_it_ends() {
        let key = key();
        assert!(key.proves("right"));
        assert!(!key.proves("wrong") && !key.proves(""));
        let other = AccessKey { id: Token::of("other"), ..key.clone() };
        assert!(!other.proves("right"), "the digest of another key says nothing");
        let named = AccessKey { proof: KeyProof::CertificateName("a.example".to_owned()), ..key.clone() };
        assert!(!named.proves("right"));
        assert_eq!(key.standing(99), KeyStanding::Valid);
        assert_eq!(key.standing(100), KeyStanding::Expired);
        assert_eq!(AccessKey { revoked_at: Some(1), ..key }.standing(2), KeyStanding::Revoked);
    }

    #[test]
    fn records_are_read_back_or_refused() {
        let key = key();
        let body = serde_json::to_vec(&key).unwrap();
        assert_eq!(AccessKey::read(&key.id, &body).unwrap(), key);
        let mut older: serde_json::Value = serde_json::from_slice(&body).unwrap();
        older.as_object_mut().unwrap().remove("scope");
        let older = AccessKey::read(&key.id, older.to_string().as_bytes()).unwrap();
        assert_eq!(older.scope, KeyScope::All, "a key of an older version opens what it opened");
        assert!(AccessKey::read(&Token::of("other"), &body).is_err());
        for name in ["", "a b", "a.b", "__x", "oidc-ann", "hook-a", "größe"] {
            let bad = AccessKey { name: name.to_owned(), ..key.clone() };
            assert!(AccessKey::read(&key.id, &serde_json::to_vec(&bad).unwrap()).is_err(), "{name}");
        }
    }

    #[test]
    fn keys_have_one_form() {
        let good = format!("sinew_{}_{}", "a".repeat(12), "b2".repeat(16));
        assert_eq!(PresentedKey::parse(&good).unwrap().text(), good);
        assert!(!format!("{:?}", PresentedKey::parse(&good)).contains("b2"), "a secret is not shown");
        let upper = good.to_uppercase();
        for bad in [
            "",
            "sinew_",
            "sinew_a_b",
            upper.as_str(),
            &good[1..],
            &format!("{good}x"),
            &good.replace('b', "*"),
        ] {
            assert!(PresentedKey::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn patterns_stand_for_names() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        };
        check("*", "", true);
        check("*", "any thing", true);
        check("orders", "orders", true);
        check("orders", "orders2", false);
        check("orders-*", "orders-eu", true);
        check("orders-*", "order", false);
        check("*-eu", "orders-eu", true);
        check("a*b*c", "a1b2c", true);
        check("a*b*c", "a1c2b", false);
        check("a*a", "a", false);
        check("a**a", "aa", true);
    }
}
