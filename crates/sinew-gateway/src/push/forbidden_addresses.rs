//! Webhooks that the settings of this gateway forbid, and that other gateways may deliver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sinew_mesh::log_limited;
use sinew_protocol::Token;
use sinew_protocol::push::PushSubscription;

/// Time after which a webhook is tried again: its host may have another address then.
const RETRY: Duration = Duration::from_mins(5);

/// Webhooks with forbidden addresses, by subject and URL, with the time of the next attempt in
/// milliseconds since 1970 UTC.
#[derive(Default)]
pub(super) struct ForbiddenAddresses(BTreeMap<(String, String), u64>);

impl ForbiddenAddresses {
    /// Returns whether this gateway may take the webhook at this time.
    pub(super) fn allow(&self, subject: &str, record: &PushSubscription, now: u64) -> bool {
        self.0.get(&key(subject, record)).is_none_or(|retry_at| *retry_at <= now)
    }

    /// Leaves a webhook to other gateways, and logs the reason the first time.
    pub(super) fn add(&mut self, subject: &str, record: &PushSubscription, reason: &str, now: u64) {
        let retry_at = now.saturating_add(u64::try_from(RETRY.as_millis()).unwrap_or(u64::MAX));
        if self.0.insert(key(subject, record), retry_at).is_none() {
            let accepted_by = record.accepted_by.as_ref().map_or("an earlier version", Token::as_str);
            log_limited!(
                20,
                warn,
                task = record.task,
                accepted_by,
                reason,
                "left a webhook to other gateways: the settings of the gateways differ"
            );
        }
    }

    /// Forgets the webhooks that no longer exist.
    pub(super) fn retain(&mut self, subjects: &BTreeSet<String>) {
        self.0.retain(|(subject, _), _| subjects.contains(subject));
    }
}

fn key(subject: &str, record: &PushSubscription) -> (String, String) {
    let url = record.config["url"].as_str().unwrap_or_default();
    (subject.to_owned(), url.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(url: &str) -> PushSubscription {
        let record = json!({
            "caller": Token::of("ann"), "agent": "a", "task": "t", "shown_task": "t",
            "is_mesh_endpoint": false, "config": {"url": url},
        });
        PushSubscription::read(record.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_forbidden_address_is_left_to_others_until_the_next_attempt() {
        let mut forbidden = ForbiddenAddresses::default();
        let (private, public) = (record("http://10.0.0.1/"), record("https://example.com/"));
        assert!(forbidden.allow("s", &private, 0));
        forbidden.add("s", &private, "not public", 0);
        assert!(!forbidden.allow("s", &private, 1) && forbidden.allow("s", &public, 1));
        assert!(forbidden.allow("s", &private, 300_000), "the host may have another address");
        forbidden.retain(&BTreeSet::new());
        assert!(forbidden.allow("s", &private, 1));
    }
}
