//! Changes of a running execution: its record is read again after each of its events.

use std::sync::Arc;
use std::time::Duration;

use sinew_inspection::record::{Record, RecordSource};
use sinew_inspection::view_context::MeshPresence;
use sinew_mesh::card::Cards;
use sinew_mesh::event::{EventFilter, EventStart, Events};
use sinew_protocol::code;
use tokio::time::Instant;

use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::MeshOperator;

/// Minimum interval between reads of an execution.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between reads without an event: retries have no events, and events may be lost.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum interval between reads, for executions that take long to read.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Reads take at most the time divided by this number.
const POLL_SHARE: u32 = 20;

/// An execution with its origin.
pub struct FoundExecution {
    /// The record as it was read.
    pub record: Record,
    /// The mesh of the execution; `None` if it came from a file.
    pub remote: Option<MeshOperator>,
}

impl FoundExecution {
    /// Returns the known state of a running execution's agents and executor.
    pub async fn presence(&self) -> Result<MeshPresence, Failure> {
        match &self.remote {
            Some(remote) if !self.record.execution.state().ended => {
                remote.presence(self.record.execution.id()).await
            }
            _ => Ok(MeshPresence::default()),
        }
    }
}

fn does_not_go_on(record: &Record) -> Failure {
    let code = code::MESH_REQUIRED.as_str();
    if record.source == RecordSource::Folder {
        let text = "the execution cannot continue because its process no longer exists";
        let hint = format!("see `sinew execution describe {}` for the next steps", record.reference());
        return Failure::new(FailureKind::Usage, code, text).hint(hint);
    }
    Failure::new(FailureKind::Usage, code, "an execution in a file cannot continue")
}

/// Follows one execution.
pub struct ExecutionChanges {
    /// The most recently read record.
    pub record: Arc<Record>,
    /// Its executor and the agents at that time.
    presence: MeshPresence,
    cards: Cards,
    remote: MeshOperator,
    events: Events,
    poll_at: Instant,
}

impl ExecutionChanges {
    /// Follows an execution on a mesh.
    pub async fn of(found: FoundExecution) -> Result<Self, Failure> {
        let FoundExecution { record, remote } = found;
        let Some(remote) = remote else { return Err(does_not_go_on(&record)) };
        let filter = EventFilter { execution: Some(record.execution.id().clone()), ..EventFilter::default() };
        let events = remote.mesh().events().follow(&filter, EventStart::Now).await?;
        let cards = remote.online().await?;
        // Read again, to include events between the first read and the subscription.
        let record = Arc::new(remote.record(record.execution.id()).await?);
        let presence = MeshPresence::default();
        Ok(Self { record, presence, cards, remote, events, poll_at: Instant::now() + POLL_INTERVAL })
    }

    /// Returns the mesh of the execution.
    pub const fn remote(&self) -> &MeshOperator {
        &self.remote
    }

    /// Returns the online agents.
    pub const fn cards(&self) -> &Cards {
        &self.cards
    }

    /// Returns the current agents, and the executor at the time of the last read.
    pub fn presence(&self) -> MeshPresence {
        MeshPresence { agents: Some(MeshOperator::heartbeats(&self.cards)), ..self.presence.clone() }
    }

    /// Waits for a change; returns false after the execution has ended and all changes were
    /// returned. Cancel-safe: neither the time of the next read nor an event is lost.
    pub async fn next(&mut self) -> Result<bool, Failure> {
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
                // Events in quick succession are handled together. A read is due from now on.
                self.poll_at = self.poll_at.min(Instant::now() + MIN_POLL_INTERVAL);
            }
        }
        tokio::time::sleep_until(self.poll_at).await;
        while self.events.try_next().is_some() {}
    }
}
