//! What administrators set for entries of the catalogue: pinned, hidden and deprecated ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sinew_mesh::record::RecordView;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::catalogue::Catalogue;
use sinew_protocol::catalogue_record::{CatalogueRecord, MAX_PINNED};
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token, code};
use sinew_runtime::local;

use crate::failure::{Failure, FailureKind};

/// Leading tokens of the records' subjects.
const ENTRY_TOKENS: [&str; 2] = ["access", "entry"];
/// Number of attempts to replace a record that others change at the same time.
const TRIES: usize = 5;

/// The records of a mesh as a live view; empty for users who may not read them.
#[derive(Debug, Default)]
pub struct CatalogueRecords(Option<RecordView<CatalogueRecord>>);

impl CatalogueRecords {
    /// Subscribes to the records of a mesh. Without permission to read them there are none, so the
    /// attributes are those of the authors.
    pub async fn open(mesh: &Mesh) -> Self {
        if let Err(error) = mesh.records().access().list(&ENTRY_TOKENS).await {
            tracing::debug!(%error, "the catalogue shows attributes of authors only");
            return Self::default();
        }
        let view = mesh.records().access().follow(&ENTRY_TOKENS, |subject, stored| {
            let Subject::Access { id, .. } = subject else { return None };
            let read = CatalogueRecord::read(id, &stored.body);
            read.inspect_err(
                |error| tracing::warn!(entry = id.as_str(), %error, "skipping a catalogue record"),
            )
            .ok()
        });
        view.ready().await;
        Self(Some(view))
    }

    /// Returns the current records.
    pub fn set(&self) -> RecordSet {
        let records = self.0.iter().flat_map(RecordView::list);
        RecordSet(records.map(|record| (record.name.clone(), record)).collect())
    }
}

/// The records of a mesh at one time, by name.
#[derive(Clone, Debug, Default)]
pub struct RecordSet(BTreeMap<String, Arc<CatalogueRecord>>);

impl RecordSet {
    /// Returns the record of an entry.
    pub fn get(&self, name: &str) -> Option<&Arc<CatalogueRecord>> {
        self.0.get(name)
    }

    /// Returns whether lists and searches omit an entry.
    pub fn hides(&self, name: &str) -> bool {
        self.get(name).is_some_and(|record| record.hidden)
    }

    /// Returns whether short lists contain the entry of a card. Deprecated and hidden entries are never
    /// pinned.
    pub fn pins(&self, card: &AgentCard) -> bool {
        use sinew_protocol::catalogue::Stage::Deprecated;
        self.get(&card.name).is_some_and(|record| record.pinned && !record.hidden)
            && self.attributes(card).stage != Deprecated
    }

    /// Returns the attributes of a card; those that administrators set take precedence.
    pub fn attributes(&self, card: &AgentCard) -> Catalogue {
        let of_author = Catalogue::of(card);
        match self.get(&card.name) {
            Some(record) => record.merged(of_author),
            None => of_author,
        }
    }
}

impl FromIterator<CatalogueRecord> for RecordSet {
    fn from_iter<I: IntoIterator<Item = CatalogueRecord>>(records: I) -> Self {
        Self(records.into_iter().map(|record| (record.name.clone(), Arc::new(record))).collect())
    }
}

/// Changes the record of an entry, and returns it. A record that sets nothing is removed.
///
/// # Errors
/// Fails if too many entries are pinned, or the record changes all the time.
pub async fn change_record(
    mesh: &Mesh,
    name: &str,
    change: impl Fn(&mut CatalogueRecord),
) -> Result<CatalogueRecord, Failure> {
    let id = Token::of(name);
    let subject = Subject::Access { kind: AccessKind::Entry, id: id.clone() };
    let records = mesh.records().access();
    for _ in 0..TRIES {
        let stored = records.get(&subject).await?;
        let known = stored.as_ref().and_then(|stored| CatalogueRecord::read(&id, &stored.body).ok());
        let mut record = known.unwrap_or_default();
        let was_pinned = record.pinned;
        name.clone_into(&mut record.name);
        change(&mut record);
        record.check().map_err(Failure::usage)?;
        if record.pinned && !was_pinned {
            check_pins(mesh).await?;
        }
        record.set_at = local::now();
        record.set_by = mesh.caller().to_string();
        let body = if record.is_empty() {
            Bytes::new()
        } else {
            let malformed = |error: serde_json::Error| MeshError::Malformed {
                what: "a catalogue record",
                reason: error.to_string(),
            };
            serde_json::to_vec(&record).map_err(malformed)?.into()
        };
        let revision = stored.map_or(0, |stored| stored.revision);
        if records.put(&subject, body, Some(revision)).await?.is_some() {
            return Ok(record);
        }
    }
    let text = format!("the record of {name:?} was changed by others at the same time; retry");
    Err(Failure::new(FailureKind::Conflict, code::CLIENT_COMMAND_REFUSED.as_str(), text))
}

/// Rejects another pinned entry when there are many.
async fn check_pins(mesh: &Mesh) -> Result<(), Failure> {
    let stored = mesh.records().access().list(&ENTRY_TOKENS).await?;
    let pinned: Vec<String> = stored
        .values()
        .filter_map(|stored| serde_json::from_slice::<CatalogueRecord>(&stored.body).ok())
        .filter(|record| record.pinned)
        .map(|record| record.name)
        .collect();
    if pinned.len() < MAX_PINNED {
        return Ok(());
    }
    let text = format!("{} entries are pinned, which is the maximum: {}", pinned.len(), pinned.join(", "));
    Err(Failure::usage(text).hint("unpin one: sinew tool unpin NAME"))
}
