//! Stored messages of one sequential loop: many in flight over one subscription, acknowledged to
//! the loop.
//!
//! A publish has no task, timer or channel. A message that is not acknowledged as stored is in
//! doubt: the loop then stores it again with read-back (`Mesh::put_once` and similar), under the
//! same condition.

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM};
use async_nats::{HeaderMap, HeaderValue, Message, StatusCode};
use bytes::Bytes;
use futures_util::FutureExt as _;
use sinew_protocol::Subject;
use sinew_protocol::stream::bucket;
use std::time::Duration;
use tokio::time::timeout;

use crate::stream::listen::MeshSubscription;
use crate::stream::send::{PublishAcknowledgement, PublishAnswer, stream_of, value};
use crate::{Mesh, MeshError, crash};

/// Time for queuing a message on a connection that is busy or lost.
const SEND_TIMEOUT: Duration = Duration::from_millis(250);

/// Publishes to streams and receives the acknowledgements.
#[derive(Debug)]
pub struct StreamPublisher {
    mesh: Mesh,
    /// Prefix of the acknowledgement subjects.
    inbox: String,
    answers: MeshSubscription,
    last: u64,
}

/// Id of a sent message, which identifies its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublishTicket(u64);

/// Acknowledgement of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishReport {
    /// The message.
    pub ticket: PublishTicket,
    /// Its sequence number; `None` if it is not known to be stored.
    pub stored: Option<u64>,
    /// Sequence number of an earlier message under its subject, if the server returns one.
    pub taken: Option<u64>,
}

impl StreamPublisher {
    /// Subscribes to acknowledgements and returns the publisher.
    pub async fn open(mesh: &Mesh) -> Result<Self, MeshError> {
        let inbox = mesh.reply_inbox();
        let answers = mesh.listen(format!("{inbox}.*")).await?;
        Ok(Self { mesh: mesh.clone(), inbox, answers, last: 0 })
    }
}

impl StreamPublisher {
    /// Sends a message to a subject that accepts only one; `None` if the connection did not accept
    /// it in time.
    pub async fn send_once(
        &mut self,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
    ) -> Option<PublishTicket> {
        let stream = bucket(self.mesh.namespace(), stream_of(subject)?);
        self.send_behind(&stream, self.mesh.subject(subject), 0, headers, body).await
    }

    /// Sends a message on the condition that the last one of its subject has this sequence number;
    /// 0 means no message.
    pub(crate) async fn send_behind(
        &mut self,
        stream: &str,
        subject: String,
        after: u64,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Option<PublishTicket> {
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(after));
        headers.insert(NATS_EXPECTED_STREAM, value(stream).ok()?);
        self.mesh.fits("a message", &headers, body.len()).ok()?;
        crash::before(&subject);
        crash::sent(&self.mesh, &subject, &headers, &body).await;
        self.last += 1;
        let ticket = PublishTicket(self.last);
        let reply = format!("{}.{}", self.inbox, ticket.0);
        let line = self.mesh.line();
        let mut sending =
            std::pin::pin!(line.client.publish_with_reply_and_headers(subject, reply, headers, body));
        // Only a connection that is not immediately ready needs a timer.
        let sent = match sending.as_mut().now_or_never() {
            Some(sent) => sent.is_ok(),
            None => matches!(timeout(SEND_TIMEOUT, sending).await, Ok(Ok(()))),
        };
        // A message whose wait was cancelled may still be in flight: its condition prevents storing
        // it twice.
        sent.then_some(ticket)
    }

    /// Waits for the next acknowledgement; `None` when the connection was closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<PublishReport> {
        loop {
            let message = self.answers.next_any().await?;
            if let Some(report) = self.read(&message) {
                return Some(report);
            }
        }
    }

    /// Returns an acknowledgement that has already arrived.
    pub fn try_next(&mut self) -> Option<PublishReport> {
        self.next().now_or_never().flatten()
    }

    fn read(&self, message: &Message) -> Option<PublishReport> {
        let ticket = message.subject.strip_prefix(self.inbox.as_str())?.strip_prefix('.')?;
        let ticket = PublishTicket(ticket.parse().ok()?);
        let (stored, taken) = match PublishAcknowledgement::read(&message.payload) {
            _ if message.status == Some(StatusCode::NO_RESPONDERS) => (None, None),
            Ok(PublishAnswer::At(seq)) => (Some(seq), None),
            Ok(PublishAnswer::Conflict { place, .. }) => (None, place),
            _ => (None, None),
        };
        Some(PublishReport { ticket, stored, taken })
    }

    /// Returns how often the connection was established; acknowledgements on an older one are lost.
    pub fn connections(&self) -> u64 {
        self.mesh.connections()
    }
}
