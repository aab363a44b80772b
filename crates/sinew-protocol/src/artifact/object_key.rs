//! The key of a stored object, from which the subjects and the encryption key of its pieces are
//! derived.
//!
//! A role that may read one object of the store may request any subject of the store, and the
//! server also accepts wildcards. An object is therefore protected by its key, which only its
//! address contains.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::id::{ExecutionId, Token, artifact_group};
use crate::subject::Subject;

/// Size of a piece's token: 160 bits, 32 characters.
const TOKEN_BYTES: usize = 20;

/// Key of one stored object.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey([u8; 32]);

impl ObjectKey {
    /// Derives the key of an object from the writer's secret, so that a repeated write stores the
    /// same object.
    pub fn derived(secret: &[u8; 32], object: &str) -> Self {
        Self(mac(secret, &[b"object", object.as_bytes()]))
    }

    /// Returns the key that encrypts the pieces.
    pub fn seal(&self) -> [u8; 32] {
        mac(&self.0, &[b"seal"])
    }

    /// Returns the subject of a piece, counted from 0. It cannot be derived from the subjects of
    /// other pieces.
    pub fn piece(&self, execution: &ExecutionId, nth: u64) -> Subject {
        let mut token = BASE32_NOPAD.encode(&mac(&self.0, &[b"piece", &nth.to_be_bytes()])[..TOKEN_BYTES]);
        token.make_ascii_lowercase();
        Subject::Artifact { group: artifact_group(execution), piece: Token::of(&token) }
    }
}

/// HMAC-SHA256 over a purpose and its data, with its own domain prefix.
fn mac(key: &[u8; 32], fields: &[&[u8]]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut mac = <Hmac<Sha256> as hmac::digest::KeyInit>::new(&block.into());
    mac.update(b"sinew.v1 artifact");
    for field in fields {
        mac.update(&(field.len() as u64).to_le_bytes());
        mac.update(field);
    }
    mac.finalize().into_bytes().into()
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64URL_NOPAD.encode(&self.0))
    }
}

impl FromStr for ObjectKey {
    type Err = BadObjectKey;

    fn from_str(text: &str) -> Result<Self, BadObjectKey> {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| BadObjectKey)?;
        Ok(Self(bytes.try_into().map_err(|_| BadObjectKey)?))
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectKey(..)")
    }
}

/// Error for a string that is not an object key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not 32 bytes in base64url without padding")]
pub struct BadObjectKey;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_follow_from_key_and_execution() {
        let execution = ExecutionId::parse("e1").unwrap();
        let key = ObjectKey::derived(&[7; 32], "e1.t1.00");
        let at = |nth| key.piece(&execution, nth).name("prod");
        // Computed from the binding document by another implementation.
        assert_eq!(
            at(0),
            "prod.v1.artifact.pkjds4p6ddh72sv5qshcqrarewbftrrl.jfpei3mb3wfarw3l5fwv3skoxkvoyv6a"
        );
        let group = |name: &str| name.split('.').nth(3).unwrap().to_owned();
        assert_ne!(at(0), at(1));
        assert_eq!(group(&at(0)), group(&at(1)));
        let other = ExecutionId::parse("e2").unwrap();
        assert_ne!(group(&at(0)), group(&key.piece(&other, 0).name("prod")));
        assert_ne!(ObjectKey::derived(&[7; 32], "e1.t1.01"), key);
        assert_ne!(ObjectKey::derived(&[8; 32], "e1.t1.00"), key);
        assert_eq!(key.to_string().parse(), Ok(key));
    }
}
