//! Last uses of keys, recorded on the mesh so that unused keys can be found.

use bytes::Bytes;
use dashmap::DashMap;
use sinew_mesh::{Mesh, log_limited};
use sinew_protocol::access::KeyUse;
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token};

/// Time between two records of a key, in milliseconds.
const RECORD_INTERVAL_MS: u64 = 10 * 60 * 1_000;

/// Records the last uses of keys.
pub(super) struct KeyUses {
    mesh: Mesh,
    recorded: DashMap<Token, u64>,
}

impl KeyUses {
    pub(super) fn new(mesh: &Mesh) -> Self {
        Self { mesh: mesh.clone(), recorded: DashMap::new() }
    }

    /// Records a use of a key in the background, unless a recent one is recorded.
    pub(super) fn note(&self, id: &Token, now_ms: u64) {
        {
            let mut last = self.recorded.entry(id.clone()).or_insert(0);
            if now_ms.saturating_sub(*last) < RECORD_INTERVAL_MS {
                return;
            }
            *last = now_ms;
        }
        let (mesh, id) = (self.mesh.clone(), id.clone());
        tokio::spawn(async move {
            let subject = Subject::Access { kind: AccessKind::Use, id };
            let body = serde_json::to_vec(&KeyUse { at: now_ms }).unwrap_or_default();
            if let Err(error) = mesh.records().access().put(&subject, Bytes::from(body), None).await {
                log_limited!(info, %error, "cannot record the last use of a key");
            }
        });
    }
}
