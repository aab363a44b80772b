//! The keys of a mesh as a live view.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sinew_mesh::record::RecordView;
use sinew_mesh::{Mesh, MeshError, log_limited};
use sinew_protocol::access::{AccessKey, KeyProof, KeyStanding};
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token};

/// Leading tokens of the keys' subjects.
const KEY_TOKENS: [&str; 2] = ["access", "key"];

/// The keys of a mesh. New and revoked keys take effect almost immediately.
pub(super) struct KeySet(RecordView<AccessKey>);

impl KeySet {
    /// Subscribes to the keys of a mesh and reads all stored keys. Fails without permission to read
    /// them.
    pub(super) async fn open(mesh: &Mesh) -> Result<Self, MeshError> {
        // Reports the reason immediately; a view would retry forever.
        mesh.records().access().list(&KEY_TOKENS).await?;
        let (newest, started) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
        let is_started = Arc::clone(&started);
        let view = mesh.records().access().follow(&KEY_TOKENS, move |subject, stored| {
            let Subject::Access { id, .. } = subject else { return None };
            let read = AccessKey::read(id, &stored.body);
            let read = read
                .inspect_err(|error| log_limited!(warn, key = id.as_str(), %error, "cannot read a key"))
                .ok();
            // Records read initially, or again after a lost connection, are not new.
            if newest.fetch_max(stored.revision, Ordering::Relaxed) < stored.revision
                && is_started.load(Ordering::Relaxed)
                && let Some(key) = &read
            {
                let state = if key.revoked_at.is_some() { "revoked" } else { "valid" };
                log_limited!(20, info, key = id.as_str(), name = key.name, state, "key changed");
            }
            read
        });
        view.ready().await;
        started.store(true, Ordering::Relaxed);
        Ok(Self(view))
    }

    /// Like [`KeySet::get`], but returns an error if a key that is not in the view may be stored on
    /// the mesh.
    pub(super) async fn find(&self, id: &Token) -> Result<Option<Arc<AccessKey>>, MeshError> {
        self.0.find(&Subject::Access { kind: AccessKind::Key, id: id.clone() }).await
    }

    pub(super) fn get(&self, id: &Token) -> Option<Arc<AccessKey>> {
        self.0.get(&Subject::Access { kind: AccessKind::Key, id: id.clone() })
    }

    /// Like [`KeySet::by_certificate`], but returns an error if a key that is not in the view may
    /// be stored on the mesh.
    pub(super) async fn find_by_certificate(
        &self,
        names: &[String],
        now_ms: u64,
    ) -> Result<Option<Arc<AccessKey>>, MeshError> {
        if let Some(key) = self.by_certificate(names, now_ms) {
            return Ok(Some(key));
        }
        self.0.current().await?;
        Ok(self.by_certificate(names, now_ms))
    }

    /// Returns the key of the owner of a certificate with these DNS names. A valid key takes
    /// precedence over those that it replaced.
    fn by_certificate(&self, names: &[String], now_ms: u64) -> Option<Arc<AccessKey>> {
        let keys = self.0.list().into_iter().filter(|key| match &key.proof {
            KeyProof::CertificateName(wanted) => names.iter().any(|name| name.eq_ignore_ascii_case(wanted)),
            KeyProof::Digest(_) => false,
        });
        keys.max_by_key(|key| key.standing(now_ms) == KeyStanding::Valid)
    }
}
