//! Webhook triggers of gateways: deploy, list and remove.

use std::path::Path;

use bytes::Bytes;
use serde::Serialize;
use sinew_files::read_text_file;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::subject::AccessKind;
use sinew_protocol::webhook::WebhookTrigger;
use sinew_protocol::{Subject, Token, code};

use crate::failure::{Failure, FailureKind};

/// Maximum size of a secret file.
const MAX_SECRET_BYTES: u64 = 4_096;

/// A trigger as listed, without its secret.
#[derive(Clone, Debug, Serialize)]
pub struct HookRow {
    /// Name in the address.
    pub name: String,
    /// Path at each gateway.
    pub path: String,
    /// Workflow that is started.
    pub workflow: String,
    /// Signature scheme of the requests.
    pub scheme: &'static str,
    /// Members of the input, each with the JSON pointer of its value in the body.
    pub input: std::collections::BTreeMap<String, String>,
    /// When it was deployed, milliseconds since 1970 UTC.
    pub created_at: u64,
    /// User who deployed it.
    pub created_by: String,
}

impl HookRow {
    fn of(trigger: &WebhookTrigger) -> Self {
        Self {
            name: trigger.name.to_string(),
            path: format!("/hooks/{}", trigger.name),
            workflow: trigger.workflow.clone(),
            scheme: trigger.scheme.as_str(),
            input: trigger.input.clone(),
            created_at: trigger.created_at,
            created_by: trigger.created_by.clone(),
        }
    }
}

fn subject_of(name: &Token) -> Subject {
    Subject::Access { kind: AccessKind::Hook, id: name.clone() }
}

/// Reads a secret from a file.
pub fn read_secret(path: &Path) -> Result<String, Failure> {
    read_text_file(path, MAX_SECRET_BYTES).map_err(|error| Failure::unread(path, &error))
}

/// Deploys a trigger, replacing one with the same name.
pub async fn deploy_hook(mesh: &Mesh, trigger: WebhookTrigger) -> Result<HookRow, Failure> {
    trigger.check().map_err(Failure::usage)?;
    let deployed = mesh.workflows().latest(&trigger.workflow).await?;
    if deployed.is_none() {
        let text = format!("workflow {:?} not found", trigger.workflow);
        return Err(Failure::new(FailureKind::NotFound, code::WEBHOOK_UNKNOWN.as_str(), text)
            .hint("deploy it first: sinew workflow deploy FILE"));
    }
    let body = serde_json::to_vec(&trigger)
        .map_err(|error| MeshError::Malformed { what: "a webhook trigger", reason: error.to_string() })?;
    mesh.records().access().put(&subject_of(&trigger.name), Bytes::from(body), None).await?;
    Ok(HookRow::of(&trigger))
}

/// Returns all triggers by name.
pub async fn list_hooks(mesh: &Mesh) -> Result<Vec<HookRow>, Failure> {
    let stored = mesh.records().access().list(&["access", "hook"]).await?;
    let read = stored.into_iter().filter_map(|(subject, record)| {
        let Some(Subject::Access { id, .. }) = Subject::parse(mesh.namespace(), &subject) else {
            return None;
        };
        WebhookTrigger::read(&id, &record.body).ok()
    });
    Ok(read.map(|trigger| HookRow::of(&trigger)).collect())
}

/// Removes a trigger. Gateways reject requests to its address shortly afterwards.
pub async fn remove_hook(mesh: &Mesh, name: &str) -> Result<HookRow, Failure> {
    let row = list_hooks(mesh).await?.into_iter().find(|row| row.name == name);
    let row = row.ok_or_else(|| {
        let text = format!("webhook trigger {name:?} not found");
        Failure::new(FailureKind::NotFound, code::WEBHOOK_UNKNOWN.as_str(), text)
            .hint("see `sinew gateway hook list`")
    })?;
    mesh.records().access().put(&subject_of(&Token::of(name)), Bytes::new(), None).await?;
    Ok(row)
}
