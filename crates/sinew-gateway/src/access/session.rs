//! Browser sessions: a cookie that names a key or a caller, signed with a secret that all gateways
//! of the mesh share.
//!
//! A key is looked up for each request, so revoking it ends its sessions. The cookie of an OpenID
//! provider's caller contains its rights, which remain valid until the session ends.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use sinew_protocol::Token;
use sinew_protocol::access::AccessRole;

/// Cookie that holds a session.
pub(crate) const SESSION_COOKIE: &str = "sinew-session";
/// Lifetime of a key's session.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_hours(12);
/// Lifetime of a session of an OpenID provider's caller; it limits how long withdrawn rights stay
/// valid.
pub(crate) const VOUCHED_SESSION_LIFETIME: Duration = Duration::from_hours(1);
/// Prefix of a session of an OpenID provider's caller. Key ids contain no colon.
const VOUCHED_PREFIX: &str = "oidc:";

/// Owner of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionOwner {
    /// The owner of the key with this id.
    Key(Token),
    /// A caller that an OpenID provider authenticated.
    Vouched(VouchedCaller),
}

/// Caller that an OpenID provider authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VouchedCaller {
    pub(super) issuer: String,
    pub(super) caller: Token,
    pub(super) role: AccessRole,
    pub(super) patterns: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
}

/// Creates and reads sessions.
pub(super) struct BrowserSessions {
    secret: Vec<u8>,
}

impl BrowserSessions {
    pub(super) fn new(secret: Vec<u8>) -> Self {
        Self { secret }
    }

    /// Creates a session of this owner until a time, in milliseconds since 1970 UTC.
    pub(super) fn begin(&self, owner: &SessionOwner, until: u64) -> Option<String> {
        let owner = match owner {
            SessionOwner::Key(key) => key.to_string(),
            SessionOwner::Vouched(caller) => {
                format!("{VOUCHED_PREFIX}{}", BASE64URL_NOPAD.encode(&serde_json::to_vec(caller).ok()?))
            }
        };
        let told = format!("{owner}.{until}");
        let tag = self.tag(&told)?.finalize().into_bytes();
        Some(format!("{told}.{}", data_encoding::HEXLOWER.encode(&tag)))
    }

    /// Returns the owner of a session that has not expired, and its expiry in milliseconds since
    /// 1970 UTC.
    pub(super) fn owner_of(&self, cookie: &str, now: u64) -> Option<(SessionOwner, u64)> {
        let (told, tag) = cookie.rsplit_once('.')?;
        let tag = data_encoding::HEXLOWER.decode(tag.as_bytes()).ok()?;
        self.tag(told)?.verify_slice(&tag).ok()?;
        let (owner, until) = told.split_once('.')?;
        let until: u64 = until.parse().ok()?;
        if now >= until {
            return None;
        }
        let owner = match owner.strip_prefix(VOUCHED_PREFIX) {
            Some(caller) => {
                let caller = BASE64URL_NOPAD.decode(caller.as_bytes()).ok()?;
                SessionOwner::Vouched(serde_json::from_slice(&caller).ok()?)
            }
            None => SessionOwner::Key(Token::parse(owner).ok()?),
        };
        Some((owner, until))
    }

    /// Never returns `None`: HMAC accepts keys of any length.
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
        let vouched = VouchedCaller {
            issuer: "https://login.example.com".to_owned(),
            caller: Token::of("oidc-ann@example.com"),
            role: AccessRole::Client,
            groups: vec!["finance".to_owned()],
            patterns: vec!["orders-*".to_owned()],
        };
        for owner in [SessionOwner::Key(Token::of("abc")), SessionOwner::Vouched(vouched)] {
            let cookie = own.begin(&owner, 100).unwrap();
            assert_eq!(own.owner_of(&cookie, 99), Some((owner, 100)));
            assert_eq!(own.owner_of(&cookie, 100), None, "it is over");
            assert_eq!(other.owner_of(&cookie, 99), None, "of another mesh");
            let (told, tag) = cookie.split_once(".100.").unwrap();
            for forged in [
                format!("{}d.100.{tag}", &told[..told.len() - 1]),
                format!("{told}.900.{tag}"),
                String::new(),
                cookie[1..].to_owned(),
            ] {
                assert_eq!(own.owner_of(&forged, 99), None, "{forged}");
            }
        }
    }
}
