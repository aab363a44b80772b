//! Webhook triggers: records of the stream ACCESS that let third-party requests start executions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Token;
use crate::access::read_record;
use crate::message::BadMessage;

/// Signature scheme of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookScheme {
    /// `X-Hub-Signature-256`: HMAC-SHA256 of the body. The signature covers no time and no id, so
    /// the body identifies the delivery.
    Github,
    /// `Stripe-Signature`: HMAC-SHA256 of time and body. The field `id` of the body identifies the
    /// delivery.
    Stripe,
}

impl WebhookScheme {
    /// All schemes.
    pub const ALL: [Self; 2] = [Self::Github, Self::Stripe];

    /// Returns the name of the scheme.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Stripe => "stripe",
        }
    }

    /// Parses the name of a scheme.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.as_str() == word)
    }
}

/// A trigger: verified requests to `/hooks/NAME` start executions of one workflow.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookTrigger {
    /// Name in the address.
    pub name: Token,
    /// Workflow to start.
    pub workflow: String,
    /// Signature scheme of requests.
    pub scheme: WebhookScheme,
    /// Secret that the sender signs with.
    pub secret: String,
    /// Fields of the input, each with the JSON pointer of its value in the body. If empty, the body
    /// is the input.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub input: BTreeMap<String, String>,
    /// Deployment time, milliseconds since 1970 UTC.
    pub created_at: u64,
    /// User who deployed it.
    pub created_by: String,
}

impl WebhookTrigger {
    /// Parses the record of the trigger with this name.
    pub fn read(name: &Token, body: &[u8]) -> Result<Self, BadMessage> {
        let read: Self = read_record(body)?;
        let bad = |reason: String| BadMessage::Field { kind: "webhook trigger".to_owned(), reason };
        if read.name != *name {
            return Err(bad("name: not that of the subject".to_owned()));
        }
        read.check().map_err(bad)?;
        Ok(read)
    }

    /// Returns an error message if requests could not be verified or used.
    pub fn check(&self) -> Result<(), String> {
        if self.secret.len() < 16 {
            return Err("secret: expected at least 16 characters".to_owned());
        }
        if self.workflow.is_empty() {
            return Err("workflow: empty".to_owned());
        }
        match self.input.values().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
            Some(pointer) => Err(format!("input {pointer:?}: expected a JSON pointer like /data/id")),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for WebhookTrigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookTrigger")
            .field("name", &self.name)
            .field("workflow", &self.workflow)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read_back_or_refused() {
        let good = WebhookTrigger {
            name: Token::of("orders"),
            workflow: "intake".to_owned(),
            scheme: WebhookScheme::Github,
            secret: "a secret of its own".to_owned(),
            input: BTreeMap::from([("id".to_owned(), "/data/id".to_owned())]),
            created_at: 1,
            created_by: "admin".to_owned(),
        };
        let read = |trigger: &WebhookTrigger| {
            WebhookTrigger::read(&Token::of("orders"), &serde_json::to_vec(trigger).unwrap())
        };
        assert_eq!(read(&good).unwrap(), good);
        assert!(!format!("{good:?}").contains("a secret"), "a secret is not shown");
        let input = BTreeMap::from([("id".to_owned(), "data".to_owned())]);
        for bad in [
            WebhookTrigger { secret: "short".to_owned(), ..good.clone() },
            WebhookTrigger { workflow: String::new(), ..good.clone() },
            WebhookTrigger { name: Token::of("other"), ..good.clone() },
            WebhookTrigger { input, ..good },
        ] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }
}
