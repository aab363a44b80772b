//! Unguessable tokens for subjects.

use data_encoding::HEXLOWER;

/// Returns 128 random bits as a token of a subject.
pub(crate) fn random_token() -> String {
    HEXLOWER.encode(&rand::random::<[u8; 16]>())
}
