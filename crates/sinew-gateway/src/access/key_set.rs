//! The keys of a mesh, as a live view.

use std::sync::Arc;

use sinew_mesh::record::RecordView;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::access::{AccessKey, KeyProof, KeyStanding};
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token};

/// First tokens of the subjects of keys.
const KEY_TOKENS: [&str; 2] = ["access", "key"];

/// The keys of a mesh. A key that is made or revoked is known within a moment.
pub(super) struct KeySet(RecordView<AccessKey>);

impl KeySet {
    /// Follows the keys of a mesh, once all that are stored have been read. Fails without the right to read them.
    pub(super) async fn open(mesh: &Mesh) -> Result<Self, MeshError> {
        // Says why at once, where a view would try for ever.
        mesh.records().access().list(&KEY_TOKENS).await?;
        let view = mesh.records().access().follow(&KEY_TOKENS, |subject, stored| {
            let Subject::Access { id, .. } = subject else { return None };
            let read = AccessKey::read(id, &stored.body);
            read.inspect_err(|error| tracing::warn!(key = id.as_str(), %error, "a key is passed over")).ok()
        });
        view.ready().await;
        Ok(Self(view))
    }

    pub(super) fn get(&self, id: &Token) -> Option<Arc<AccessKey>> {
        self.0.get(&Subject::Access { kind: AccessKind::Key, id: id.clone() })
    }

    /// The key of the owner of a certificate with these DNS names. A key that is valid comes before those that it replaced.
    pub(super) fn by_certificate(&self, names: &[String], now_ms: u64) -> Option<Arc<AccessKey>> {
        let keys = self.0.list().into_iter().filter(|key| match &key.proof {
            KeyProof::CertificateName(wanted) => names.iter().any(|name| name.eq_ignore_ascii_case(wanted)),
            KeyProof::Digest(_) => false,
        });
        keys.max_by_key(|key| key.standing(now_ms) == KeyStanding::Valid)
    }
}
