//! The server of the protocol: lists, calls, resources and tasks of one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::request::Parts;
use data_encoding::BASE64;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam,
    CompleteRequestParams, CompleteResult, CompletionInfo, ErrorCode, ErrorData, GetTaskParams,
    GetTaskResult, Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference,
    Resource, ResourceContents, ResourceTemplate, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
    UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use serde_json::json;
use sinew_mesh::trace::TraceParent;
use sinew_protocol::a2a::{A2aError, CoreMethod, ErrorCode as A2aErrorCode, TaskListResponse};
use sinew_protocol::artifact::StoredAt;
use sinew_protocol::code;
use sinew_protocol::jsonrpc::raw;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::open_calls::{OpenCall, OpenCalls};
use super::question_form::{answers_of, forms_of};
use super::resource_uri::{ARTIFACT_TEMPLATE, ResourcePlace, TASK_TEMPLATE, task_uri};
use super::tool_call::{ClientAbilities, ToolCall, begun_at, fetch_results, questions_of};
use super::tool_list::tool_of;
use super::tool_result::{coded_error, detailed_task, error_of, result_of_task};
use crate::access::CallerIdentity;
use crate::operations::{A2aOperations, Endpoint, OperationCall, OperationReply, short};

/// Changes of the mesh that come together are told together.
const GATHER: Duration = Duration::from_millis(200);
/// Tools on a page of the list.
const TOOLS_PER_PAGE: usize = 500;
/// Milliseconds for which clients may keep a list of tools.
const TOOL_LIST_TTL_MS: u64 = 5_000;
/// Bytes of an artifact that a client may read.
const MAX_RESOURCE_BYTES: usize = 1 << 20;
/// Time between two tries to cancel a task that is only just begun.
const CANCEL_PAUSE: Duration = Duration::from_millis(200);
/// Tries to cancel a task.
const CANCEL_TRIES: u32 = 25;

/// State that the servers of all clients share.
#[derive(Debug)]
pub(crate) struct McpShared {
    operations: A2aOperations,
    /// Caller of requests that come over pipes; `None` where each request has its own.
    pipe_caller: Option<CallerIdentity>,
    /// The tools that clients were last told of, by name.
    tools: watch::Receiver<Vec<Tool>>,
    _follower: AbortOnDropHandle<()>,
}

impl McpShared {
    /// The state for these operations. It follows the cards of the mesh until it is dropped.
    pub(crate) fn new(operations: A2aOperations, pipe_caller: Option<CallerIdentity>) -> Self {
        let mut cards = operations.cards();
        let (sender, tools) = watch::channel(tools_of(&operations));
        let offered = operations.clone();
        let follower = tokio::spawn(async move {
            loop {
                cards.changed().await;
                tokio::time::sleep(GATHER).await;
                let now = tools_of(&offered);
                sender.send_if_modified(|tools| {
                    let is_new = *tools != now;
                    *tools = now;
                    is_new
                });
            }
        });
        Self { operations, pipe_caller, tools, _follower: AbortOnDropHandle::new(follower) }
    }
}

fn tools_of(operations: &A2aOperations) -> Vec<Tool> {
    let mut tools: Vec<Tool> = operations.offered().iter().map(tool_of).collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// The server of one client.
#[derive(Clone, Debug)]
pub(crate) struct McpHandler {
    shared: Arc<McpShared>,
    calls: OpenCalls,
    /// Whether this client is told of changed tools already, however often it says that it has begun.
    is_told: Arc<AtomicBool>,
    /// Fires when the client has gone.
    gone: CancellationToken,
    _gone_guard: Arc<DropGuard>,
}

impl McpHandler {
    pub(super) fn new(shared: Arc<McpShared>) -> Self {
        let gone = CancellationToken::new();
        let guard = Arc::new(gone.clone().drop_guard());
        Self { shared, calls: OpenCalls::default(), is_told: Arc::default(), gone, _gone_guard: guard }
    }

    /// The caller that the guard at the door found, or the one of the pipes.
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

    /// The operations on what the caller of a request may see.
    fn operations(&self, context: &RequestContext<RoleServer>) -> Result<A2aOperations, ErrorData> {
        Ok(self.shared.operations.limited_to(&self.caller(context)?.patterns))
    }

    /// The call of an operation for a request.
    fn operation_call(&self, context: &RequestContext<RoleServer>) -> Result<OperationCall, ErrorData> {
        let caller = self.caller(context)?;
        let trace = context.meta.0.get_traceparent().and_then(|text| text.parse::<TraceParent>().ok());
        Ok(OperationCall {
            caller: caller.token.clone(),
            role: caller.role,
            endpoint: Endpoint::Mesh,
            extensions: Vec::new(),
            trace: trace.map_or_else(TraceParent::fresh, TraceParent::child),
            last_event: None,
        })
    }

    async fn cancel(&self, call: &OperationCall, task: &str) -> Result<(), A2aError> {
        let params = raw(&json!({"id": task}));
        self.shared.operations.perform(call, CoreMethod::CancelTask, &params).await.map(drop)
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

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let abilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_completions()
            .enable_tasks()
            .build();
        let instructions = format!(
            "The tools are workflows and agents of the mesh {}. A workflow goes on when its client goes away: \
             its task is the resource {TASK_TEMPLATE}.",
            self.shared.operations.mesh_namespace()
        );
        ServerConfig::new(abilities)
            .with_server_info(Implementation::new("sinew", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = tools_of(&self.operations(&context)?);
        let after = request.and_then(|request| request.cursor);
        let begin = after.map_or(0, |after| tools.partition_point(|tool| *tool.name <= *after));
        let page: Vec<Tool> = tools[begin..].iter().take(TOOLS_PER_PAGE).cloned().collect();
        let is_last = begin + page.len() == tools.len();
        let next_cursor = page.last().filter(|_| !is_last).map(|tool| tool.name.to_string());
        let mut list = ListToolsResult::with_all_items(page).with_ttl_ms(TOOL_LIST_TTL_MS);
        list.next_cursor = next_cursor;
        Ok(list)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.operations.card_by_token(name).map(|card| tool_of(&card))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let operations = self.operations(&context)?;
        let Some(card) = operations.card_by_token(&request.name) else {
            let text = format!("there is no tool {:?}", short(&request.name, 64));
            let code = code::GATEWAY_SKILL_UNKNOWN.as_str();
            return Err(coded_error(ErrorCode::INVALID_PARAMS, code, &text, false));
        };
        let call = ToolCall::new(&operations, self.operation_call(&context)?, card, &context)?;
        let task = request.request_state.clone().unwrap_or_else(|| call.task.clone());
        let entry = self.calls.note(context.id.clone(), OpenCall { call: call.call.clone(), task });
        tokio::select! {
            biased;
            answer = Box::pin(call.answer(request)) => answer,
            // The client says that it cancels, or it has gone. Only a word cancels the task.
            () = context.ct.cancelled() => {
                entry.leave();
                Err(ErrorData::internal_error("the request was cancelled", None))
            }
        }
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        let Some(open) = notification.request_id.and_then(|request| self.calls.take(&request)) else {
            return;
        };
        for _ in 0..CANCEL_TRIES {
            match self.cancel(&open.call, &open.task).await {
                // The start may still be on its way.
                Err(error) if error.code == A2aErrorCode::TaskNotFound => {
                    tokio::time::sleep(CANCEL_PAUSE).await;
                }
                Err(error) => return tracing::debug!(task = open.task, %error, "a task was not cancelled"),
                Ok(()) => return,
            }
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut tools = self.shared.tools.clone();
        tools.mark_unchanged();
        let (peer, gone) = (context.peer, self.gone.clone());
        tokio::spawn(async move {
            loop {
                let changed = tokio::select! {
                    () = gone.cancelled() => return,
                    changed = tools.changed() => changed,
                };
                if changed.is_err() || peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.intersection(&SubscriptionFilter::builder().tools_list_changed().build()))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut tools = self.shared.tools.clone();
        tools.mark_unchanged();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = tools.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let task = ResourceTemplate::new(TASK_TEMPLATE, "task")
            .with_title("Task")
            .with_description("A task of a tool as it is now: state, question or result")
            .with_mime_type("application/json");
        let artifact = ResourceTemplate::new(ARTIFACT_TEMPLATE, "artifact")
            .with_title("Artifact")
            .with_description("A file that a task has read or written, by the address in its result");
        Ok(ListResourceTemplatesResult::with_all_items(vec![task, artifact]))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let Reference::Resource(template) = &request.r#ref else { return Ok(CompleteResult::default()) };
        if template.uri != TASK_TEMPLATE {
            return Ok(CompleteResult::default());
        }
        let ids =
            self.list_resources(None, context).await?.resources.into_iter().map(|task| task.name.clone());
        let ids = ids.filter(|id| id.starts_with(&request.argument.value)).take(CompletionInfo::MAX_VALUES);
        let completion = CompletionInfo::new(ids.collect());
        let completion = completion.map_err(|reason| ErrorData::internal_error(reason, None))?;
        Ok(CompleteResult::new(completion))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let params = raw(&json!({"pageToken": cursor}));
        let (operations, call) = (self.operations(&context)?, self.operation_call(&context)?);
        let reply = operations.perform(&call, CoreMethod::ListTasks, &params).await;
        let page: TaskListResponse = match reply.map_err(|error| error_of(&error))? {
            OperationReply::Value(value) | OperationReply::Incomplete { value, .. } => {
                serde_json::from_str(value.get()).ok()
            }
            OperationReply::Stream(_) => None,
        }
        .ok_or_else(|| ErrorData::internal_error("the list of tasks cannot be read", None))?;
        let resources = page.tasks.iter().map(|task| {
            Resource::new(task_uri(&task.id.0), task.id.0.clone())
                .with_description(format!("Task in the state {:?}", task.status.state))
                .with_mime_type("application/json")
        });
        let mut list = ListResourcesResult::with_all_items(resources.collect());
        list.next_cursor = Some(page.next_page_token).filter(|token| !token.is_empty());
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (operations, call) = (self.operations(&context)?, self.operation_call(&context)?);
        let unknown = || {
            let text = format!("there is no resource {:?}", short(&request.uri, 200));
            let code = code::GATEWAY_RESOURCE_UNKNOWN.as_str();
            coded_error(ErrorCode::RESOURCE_NOT_FOUND, code, &text, false)
        };
        let uri = request.uri.clone();
        let read = match ResourcePlace::parse(&request.uri).ok_or_else(unknown)? {
            ResourcePlace::Task(id) => self.read_task(&operations, &call, uri, &id).await,
            ResourcePlace::Artifact(address) => self.read_artifact(&operations, &call, uri, &address).await,
        };
        match read {
            Ok(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            Err(error) if error.code == A2aErrorCode::TaskNotFound => Err(unknown()),
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
        let questions = questions_of(&operations, &call, &task).await.map_err(failed)?;
        let begun = begun_at(&operations, &call, &task).await;
        fetch_results(&operations, &mut task).await;
        let asked = if ClientAbilities::of(&context).elicits { questions.as_slice() } else { &[] };
        let result = result_of_task(&task, &questions);
        Ok(GetTaskResult::new(detailed_task(&task, &begun, forms_of(&agent, asked), &result)))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (operations, call) = (self.operations(&context)?, self.operation_call(&context)?);
        let failed = |error: A2aError| error_of(&error);
        let (_, task) = operations.find_task(&call, &request.task_id).await.map_err(failed)?;
        let questions = questions_of(&operations, &call, &task).await.map_err(failed)?;
        for answer in answers_of(&questions, &request.input_responses) {
            operations.answer_question(&call, &task.id.0, answer).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let cancelled = self.cancel(&self.operation_call(&context)?, &request.task_id).await;
        match cancelled {
            // A task that has ended stays as it is.
            Err(error) if error.code != A2aErrorCode::TaskNotCancelable => Err(error_of(&error)),
            _ => Ok(()),
        }
    }
}
