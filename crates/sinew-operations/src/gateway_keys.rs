//! Keys of gateways: create, list and revoke.

use bytes::Bytes;
use rand::Rng as _;
use serde::Serialize;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::access::{
    AccessKey, AccessRole, KEY_ID_CHARS, KEY_SECRET_CHARS, KeyLimits, KeyProof, KeyScope, KeyStanding,
    KeyUse, PresentedKey, read_record, secret_digest,
};
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token, code};

use crate::failure::{Failure, FailureKind};

/// Characters of ids and secrets: 32, so that each encodes five random bits.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnopqrstuvwxyz0123456";

/// Properties of a new key.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Name of its owner.
    pub name: String,
    /// Role that determines its rights.
    pub role: AccessRole,
    /// Patterns of the workflows and agents that it may see and use.
    pub patterns: Vec<String>,
    /// Groups to which its owner belongs.
    pub groups: Vec<String>,
    /// Executions that it may access; the default of its role if `None`.
    pub scope: Option<KeyScope>,
    /// Expiry in milliseconds since 1970 UTC.
    pub expires_at: Option<u64>,
    /// DNS name of the client certificate that replaces the secret.
    pub certificate_name: Option<String>,
    /// Limits of its requests.
    pub limits: KeyLimits,
}

/// A created key.
#[derive(Clone, Debug, Serialize)]
pub struct MadeKey {
    /// The key without its secret.
    #[serde(flatten)]
    pub row: KeyRow,
    /// The key, shown once; `None` for a key with a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A key as listed.
#[derive(Clone, Debug, Serialize)]
pub struct KeyRow {
    /// Id of the key.
    pub id: String,
    /// Name of its owner.
    pub name: String,
    /// Role that determines its rights.
    pub role: &'static str,
    /// Patterns of the workflows and agents that it may see and use.
    pub patterns: Vec<String>,
    /// Groups to which its owner belongs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Executions that it may access: `all` or `own`.
    pub scope: &'static str,
    /// `valid`, `expired` or `revoked`.
    pub status: &'static str,
    /// DNS name of its client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_name: Option<String>,
    /// Creation time in milliseconds since 1970 UTC.
    pub created_at: u64,
    /// User who created it.
    pub created_by: String,
    /// Expiry in milliseconds since 1970 UTC.
    pub expires_at: Option<u64>,
    /// When it was revoked, milliseconds since 1970 UTC.
    pub revoked_at: Option<u64>,
    /// Time of its last use, to about ten minutes, in milliseconds since 1970 UTC; `None` if it was not used.
    pub last_used_at: Option<u64>,
    /// Limits of its requests.
    pub limits: KeyLimits,
}

impl KeyRow {
    /// Returns the row of a key at a time, in milliseconds since 1970 UTC.
    pub fn of(key: &AccessKey, now: u64) -> Self {
        let certificate_name = match &key.proof {
            KeyProof::CertificateName(name) => Some(name.clone()),
            KeyProof::Digest(_) => None,
        };
        Self {
            id: key.id.to_string(),
            name: key.name.clone(),
            role: key.role.as_str(),
            patterns: key.patterns.clone(),
            groups: key.groups.clone(),
            scope: key.scope.as_str(),
            status: key.standing(now).as_str(),
            certificate_name,
            created_at: key.created_at,
            created_by: key.created_by.clone(),
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
            last_used_at: None,
            limits: key.limits,
        }
    }
}

fn subject_of(id: &Token) -> Subject {
    Subject::Access { kind: AccessKind::Key, id: id.clone() }
}

fn random_text(chars: usize) -> String {
    let mut chance = rand::rng();
    (0..chars).map(|_| char::from(ALPHABET[chance.random_range(0..ALPHABET.len())])).collect()
}

/// Rejects a key that could never grant access.
fn refuse_useless(new: &NewKey, now: u64) -> Result<(), Failure> {
    if new.expires_at.is_some_and(|end| end <= now) {
        return Err(Failure::usage("the key would expire immediately")
            .hint("use a duration such as 12h or 90d; a key without one never expires"));
    }
    if new.patterns.iter().any(String::is_empty) {
        return Err(Failure::usage("an empty pattern matches no workflow and no agent")
            .hint("use a name, `*` for all, or a prefix such as `orders-*`"));
    }
    Ok(())
}

/// Creates a key. `now` is in milliseconds since 1970 UTC.
pub async fn create_key(mesh: &Mesh, new: NewKey, now: u64) -> Result<MadeKey, Failure> {
    refuse_useless(&new, now)?;
    let id = Token::of(&random_text(KEY_ID_CHARS));
    let presented = PresentedKey { id: id.clone(), secret: random_text(KEY_SECRET_CHARS) };
    let has_secret = new.certificate_name.is_none();
    let proof = match new.certificate_name {
        Some(name) => KeyProof::CertificateName(name),
        None => KeyProof::Digest(secret_digest(&id, &presented.secret)),
    };
    let key = AccessKey {
        id,
        name: new.name,
        role: new.role,
        patterns: new.patterns,
        groups: new.groups,
        scope: new.scope.unwrap_or(KeyScope::of_new_key(new.role)),
        proof,
        created_at: now,
        created_by: mesh.caller().to_string(),
        expires_at: new.expires_at,
        revoked_at: None,
        limits: new.limits,
    };
    key.check().map_err(Failure::usage)?;
    if store(mesh, &key, Some(0)).await?.is_none() {
        return Err(conflict(&key.id));
    }
    let key_text = has_secret.then(|| presented.text());
    Ok(MadeKey { row: KeyRow::of(&key, now), key: key_text })
}

/// Returns all keys by owner. `now` is in milliseconds since 1970 UTC.
pub async fn list_keys(mesh: &Mesh, now: u64) -> Result<Vec<KeyRow>, Failure> {
    let mut rows: Vec<KeyRow> = all(mesh).await?.iter().map(|(key, _)| KeyRow::of(key, now)).collect();
    for (subject, record) in mesh.records().access().list(&["access", AccessKind::Use.as_str()]).await? {
        let Some(Subject::Access { id, .. }) = Subject::parse(mesh.namespace(), &subject) else { continue };
        let last: Option<KeyUse> = read_record(&record.body).ok();
        for row in rows.iter_mut().filter(|row| row.id == id.as_str()) {
            row.last_used_at = last.map(|last| last.at);
        }
    }
    rows.sort_by(|a, b| (&a.name, a.created_at).cmp(&(&b.name, b.created_at)));
    Ok(rows)
}

/// Returns the key with this id, or all keys of the owner with this name that are not revoked.
///
/// # Errors
/// There is no such key.
pub async fn find_keys(mesh: &Mesh, id_or_name: &str, now: u64) -> Result<Vec<KeyRow>, Failure> {
    let found = matching(mesh, id_or_name).await?;
    Ok(found.iter().map(|(key, _)| KeyRow::of(key, now)).collect())
}

/// Revokes the key with this id, or all keys of the owner with this name. Gateways reject it
/// shortly afterwards.
pub async fn revoke_keys(mesh: &Mesh, id_or_name: &str, now: u64) -> Result<Vec<KeyRow>, Failure> {
    let mut revoked = Vec::new();
    for (key, revision) in matching(mesh, id_or_name).await? {
        let key = AccessKey { revoked_at: key.revoked_at.or(Some(now)), ..key };
        if store(mesh, &key, Some(revision)).await?.is_none() {
            return Err(conflict(&key.id));
        }
        revoked.push(KeyRow::of(&key, now));
    }
    Ok(revoked)
}

/// A rotated key.
#[derive(Clone, Debug, Serialize)]
pub struct RotatedKey {
    /// The new key, with its secret.
    #[serde(flatten)]
    pub made: MadeKey,
    /// The old key, which expires after the grace period.
    pub replaces: KeyRow,
}

/// Replaces a key by a new one with the same rights, and lets the old one expire after a grace
/// period, in milliseconds. The key is identified by its id, or by its owner's name if the owner has
/// one valid key.
///
/// # Errors
/// There is no such valid key, there are several, or it is authenticated by a certificate.
pub async fn rotate_key(
    mesh: &Mesh,
    id_or_name: &str,
    grace_ms: u64,
    now: u64,
) -> Result<RotatedKey, Failure> {
    let mut found = matching(mesh, id_or_name).await?;
    found.retain(|(key, _)| key.standing(now) == KeyStanding::Valid);
    let (old, revision) = match <[_; 1]>::try_from(found) {
        Ok([one]) => one,
        Err(found) if found.is_empty() => return Err(no_key(id_or_name)),
        Err(found) => {
            let ids: Vec<&str> = found.iter().map(|(key, _)| key.id.as_str()).collect();
            let text = format!("{id_or_name:?} has several valid keys: {}", ids.join(", "));
            return Err(Failure::usage(text).hint("rotate one by its id"));
        }
    };
    if matches!(old.proof, KeyProof::CertificateName(_)) {
        return Err(Failure::usage(
            "the key is authenticated by a certificate, which has no secret to rotate",
        ));
    }
    let lifetime = old.expires_at.map(|end| end.saturating_sub(old.created_at));
    let new = NewKey {
        name: old.name.clone(),
        role: old.role,
        patterns: old.patterns.clone(),
        groups: old.groups.clone(),
        scope: Some(old.scope),
        expires_at: lifetime.map(|lifetime| now.saturating_add(lifetime)),
        certificate_name: None,
        limits: old.limits,
    };
    // The new key is stored first: the owner never has none.
    let made = create_key(mesh, new, now).await?;
    let end = now.saturating_add(grace_ms);
    let replaced =
        AccessKey { expires_at: Some(old.expires_at.map_or(end, |expires| expires.min(end))), ..old };
    if store(mesh, &replaced, Some(revision)).await?.is_none() {
        return Err(conflict(&replaced.id));
    }
    Ok(RotatedKey { made, replaces: KeyRow::of(&replaced, now) })
}

/// Returns the key with this id, or all keys of the owner with this name that are not revoked, with
/// their revisions.
async fn matching(mesh: &Mesh, id_or_name: &str) -> Result<Vec<(AccessKey, u64)>, Failure> {
    let all = all(mesh).await?;
    let is_id = all.iter().any(|(key, _)| key.id.as_str() == id_or_name);
    let is_meant = |key: &AccessKey| {
        let is_owned = key.name == id_or_name && key.revoked_at.is_none();
        if is_id { key.id.as_str() == id_or_name } else { is_owned }
    };
    let found: Vec<_> = all.into_iter().filter(|(key, _)| is_meant(key)).collect();
    if found.is_empty() { Err(no_key(id_or_name)) } else { Ok(found) }
}

fn no_key(id_or_name: &str) -> Failure {
    let text = format!("no key has the id {id_or_name:?}, and no owner of this name has a valid key");
    Failure::new(FailureKind::NotFound, code::GATEWAY_CALLER_UNKNOWN.as_str(), text)
        .hint("see `sinew gateway key list`")
}

async fn all(mesh: &Mesh) -> Result<Vec<(AccessKey, u64)>, Failure> {
    let stored = mesh.records().access().list(&["access", "key"]).await?;
    let read = stored.into_iter().filter_map(|(subject, record)| {
        let Some(Subject::Access { id, .. }) = Subject::parse(mesh.namespace(), &subject) else {
            return None;
        };
        Some((AccessKey::read(&id, &record.body).ok()?, record.revision))
    });
    Ok(read.collect())
}

async fn store(mesh: &Mesh, key: &AccessKey, revision: Option<u64>) -> Result<Option<u64>, Failure> {
    let body = serde_json::to_vec(key)
        .map_err(|error| MeshError::Malformed { what: "a key", reason: error.to_string() })?;
    Ok(mesh.records().access().put(&subject_of(&key.id), Bytes::from(body), revision).await?)
}

fn conflict(id: &Token) -> Failure {
    let text = format!("the key {id} was changed concurrently");
    Failure::new(FailureKind::Conflict, code::GATEWAY_CALLER_UNKNOWN.as_str(), text).hint("try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_open_nothing_are_refused() {
        for (expires_at, patterns, refused) in [
            (None, &["*"][..], false),
            (Some(1_001), &["orders-*", "*"], false),
            (Some(1_000), &["*"], true),
            (Some(10), &["*"], true),
            (None, &[""], true),
            (None, &["orders-*", ""], true),
        ] {
            let new = NewKey {
                groups: Vec::new(),
                name: "ann".to_owned(),
                role: AccessRole::Client,
                scope: None,
                patterns: patterns.iter().map(|&pattern| pattern.to_owned()).collect(),
                expires_at,
                certificate_name: None,
                limits: KeyLimits::default(),
            };
            let failure = refuse_useless(&new, 1_000).err();
            assert_eq!(failure.is_some(), refused, "{expires_at:?} {patterns:?}");
            assert!(failure.is_none_or(|failure| failure.hint.is_some()), "{expires_at:?} {patterns:?}");
        }
    }
}
