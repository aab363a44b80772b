//! The MCP server: lists, calls, resources and tasks of one client.

#![expect(deprecated, reason = "clients of today set the level of logs")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::request::Parts;
use data_encoding::BASE64;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam,
    CompleteRequestParams, CompleteResult, CompletionInfo, CustomRequest, CustomResult, ErrorCode, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference,
    RequestId, Resource, ResourceContents, ResourceTemplate, ResourceUpdatedNotificationParam,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use serde_json::{Value, json};
use sinew_mesh::trace::TraceParent;
use sinew_protocol::Fault;
use sinew_protocol::a2a::{
    A2aError, AgentCard, CoreMethod, ErrorCode as A2aErrorCode, Task, TaskListResponse,
};
use sinew_protocol::artifact::StoredAt;
use sinew_protocol::code;
use sinew_protocol::jsonrpc::raw;
use sinew_protocol::mcp_offer::{McpOffer, OfferKind};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::agent_call::{AgentCall, CallError, CallOutcome, CallRequest, begun_at};
use super::bad_params::refused_params;
use super::client_abilities::{ClientAbilities, LogSeverity};
use super::client_input::{GivenInput, given_input, requests_of};
use super::list_changes::{serve_subscription, tell_lists};
use super::long_lines::{OVERSIZED, oversized};
use super::offer_output::OfferOutput;
use super::offers::{OfferLists, card_of, completions_of, find_card, find_resource};
use super::open_calls::{ConnectedCall, OpenCall, OpenCalls, cancel_task};
use super::resource_uri::{ARTIFACT_TEMPLATE, ResourceLocation, TASK_TEMPLATE, task_uri};
use super::resource_watch::ResourceWatch;
use super::shared_state::McpShared;
use super::tool_list::{input_of, tool_of};
use super::tool_result::{
    coded_error, detailed_task, error_of, failure, refusal, result_of_message, result_of_task, unknown_offer,
    unknown_resource,
};
use super::tool_search::ToolRequest;
use super::{MESSAGE_ID_META, TASK_META};
use crate::access::CallerIdentity;
use crate::operations::{A2aOperations, Endpoint, OperationCall, OperationReply, short};
use crate::tool_mode::ToolMode;

/// Page size of lists.
const ENTRIES_PER_PAGE: usize = 500;
/// Milliseconds for which clients may cache a list.
const LIST_TTL_MS: u64 = 5_000;
/// Maximum number of resource subscriptions per client.
const MAX_WATCHED: usize = 64;
/// Maximum size of an artifact that a client can read.
const MAX_RESOURCE_BYTES: usize = 1 << 20;

/// Resource subscriptions of a client, by address. Dropping an entry ends its subscription.
type WatchedResources = Mutex<HashMap<String, AbortOnDropHandle<()>>>;

/// The server of one client.
#[derive(Clone, Debug)]
pub(crate) struct McpHandler {
    shared: Arc<McpShared>,
    calls: OpenCalls,
    /// Whether this client is already notified of changed lists; `initialized` may be repeated.
    is_told: Arc<AtomicBool>,
    /// Minimum severity of messages that the client reads; `None` until it sets one.
    log: Arc<Mutex<Option<LogSeverity>>>,
    watched: Arc<WatchedResources>,
    /// Cancelled when the client has disconnected.
    gone: CancellationToken,
    _gone_guard: Arc<DropGuard>,
}

impl McpHandler {
    pub(super) fn new(shared: Arc<McpShared>) -> Self {
        let gone = CancellationToken::new();
        let guard = Arc::new(gone.clone().drop_guard());
        Self {
            shared,
            calls: OpenCalls::default(),
            is_told: Arc::default(),
            log: Arc::default(),
            watched: Arc::default(),
            gone,
            _gone_guard: guard,
        }
    }

    /// Returns the caller that the guard identified, or the one of the pipes.
    fn caller<'a>(
        &'a self,
        context: &'a RequestContext<RoleServer>,
    ) -> Result<&'a CallerIdentity, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let caller = parts.and_then(|parts| CallerIdentity::of(&parts.extensions));
        caller.or(self.shared.pipe_caller.as_ref()).ok_or_else(|| {
            let code = code::GATEWAY_CALLER_UNKNOWN.as_str();
            coded_error(ErrorCode::INVALID_REQUEST, code, "the request has no caller", false)
        })
    }

    /// Returns the operations on what the caller of a request may see.
    fn operations(&self, context: &RequestContext<RoleServer>) -> Result<A2aOperations, ErrorData> {
        Ok(self.shared.operations.limited_to(self.caller(context)?))
    }

    /// Returns what the tool list of a client contains.
    fn tool_mode(&self, context: &RequestContext<RoleServer>) -> ToolMode {
        let parts = context.extensions.get::<Parts>();
        let selected = parts.and_then(|parts| ToolMode::of_address(&parts.uri));
        selected.unwrap_or_else(|| self.shared.tools.clone())
    }

    /// Builds an operation call for a request.
    fn operation_call(&self, context: &RequestContext<RoleServer>) -> Result<OperationCall, ErrorData> {
        let caller = self.caller(context)?;
        let trace = context.meta.0.get_traceparent().and_then(|text| text.parse::<TraceParent>().ok());
        Ok(OperationCall {
            caller: caller.token.clone(),
            groups: Arc::clone(&caller.groups),
            role: caller.role,
            key: caller.key.clone(),
            via: sinew_protocol::origin::EntryPoint::Mcp,
            endpoint: Endpoint::Mesh,
            extensions: Vec::new(),
            trace: trace.map_or_else(TraceParent::fresh, TraceParent::child),
            last_event: None,
            is_old: false,
        })
    }

    /// Calls an agent or workflow for a request of this client, which may cancel the request.
    async fn call_agent(
        &self,
        operations: &A2aOperations,
        card: AgentCard,
        request: CallRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallOutcome, CallError> {
        let log = *self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let call = self.operation_call(context).map_err(CallError::Protocol)?;
        let is_tool = McpOffer::of(&card).kind == OfferKind::Tool;
        let call = AgentCall::new(operations, call, card, log, context).map_err(CallError::Protocol)?;
        // Only tool calls become tasks.
        let call = if is_tool { call } else { call.without_tasks() };
        let task = match request.state.as_deref().and_then(|state| state.rsplit_once('~')) {
            Some((task, _)) => task.to_owned(),
            None => call.task.clone(),
        };
        let id: RequestId = context.id.clone();
        let stopped = gateway_stops(&task, &call.message_id);
        let open = OpenCall { operations: operations.clone(), call: call.call.clone(), task };
        let connected = ConnectedCall::of(context, call.is_found_again, &open);
        let entry = self.calls.note(id, open);
        let outcome = tokio::select! {
            biased;
            outcome = Box::pin(call.answer(request)) => outcome,
            // The client cancelled or disconnected. In sessions and over pipes only an explicit
            // cancellation cancels the task.
            () = context.ct.cancelled() => {
                entry.leave();
                let text = "the request was cancelled";
                return Err(CallError::Protocol(ErrorData::internal_error(text, None)));
            }
            () = self.shared.drain.calls.cancelled() => Err(CallError::Protocol(stopped)),
        };
        connected.answered();
        outcome
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_task(
        &self,
        operations: &A2aOperations,
        call: &OperationCall,
        uri: String,
        id: &str,
    ) -> Result<ResourceContents, A2aError> {
        let (_, task) = operations.find_task(call, id).await?;
        let text = raw(&task).get().to_owned();
        Ok(ResourceContents::text(text, uri).with_mime_type("application/json"))
    }

    /// Returns a page of the caller's tasks, and the cursor of the next one.
    async fn task_page(
        &self,
        cursor: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(Vec<Task>, Option<String>), ErrorData> {
        let params = raw(&json!({"pageToken": cursor}));
        let (operations, call) = (self.operations(context)?, self.operation_call(context)?);
        let reply = operations.perform(&call, CoreMethod::ListTasks, &params).await;
        let page: TaskListResponse = match reply.map_err(|error| error_of(&error))? {
            OperationReply::Value(value) | OperationReply::Incomplete { value, .. } => {
                serde_json::from_str(value.get()).ok()
            }
            OperationReply::Stream(_) => None,
        }
        .ok_or_else(|| ErrorData::internal_error("cannot read the list of tasks", None))?;
        Ok((page.tasks, Some(page.next_page_token).filter(|token| !token.is_empty())))
    }

    /// Reads an agent's resource: calls the agent with the variables of the address.
    async fn read_offered(
        &self,
        operations: &A2aOperations,
        request: ReadResourceRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let found = find_resource(operations, &request.uri).await.map_err(|error| error_of(&error))?;
        let found = found.ok_or_else(|| unknown_resource(&request.uri))?;
        let call = CallRequest {
            input: Ok(Value::Object(found.variables)),
            state: request.request_state,
            responses: request.input_responses,
        };
        let outcome = self.call_agent(operations, found.card, call, context).await;
        let output = OfferOutput::of(operations, outcome).await?;
        if let OfferOutput::InputRequired(required) = output {
            return Ok(required.into());
        }
        let media_type = found.offer.media_type.as_deref();
        Ok(ReadResourceResult::new(output.contents(&request.uri, media_type, MAX_RESOURCE_BYTES)?).into())
    }

    async fn read_artifact(
        &self,
        operations: &A2aOperations,
        call: &OperationCall,
        uri: String,
        address: &StoredAt,
    ) -> Result<ResourceContents, A2aError> {
        let bytes = operations.artifact_bytes(call, address, MAX_RESOURCE_BYTES).await?;
        let name = address.uri.artifact.name.as_str();
        Ok(match String::from_utf8(bytes.to_vec()) {
            Ok(text) if name.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case("json")) => {
                ResourceContents::text(text, uri).with_mime_type("application/json")
            }
            Ok(text) => ResourceContents::text(text, uri),
            Err(error) => ResourceContents::blob(BASE64.encode(error.as_bytes()), uri),
        })
    }
}

/// Returns a page of entries, sorted by name, and the cursor of the next one.
fn page_of<T>(
    entries: Vec<T>,
    request: Option<PaginatedRequestParams>,
    name: impl Fn(&T) -> &str,
) -> (Vec<T>, Option<String>) {
    let after = request.and_then(|request| request.cursor);
    let begin = after.map_or(0, |after| entries.partition_point(|entry| name(entry) <= after.as_str()));
    let is_last = entries.len() <= begin + ENTRIES_PER_PAGE;
    let page: Vec<T> = entries.into_iter().skip(begin).take(ENTRIES_PER_PAGE).collect();
    let next = page.last().filter(|_| !is_last).map(|entry| name(entry).to_owned());
    (page, next)
}

/// Error of a call interrupted by a shutdown; its ids let the client continue elsewhere.
fn gateway_stops(task: &str, message_id: &str) -> ErrorData {
    let text = format!(
        "the gateway is shutting down and the task {task:?} continues; repeat the call with the same {MESSAGE_ID_META:?}, or read {}",
        task_uri(task)
    );
    let code = code::NO_ANSWER_ON_MESH.as_str();
    let data = json!({"code": code, "retryable": true, TASK_META: task, MESSAGE_ID_META: message_id});
    ErrorData::new(ErrorCode::INTERNAL_ERROR, text, Some(data))
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let mut abilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_tasks()
            .build();
        abilities.logging = Some(serde_json::Map::new());
        let instructions = format!(
            "The tools are workflows and agents of the mesh {}. A workflow continues when its client disconnects: \
             its task is the resource {TASK_TEMPLATE}.",
            self.shared.operations.mesh_namespace()
        );
        ServerConfig::new(abilities)
            .with_server_info(Implementation::new("sinew", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        if method == OVERSIZED {
            return Err(oversized(params.as_ref()));
        }
        let version = context.protocol_version();
        let unknown = || ErrorData::new(ErrorCode::METHOD_NOT_FOUND, short(&method, 64), None);
        Err(refused_params(version.as_ref(), &method, params.as_ref()).unwrap_or_else(unknown))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let operations = self.operations(&context)?;
        let records = operations.records();
        let is_pinned = |tool: &Tool| {
            let card = card_of(&operations, OfferKind::Tool, &tool.name);
            card.is_some_and(|card| records.pins(&card))
        };
        let tools = OfferLists::of(&operations).tools;
        let tools = self.tool_mode(&context).list(tools, is_pinned);
        let (page, next_cursor) = page_of(tools, request, |tool| &tool.name);
        let mut list = ListToolsResult::with_all_items(page).with_ttl_ms(LIST_TTL_MS);
        list.next_cursor = next_cursor;
        Ok(list)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        card_of(&self.shared.operations, OfferKind::Tool, name).map(|card| tool_of(&card))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let operations = self.operations(&context)?;
        let request = match ToolRequest::of(&operations, &self.tool_mode(&context), request) {
            ToolRequest::Answer(result) => return Ok((*result).into()),
            ToolRequest::Call(request) => *request,
        };
        let found = find_card(&operations, OfferKind::Tool, &request.name).await;
        let Some(card) = found.map_err(|error| error_of(&error))? else {
            return Err(unknown_offer("tool", &request.name));
        };
        let request = CallRequest {
            input: input_of(&card, request.arguments.unwrap_or_default()),
            state: request.request_state,
            responses: request.input_responses,
        };
        match self.call_agent(&operations, card, request, &context).await {
            Ok(CallOutcome::Message(message)) => Ok(result_of_message(&message).into()),
            Ok(CallOutcome::Task(mut task, asked)) => {
                self.shared.show_files(&operations, &mut task).await;
                Ok(result_of_task(&task, &asked, self.shared.console.as_deref()).into())
            }
            Ok(CallOutcome::Begun(begun)) => Ok(begun.into()),
            Ok(CallOutcome::InputRequired(required)) => Ok(required.into()),
            Ok(CallOutcome::BadInput(text)) => {
                let code = code::TASK_INPUT_BREAKS_AGENT_INPUT_SCHEMA.as_str();
                Ok(failure(&Fault::invalid(code, text), None).into())
            }
            Err(CallError::Refused(error)) => refusal(&error).map(Into::into),
            Err(CallError::Protocol(error)) => Err(error),
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = OfferLists::of(&self.operations(&context)?).prompts;
        let (page, next_cursor) = page_of(prompts, request, |prompt| &prompt.name);
        let mut list = ListPromptsResult::with_all_items(page).with_ttl_ms(LIST_TTL_MS);
        list.next_cursor = next_cursor;
        Ok(list)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let operations = self.operations(&context)?;
        let found = find_card(&operations, OfferKind::Prompt, &request.name).await;
        let Some(card) = found.map_err(|error| error_of(&error))? else {
            return Err(unknown_offer("prompt", &request.name));
        };
        let description = Some(card.description.clone()).filter(|text| !text.is_empty());
        let request = CallRequest {
            input: Ok(Value::Object(request.arguments.unwrap_or_default())),
            state: request.request_state,
            responses: request.input_responses,
        };
        let outcome = self.call_agent(&operations, card, request, &context).await;
        let output = OfferOutput::of(&operations, outcome).await?;
        let messages = match &output {
            OfferOutput::InputRequired(required) => return Ok(required.clone().into()),
            output => output.messages(),
        };
        let mut result = GetPromptResult::new(messages);
        result.description = description;
        Ok(result.into())
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if ClientAbilities::of(&context).repeats_with_answers {
            // Since 2026-07-28 each request declares its own level.
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "logging/setLevel", None));
        }
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.level.into());
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (operations, call) = (self.operations(&context)?, self.operation_call(&context)?);
        let opened = ResourceWatch::open(&operations, &call, &self.shared.offers, &request.uri).await;
        let opened = opened.map_err(|error| error_of(&error))?;
        let mut opened = opened.ok_or_else(|| unknown_resource(&request.uri))?;
        let mut watched = self.watched();
        if watched.len() >= MAX_WATCHED && !watched.contains_key(&request.uri) {
            let text = format!("a client can subscribe to at most {MAX_WATCHED} resources");
            let code = code::GATEWAY_BUSY.as_str();
            return Err(coded_error(ErrorCode::INVALID_REQUEST, code, &text, false));
        }
        let (peer, uri) = (context.peer.clone(), request.uri.clone());
        let following = tokio::spawn(async move {
            loop {
                opened.changed().await;
                let changed = ResourceUpdatedNotificationParam::new(uri.clone());
                if peer.notify_resource_updated(changed).await.is_err() {
                    return;
                }
            }
        });
        watched.insert(request.uri, AbortOnDropHandle::new(following));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watched().remove(&request.uri);
        Ok(())
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        let Some(open) = notification.request_id.and_then(|request| self.calls.take(&request)) else {
            return;
        };
        open.cancel().await;
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        tokio::spawn(tell_lists(context.peer, self.shared.offers.clone(), self.gone.clone()));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let watched = requested.resource_subscriptions.iter().flatten().take(MAX_WATCHED).cloned();
        let mut offered = SubscriptionFilter::builder()
            .tools_list_changed()
            .prompts_list_changed()
            .resources_list_changed()
            .build();
        offered.resource_subscriptions = Some(watched.collect());
        Some(requested.intersection(&offered))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let request = context.request_context();
        let (operations, call) = (self.operations(request)?, self.operation_call(request)?);
        tokio::select! {
            () = serve_subscription(context, &operations, &call, self.shared.offers.clone()) => {}
            // Subscriptions do not delay the shutdown of the gateway.
            () = self.shared.drain.idle.cancelled() => {}
        }
        Ok(())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let task = ResourceTemplate::new(TASK_TEMPLATE, "task")
            .with_title("Task")
            .with_description("A task of a tool as it is now: state, question or result")
            .with_mime_type("application/json");
        let artifact = ResourceTemplate::new(ARTIFACT_TEMPLATE, "artifact")
            .with_title("Artifact")
            .with_description("A file that a task has read or written, by the address in its result");
        let mut templates = vec![task, artifact];
        templates.extend(OfferLists::of(&self.operations(&context)?).templates);
        Ok(ListResourceTemplatesResult::with_all_items(templates).with_ttl_ms(LIST_TTL_MS))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let begun = &request.argument.value;
        let values = match &request.r#ref {
            Reference::Prompt(prompt) => {
                let operations = self.operations(&context)?;
                let card = find_card(&operations, OfferKind::Prompt, &prompt.name).await;
                let card = card.map_err(|error| error_of(&error))?;
                card.map(|card| completions_of(&card, &request.argument.name, begun)).unwrap_or_default()
            }
            Reference::Resource(template) if template.uri == TASK_TEMPLATE => {
                let (tasks, _) = self.task_page(None, &context).await?;
                let ids = tasks.into_iter().map(|task| task.id.0).filter(|id| id.starts_with(begun));
                ids.take(CompletionInfo::MAX_VALUES).collect()
            }
            _ => Vec::new(),
        };
        let completion = CompletionInfo::new(values);
        let completion = completion.map_err(|reason| ErrorData::internal_error(reason, None))?;
        Ok(CompleteResult::new(completion))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let mut resources = match cursor {
            // Resources of agents are on the first page.
            None => OfferLists::of(&self.operations(&context)?).resources,
            Some(_) => Vec::new(),
        };
        let (tasks, next_cursor) = self.task_page(cursor, &context).await?;
        resources.extend(tasks.iter().map(|task| {
            Resource::new(task_uri(&task.id.0), task.id.0.clone())
                .with_description(format!("Task in the state {:?}", task.status.state))
                .with_mime_type("application/json")
        }));
        let mut list = ListResourcesResult::with_all_items(resources);
        list.next_cursor = next_cursor;
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (operations, call) = (self.operations(&context)?, self.operation_call(&context)?);
        let uri = request.uri.clone();
        let read = match ResourceLocation::parse(&request.uri) {
            Some(ResourceLocation::Task(id)) => self.read_task(&operations, &call, uri, &id).await,
            Some(ResourceLocation::Artifact(address)) => {
                self.read_artifact(&operations, &call, uri, &address).await
            }
            None => return self.read_offered(&operations, request, &context).await,
        };
        match read {
            Ok(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            Err(error) if error.code == A2aErrorCode::TaskNotFound => Err(unknown_resource(&request.uri)),
            Err(error) => Err(error_of(&error)),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let (operations, call) = (self.operations(&context)?, self.operation_call(&context)?);
        let failed = |error: A2aError| error_of(&error);
        let (agent, mut task) = operations.find_task(&call, &request.task_id).await.map_err(failed)?;
        let asked = operations.asked_input(&call, &task).await.map_err(failed)?;
        let begun = begun_at(&operations, &call, &task).await;
        self.shared.show_files(&operations, &mut task).await;
        let requests = requests_of(&agent, &asked, ClientAbilities::of(&context));
        let result = result_of_task(&task, &asked, self.shared.console.as_deref());
        Ok(GetTaskResult::new(detailed_task(&task, &begun, requests, &result)))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (operations, call) = (self.operations(&context)?, self.operation_call(&context)?);
        let failed = |error: A2aError| error_of(&error);
        let (_, task) = operations.find_task(&call, &request.task_id).await.map_err(failed)?;
        let asked = operations.asked_input(&call, &task).await.map_err(failed)?;
        match given_input(&asked, &request.input_responses) {
            GivenInput::Nothing | GivenInput::Declined => {}
            GivenInput::Decisions(answers) => {
                for answer in answers {
                    operations.answer_question(&call, &task.id.0, answer).await.map_err(failed)?;
                }
            }
            GivenInput::Answer(answer) => {
                operations.answer_agent(&call, &task, answer, true).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (operations, call) = (self.operations(&context)?, self.operation_call(&context)?);
        let cancelled = cancel_task(&operations, &call, &request.task_id).await;
        match cancelled {
            // A task that has ended is unchanged.
            Err(error) if error.code != A2aErrorCode::TaskNotCancelable => Err(error_of(&error)),
            _ => Ok(()),
        }
    }
}
