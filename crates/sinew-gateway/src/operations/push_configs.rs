//! Webhooks that callers configure for their tasks: stored on the mesh, so that any gateway
//! delivers.

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sinew_mesh::record::StoredRecord;
use sinew_protocol::a2a::{
    A2aError, DeletePushConfigParams, ErrorCode, GetPushConfigParams, ListPushConfigsParams,
    TaskPushNotificationConfig, check_push_config,
};
use sinew_protocol::artifact::sha256;
use sinew_protocol::jsonrpc::{error_of, raw};
use sinew_protocol::push::PushSubscription;
use sinew_protocol::{Fault, Subject, Token, code};

use super::peer::mesh_failed;
use super::target::TaskLocation;
use super::{A2aOperations, Endpoint, MAX_TEXT, OperationCall, short};
use crate::push_address::webhook_problem;

/// Maximum number of webhooks per task.
const MAX_CONFIGS: usize = 16;
/// Maximum length of an address, and of credentials.
const MAX_URL: usize = 2_048;
const MAX_CREDENTIALS: usize = 8_192;

/// How a config was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushOrigin {
    /// In its own request: a webhook whose delivery was abandoned starts again.
    Request,
    /// With a message, which may be repeated: an existing webhook is unchanged, even if it has
    /// ended.
    Message,
}

impl A2aOperations {
    /// Stores a webhook for a task of the caller, replacing one with the same id.
    pub(super) async fn create_push(
        &self,
        call: &OperationCall,
        config: TaskPushNotificationConfig,
    ) -> Result<Box<RawValue>, A2aError> {
        let shown = config.task_id.clone().filter(|id| !id.is_empty());
        let shown = shown.ok_or_else(|| A2aError::invalid_params("taskId: expected a task id"))?;
        let place = self.locate(call, &shown).await?;
        // The agent decides whether this caller may see the task.
        self.task_of_peer(call, &place).await?;
        self.store_push(call, &place, (&shown, PushOrigin::Request), config).await
    }

    /// Stores a webhook for a task that the caller may see.
    pub(super) async fn store_push(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        (shown, origin): (&str, PushOrigin),
        mut config: TaskPushNotificationConfig,
    ) -> Result<Box<RawValue>, A2aError> {
        self.check_push(&config)?;
        let others = self.pushes_of(call, place).await?;
        let id = config.id.take().filter(|id| !id.is_empty());
        // A repeated message must not create another webhook.
        let id = id.unwrap_or_else(|| derived_id(call, place, &config.url));
        let known = others.iter().map(|(known, _)| known).find(|known| known.config["id"] == id.as_str());
        if known.is_none() && others.len() >= MAX_CONFIGS {
            return Err(A2aError::invalid_params(format!(
                "a task can have at most {MAX_CONFIGS} push notification configs"
            )));
        }
        (config.id, config.task_id, config.tenant) = (Some(id.clone()), Some(shown.to_owned()), None);
        let config = serde_json::to_value(&config).map_err(|error| A2aError::internal(error.to_string()))?;
        if let Some(known) = known
            && known.config == config
            && (origin == PushOrigin::Message || !known.ended)
        {
            return Ok(raw(&known.config));
        }
        let record = PushSubscription {
            caller: call.caller.clone(),
            key: call.key.clone(),
            agent: place.agent.to_string(),
            task: place.id.clone(),
            shown_task: shown.to_owned(),
            is_mesh_endpoint: call.endpoint == Endpoint::Mesh,
            is_old: call.is_old,
            accepted_by: Some(self.shared.gateway.clone()),
            config,
            // Deliveries start with the first event, because the task may already have ended.
            delivered: 0,
            attempts: 0,
            unread: 0,
            not_before: 0,
            ended: false,
            lease: None,
        };
        let body = serde_json::to_vec(&record).map_err(|error| A2aError::internal(error.to_string()))?;
        let subject = push_subject(place, &id);
        let stored = self.shared.client.mesh().records().pushes().put(&subject, Bytes::from(body), None);
        stored.await.map_err(|error| mesh_failed(&error))?;
        Ok(raw(&record.config))
    }

    /// Rejects a webhook that could not be delivered to, or not safely.
    pub(super) fn check_push(&self, config: &TaskPushNotificationConfig) -> Result<(), A2aError> {
        let Some(web) = &self.shared.webhooks else {
            let text =
                "the gateway cannot store push notification configs; its user requires the role gateway";
            return Err(A2aError::push_not_supported(text));
        };
        check_push_config(config)?;
        let bad = |text: String| {
            let fault = Fault::invalid(code::PUSH_ADDRESS_REFUSED.as_str(), text);
            error_of(&fault)
        };
        if config.url.len() > MAX_URL {
            return Err(bad(format!("url: more than {MAX_URL} bytes")));
        }
        let long = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > MAX_CREDENTIALS);
        let credentials = config.authentication.as_ref().and_then(|given| given.credentials.clone());
        if long(&config.token)
            || long(&credentials)
            || config.id.as_ref().is_some_and(|id| id.len() > MAX_TEXT)
        {
            return Err(bad("id, token or credentials: too long".to_owned()));
        }
        let scheme = config.authentication.as_ref().map(|given| given.scheme.as_str()).unwrap_or_default();
        let is_plain = |text: &str| text.chars().all(|c| !c.is_control() && c.is_ascii());
        if !is_plain(scheme)
            || ![&config.token, &credentials].into_iter().flatten().all(|text| is_plain(text))
        {
            return Err(bad("token and credentials: expected one line of ASCII".to_owned()));
        }
        web.check(&config.url).map_err(|error| bad(format!("url: {}", webhook_problem(&error))))
    }

    pub(super) async fn get_push(
        &self,
        call: &OperationCall,
        params: GetPushConfigParams,
    ) -> Result<Box<RawValue>, A2aError> {
        let place = self.locate(call, &params.task_id).await?;
        let (record, _) = self.own_push(call, &place, &params.id).await?;
        Ok(raw(&record.config))
    }

    pub(super) async fn list_pushes(
        &self,
        call: &OperationCall,
        params: ListPushConfigsParams,
    ) -> Result<Box<RawValue>, A2aError> {
        let place = self.locate(call, &params.task_id).await?;
        self.task_of_peer(call, &place).await?;
        let configs: Vec<Value> =
            self.pushes_of(call, &place).await?.into_iter().map(|(record, _)| record.config).collect();
        Ok(raw(&json!({"configs": configs, "nextPageToken": ""})))
    }

    pub(super) async fn delete_push(
        &self,
        call: &OperationCall,
        params: DeletePushConfigParams,
    ) -> Result<Box<RawValue>, A2aError> {
        let place = self.locate(call, &params.task_id).await?;
        match self.own_push(call, &place, &params.id).await {
            Ok(_) => {}
            // The webhook is already deleted; the agent still decides whether the caller may see
            // the task.
            Err(error) if error.code == ErrorCode::TaskNotFound => {
                self.task_of_peer(call, &place).await?;
                return Ok(raw(&json!({})));
            }
            Err(error) => return Err(error),
        }
        let subject = push_subject(&place, &params.id);
        let gone = self.shared.client.mesh().records().pushes().put(&subject, Bytes::new(), None);
        gone.await.map_err(|error| mesh_failed(&error))?;
        Ok(raw(&json!({})))
    }

    /// Returns a webhook of the caller.
    async fn own_push(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        id: &str,
    ) -> Result<(PushSubscription, u64), A2aError> {
        // The specification has one code for an unknown task and an unknown config.
        let absent = || {
            let text = format!("Push notification config not found: {}", short(id, 64));
            A2aError::new(ErrorCode::TaskNotFound, text)
        };
        self.check_readable()?;
        let stored = self.shared.client.mesh().records().pushes().get(&push_subject(place, id)).await;
        let stored = stored.map_err(|error| mesh_failed(&error))?.ok_or_else(absent)?;
        read(&stored).filter(|(record, _)| record.caller == call.caller).ok_or_else(absent)
    }

    /// Returns the caller's webhooks for a task.
    async fn pushes_of(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
    ) -> Result<Vec<(PushSubscription, u64)>, A2aError> {
        self.check_readable()?;
        let (agent, task) = (Token::of(&place.agent), Token::of(&place.id));
        let stored =
            self.shared.client.mesh().records().pushes().list(&["push", agent.as_str(), task.as_str()]).await;
        let stored = stored.map_err(|error| mesh_failed(&error))?;
        Ok(stored.values().filter_map(read).filter(|(record, _)| record.caller == call.caller).collect())
    }

    fn check_readable(&self) -> Result<(), A2aError> {
        if self.shared.webhooks.is_some() {
            return Ok(());
        }
        Err(A2aError::push_not_supported("the user of the gateway requires the role gateway"))
    }
}

/// Derives the id of a config without one from task, caller and address.
fn derived_id(call: &OperationCall, place: &TaskLocation, url: &str) -> String {
    let parts = [place.agent.as_ref(), place.id.as_str(), call.caller.as_str(), url];
    sha256(parts.join("\n").as_bytes())[..32].to_owned()
}

fn push_subject(place: &TaskLocation, id: &str) -> Subject {
    Subject::Push { agent: Token::of(&place.agent), task: Token::of(&place.id), id: Token::of(id) }
}

fn read(stored: &StoredRecord) -> Option<(PushSubscription, u64)> {
    Some((PushSubscription::read(&stored.body).ok()?, stored.revision))
}
