//! Encoding of rounds; the schema is `proto/sinew/v1/journal.proto`.
//!
//! Encoding is canonical (equal rounds give equal bytes). Decoding accepts untrusted bytes: it
//! rejects content that this version does not know, and never panics.

mod decode;
mod encode;
mod values;

use prost::Message as _;
use sinew_protocol::code;
use sinew_protocol::pb;

use crate::fact::Round;
use values::{ValueReader, ValueWriter};

/// Newest format that this version reads: values may be references.
const VERSION: u32 = 2;
/// Format of rounds without references, which older versions also read.
const PLAIN_VERSION: u32 = 1;

/// Bytes that are not a round of a supported journal format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Not a journal message, or truncated.
    #[error("the bytes are not a journal round: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// Written by a newer version.
    #[error("journal format {0} is not supported by this version")]
    Version(u32),
    /// A fact of an unknown kind, whose effect is unknown as well.
    #[error("fact {0} of the round has a kind that this version does not know; upgrade Sinew")]
    UnknownFact(usize),
    /// A required part is missing, or has an unknown value.
    #[error("fact {fact}: {field} is missing or has an unknown value")]
    Missing {
        /// Position of the fact in its round.
        fact: usize,
        /// The part.
        field: &'static str,
    },
    /// A value is not JSON.
    #[error("fact {fact}: a value is not JSON: {source}")]
    Json {
        /// Position of the fact in its round.
        fact: usize,
        /// The reason.
        source: serde_json::Error,
    },
}

impl WireError {
    /// Returns the error code.
    pub const fn code(&self) -> &'static str {
        code::STORED_JOURNAL_CANNOT_BE_READ.as_str()
    }
}

/// Encodes a round.
pub fn encode_round(round: &Round) -> Vec<u8> {
    let mut values = ValueWriter::default();
    let facts = round.facts.iter().map(|fact| encode::fact(&mut values, fact)).collect();
    let version = if values.has_references() { VERSION } else { PLAIN_VERSION };
    pb::JournalRound { version, at: round.at, facts }.encode_to_vec()
}

/// Decodes a round.
pub fn decode_round(bytes: &[u8]) -> Result<Round, WireError> {
    let round = pb::JournalRound::decode(bytes)?;
    if round.version == 0 || round.version > VERSION {
        return Err(WireError::Version(round.version));
    }
    let mut values = ValueReader::default();
    let decoded = |(n, fact)| decode::fact(&mut values, fact).map_err(|fault| fault.at(n));
    let facts = round.facts.into_iter().enumerate().map(decoded).collect::<Result<_, _>>()?;
    Ok(Round { at: round.at, facts })
}
