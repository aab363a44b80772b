//! Start requests: the answers of a shard's owner, and keys with a creation time.
//!
//! A start that is answered with [`StartAnswer::Stored`] is part of the journal. Without an answer
//! its outcome is unknown: the same start is then sent as a command, and its id prevents a second
//! execution.

use serde::{Deserialize, Serialize};

use crate::code;
use crate::message::BadMessage;

/// The longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024;
/// How new keys begin.
const NEW_KEY_PREFIX: &str = "new-";

/// Milliseconds by which a key may be younger than the owner's clock says.
pub const MAX_KEY_LEAD_MS: u64 = 1_000;

/// Answer to a start by request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartAnswer {
    /// The start is stored.
    Stored {
        /// Whether this request began the execution; false if the same start was known.
        new: bool,
        /// The mesh's time, milliseconds since 1970 UTC.
        time: u64,
    },
    /// The start was decided against, and the verdict is stored.
    Refused {
        /// Code and reason, for people.
        reason: String,
    },
    /// The start was not decided about: it has to be sent as a command.
    NotTaken {},
}

impl StartAnswer {
    /// Reads an answer.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        if body.len() > MAX_ANSWER_BYTES {
            return Err(BadMessage::Bytes(format!("an answer has at most {MAX_ANSWER_BYTES} bytes")));
        }
        serde_json::from_slice(body).map_err(|error| BadMessage::Bytes(error.to_string()))
    }

    /// The answer as it is sent.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the start was refused because another start has its id.
    pub fn is_other_start(&self) -> bool {
        let code = code::EXECUTION_ID_OF_OTHER_START.as_str();
        matches!(self, Self::Refused { reason } if reason.starts_with(code))
    }
}

/// Returns an idempotency key that is used for one start: it says when it was made, in milliseconds since 1970 UTC by the
/// mesh's clock (0 if that is not known), and has random bits.
///
/// An owner that remembers all ids of that time knows without a look into the history that no execution has the id.
pub fn new_key(time: u64, random: u128) -> String {
    format!("{NEW_KEY_PREFIX}{time}-{random:032x}")
}

/// Returns when a key of [`new_key`] was made; `None` for any other key.
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
