//! Deterministic ids, and the codec that turns any name into a subject token.
//!
//! An id is a pure function of the thing that it identifies, so a replayed journal and a restarted
//! executor compute the same ids, and a repeated request names the same execution. All ids are
//! valid subject tokens: `[A-Za-z0-9_-]{1,64}`.

use crate::code;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use data_encoding::BASE32_NOPAD;
use hmac::{Hmac, Mac};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::fault::Fault;

/// Maximum length of a subject token, in bytes.
pub const MAX_TOKEN: usize = 64;

/// Size of a derived id, in characters.
const DERIVED_ID_BYTES: usize = 32;

/// Error for a string that is not `[A-Za-z0-9_-]{1,64}`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an id: expected 1 to 64 letters, digits, underscores or hyphens")]
pub struct BadId {
    /// Rejected string, truncated to 64 characters.
    pub text: String,
}

impl BadId {
    /// Operator code.
    pub const CODE: &str = code::ID_MALFORMED.as_str();
}

impl From<BadId> for Fault {
    fn from(bad: BadId) -> Self {
        Self::invalid(BadId::CODE, bad.to_string())
    }
}

/// Declares an id: a string that is cheap to clone and always a valid subject token.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(IdVisitor(Self::parse))
            }
        }

        impl $name {
            /// Parses an untrusted id. Rejects strings that are not valid subject tokens.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                if is_token(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(BadId { text: text.chars().take(MAX_TOKEN).collect() })
                }
            }

            /// Returns the id as a string.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                Self::parse(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

/// Deserialises an id without copying its string.
struct IdVisitor<T>(fn(&str) -> Result<T, BadId>);

impl<T> Visitor<'_> for IdVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// [`id!`] for ids that may be displayed; a result token may not.
macro_rules! shown {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

id!(
    /// One run of a plan (`eid`).
    ExecutionId
);
id!(
    /// One run of one node in one execution, the same for all of its attempts: the key by which
    /// agents deduplicate effects.
    ActivationKey
);
id!(
    /// One attempt's unit of work for an agent: the A2A task, SAM's sub-task (`stid`).
    TaskId
);
id!(
    /// Proof that a result comes from the recipient of the task (`tok`). `Debug` hides it.
    ResultToken
);
id!(
    /// Name of a user or agent as a subject token; see [`subject_token`].
    Token
);
shown!(ExecutionId, ActivationKey, TaskId, Token);

impl fmt::Debug for ResultToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResultToken(..)")
    }
}

impl ExecutionId {
    /// Returns the execution for this idempotency key of this caller in this namespace.
    ///
    /// ```
    /// # use sinew_protocol::ExecutionId;
    /// let once = ExecutionId::of("prod", "billing", "order-17");
    /// assert_eq!(once, ExecutionId::of("prod", "billing", "order-17"));
    /// assert_ne!(once, ExecutionId::of("prod", "billing", "order-18"));
    /// ```
    pub fn of(namespace: &str, caller: &str, idempotency_key: &str) -> Self {
        Self(digest("execution", [namespace.as_bytes(), caller.as_bytes(), idempotency_key.as_bytes()]))
    }

    /// Returns the execution that an activation of another execution starts as its sub-workflow.
    pub fn child(parent: &Self, activation: &ActivationKey, attempt: u32) -> Self {
        Self(digest("child", [parent.0.as_bytes(), activation.0.as_bytes(), &attempt.to_le_bytes()]))
    }

    /// Returns the id in the form for people: the first ten characters of a derived id; other ids
    /// unchanged.
    pub fn short(&self) -> &str {
        if self.has_derived_form() { &self.as_str()[..10] } else { self.as_str() }
    }

    /// Returns whether the id has the form of [`ExecutionId::of`] and [`ExecutionId::child`]: 32
    /// characters of lower-case base32.
    pub fn has_derived_form(&self) -> bool {
        self.0.len() == DERIVED_ID_BYTES && self.0.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))
    }

    /// Returns the shard of this execution, `0..shards`.
    pub fn shard(&self, shards: NonZeroU32) -> u32 {
        let hash: [u8; 32] = Sha256::digest(self.0.as_bytes()).into();
        let [a, b, c, d, ..] = hash;
        u32::from_le_bytes([a, b, c, d]) % shards
    }
}

impl ActivationKey {
    /// Returns the key of the `nth` activation of `node` inside the scopes `path` (node and index
    /// of every enclosing map, loop or fork, outermost first). `nth` counts from 0 and only grows
    /// where a cycle reaches the node again.
    pub fn of<N: AsRef<str>>(execution: &ExecutionId, node: &str, path: &[(N, u32)], nth: u32) -> Self {
        let mut hash = IdHasher::new("activation");
        hash.field(execution.0.as_bytes());
        hash.field(node.as_bytes());
        hash.field(&nth.to_le_bytes());
        for (scope, index) in path {
            hash.field(scope.as_ref().as_bytes());
            hash.field(&index.to_le_bytes());
        }
        Self(hash.finish())
    }
}

impl TaskId {
    /// Returns the task of this attempt (counted from 1) of an activation.
    pub fn of(execution: &ExecutionId, activation: &ActivationKey, attempt: u32) -> Self {
        Self(digest("task", [execution.0.as_bytes(), activation.0.as_bytes(), &attempt.to_le_bytes()]))
    }
}

/// Shared key of the executors for [`ResultToken`]s; never displayed or sent.
#[derive(Clone)]
pub struct ResultKey([u8; 64]);

impl ResultKey {
    /// Creates a key from 32 secret bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        // HMAC pads a key with zeros up to the block size, so this MAC equals that of the 32 bytes.
        let mut block = [0; 64];
        block[..32].copy_from_slice(&secret);
        Self(block)
    }

    fn mac(&self, task: &TaskId) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as hmac::digest::KeyInit>::new(&self.0.into());
        mac.update(task.0.as_bytes());
        mac
    }
}

impl ResultKey {
    /// Returns the secret from which executors derive object keys, so that all of them derive the
    /// same key for an object.
    pub fn object_secret(&self) -> [u8; 32] {
        let mut mac = <Hmac<Sha256> as hmac::digest::KeyInit>::new(&self.0.into());
        // No task has this id, because ids contain no blanks.
        mac.update(b"sinew.v1 objects");
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for ResultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResultKey(..)")
    }
}

/// Size of the HMAC in a token: 128 bits, 26 characters.
const TOKEN_BYTES: usize = 16;

impl ResultToken {
    /// Returns the token that a result of this task must contain.
    pub fn of(key: &ResultKey, task: &TaskId) -> Self {
        Self(base32(&key.mac(task).finalize().into_bytes()[..TOKEN_BYTES]).into())
    }

    /// Returns whether this token belongs to this task, in constant time.
    pub fn proves(&self, key: &ResultKey, task: &TaskId) -> bool {
        unbase32(&self.0)
            .filter(|bytes| bytes.len() == TOKEN_BYTES)
            .is_some_and(|bytes| key.mac(task).verify_truncated_left(&bytes).is_ok())
    }
}

impl Token {
    /// Returns the token of this name.
    pub fn of(name: &str) -> Self {
        Self(subject_token(name).into())
    }

    /// Returns whether this is the token of a name.
    pub fn stands_for(&self, name: &str) -> bool {
        if is_plain(name) { &*self.0 == name } else { *self == Self::of(name) }
    }

    /// Returns the name that the token encodes; `None` for a long name, of which only the hash is
    /// encoded.
    pub fn name(&self) -> Option<String> {
        name_of_token(&self.0)
    }
}

/// Returns whether this string is a valid subject token without encoding.
pub fn is_token(text: &str) -> bool {
    (1..=MAX_TOKEN).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Prefix of an encoded token. A name with this prefix is encoded too, so that it cannot collide
/// with another name's token.
const ESCAPE: &str = "__";

/// Encodes a name as a subject token: valid tokens unchanged, all other names encoded. Different
/// names have different tokens.
///
/// `__x` + base32 of the bytes for up to 38 bytes, `__h` + base32 of their sha256 for longer names.
///
/// ```
/// # use sinew_protocol::id::subject_token;
/// assert_eq!(subject_token("order_reviewer"), "order_reviewer");
/// assert_eq!(subject_token("a.b"), "__xmexge");
/// assert_eq!(subject_token("a.>"), "__xmexd4");
/// ```
pub fn subject_token(name: &str) -> String {
    if is_plain(name) {
        return name.to_owned();
    }
    let encoded = format!("{ESCAPE}x{}", base32(name.as_bytes()));
    if encoded.len() <= MAX_TOKEN {
        return encoded;
    }
    format!("{ESCAPE}h{}", base32(&Sha256::digest(name.as_bytes())))
}

/// Returns whether a name is its own token.
fn is_plain(name: &str) -> bool {
    is_token(name) && !name.starts_with(ESCAPE)
}

/// Decodes a token of [`subject_token`]. Returns `None` for a hashed or malformed token.
pub fn name_of_token(token: &str) -> Option<String> {
    let Some(encoded) = token.strip_prefix(ESCAPE) else {
        return is_token(token).then(|| token.to_owned());
    };
    let name = String::from_utf8(unbase32(encoded.strip_prefix('x')?)?).ok()?;
    (subject_token(&name) == token).then_some(name)
}

/// Lower-case base32 of a sha256 over length-prefixed fields, 160 bits, 32 characters.
struct IdHasher(Sha256);

impl IdHasher {
    fn new(kind: &str) -> Self {
        let mut hash = Self(Sha256::new());
        hash.field(b"sinew.v1");
        hash.field(kind.as_bytes());
        hash
    }

    /// The length prefix distinguishes ("ab", "c") from ("a", "bc").
    fn field(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> Arc<str> {
        base32(&self.0.finalize()[..20]).into()
    }
}

/// Returns the token that the subjects of all objects of an execution share, so that their owner
/// can remove them together. It reveals the execution only to those who already know its id.
pub fn artifact_group(execution: &ExecutionId) -> Token {
    Token(digest("artifacts", [execution.0.as_bytes()]))
}

/// Returns the key of a call in a conversation, derived from the call's position and not its
/// content. `activation` identifies the conversation, `reset` counts its restarts, `turn` and
/// `index` count from 0.
pub fn call_key(activation: &str, reset: u32, turn: u32, index: u32) -> String {
    let numbers = [reset, turn, index].map(u32::to_le_bytes);
    let fields = [activation.as_bytes(), &numbers[0], &numbers[1], &numbers[2]];
    digest("call", fields).as_ref().to_owned()
}

fn digest<const N: usize>(kind: &str, fields: [&[u8]; N]) -> Arc<str> {
    let mut hash = IdHasher::new(kind);
    for field in fields {
        hash.field(field);
    }
    hash.finish()
}

fn base32(bytes: &[u8]) -> String {
    let mut text = BASE32_NOPAD.encode(bytes);
    text.make_ascii_lowercase();
    text
}

fn unbase32(text: &str) -> Option<Vec<u8>> {
    BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn eid() -> ExecutionId {
        ExecutionId::of("ns", "caller", "key")
    }

    #[test]
    fn ids_never_change() {
        let activation = ActivationKey::of(&eid(), "review", &[("map", 3)], 0);
        let task = TaskId::of(&eid(), &activation, 1);
        let token = ResultToken::of(&ResultKey::new([7; 32]), &task);
        assert_eq!(eid().as_str(), "kfmnpg44la5r35ggyh3jgmmt5o2nwtjo");
        assert_eq!(activation.as_str(), "37jaa7qraan7zgbdbg3vufpsnxvrni47");
        assert_eq!(task.as_str(), "ynl4w6z7vwmfgiirho52wb2gciuod72q");
        assert_eq!(token.as_str(), "xwaizfkzas4fgtl3biqbborpvq");
    }

    #[test]
    fn derived_ids_are_told_from_chosen_ones() {
        let activation = ActivationKey::of(&eid(), "review", &[("map", 3)], 0);
        let child = ExecutionId::child(&eid(), &activation, 1);
        let chosen =
            ["order-17", "KFMNPG44LA5R35GGYH3JGMMT5O2NWTJO", "kfmnpg44la5r35ggyh3jgmmt5o2nwtj", "0199"];
        for (id, derived) in [(eid(), true), (child, true)]
            .into_iter()
            .chain(chosen.map(|text| (ExecutionId::parse(text).unwrap(), false)))
        {
            assert_eq!(id.has_derived_form(), derived, "{id}");
        }
    }

    #[test]
    fn fields_do_not_run_together() {
        assert_ne!(ExecutionId::of("ab", "c", "d"), ExecutionId::of("a", "bc", "d"));
        let key = |path: &[(&str, u32)], nth| ActivationKey::of(&eid(), "n", path, nth);
        assert_ne!(key(&[], 0), key(&[], 1));
        assert_ne!(key(&[("m", 0)], 0), key(&[("m", 1)], 0));
        assert_ne!(key(&[("m", 0), ("l", 0)], 0), key(&[("m", 0)], 0));
    }

    #[test]
    fn a_token_proves_its_own_task_only() {
        let activation = ActivationKey::of(&eid(), "n", &[("m", 0)], 0);
        let (first, second) = (TaskId::of(&eid(), &activation, 1), TaskId::of(&eid(), &activation, 2));
        let (key, other) = (ResultKey::new([1; 32]), ResultKey::new([2; 32]));
        let token = ResultToken::of(&key, &first);
        assert!(token.proves(&key, &first));
        assert!(!token.proves(&key, &second));
        assert!(!token.proves(&other, &first));
        assert!(!ResultToken::parse(&token.as_str()[..8]).unwrap().proves(&key, &first));
        assert!(!ResultToken::parse("anything").unwrap().proves(&key, &first));
        assert_eq!(format!("{token:?} {key:?}"), "ResultToken(..) ResultKey(..)");
    }

    #[test]
    fn outside_ids_are_checked() {
        for bad in ["", "a.b", "a b", "*", ">", "ä", &"x".repeat(65)] {
            assert!(ExecutionId::parse(bad).is_err(), "{bad:?}");
            assert!(serde_json::from_value::<TaskId>(bad.into()).is_err(), "{bad:?}");
        }
        assert_eq!(ExecutionId::parse("Run-1_a").unwrap().to_string(), "Run-1_a");
    }

    #[test]
    fn shards_are_used_evenly() {
        let shards = NonZeroU32::new(16).unwrap();
        let mut used = [0; 16];
        for n in 0..4_096 {
            used[ExecutionId::of("ns", "c", &n.to_string()).shard(shards) as usize] += 1;
        }
        assert!(used.iter().all(|n| (190..320).contains(n)), "{used:?}");
    }

    proptest! {
        #[test]
        fn tokens_are_legal_and_injective(a in ".{0,90}", b in ".{0,90}", c in "_{0,3}[xh]?[a-z2-7]{0,60}") {
            for name in [&a, &b, &c] {
                prop_assert!(is_token(&subject_token(name)));
                prop_assert!(Token::of(name).stands_for(name));
                prop_assert_eq!(Token::of(&a).stands_for(name), a == *name);
                let back = name_of_token(&subject_token(name));
                prop_assert!(back.as_ref() == Some(name) || (back.is_none() && name.len() > 38));
            }
            for (left, right) in [(&a, &b), (&a, &c), (&b, &c)] {
                prop_assert_eq!(left == right, subject_token(left) == subject_token(right));
            }
            // A token used as a name must not collide with the name it encodes.
            let token = subject_token(&a);
            prop_assert_eq!(token == a, subject_token(&token) == token);
        }
    }
}
