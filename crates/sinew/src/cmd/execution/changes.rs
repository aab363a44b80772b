//! An execution as it goes on: its record, read again whenever something is told of it.

use std::time::Duration;

use sinew_mesh::event::{EventFilter, Events, From};

use super::{Found, NEEDS_MESH};
use crate::exit::{Exit, Failure};
use crate::record::Record;
use crate::remote::Remote;

/// An execution is looked at at most so often.
const AT_MOST: Duration = Duration::from_millis(100);
/// And at least so often, whatever is told: events may be lost, facts are not.
const AT_LEAST: Duration = Duration::from_secs(2);

/// Follows one execution.
pub(crate) struct Changes {
    /// As it was when it was last looked at.
    pub(crate) record: Record,
    remote: Remote,
    events: Events,
}

impl Changes {
    /// Follows an execution that was found on a mesh.
    pub(crate) async fn of(found: Found) -> Result<Self, Failure> {
        let Found { record, remote: Some(remote) } = found else {
            return Err(Failure::new(Exit::Usage, NEEDS_MESH, "what is in a file does not go on"));
        };
        let filter = EventFilter { execution: Some(record.execution.id().clone()), ..EventFilter::default() };
        let events = remote.mesh().events(&filter, From::Now).await?;
        // Events between the first read and the subscription are in this record.
        let record = remote.record(record.execution.id()).await?;
        Ok(Self { record, remote, events })
    }

    /// Where it lives.
    pub(crate) const fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Waits for something new; false once the execution has ended and all was seen.
    pub(crate) async fn next(&mut self) -> Result<bool, Failure> {
        let before = self.record.execution.journal().len();
        loop {
            if self.record.execution.state().ended {
                return Ok(false);
            }
            let _ = tokio::time::timeout(AT_LEAST, self.events.next()).await;
            // Events that come together lead to one read.
            tokio::time::sleep(AT_MOST).await;
            while self.events.try_next().is_some() {}
            self.record = self.remote.record(self.record.execution.id()).await?;
            if self.record.execution.journal().len() != before {
                return Ok(true);
            }
        }
    }
}
