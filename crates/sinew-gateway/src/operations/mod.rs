//! The A2A operations on a mesh, independent of a transport: the interface shared by JSON-RPC and
//! REST.
//!
//! A call names an endpoint: the whole mesh, or one agent. The agent's own A2A endpoint on the mesh
//! does the work under the caller's name, so it decides what this caller may see. Streams of
//! workflows are read from the facts.

mod client_input;
mod decision;
mod linked_files;
mod listing;
pub(crate) mod message_files;
mod peer;
mod push_configs;
mod questions;
mod sending;
mod stream;
mod target;
mod task_events;
mod task_in_error;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sinew_agents::WebClient;
use sinew_executor::client::Client;
use sinew_mesh::card::Cards;
use sinew_mesh::trace::TraceParent;
use sinew_operations::catalogue::CatalogueIndex;
use sinew_operations::catalogue_records::CatalogueRecords;
use sinew_protocol::a2a::{
    A2aError, CancelTaskParams, CoreMethod, Task, TaskIdParams, TaskQueryParams, TaskState, is_terminal,
    trim_history,
};
use sinew_protocol::access::{AccessRole, KeyScope};
use sinew_protocol::jsonrpc::{error_of, raw};
use sinew_protocol::origin::EntryPoint;
use sinew_protocol::{ExecutionId, Fault, Token, code};

use tokio::sync::Semaphore;

use crate::access::CallerIdentity;
use crate::gateway_signer::GatewaySigner;
use crate::options::GatewayOptions;

use task_events::TaskEventHub;
use task_in_error::show_task_in_error;

pub(crate) use client_input::{AgentAnswer, AskedInput};
pub(crate) use peer::mesh_failed;
pub(crate) use questions::{OpenQuestion, QuestionAnswer};
pub use stream::{StreamItem, TaskStream};
pub(crate) use target::named_skill;
pub use target::{Endpoint, SKILL_EXTENSION};

/// Maximum length of a client's id, name or token that is processed.
const MAX_TEXT: usize = 512;
/// Maximum number of messages whose files are fetched concurrently.
const MAX_FETCHES: usize = 16;
/// Maximum number of executions whose workflow is cached.
const MAX_REMEMBERED: u64 = 10_000;

/// One call of an operation: its caller, and its endpoint.
#[derive(Clone, Debug)]
pub struct OperationCall {
    /// Caller, as subjects of the mesh name it.
    pub caller: Token,
    /// Groups of the caller, as the gateway authenticated it.
    pub groups: Arc<[String]>,
    /// Role of the caller.
    pub role: AccessRole,
    /// Id of the caller's key; `None` for a caller without key.
    pub key: Option<Token>,
    /// Entry point of the call.
    pub via: EntryPoint,
    /// Endpoint of the call.
    pub endpoint: Endpoint,
    /// Extensions that the client requested, by URI.
    pub extensions: Vec<String>,
    /// Trace of the request.
    pub trace: TraceParent,
    /// Number of the last event of a stream that the client has; `None` for a stream from the
    /// beginning.
    pub last_event: Option<u64>,
    /// Whether the caller uses A2A 0.3. Operations have the form of A2A 1.0 nevertheless; webhooks
    /// are notified in the version of their caller.
    pub is_old: bool,
}

/// Result of an operation.
#[derive(Debug)]
pub enum OperationReply {
    /// One JSON value.
    Value(Box<RawValue>),
    /// One JSON value without the data of agents that did not answer in time.
    Incomplete {
        /// The incomplete value.
        value: Box<RawValue>,
        /// Names of the agents that did not answer.
        unheard: Vec<String>,
    },
    /// Events until the task ends.
    Stream(TaskStream),
}

/// The A2A operations on a mesh, or on a part of it. Clones share state.
#[derive(Clone)]
pub struct A2aOperations {
    shared: Arc<OperationsState>,
    /// Patterns that names must match in addition to those of the gateway; `None` for every name.
    only: Option<Arc<[String]>>,
    /// Only this caller's executions are accessible; `None` for those of every caller.
    owner: Option<Token>,
}

struct OperationsState {
    client: Client,
    cards: Cards,
    catalogue: CatalogueIndex,
    /// What administrators set for entries of the catalogue.
    records: CatalogueRecords,
    logs: TaskEventHub,
    exposed: Vec<String>,
    default_agent: Option<String>,
    /// How long a blocking call waits for its task to end.
    blocking: Duration,
    /// How long an agent may leave a message unanswered before its task is looked up.
    agent_silence: Duration,
    slow_client: Duration,
    /// Client for webhooks of callers; `None` if they cannot be stored.
    webhooks: Option<WebClient>,
    /// Name of this gateway in the records of webhooks.
    gateway: Token,
    /// Verifies addresses of files; `None` for a gateway that does not sign.
    signer: Option<Arc<GatewaySigner>>,
    /// Permits for messages whose files are being fetched.
    fetches: Semaphore,
    /// Workflows of requested executions. An execution never changes its workflow.
    workflow_of: moka::sync::Cache<ExecutionId, Arc<str>>,
    /// Callers of requested executions; for a sub-workflow, the caller of the outermost execution.
    caller_of: moka::sync::Cache<ExecutionId, Token>,
}

/// Parameters whose member `tenant` is not parsed yet.
#[derive(serde::Deserialize)]
struct TenantParams {
    #[serde(default)]
    tenant: Option<String>,
}

impl A2aOperations {
    /// Creates the operations on the mesh of this client.
    pub fn new(client: Client, options: &GatewayOptions, records: CatalogueRecords) -> Self {
        Self::with_outside(client, options, records, None)
    }

    /// Creates the operations for callers who may configure webhooks and name files elsewhere, which
    /// this client reaches, or on gateways, which this signer proves.
    pub(crate) fn with_outside(
        client: Client,
        options: &GatewayOptions,
        records: CatalogueRecords,
        outside: Option<(WebClient, Arc<GatewaySigner>)>,
    ) -> Self {
        let (webhooks, signer) = outside.unzip();
        let shared = Arc::new(OperationsState {
            logs: TaskEventHub::new(client.clone()),
            cards: client.cards().clone(),
            catalogue: CatalogueIndex::default(),
            records,
            client,
            exposed: options.expose.clone(),
            default_agent: options.default_agent.clone(),
            blocking: options.limits.blocking,
            agent_silence: options.limits.agent_silence,
            slow_client: options.limits.slow_client,
            webhooks,
            gateway: Token::of(&uuid::Uuid::new_v4().simple().to_string()),
            signer,
            fetches: Semaphore::new(MAX_FETCHES),
            workflow_of: moka::sync::Cache::new(MAX_REMEMBERED),
            caller_of: moka::sync::Cache::new(MAX_REMEMBERED),
        });
        Self { shared, only: None, owner: None }
    }

    /// Limits the operations to what a caller may see: the workflows and agents that match its
    /// patterns, and the executions of its scope.
    pub(crate) fn limited_to(&self, caller: &CallerIdentity) -> Self {
        let is_whole = caller.patterns.iter().any(|pattern| pattern == "*");
        let only = (!is_whole).then(|| Arc::clone(&caller.patterns));
        let owner = (caller.scope == KeyScope::Own).then(|| caller.token.clone());
        Self { shared: Arc::clone(&self.shared), only, owner }
    }

    /// Returns the client of the mesh, under the gateway's own name.
    pub(crate) fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Returns the name of this gateway in the records of webhooks.
    pub(crate) fn gateway(&self) -> &Token {
        &self.shared.gateway
    }

    /// Returns the mesh's namespace.
    pub fn mesh_namespace(&self) -> &str {
        self.shared.client.mesh().namespace()
    }

    /// Returns whether the events of a task are stored, so that they can be read again.
    pub(crate) fn stores_events_of(&self, agent: &str) -> bool {
        self.is_workflow(&self.served_name(agent))
    }

    /// Returns whether callers may configure webhooks for their tasks.
    pub(crate) fn pushes(&self) -> bool {
        self.shared.webhooks.is_some()
    }

    /// Performs an operation. `params` is a JSON object, parsed as the operation's own type.
    pub async fn perform(
        &self,
        call: &OperationCall,
        method: CoreMethod,
        params: &RawValue,
    ) -> Result<OperationReply, A2aError> {
        self.check_call(call, method, params)?;
        let answered = Box::pin(self.answer(call, method, params)).await;
        answered.map_err(|error| show_task_in_error(call, params, error))
    }

    /// Rejects a call that exceeds the caller's role, or names another tenant.
    pub(crate) fn check_call(
        &self,
        call: &OperationCall,
        method: CoreMethod,
        params: &RawValue,
    ) -> Result<(), A2aError> {
        check_role(call, method)?;
        self.check_tenant(params)
    }

    async fn answer(
        &self,
        call: &OperationCall,
        method: CoreMethod,
        params: &RawValue,
    ) -> Result<OperationReply, A2aError> {
        let value = OperationReply::Value;
        match method {
            CoreMethod::SendMessage => Box::pin(self.send(call, read_params(params)?)).await.map(value),
            CoreMethod::SendStreamingMessage => {
                Box::pin(self.send_streaming(call, read_params(params)?)).await.map(OperationReply::Stream)
            }
            CoreMethod::GetTask => self.get(call, read_params(params)?).await.map(value),
            CoreMethod::ListTasks => {
                let listing::TaskList { page, unheard } = self.list(call, read_params(params)?).await?;
                if unheard.is_empty() {
                    return Ok(value(raw(&page)));
                }
                Ok(OperationReply::Incomplete { value: raw(&page), unheard })
            }
            CoreMethod::CancelTask => self.cancel(call, read_params(params)?).await.map(value),
            CoreMethod::SubscribeToTask => {
                let params: TaskIdParams = read_params(params)?;
                self.subscribe(call, &params.id).await.map(OperationReply::Stream)
            }
            CoreMethod::CreateTaskPushNotificationConfig => {
                self.create_push(call, read_params(params)?).await.map(value)
            }
            CoreMethod::GetTaskPushNotificationConfig => {
                self.get_push(call, read_params(params)?).await.map(value)
            }
            CoreMethod::ListTaskPushNotificationConfigs => {
                self.list_pushes(call, read_params(params)?).await.map(value)
            }
            CoreMethod::DeleteTaskPushNotificationConfig => {
                self.delete_push(call, read_params(params)?).await.map(value)
            }
            CoreMethod::GetExtendedAgentCard => Err(A2aError::extended_card_not_configured(
                "the public card is the complete card for every caller",
            )),
            other => Err(A2aError::unsupported_operation(other.wire_name())),
        }
    }

    /// A mesh is one tenant, named by its namespace. Another tenant is reported like an unknown
    /// task.
    pub(crate) fn check_tenant(&self, params: &RawValue) -> Result<(), A2aError> {
        let TenantParams { tenant } = read_params(params)?;
        match tenant.as_deref() {
            None | Some("") => Ok(()),
            Some(tenant) if tenant == self.shared.client.mesh().namespace() => Ok(()),
            Some(tenant) => Err(A2aError::invalid_params(format!(
                "tenant: {:?} is not a tenant of the gateway",
                short(tenant, 64)
            ))),
        }
    }

    async fn get(&self, call: &OperationCall, params: TaskQueryParams) -> Result<Box<RawValue>, A2aError> {
        let place = self.locate(call, &params.id).await?;
        let mut task = self.task_of_peer(call, &place).await?.task;
        trim_history(&mut task, params.history_length);
        place.show(&mut task);
        Ok(raw(&task))
    }

    async fn cancel(
        &self,
        call: &OperationCall,
        params: CancelTaskParams,
    ) -> Result<Box<RawValue>, A2aError> {
        let place = self.locate(call, &params.id).await?;
        let wanted = CancelTaskParams { tenant: None, id: place.id.clone(), metadata: params.metadata };
        let cancelled = self.ask_for_task(call, &place, CoreMethod::CancelTask, &wanted).await;
        let mut task: Task = match cancelled {
            Ok(reply) => reply.read()?,
            // If the response to a cancellation was lost, its effect shows that it succeeded.
            Err(error) => match self.task_of_peer(call, &place).await {
                Ok(found) if found.task.status.state == TaskState::Canceled && error.was_repeated => {
                    found.task
                }
                _ => return Err(error.into()),
            },
        };
        place.show(&mut task);
        Ok(raw(&task))
    }
}

/// Returns the role that an operation needs.
pub(crate) fn role_for(method: CoreMethod) -> AccessRole {
    match method {
        CoreMethod::GetTask
        | CoreMethod::ListTasks
        | CoreMethod::SubscribeToTask
        | CoreMethod::GetTaskPushNotificationConfig
        | CoreMethod::ListTaskPushNotificationConfigs
        | CoreMethod::GetExtendedAgentCard => AccessRole::Operator,
        _ => AccessRole::Client,
    }
}

/// Rejects an operation that exceeds the caller's role.
fn check_role(call: &OperationCall, method: CoreMethod) -> Result<(), A2aError> {
    let needed = role_for(method);
    if call.role >= needed {
        return Ok(());
    }
    let text = format!("{} requires a key with the role {}", method.wire_name(), needed.as_str());
    Err(error_of(&Fault::invalid(code::GATEWAY_CALLER_NOT_ALLOWED.as_str(), text)))
}

/// Returns whether a blocking call returns a task in this state.
fn is_settled(state: TaskState) -> bool {
    is_terminal(state) || matches!(state, TaskState::InputRequired | TaskState::AuthRequired)
}

pub(crate) fn read_params<T: DeserializeOwned>(params: &RawValue) -> Result<T, A2aError> {
    serde_json::from_str(params.get())
        .map_err(|error| A2aError::invalid_params(short(&error.to_string(), 300)))
}

/// A value under the name of its kind, as in `SendMessageResponse` and `StreamResponse`.
#[derive(Serialize)]
struct NamedTask<'a> {
    task: &'a Task,
}

fn named_task(task: &Task) -> Box<RawValue> {
    raw(&NamedTask { task })
}

/// Truncates a client's text and removes control characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

impl std::fmt::Debug for A2aOperations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("A2aOperations").field("client", &self.shared.client).finish_non_exhaustive()
    }
}
