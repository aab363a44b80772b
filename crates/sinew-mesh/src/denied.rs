//! Permission violations: read from the connection and passed to the request that waits for a
//! reply.
//!
//! A server drops a message that its user is not permitted to publish and reports it on the
//! connection, not to the request, which would wait until its timeout.

use std::future::{Future, pending};

use async_nats::{Event, ServerError};
use sinew_protocol::permission::Permissions;
use tokio::sync::broadcast;

/// Denials that are buffered for each receiver.
const KEPT: usize = 64;

/// Operation and subject that the server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeniedOperation {
    /// Publishing to this subject.
    Publish(String),
    /// Subscribing to this subject, in this queue group.
    Subscribe(String, Option<String>),
}

/// Denied operations of one connection.
#[derive(Clone, Debug)]
pub(crate) struct DeniedOperations(broadcast::Sender<DeniedOperation>);

impl Default for DeniedOperations {
    fn default() -> Self {
        Self(broadcast::Sender::new(KEPT))
    }
}

impl DeniedOperations {
    /// Forwards a permission violation to all waiting requests.
    pub(crate) fn hear(&self, event: &Event) {
        if let Event::ServerError(ServerError::Other(text)) = event
            && let Some(denied) = DeniedOperation::read(text)
        {
            // Fails without a waiting request; the connection's log has the violation.
            let _ = self.0.send(denied);
        }
    }

    /// Returns the next denial that matches. Subscribes before the future is polled.
    pub(crate) fn first<F: Fn(&DeniedOperation) -> bool>(
        &self,
        meant: F,
    ) -> impl Future<Output = DeniedOperation> + use<F> {
        let mut heard = self.0.subscribe();
        async move {
            loop {
                match heard.recv().await {
                    Ok(denied) if meant(&denied) => return denied,
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => pending().await,
                }
            }
        }
    }
}

impl DeniedOperation {
    /// Parses `Permissions Violation for Publish to "subject"` and similar errors.
    fn read(text: &str) -> Option<Self> {
        let mut quoted = text.split('"').skip(1).step_by(2);
        let words = text.split('"').next()?.to_ascii_lowercase();
        let subject = quoted.next()?.to_owned();
        match words.trim() {
            "permissions violation for publish to" | "permissions violation for publish with reply of" => {
                Some(Self::Publish(subject))
            }
            "permissions violation for subscription to" => {
                Some(Self::Subscribe(subject, quoted.next().map(str::to_owned)))
            }
            _ => None,
        }
    }

    /// Returns whether this denies a message to `subject`; a subject that ends with a dot stands
    /// for all with that prefix.
    pub(crate) fn answers(&self, subject: &str) -> bool {
        let Self::Publish(denied) = self else { return false };
        // A JetStream domain comes between `$JS` and the API call.
        let (denied, subject) = match (denied.split_once(".API."), subject.strip_prefix("$JS.API.")) {
            (Some((_, denied)), Some(subject)) => (denied, subject),
            _ => (denied.as_str(), subject),
        };
        if subject.ends_with('.') { denied.starts_with(subject) } else { denied == subject }
    }

    pub(crate) fn permits(&self, rights: &Permissions) -> bool {
        match self {
            Self::Publish(subject) => rights.may_publish(subject),
            Self::Subscribe(subject, queue) => rights.may_subscribe(subject, queue.as_deref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_no_to_is_read() {
        for (text, want) in [
            (
                r#"Permissions Violation for Publish to "a.b""#,
                Some(DeniedOperation::Publish("a.b".to_owned())),
            ),
            (r#"permissions violation for publish to "A""#, Some(DeniedOperation::Publish("A".to_owned()))),
            (
                r#"Permissions Violation for Subscription to "a.>""#,
                Some(DeniedOperation::Subscribe("a.>".to_owned(), None)),
            ),
            (
                r#"Permissions Violation for Subscription to "a" using queue "q""#,
                Some(DeniedOperation::Subscribe("a".to_owned(), Some("q".to_owned()))),
            ),
            ("Permissions Violation", None),
            ("maximum connections exceeded", None),
            (r#"something else "a""#, None),
            ("", None),
        ] {
            assert_eq!(DeniedOperation::read(text), want, "{text}");
        }
    }

    #[test]
    fn a_word_answers_the_message_it_is_about() {
        let denied = |subject: &str| DeniedOperation::Publish(subject.to_owned());
        for (heard, asked, answers) in [
            ("p.v1.card.a", "p.v1.card.a", true),
            ("p.v1.card.a", "p.v1.card.b", false),
            ("p.v1.card.ab", "p.v1.card.a", false),
            ("$JS.API.CONSUMER.CREATE.S.read-1.p.v1.x", "$JS.API.CONSUMER.CREATE.S.", true),
            ("$JS.hub.API.CONSUMER.CREATE.S.read-1", "$JS.API.CONSUMER.CREATE.S.", true),
            ("$JS.API.CONSUMER.CREATE.ST.read-1", "$JS.API.CONSUMER.CREATE.S.", false),
            ("$JS.API.STREAM.INFO.S", "$JS.API.STREAM.INFO.S", true),
        ] {
            assert_eq!(denied(heard).answers(asked), answers, "{heard} {asked}");
        }
        assert!(!DeniedOperation::Subscribe("a".to_owned(), None).answers("a"));
    }
}
