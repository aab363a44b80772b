//! An execution as it goes on: its record, read again whenever something is told of it.

use std::sync::Arc;
use std::time::Duration;

use sinew_mesh::card::Cards;
use sinew_mesh::event::{EventFilter, EventStart, Events};
use tokio::time::Instant;

use super::{Found, NEEDS_MESH};
use crate::exit::{Exit, Failure};
use crate::remote::Remote;
use crate::remote::online;
use sinew_inspection::record::Record;
use sinew_inspection::view_context::MeshPresence;

/// Shortest time between two reads of an execution.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two reads when no event comes: retries have no events, and events may be lost.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time between two reads, for executions that take long to read.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Share of the time that reading may take: one part in so many.
const POLL_SHARE: u32 = 20;

/// Follows one execution.
pub(crate) struct Changes {
    /// The execution as it was read last.
    pub(crate) record: Arc<Record>,
    /// The executor that serves it, and the agents, as they were then.
    presence: MeshPresence,
    cards: Cards,
    remote: Remote,
    events: Events,
    poll_at: Instant,
}

impl Changes {
    /// Follows an execution that was found on a mesh.
    pub(crate) async fn of(found: Found) -> Result<Self, Failure> {
        let Found { record, remote: Some(remote) } = found else {
            return Err(Failure::new(Exit::Usage, NEEDS_MESH, "an execution in a file does not go on"));
        };
        let filter = EventFilter { execution: Some(record.execution.id().clone()), ..EventFilter::default() };
        let events = remote.mesh().events().follow(&filter, EventStart::Now).await?;
        let cards = online(remote.mesh()).await;
        // Events between the first read and the subscription are in this record.
        let record = Arc::new(remote.record(record.execution.id()).await?);
        let presence = MeshPresence::default();
        Ok(Self { record, presence, cards, remote, events, poll_at: Instant::now() + POLL_INTERVAL })
    }

    /// Where it lives.
    pub(crate) const fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The agents that are online.
    pub(crate) const fn cards(&self) -> &Cards {
        &self.cards
    }

    /// Returns the agents as they are now, and the executor as it was when the execution was read last.
    pub(crate) fn presence(&self) -> MeshPresence {
        MeshPresence { agents: Some(Remote::heartbeats(&self.cards)), ..self.presence.clone() }
    }

    /// Waits for something new; false once the execution has ended and all was seen. May be given up and called again:
    /// neither the time of the next read nor an event is lost.
    pub(crate) async fn next(&mut self) -> Result<bool, Failure> {
        let before = self.record.execution.journal().len();
        loop {
            if self.record.execution.state().ended {
                return Ok(false);
            }
            self.wait_for_poll().await;
            let began = Instant::now();
            let id = self.record.execution.id().clone();
            let record = self.remote.record(&id).await?;
            let has_owner = Some(self.remote.client.has_owner(&id).await?);
            let is_same = record.execution.journal().len() == before && has_owner == self.presence.has_owner;
            self.presence.has_owner = has_owner;
            self.record = Arc::new(record);
            let pause = (began.elapsed() * POLL_SHARE).clamp(POLL_INTERVAL, MAX_POLL_INTERVAL);
            self.poll_at = Instant::now() + pause;
            if !is_same {
                return Ok(true);
            }
        }
    }

    /// Waits for an event or the time of the next read.
    async fn wait_for_poll(&mut self) {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(self.poll_at) => return,
            _ = self.events.next() => {
                // Events that come together are looked at together. From here on a read is due, whatever happens.
                self.poll_at = self.poll_at.min(Instant::now() + MIN_POLL_INTERVAL);
            }
        }
        tokio::time::sleep_until(self.poll_at).await;
        while self.events.try_next().is_some() {}
    }
}
