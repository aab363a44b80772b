//! Browser sessions that ended before they expired: one record shared by all gateways, so that a
//! copied cookie is useless after its owner signed out.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sinew_mesh::record::RecordView;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::access::read_record;
use sinew_protocol::artifact::sha256;
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token};

/// Name of the record among the gateways' shared records.
const RECORD: &str = "ended-sessions";
/// Length of a session's digest.
const DIGEST_CHARS: usize = 32;
/// Maximum number of sessions in the record. If there are more, every session that started earlier
/// ends.
const MAX_SESSIONS: usize = 1_000;
/// Time limit for the local view to receive a stored record.
const VIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of attempts to write the record while other gateways write it.
const MAX_TRIES: usize = 20;

/// The shared record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct EndedRecord {
    /// Digests of sessions, each with its expiry in milliseconds since 1970 UTC.
    #[serde(default)]
    sessions: BTreeMap<String, u64>,
    /// Sessions that expire at or before this time have ended.
    #[serde(default)]
    through: u64,
}

impl EndedRecord {
    /// Adds a session, and removes expired ones.
    fn add(&mut self, digest: String, until: u64, now: u64) {
        self.sessions.retain(|_, until| *until > now);
        self.sessions.insert(digest, until);
        if self.sessions.len() > MAX_SESSIONS {
            self.through = self.sessions.values().copied().max().unwrap_or(self.through);
            self.sessions.clear();
        }
    }

    fn holds(&self, digest: &str, until: u64) -> bool {
        until <= self.through || self.sessions.contains_key(digest)
    }
}

/// Sessions that ended before they expired.
pub(super) struct EndedSessions {
    mesh: Mesh,
    view: RecordView<EndedRecord>,
}

fn subject() -> Subject {
    Subject::Access { kind: AccessKind::Secret, id: Token::of(RECORD) }
}

fn digest_of(cookie: &str) -> String {
    let mut digest = sha256(cookie.as_bytes());
    digest.truncate(DIGEST_CHARS);
    digest
}

impl EndedSessions {
    /// Subscribes to the record of a mesh.
    pub(super) async fn open(mesh: &Mesh) -> Self {
        let view = mesh.records().access().follow(&["access", "secret"], |named, stored| {
            (*named == subject()).then(|| read_record(&stored.body).ok())?
        });
        view.ready().await;
        Self { mesh: mesh.clone(), view }
    }

    /// Returns whether a session that expires at this time has ended.
    pub(super) fn has(&self, cookie: &str, until: u64) -> bool {
        self.view.get(&subject()).is_some_and(|record| record.holds(&digest_of(cookie), until))
    }

    /// Ends a session. All gateways know it shortly afterwards, this one when this function
    /// returns.
    pub(super) async fn end(&self, cookie: &str, until: u64, now: u64) -> Result<(), MeshError> {
        const WHAT: &str = "end a session";
        for _ in 0..MAX_TRIES {
            let stored = self.mesh.records().access().get(&subject()).await?;
            let revision = stored.as_ref().map_or(0, |stored| stored.revision);
            let mut record: EndedRecord =
                stored.and_then(|stored| read_record(&stored.body).ok()).unwrap_or_default();
            record.add(digest_of(cookie), until, now);
            let body = serde_json::to_vec(&record)
                .map_err(|error| MeshError::Refused { what: WHAT, reason: error.to_string() })?;
            let put = self.mesh.records().access().put(&subject(), Bytes::from(body), Some(revision)).await?;
            if put.is_some() {
                let mut view = self.view.clone();
                let known = async {
                    while !self.has(cookie, until) {
                        view.changed().await;
                    }
                };
                // The record is stored; a late view receives it with its next read.
                let _late = tokio::time::timeout(VIEW_TIMEOUT, known).await;
                return Ok(());
            }
        }
        Err(MeshError::Unreachable {
            what: WHAT,
            reason: "other gateways keep changing the record".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_sessions_until_they_are_over_and_never_too_many() {
        let mut record = EndedRecord::default();
        record.add("a".to_owned(), 100, 1);
        assert!(record.holds("a", 100) && !record.holds("b", 100));
        record.add("b".to_owned(), 200, 150);
        assert_eq!(record.sessions.len(), 1, "a is over by itself");
        for nth in 0..MAX_SESSIONS {
            record.add(format!("s{nth}"), 300, 150);
        }
        assert!(record.holds("b", 200) && record.holds("another", 300) && !record.holds("later", 301));
        assert!(serde_json::to_vec(&record).unwrap().len() < sinew_protocol::access::MAX_ACCESS_RECORD);
    }
}
