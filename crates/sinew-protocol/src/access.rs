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

/// Maximum size of a gateway record, in bytes of JSON.
pub const MAX_ACCESS_RECORD: usize = 64 * 1024;
/// Prefix of each key, by which secret scanners recognise it.
pub const KEY_PREFIX: &str = "sinew_";
/// Prefix of caller names that an OpenID provider authenticates. Key names must not have it.
pub const OIDC_CALLER_PREFIX: &str = "oidc-";
/// Prefix of caller names of webhooks. Key names must not have it.
pub const HOOK_CALLER_PREFIX: &str = "hook-";
/// Length of a key's id, in characters.
pub const KEY_ID_CHARS: usize = 12;
/// Length of a key's secret, in characters.
pub const KEY_SECRET_CHARS: usize = 32;
/// Maximum number of patterns of a key.
const MAX_PATTERNS: usize = 100;

/// Role of a key: one of three roles of the mesh. Each includes the rights of the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessRole {
    /// Reads everything that its patterns allow.
    Operator,
    /// Also starts executions and sends commands and answers.
    Client,
    /// Also deploys and removes workflows.
    Admin,
}

impl AccessRole {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Client, Self::Admin];

    /// Returns the name of the role, which is also its name on the mesh.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Client => "client",
            Self::Admin => "admin",
        }
    }

    /// Parses the name of a role.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

/// Executions that a key can access, among those that match its patterns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Executions of every caller. Default for keys without a scope.
    #[default]
    All,
    /// Executions that the owner of the key started, and their sub-executions.
    Own,
}

impl KeyScope {
    /// Returns the default scope of a new key: own executions for roles that start executions,
    /// otherwise all.
    pub const fn of_new_key(role: AccessRole) -> Self {
        match role {
            AccessRole::Client => Self::Own,
            AccessRole::Operator | AccessRole::Admin => Self::All,
        }
    }

    /// Returns the name of the scope.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Own => "own",
        }
    }

    /// Parses the name of a scope.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::All, Self::Own].into_iter().find(|scope| scope.as_str() == word)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// Prefix of a group in a list of people, and of the caller of a decision that a gateway sends for
/// a member of the group. Only users that may publish as any caller can send such a decision.
pub const GROUP_PREFIX: &str = "group:";
/// Maximum length of a group's name: the caller `group:NAME` must be readable from its token.
pub const MAX_GROUP_NAME: usize = 32;
/// Maximum number of groups of one person.
pub const MAX_GROUPS: usize = 64;

/// Proof that a request must carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyProof {
    /// Secret with this digest; see [`secret_digest`].
    Digest(String),
    /// Client certificate with this DNS name, issued by an authority that the gateway trusts.
    CertificateName(String),
}

/// Request limits of one caller. `None`: the limits of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Requests per second, averaged over ten seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Maximum number of concurrent requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Maximum number of open streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Maximum size of a request body, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKey {
    /// Id of the key. Not a secret.
    pub id: Token,
    /// Name of the owner: the caller in commands and approvals.
    pub name: String,
    /// Role that determines the rights of the key.
    pub role: AccessRole,
    /// Patterns of the workflows and agents that the key can see and use; `*` matches any string.
    pub patterns: Vec<String>,
    /// Groups to which the owner belongs. Members decide questions that are for a group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Executions that the key can access.
    #[serde(default, skip_serializing_if = "KeyScope::is_all")]
    pub scope: KeyScope,
    /// Proof that a request must carry.
    pub proof: KeyProof,
    /// Creation time, milliseconds since 1970 UTC.
    pub created_at: u64,
    /// User who created the key.
    pub created_by: String,
    /// Expiry time, milliseconds since 1970 UTC. `None`: no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Revocation time, milliseconds since 1970 UTC. `None`: not revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<u64>,
    /// Request limits of the key.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// Last use of a key, as gateways record it: at most once in ten minutes for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    /// Time of the request, milliseconds since 1970 UTC.
    pub at: u64,
}

/// Status of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStanding {
    /// The key is accepted.
    Valid,
    /// The key has expired.
    Expired,
    /// The key was revoked.
    Revoked,
}

impl KeyStanding {
    /// Returns the name of the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl AccessKey {
    /// Parses the record of the key with this id.
    pub fn read(id: &Token, body: &[u8]) -> Result<Self, BadMessage> {
        let read: Self = read_record(body)?;
        let bad = |reason: String| BadMessage::Field { kind: "key".to_owned(), reason };
        if read.id != *id {
            return Err(bad("id: not that of the subject".to_owned()));
        }
        read.check().map_err(bad)?;
        Ok(read)
    }

    /// Returns an error message if the name, the patterns, the proof or another field is invalid.
    pub fn check(&self) -> Result<(), String> {
        check_caller_name(&self.name)?;
        if self.patterns.is_empty() || self.patterns.len() > MAX_PATTERNS {
            return Err(format!("patterns: expected 1 to {MAX_PATTERNS}"));
        }
        if self.groups.len() > MAX_GROUPS {
            return Err(format!("groups: expected at most {MAX_GROUPS}"));
        }
        self.groups.iter().try_for_each(|group| check_group_name(group))?;
        match &self.proof {
            KeyProof::Digest(digest) if digest.len() != 64 => Err("digest: not 64 hex digits".to_owned()),
            KeyProof::CertificateName(name) if name.is_empty() || name.contains('*') => {
                Err("certificate name: expected a DNS name without wildcards".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the status of the key at a time, in milliseconds since 1970 UTC.
    pub fn standing(&self, now: u64) -> KeyStanding {
        if self.revoked_at.is_some() {
            KeyStanding::Revoked
        } else if self.expires_at.is_some_and(|end| now >= end) {
            KeyStanding::Expired
        } else {
            KeyStanding::Valid
        }
    }

    /// Returns whether this is the secret of the key. Takes the same time for every wrong secret.
    pub fn proves(&self, secret: &str) -> bool {
        let KeyProof::Digest(digest) = &self.proof else { return false };
        let Ok(digest) = data_encoding::HEXLOWER.decode(digest.as_bytes()) else { return false };
        digest_of(&self.id, secret).is_some_and(|mac| mac.verify_slice(&digest).is_ok())
    }
}

/// Returns an error message if this cannot be the name of a group.
pub fn check_group_name(name: &str) -> Result<(), String> {
    if is_token(name) && name.len() <= MAX_GROUP_NAME {
        return Ok(());
    }
    Err(format!("group {name:?}: expected 1 to {MAX_GROUP_NAME} letters, digits, underscores or hyphens"))
}

/// Returns the group that an entry of a list of people names: `group:NAME`.
pub fn group_of(entry: &str) -> Option<&str> {
    entry.strip_prefix(GROUP_PREFIX)
}

/// Returns an error message if the name is invalid or reserved for another kind of caller.
pub fn check_caller_name(name: &str) -> Result<(), String> {
    if !is_token(name) || name.starts_with("__") {
        return Err(format!(
            "name {name:?}: expected 1 to 64 letters, digits, underscores or hyphens, and no two underscores at the start"
        ));
    }
    match [OIDC_CALLER_PREFIX, HOOK_CALLER_PREFIX].iter().find(|taken| name.starts_with(**taken)) {
        Some(taken) => Err(format!("name {name:?}: names that begin with {taken} belong to other callers")),
        None => Ok(()),
    }
}

/// Returns the digest of a key's secret, as stored in its record.
pub fn secret_digest(id: &Token, secret: &str) -> String {
    let bytes = digest_of(id, secret).map(|mac| mac.finalize().into_bytes()).unwrap_or_default();
    data_encoding::HEXLOWER.encode(&bytes)
}

/// Never returns `None`: HMAC accepts keys of any length.
fn digest_of(id: &Token, secret: &str) -> Option<Hmac<Sha256>> {
    let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(format!("sinew key {id}").as_bytes()).ok()?;
    mac.update(secret.as_bytes());
    Some(mac)
}

/// Key in the form of requests: `sinew_ID_SECRET`.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedKey {
    /// Id of the key.
    pub id: Token,
    /// Secret of the key.
    pub secret: String,
}

impl PresentedKey {
    /// Parses a key. Returns `None` for another form.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let is_whole = id.len() == KEY_ID_CHARS && secret.len() == KEY_SECRET_CHARS;
        if !is_whole || !is_plain(id) || !is_plain(secret) {
            return None;
        }
        Some(Self { id: Token::parse(id).ok()?, secret: secret.to_owned() })
    }

    /// Returns the full key, including the secret.
    pub fn text(&self) -> String {
        format!("{KEY_PREFIX}{}_{}", self.id, self.secret)
    }
}

impl fmt::Debug for PresentedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PresentedKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Parses a record of the stream ACCESS or PUSHES and enforces the size limit.
pub fn read_record<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, BadMessage> {
    if body.len() > MAX_ACCESS_RECORD {
        return Err(BadMessage::Bytes(format!("a record has at most {MAX_ACCESS_RECORD} bytes")));
    }
    serde_json::from_slice(body).map_err(|error| BadMessage::Bytes(error.to_string()))
}

/// Returns whether a name matches a pattern in which `*` matches any string.
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
            groups: vec!["finance".to_owned()],
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
        for name in ["", "a b", "a:b", &"x".repeat(33)] {
            let bad = AccessKey { groups: vec![name.to_owned()], ..key.clone() };
            assert!(bad.check().is_err(), "group {name:?}");
        }
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
