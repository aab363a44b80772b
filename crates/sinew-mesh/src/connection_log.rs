//! Log lines about the connection to the broker: one when it is lost, one periodically while it is
//! lost, one when it is restored.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::Event;

use crate::log_limited;

/// Time between two log lines while the broker is unreachable.
const REMINDER_INTERVAL: Duration = Duration::from_secs(30);

/// State of one connection for its log lines.
pub(crate) struct ConnectionLog {
    /// The addresses, without secrets.
    address: String,
    loss: Mutex<Option<ConnectionLoss>>,
}

/// A connection that is lost.
#[derive(Debug)]
struct ConnectionLoss {
    since: Instant,
    attempts: u32,
    reported: Instant,
}

/// Events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionNews {
    Connected,
    Lost,
    Away { since: Duration, attempts: u32 },
    Back { after: Duration, attempts: u32 },
}

impl ConnectionLog {
    pub(crate) fn new(address: String) -> Self {
        Self { address, loss: Mutex::default() }
    }

    /// Logs an event.
    pub(crate) fn write(&self, event: &Event) {
        let address = &self.address;
        match self.news(event, Instant::now()) {
            Some(ConnectionNews::Connected) => tracing::info!(%address, "connected to NATS"),
            Some(ConnectionNews::Lost) => {
                tracing::warn!(%address, "the connection to NATS was lost; reconnecting");
            }
            Some(ConnectionNews::Away { since, attempts }) => {
                let lost_for = Seconds(since);
                tracing::warn!(%address, %lost_for, attempts, %event, "NATS is still unreachable");
            }
            Some(ConnectionNews::Back { after, attempts }) => {
                let after = Seconds(after);
                tracing::info!(%address, attempts, "reconnected to NATS after {after}");
            }
            None => self.write_other(event),
        }
    }

    fn write_other(&self, event: &Event) {
        let address = &self.address;
        match event {
            Event::LameDuckMode => {
                tracing::warn!(%address, "the NATS server is shutting down; clients move to another server");
            }
            Event::SlowConsumer(subscription) => {
                log_limited!(
                    warn,
                    %address,
                    subscription,
                    "messages were dropped because they arrive faster than this process reads them"
                );
            }
            Event::ServerError(error) => {
                log_limited!(warn, %address, %error, "the NATS server reported an error");
            }
            Event::ClientError(error) if !self.is_lost() => {
                log_limited!(warn, %address, %error, "the connection to NATS failed");
            }
            Event::Closed => tracing::info!(%address, "the connection to NATS was closed"),
            _ => {}
        }
    }

    fn is_lost(&self) -> bool {
        self.loss.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn news(&self, event: &Event, now: Instant) -> Option<ConnectionNews> {
        let mut loss = self.loss.lock().unwrap_or_else(PoisonError::into_inner);
        match (event, loss.as_mut()) {
            (Event::Connected, None) => Some(ConnectionNews::Connected),
            (Event::Connected, Some(lost)) => {
                let news = ConnectionNews::Back { after: now - lost.since, attempts: lost.attempts };
                *loss = None;
                Some(news)
            }
            (Event::Disconnected, None) => {
                *loss = Some(ConnectionLoss { since: now, attempts: 0, reported: now });
                Some(ConnectionNews::Lost)
            }
            (Event::ClientError(_), Some(lost)) => {
                lost.attempts += 1;
                if now - lost.reported < REMINDER_INTERVAL {
                    return None;
                }
                lost.reported = now;
                Some(ConnectionNews::Away { since: now - lost.since, attempts: lost.attempts })
            }
            _ => None,
        }
    }
}

/// A time span in whole seconds.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use async_nats::ClientError;

    use super::*;

    #[test]
    fn a_loss_is_reported_once_and_its_end_says_how_long_it_was() {
        let (log, began) = (ConnectionLog::new("localhost:4222".to_owned()), Instant::now());
        let failed = || Event::ClientError(ClientError::Other("IO error".to_owned()));
        let check = |seconds: u64, event: Event, expected: Option<ConnectionNews>| {
            let at = began + Duration::from_secs(seconds);
            assert_eq!(log.news(&event, at), expected, "{event} at {seconds} s");
        };
        check(0, Event::Connected, Some(ConnectionNews::Connected));
        check(0, failed(), None);
        check(10, Event::Disconnected, Some(ConnectionNews::Lost));
        check(10, Event::Disconnected, None);
        (11..38).for_each(|second| check(second, failed(), None));
        let after = Duration::from_secs(28);
        check(38, Event::Connected, Some(ConnectionNews::Back { after, attempts: 27 }));
        check(50, Event::Disconnected, Some(ConnectionNews::Lost));
        check(60, failed(), None);
        let since = Duration::from_secs(30);
        check(80, failed(), Some(ConnectionNews::Away { since, attempts: 2 }));
        check(81, failed(), None);
    }
}
