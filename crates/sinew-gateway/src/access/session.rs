//! Sessions of browsers: a cookie that names a key, signed with a secret that all gateways of the mesh share.
//!
//! The key is looked up for each request, so a revoked key ends its sessions.

use std::time::Duration;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use sinew_protocol::Token;

/// Cookie that holds a session.
pub(crate) const SESSION_COOKIE: &str = "sinew-session";
/// How long a session lasts.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_hours(12);

/// Makes and reads sessions.
pub(super) struct BrowserSessions {
    secret: Vec<u8>,
}

impl BrowserSessions {
    pub(super) fn new(secret: Vec<u8>) -> Self {
        Self { secret }
    }

    /// A session of a key until a time, in milliseconds since 1970 UTC.
    pub(super) fn begin(&self, key: &Token, until: u64) -> Option<String> {
        let told = format!("{key}.{until}");
        let tag = self.tag(&told)?.finalize().into_bytes();
        Some(format!("{told}.{}", data_encoding::HEXLOWER.encode(&tag)))
    }

    /// The key of a session that is not over.
    pub(super) fn key_of(&self, cookie: &str, now: u64) -> Option<Token> {
        let (told, tag) = cookie.rsplit_once('.')?;
        let tag = data_encoding::HEXLOWER.decode(tag.as_bytes()).ok()?;
        self.tag(told)?.verify_slice(&tag).ok()?;
        let (key, until) = told.split_once('.')?;
        let until: u64 = until.parse().ok()?;
        (now < until).then(|| Token::parse(key).ok()).flatten()
    }

    /// `None` never happens: HMAC takes keys of any length.
    fn tag(&self, told: &str) -> Option<Hmac<Sha256>> {
        let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(&self.secret).ok()?;
        mac.update(b"sinew session ");
        mac.update(told.as_bytes());
        Some(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_by_whoever_has_the_secret() {
        let (own, other) = (BrowserSessions::new(vec![1; 32]), BrowserSessions::new(vec![2; 32]));
        let key = Token::of("abc");
        let cookie = own.begin(&key, 100).unwrap();
        assert_eq!(own.key_of(&cookie, 99), Some(key));
        assert_eq!(own.key_of(&cookie, 100), None, "it is over");
        assert_eq!(other.key_of(&cookie, 99), None, "of another mesh");
        for forged in [
            cookie.replace("abc", "abd"),
            cookie.replace("100", "900"),
            String::new(),
            cookie[1..].to_owned(),
        ] {
            assert_eq!(own.key_of(&forged, 99), None, "{forged}");
        }
    }
}
