//! Changes that callers made: commands to executions, deployments, keys and webhook triggers, as the
//! streams that store them still have them.

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::DeliverPolicy;
use bytes::Bytes;
use sinew_protocol::stream::ACCESS;
use sinew_protocol::{Subject, subject};

use time::OffsetDateTime;

use crate::store::card::stream_name;
use crate::stream::follow::{is_foreign, sweep};
use crate::stream::pull::milliseconds;
use crate::{Mesh, MeshError};

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Commands to open executions, without starts.
    Commands,
    /// Deployments and removals of workflows.
    Deployments,
    /// Keys of gateways.
    Keys,
    /// Webhook triggers of gateways.
    Hooks,
    /// What administrators set for entries of the catalogue.
    Entries,
}

impl ChangeKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Commands, Self::Deployments, Self::Keys, Self::Hooks, Self::Entries];

    fn source(self) -> (&'static str, &'static [&'static [&'static str]]) {
        match self {
            Self::Commands => (
                "COMMANDS",
                &[
                    &["command", "*", "cancel"],
                    &["command", "*", "pause"],
                    &["command", "*", "resume"],
                    &["command", "*", "approve"],
                    &["command", "*", "retry"],
                ],
            ),
            Self::Deployments => ("WORKFLOWS", &[&["workflow"]]),
            Self::Keys => (ACCESS, &[&["access", "key"]]),
            Self::Hooks => (ACCESS, &[&["access", "hook"]]),
            Self::Entries => (ACCESS, &[&["access", "entry"]]),
        }
    }
}

/// A stored change.
#[derive(Clone, Debug)]
pub struct StoredChange {
    /// Its subject.
    pub subject: Subject,
    /// When it was stored, milliseconds since 1970 UTC.
    pub at: u64,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; empty for a removal.
    pub body: Bytes,
}

impl Mesh {
    /// Visits the changes of a kind that were stored since a time (milliseconds since 1970 UTC), oldest
    /// first for each kind of command. Keys and triggers have only their last state, whenever it was
    /// stored.
    ///
    /// # Errors
    /// Fails if the mesh does not respond, or this connection may not read the stream.
    pub async fn visit_changes(
        &self,
        kind: ChangeKind,
        since: u64,
        mut visit: impl FnMut(StoredChange),
    ) -> Result<(), MeshError> {
        let (stream, filters) = kind.source();
        let stream = stream_name(stream, self.namespace());
        let start = OffsetDateTime::from_unix_timestamp_nanos(i128::from(since) * 1_000_000).ok();
        let from = match (kind, start) {
            (ChangeKind::Commands | ChangeKind::Deployments, Some(start_time)) => {
                DeliverPolicy::ByStartTime { start_time }
            }
            _ => DeliverPolicy::All,
        };
        for tokens in filters {
            let filter = subject::below(self.namespace(), tokens);
            sweep(self, &stream, filter, from, |message| {
                let headers = message.headers.clone().unwrap_or_default();
                if let (Some(subject), Ok(info), false) =
                    (Subject::parse(self.namespace(), &message.subject), message.info(), is_foreign(&headers))
                {
                    let at = milliseconds(info.published);
                    visit(StoredChange { subject, at, headers, body: message.payload.clone() });
                }
                true
            })
            .await?;
        }
        Ok(())
    }
}
