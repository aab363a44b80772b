//! Start requests: the responses of a shard's owner, and idempotency keys with a creation time.
//!
//! A start with the response [`StartAnswer::Stored`] is part of the journal. Without a response its
//! outcome is unknown: the sender then sends the same start as a command, and its id prevents a
//! second execution.

use serde::{Deserialize, Serialize};

use crate::code;
use crate::message::BadMessage;

/// Maximum size of a response, in bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024;
/// Prefix of new keys.
const NEW_KEY_PREFIX: &str = "new-";

/// Maximum time by which a key may be ahead of the owner's clock, in milliseconds.
pub const MAX_KEY_LEAD_MS: u64 = 1_000;

/// Response to a start request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartAnswer {
    /// The start is stored.
    Stored {
        /// Whether this request started the execution; false if the same start was already known.
        new: bool,
        /// Time of the mesh, milliseconds since 1970 UTC.
        time: u64,
    },
    /// The start was rejected, and the verdict is stored.
    Refused {
        /// Code and reason, for people.
        reason: String,
    },
    /// The owner made no decision about the start: send it as a command.
    NotTaken {},
}

impl StartAnswer {
    /// Parses a response.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        if body.len() > MAX_ANSWER_BYTES {
            return Err(BadMessage::Bytes(format!("an answer has at most {MAX_ANSWER_BYTES} bytes")));
        }
        serde_json::from_slice(body).map_err(|error| BadMessage::Bytes(error.to_string()))
    }

    /// Returns the response in its wire form.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns whether the start was rejected because another start has its id.
    pub fn is_other_start(&self) -> bool {
        let code = code::EXECUTION_ID_OF_OTHER_START.as_str();
        matches!(self, Self::Refused { reason } if reason.starts_with(code))
    }
}

/// Returns an idempotency key for one start. It contains its creation time, in milliseconds since
/// 1970 UTC by the mesh's clock (0 if unknown), and random bits.
///
/// An owner that remembers all ids since that time can rule out a duplicate without reading the
/// history.
pub fn new_key(time: u64, random: u128) -> String {
    format!("{NEW_KEY_PREFIX}{time}-{random:032x}")
}

/// Returns the creation time of a key of [`new_key`]; `None` for any other key.
pub fn new_key_time(key: &str) -> Option<u64> {
    let (time, random) = key.strip_prefix(NEW_KEY_PREFIX)?.split_once('-')?;
    let is_random = random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_random.then(|| time.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_read_back() {
        let refused = |reason: &str| StartAnswer::Refused { reason: reason.to_owned() };
        for (answer, text, is_other) in [
            (StartAnswer::Stored { new: true, time: 7 }, r#"{"stored":{"new":true,"time":7}}"#, false),
            (refused("SINEW-6041: another"), r#"{"refused":{"reason":"SINEW-6041: another"}}"#, true),
            (refused("SINEW-6001: none"), r#"{"refused":{"reason":"SINEW-6001: none"}}"#, false),
            (StartAnswer::NotTaken {}, r#"{"not_taken":{}}"#, false),
        ] {
            assert_eq!(answer.to_json(), text);
            assert_eq!(answer.is_other_start(), is_other, "{text}");
            assert_eq!(StartAnswer::read(text.as_bytes()), Ok(answer));
        }
        for bad in ["", "{}", "[]", r#"{"stored":{}}"#, r#"{"other":{}}"#] {
            assert!(StartAnswer::read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(StartAnswer::read(&vec![b' '; MAX_ANSWER_BYTES + 1]).is_err());
    }

    #[test]
    fn keys_say_when_they_were_made() {
        let key = new_key(1_700_000_000_000, u128::MAX);
        assert_eq!(new_key_time(&key), Some(1_700_000_000_000));
        assert_eq!(new_key_time(&new_key(0, 0)), Some(0));
        for other in
            ["", "new-", "new-1", "new-1-2", "new--1-ffffffffffffffffffffffffffffffff", "order-17", &key[1..]]
        {
            assert_eq!(new_key_time(other), None, "{other}");
        }
    }
}
