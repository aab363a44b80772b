//! One delivery: the request, and the delay before the next attempt.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_agents::{AgentError, WebClient};
use sinew_protocol::a2a::{TaskPushNotificationConfig, is_terminal};
use sinew_protocol::artifact::sha256;
use sinew_protocol::jsonrpc::A2A_JSON;
use sinew_protocol::push::PushSubscription;

use crate::gateway_signer::GatewaySigner;
use crate::push_address::webhook_problem;

/// Time limit for a webhook's response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// First and maximum delay between attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_mins(5));
/// Maximum number of attempts to deliver one event, and to read a task's events: about seven hours.
const MAX_ATTEMPTS: u32 = 90;
/// Seconds for which receivers accept a signature.
const SIGNATURE_SECONDS: u64 = 300;
/// Header with the caller's token.
const TOKEN_HEADER: &str = "x-a2a-notification-token";
/// Header with the signature: a JSON Web Token over the body.
const SIGNATURE_HEADER: &str = "sinew-signature";
/// Header with the event's number within its task.
const EVENT_HEADER: &str = "sinew-event";

/// Outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeliveryOutcome {
    Delivered,
    /// The settings of this gateway forbid the address, for this reason; another gateway may deliver.
    Forbidden(String),
    /// A retry may succeed.
    Failed,
    /// A retry cannot succeed.
    Refused,
}

/// Posts one event.
pub(super) async fn deliver(
    web: &WebClient,
    signer: &GatewaySigner,
    record: &PushSubscription,
    (seq, body): (u64, &[u8]),
    now: u64,
) -> DeliveryOutcome {
    let config: TaskPushNotificationConfig = match serde_json::from_value(record.config.clone()) {
        Ok(config) => config,
        Err(error) => {
            let task = &record.task;
            sinew_mesh::log_limited!(20, warn, task, %error, "cannot read a push notification config");
            return DeliveryOutcome::Refused;
        }
    };
    let id = config.id.as_deref().unwrap_or_default();
    let signature = signer.token(&json!({
        "aud": config.url,
        "iat": now,
        "exp": now + SIGNATURE_SECONDS,
        "jti": format!("{}-{id}-{seq}", record.shown_task),
        "task": record.shown_task,
        "event": seq,
        "request_body_sha256": sha256(body),
    }));
    let number = seq.to_string();
    let authorization = config.authentication.as_ref().map(|given| match &given.credentials {
        Some(credentials) => format!("{} {credentials}", given.scheme),
        None => given.scheme.clone(),
    });
    let mut headers = vec![
        ("content-type", A2A_JSON),
        (SIGNATURE_HEADER, signature.as_str()),
        (EVENT_HEADER, number.as_str()),
    ];
    headers.extend(config.token.as_deref().map(|token| (TOKEN_HEADER, token)));
    headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
    match web.post(&config.url, &headers, body.to_vec(), ANSWER_TIMEOUT).await {
        Ok(answer) if (200..300).contains(&answer.status) => DeliveryOutcome::Delivered,
        // The receiver is permanently gone.
        Ok(answer) if answer.status == 410 => DeliveryOutcome::Refused,
        Ok(answer) => {
            sinew_mesh::log_limited!(
                20,
                info,
                task = record.task,
                seq,
                status = answer.status,
                "a push notification failed"
            );
            DeliveryOutcome::Failed
        }
        Err(error @ AgentError::Address { .. }) => DeliveryOutcome::Forbidden(webhook_problem(&error)),
        Err(error) => {
            let error = webhook_problem(&error);
            sinew_mesh::log_limited!(20, info, task = record.task, seq, error, "a push notification failed");
            DeliveryOutcome::Failed
        }
    }
}

/// Returns the delay after this number of attempts, or `None` after the last one. Delays are
/// randomized, so that a recovering receiver does not get all retries at once.
pub(super) fn backoff(attempts: u32, chance: f64) -> Option<Duration> {
    if attempts >= MAX_ATTEMPTS {
        return None;
    }
    let (first, longest) = BACKOFF;
    let wait = first.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1).min(20))).min(longest);
    Some(wait.mul_f64(0.5 + chance / 2.0))
}

/// Returns whether an event is the last of its task.
pub(super) fn is_last(body: &[u8]) -> bool {
    let Ok(event) = serde_json::from_slice::<Value>(body) else { return false };
    let state = ["task", "statusUpdate"].iter().find_map(|kind| event.get(kind)?.get("status")?.get("state"));
    let state = state.and_then(|state| serde_json::from_value(state.clone()).ok());
    event.get("message").is_some() || state.is_some_and(is_terminal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        let whole = |attempts| backoff(attempts, 1.0);
        assert_eq!(whole(1), Some(Duration::from_millis(500)));
        assert_eq!(whole(2), Some(Duration::from_secs(1)));
        assert_eq!(whole(5), Some(Duration::from_secs(8)));
        assert_eq!(whole(60), Some(Duration::from_mins(5)));
        assert_eq!(backoff(1, 0.0), Some(Duration::from_millis(250)));
        assert_eq!(whole(MAX_ATTEMPTS), None);
    }

    #[test]
    fn the_last_event_is_known_by_its_state() {
        let check = |event: Value, expected: bool| {
            assert_eq!(is_last(event.to_string().as_bytes()), expected, "{event}");
        };
        check(json!({"task": {"status": {"state": "TASK_STATE_COMPLETED"}}}), true);
        check(json!({"statusUpdate": {"status": {"state": "TASK_STATE_REJECTED"}}}), true);
        check(json!({"message": {"messageId": "m"}}), true);
        check(json!({"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED"}}}), false);
        check(json!({"artifactUpdate": {"artifact": {}}}), false);
        check(json!(1), false);
    }
}
