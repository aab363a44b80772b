//! Signatures of deliveries by GitHub and Stripe.

use axum::http::HeaderMap;
use hmac::{Hmac, Mac as _};
use serde_json::Value;
use sha2::Sha256;
use sinew_protocol::artifact::sha256;
use sinew_protocol::webhook::{WebhookScheme, WebhookTrigger};

/// GitHub's signature header.
const GITHUB_HEADER: &str = "x-hub-signature-256";
/// GitHub's header with the event type.
const GITHUB_EVENT: &str = "x-github-event";
/// Stripe's signature header.
const STRIPE_HEADER: &str = "stripe-signature";
/// Maximum difference between a delivery's time and now, in seconds.
const REPLAY_WINDOW: u64 = 300;
/// Maximum number of signatures per delivery: a service that rotates its secret signs with both.
const MAX_SIGNATURES: usize = 8;

/// Reason why a delivery is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureRefusal {
    #[error("expected exactly one signature of this trigger's kind")]
    Missing,
    #[error("the signature cannot be read")]
    Malformed,
    #[error("the signature does not match the body")]
    Wrong,
    #[error("the timestamp of the delivery is more than five minutes off")]
    Time,
}

/// Verifies the signature of a body. `now` is in seconds since 1970 UTC.
pub(super) fn verify(
    trigger: &WebhookTrigger,
    headers: &HeaderMap,
    body: &[u8],
    now: u64,
) -> Result<(), SignatureRefusal> {
    let secret = trigger.secret.as_bytes();
    match trigger.scheme {
        WebhookScheme::Github => {
            let text = only(headers, GITHUB_HEADER)?;
            let tag = text.strip_prefix("sha256=").and_then(read_tag).ok_or(SignatureRefusal::Malformed)?;
            if fits(secret, &[body], &tag) { Ok(()) } else { Err(SignatureRefusal::Wrong) }
        }
        WebhookScheme::Stripe => {
            let text = only(headers, STRIPE_HEADER)?;
            let pairs = || text.split(',').filter_map(|pair| pair.trim().split_once('='));
            let mut times = pairs().filter(|(name, _)| *name == "t").map(|(_, time)| time);
            let (Some(time), None) = (times.next(), times.next()) else {
                return Err(SignatureRefusal::Malformed);
            };
            let at: u64 = time.parse().map_err(|_| SignatureRefusal::Malformed)?;
            let tags = pairs().filter(|(name, _)| *name == "v1").take(MAX_SIGNATURES);
            let told: [&[u8]; 3] = [time.as_bytes(), b".", body];
            if !tags.filter_map(|(_, tag)| read_tag(tag)).any(|tag| fits(secret, &told, &tag)) {
                return Err(SignatureRefusal::Wrong);
            }
            if at.abs_diff(now) > REPLAY_WINDOW { Err(SignatureRefusal::Time) } else { Ok(()) }
        }
    }
}

/// Returns whether a verified delivery only confirms that the webhook was created. The header is
/// not signed: a forged one can at most prevent a delivery from starting an execution.
pub(super) fn is_ping(trigger: &WebhookTrigger, headers: &HeaderMap) -> bool {
    trigger.scheme == WebhookScheme::Github && headers.get(GITHUB_EVENT).is_some_and(|event| event == "ping")
}

/// Returns the name of a verified delivery, which is the same for repeated deliveries. It depends
/// on signed content only, so a delivery cannot be repeated under another name. Returns `None` if
/// the body lacks it.
pub(super) fn delivery_of(trigger: &WebhookTrigger, document: &Value, body: &[u8]) -> Option<String> {
    match trigger.scheme {
        WebhookScheme::Github => Some(sha256(body)),
        WebhookScheme::Stripe => {
            document.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned)
        }
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, SignatureRefusal> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().map_err(|_| SignatureRefusal::Malformed),
        _ => Err(SignatureRefusal::Missing),
    }
}

fn read_tag(text: &str) -> Option<Vec<u8>> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).ok().filter(|tag| tag.len() == 32)
}

/// Returns whether a tag matches these bytes, in constant time.
fn fits(secret: &[u8], told: &[&[u8]], tag: &[u8]) -> bool {
    let Ok(mut mac) = <Hmac<Sha256> as hmac::Mac>::new_from_slice(secret) else { return false };
    for part in told {
        mac.update(part);
    }
    mac.verify_slice(tag).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::http::{HeaderName, HeaderValue};
    use serde_json::json;
    use sinew_protocol::Token;

    use super::*;

    fn trigger(scheme: WebhookScheme, secret: &str) -> WebhookTrigger {
        WebhookTrigger {
            name: Token::of("hook"),
            workflow: "w".to_owned(),
            scheme,
            secret: secret.to_owned(),
            input: BTreeMap::new(),
            created_at: 0,
            created_by: "test".to_owned(),
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    /// Example of GitHub's documentation.
    #[test]
    fn deliveries_of_github_are_verified() {
        let trigger = trigger(WebhookScheme::Github, "It's a Secret to Everybody");
        let good = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let check = |pairs: &[(&'static str, &str)], body: &str, expected: Result<(), SignatureRefusal>| {
            assert_eq!(verify(&trigger, &headers(pairs), body.as_bytes(), 0), expected, "{pairs:?} {body}");
        };
        check(&[(GITHUB_HEADER, good)], "Hello, World!", Ok(()));
        check(&[(GITHUB_HEADER, good)], "Hello, World?", Err(SignatureRefusal::Wrong));
        check(&[(GITHUB_HEADER, &good.replace('7', "8"))], "Hello, World!", Err(SignatureRefusal::Wrong));
        check(&[(GITHUB_HEADER, &good[..70])], "Hello, World!", Err(SignatureRefusal::Malformed));
        check(&[(GITHUB_HEADER, "sha256=")], "Hello, World!", Err(SignatureRefusal::Malformed));
        check(&[(GITHUB_HEADER, &good[7..])], "Hello, World!", Err(SignatureRefusal::Malformed));
        check(&[], "Hello, World!", Err(SignatureRefusal::Missing));
        check(&[("x-hub-signature", good)], "Hello, World!", Err(SignatureRefusal::Missing));
        check(
            &[(GITHUB_HEADER, good), (GITHUB_HEADER, good)],
            "Hello, World!",
            Err(SignatureRefusal::Missing),
        );
    }

    #[test]
    fn deliveries_of_stripe_are_verified_and_end() {
        let (trigger, body) = (trigger(WebhookScheme::Stripe, "whsec_of_this_test"), r#"{"id":"evt_1"}"#);
        let tag = |time: &str| {
            let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(b"whsec_of_this_test").unwrap();
            mac.update(format!("{time}.{body}").as_bytes());
            data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes())
        };
        let check = |header: &str, now: u64, expected: Result<(), SignatureRefusal>| {
            let headers = headers(&[(STRIPE_HEADER, header)]);
            assert_eq!(verify(&trigger, &headers, body.as_bytes(), now), expected, "{header} {now}");
        };
        let good = format!("t=1000,v1={}", tag("1000"));
        check(&good, 1_000, Ok(()));
        check(&good, 1_300, Ok(()));
        check(&good, 1_301, Err(SignatureRefusal::Time));
        check(&good, 600, Err(SignatureRefusal::Time));
        check(&format!("t=1000,v1={},v1={}", "0".repeat(64), tag("1000")), 1_000, Ok(()));
        check(&good.replace("t=1000", "t=1301"), 1_301, Err(SignatureRefusal::Wrong));
        check(&format!("t=1000,v0={}", tag("1000")), 1_000, Err(SignatureRefusal::Wrong));
        check(&format!("t=1000,t=1301,v1={}", tag("1000")), 1_301, Err(SignatureRefusal::Malformed));
        check(&format!("v1={}", tag("1000")), 1_000, Err(SignatureRefusal::Malformed));
        check("", 1_000, Err(SignatureRefusal::Malformed));
    }

    #[test]
    fn deliveries_are_named_by_what_is_signed() {
        let (github, stripe) = (trigger(WebhookScheme::Github, ""), trigger(WebhookScheme::Stripe, ""));
        let document = json!({"id": "evt_1"});
        assert_eq!(delivery_of(&github, &document, b"a"), Some(sha256(b"a")));
        assert_eq!(delivery_of(&stripe, &document, b"a"), Some("evt_1".to_owned()));
        for document in [json!({}), json!({"id": ""}), json!({"id": 1}), json!([])] {
            assert_eq!(delivery_of(&stripe, &document, b"a"), None, "{document}");
        }
    }
}
