//! The deployed webhook triggers.

use std::sync::Arc;

use sinew_mesh::record::RecordView;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::subject::AccessKind;
use sinew_protocol::webhook::WebhookTrigger;
use sinew_protocol::{Subject, Token};

/// Leading tokens of the triggers' subjects.
const HOOK_TOKENS: [&str; 2] = ["access", "hook"];

/// The webhook triggers of a mesh as a live view.
pub(crate) struct WebhookTriggers(RecordView<WebhookTrigger>);

impl WebhookTriggers {
    /// Subscribes to the triggers of a mesh. Fails without permission to read them.
    pub(crate) async fn open(mesh: &Mesh) -> Result<Self, MeshError> {
        mesh.records().access().list(&HOOK_TOKENS).await?;
        let view = mesh.records().access().follow(&HOOK_TOKENS, |subject, stored| {
            let Subject::Access { id, .. } = subject else { return None };
            let read = WebhookTrigger::read(id, &stored.body);
            read.inspect_err(|error| tracing::warn!(hook = id.as_str(), %error, "skipping a webhook trigger"))
                .ok()
        });
        view.ready().await;
        Ok(Self(view))
    }

    /// Returns the trigger with this name, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The view does not contain the trigger, and the mesh does not confirm that the view is
    /// current.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Arc<WebhookTrigger>>, MeshError> {
        let Ok(id) = Token::parse(name) else { return Ok(None) };
        self.0.find(&Subject::Access { kind: AccessKind::Hook, id }).await
    }
}
