//! A connection to a server: a program with pipes, or an address.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientCapabilities, ClientConfig,
    ClientRequest, Implementation, ListToolsRequest, NumberOrString, PaginatedRequestParams, PingRequest,
    ProgressNotificationParam, ProgressToken, RequestId, RequestMetaObject, ServerResult, Tool,
};
use rmcp::service::{NotificationContext, Peer, PeerRequestOptions, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ServiceError, ServiceExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc::UnboundedSender;

use super::ServerLocation;
use super::line_limit::LineLimit;
use super::service_errors::{RateLimit, TOO_MANY_REQUESTS, plain_message};
use super::tool_answer::ToolAnswer;
use super::tool_choice::ToolChoice;
use crate::clean::{ResolvedSecrets, clean};
use crate::error::AgentError;
use crate::run::RunnerSurroundings;
use crate::run::command::{INHERITED, ProcessGroup};
use crate::run::http::{check_literal_address, http_client};
use crate::template::{Scope, Template, plain};

/// Maximum bytes of an answer of a server.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Maximum tools of a server, and pages of their list.
const MAX_LISTED_TOOLS: usize = 1_000;
const MAX_LIST_PAGES: usize = 64;
/// Maximum lines of a program's standard error that are reported as progress.
const MAX_ERROR_LINES: usize = 256;
/// Maximum progress notifications of a server that are forwarded.
const MAX_PROGRESS_NOTES: usize = 1_000;
/// Time to read the rest of the standard error of a program that did not start.
const ERROR_DRAIN: Duration = Duration::from_millis(500);
/// Maximum bytes of a reported line of standard error or message of a notification.
const MAX_MESSAGE_BYTES: usize = 1 << 10;
/// Maximum bytes of a notification that are sanitised.
const MAX_CLEANED_BYTES: usize = 64 << 10;
/// Member of a call's `_meta` by which servers that support it deduplicate calls.
const MESSAGE_ID_META: &str = "io.github.sinew-mesh/message-id";

/// A connection to a server.
pub(super) struct McpConnection {
    service: RunningService<RoleClient, McpListener>,
    /// Program of the server, terminated with the connection.
    program: Mutex<Option<ServerProgram>>,
    secrets: ResolvedSecrets,
    /// Host of the address; empty for a program.
    host: String,
}

struct ServerProgram {
    // Dropped first, so that the group is killed even if the runtime shuts down.
    _group: ProcessGroup,
    _child: Child,
}

/// The client side: forwards progress, and has no user for elicitation.
struct McpListener {
    progress: Option<UnboundedSender<Value>>,
    /// Values that the server received and might return.
    secrets: ResolvedSecrets,
    /// Number of notifications so far; a server could send them endlessly.
    notes: AtomicUsize,
}

impl McpListener {
    fn new(progress: Option<&UnboundedSender<Value>>, secrets: &ResolvedSecrets) -> Self {
        Self { progress: progress.cloned(), secrets: secrets.clone(), notes: AtomicUsize::new(0) }
    }
}

impl ClientHandler for McpListener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("sinew", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn on_progress(&self, told: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let Some(progress) = &self.progress else { return };
        if self.notes.fetch_add(1, Ordering::Relaxed) >= MAX_PROGRESS_NOTES {
            return;
        }
        let message = told.message.unwrap_or_else(|| match told.total {
            Some(total) => format!("{} of {total}", told.progress),
            None => told.progress.to_string(),
        });
        // Truncate after sanitising, so that no part of a secret remains.
        let end = message.floor_char_boundary(MAX_CLEANED_BYTES);
        let mut message = clean(&message.as_bytes()[..end], &self.secrets);
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        // Fails if the receiver was dropped.
        let _unheard = progress.send(json!({"message": message}));
    }
}

impl McpConnection {
    /// Starts the program or connects to the address, and negotiates the protocol version.
    pub(super) async fn open(
        place: &ServerLocation,
        around: &RunnerSurroundings,
        progress: Option<&UnboundedSender<Value>>,
    ) -> Result<Self, AgentError> {
        match place {
            ServerLocation::Program { program, arguments, folder, env } => {
                let mut command = tokio::process::Command::new(program);
                command.args(arguments).current_dir(folder).env_clear();
                Self::start(program, command, env, around, progress).await
            }
            ServerLocation::Address { url, headers, allow_private } => {
                Self::connect(url, headers, *allow_private, around, progress).await
            }
        }
    }

    async fn start(
        program: &str,
        mut command: tokio::process::Command,
        env: &[(String, Template)],
        around: &RunnerSurroundings,
        progress: Option<&UnboundedSender<Value>>,
    ) -> Result<Self, AgentError> {
        let mut secrets = ResolvedSecrets::default();
        for name in INHERITED {
            if let Some(value) = (around.environment)(name) {
                command.env(name, value);
            }
        }
        for (name, template) in env {
            command.env(name, filled(&format!("env '{name}'"), template, around, &mut secrets)?);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| AgentError::Start { program: program.to_owned(), reason: error.to_string() })?;
        let group = ProcessGroup::of(&child);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(AgentError::Host("the program has no pipes".to_owned()));
        };
        let errors = tokio::spawn(tell_errors(stderr, secrets.clone(), progress.cloned()));
        let pipes = AsyncRwTransport::<RoleClient, LineLimit<ChildStdout>, ChildStdin>::new_client(
            LineLimit::new(stdout, MAX_ANSWER_BYTES),
            stdin,
        )
        .with_max_line_length(2 * MAX_ANSWER_BYTES);
        let listener = McpListener::new(progress, &secrets);
        let service = match listener.serve(pipes).await {
            Ok(service) => service,
            Err(error) => {
                drop(group);
                let mut reason = reason_of(&error, &secrets);
                // A program that fails reports the reason last.
                if let Ok(Ok(last)) = tokio::time::timeout(ERROR_DRAIN, errors).await
                    && !last.is_empty()
                {
                    reason = format!("{reason}; its standard error ends with '{last}'");
                }
                return Err(AgentError::McpServer { reason });
            }
        };
        let program = Mutex::new(Some(ServerProgram { _group: group, _child: child }));
        Ok(Self { service, program, secrets, host: String::new() })
    }

    async fn connect(
        url: &str,
        headers: &[(String, Template)],
        allow_private: bool,
        around: &RunnerSurroundings,
        progress: Option<&UnboundedSender<Value>>,
    ) -> Result<Self, AgentError> {
        let mut secrets = ResolvedSecrets::default();
        let parsed = Url::parse(url).map_err(|error| failed(&error, &secrets))?;
        check_literal_address(&parsed, allow_private)?;
        let mut named = HashMap::new();
        for (name, template) in headers {
            let value = filled(&format!("header '{name}'"), template, around, &mut secrets)?;
            let bad = |error: &dyn std::fmt::Display| failed(error, &ResolvedSecrets::default());
            let mut value = HeaderValue::try_from(value).map_err(|error| bad(&error))?;
            value.set_sensitive(true);
            named.insert(HeaderName::try_from(name).map_err(|error| bad(&error))?, value);
        }
        let host = parsed.host_str().unwrap_or_default().to_owned();
        let mut attempt = 1;
        let service = loop {
            let config = StreamableHttpClientTransportConfig::with_uri(url)
                .custom_headers(named.clone())
                .max_json_response_size(MAX_ANSWER_BYTES)
                .max_sse_event_size(MAX_ANSWER_BYTES);
            let transport = StreamableHttpClientTransport::with_client(http_client(allow_private)?, config);
            let error = match McpListener::new(progress, &secrets).serve(transport).await {
                Ok(service) => break service,
                Err(error) => error,
            };
            let Some(limit) = RateLimit::of_start(&error) else { return Err(failed(&error, &secrets)) };
            let delay = limit.delay(attempt).ok_or_else(|| limited(&host, limit, attempt))?;
            tokio::time::sleep(delay).await;
            attempt += 1;
        };
        Ok(Self { service, program: Mutex::default(), secrets, host })
    }

    /// Lists the tools of the server. Leaves out those whose description cannot be read.
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, AgentError> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_LIST_PAGES {
            let (listed, next) = self.listed_tools(cursor.clone()).await?;
            tools.extend(listed);
            // Some servers repeat the cursor after the last page, or send an empty one.
            let is_last = next.as_ref().is_none_or(String::is_empty) || next == cursor;
            cursor = next;
            if is_last && tools.len() <= MAX_LISTED_TOOLS {
                return Ok(tools);
            }
            if tools.len() > MAX_LISTED_TOOLS {
                break;
            }
        }
        let reason = format!(
            "it lists more than {MAX_LISTED_TOOLS} tools, or more than {MAX_LIST_PAGES} pages of them"
        );
        Err(AgentError::McpServer { reason })
    }

    /// Returns a page of the list of tools, and the cursor of the next one.
    async fn listed_tools(&self, cursor: Option<String>) -> Result<(Vec<Tool>, Option<String>), AgentError> {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        // The library keeps lists for the time that the server states.
        let listed = self.within_rate(|| self.service.list_tools(Some(page.clone()))).await?;
        let document = match listed {
            Ok(listed) => return Ok((listed.tools, listed.next_cursor)),
            Err(ServiceError::UnexpectedResponse) => {
                let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
                match self.within_rate(|| self.send_once(request.clone())).await? {
                    Ok(ServerResult::CustomResult(document)) => document.0,
                    Ok(_) => Value::Null,
                    Err(error) => return Err(failed(&error, &self.secrets)),
                }
            }
            Err(error) => return Err(failed(&error, &self.secrets)),
        };
        let Some(items) = document.get("tools").and_then(Value::as_array) else {
            return Err(AgentError::McpServer { reason: "its list of tools cannot be read".to_owned() });
        };
        let tools = items.iter().filter_map(|item| {
            let tool = serde_json::from_value(item.clone());
            tool.inspect_err(|error| {
                let name = clean(item["name"].as_str().unwrap_or_default().as_bytes(), &self.secrets);
                tracing::warn!(tool = name, %error, "a tool without a valid description is left out");
            })
            .ok()
        });
        let next = document.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
        Ok((tools.collect(), next))
    }

    /// Makes a request. Repeats it after the requested delay if the server's rate limit rejects it.
    async fn within_rate<T, F: Future<Output = Result<T, ServiceError>>>(
        &self,
        request: impl Fn() -> F,
    ) -> Result<Result<T, ServiceError>, AgentError> {
        let mut attempt = 1;
        loop {
            let error = match request().await {
                Ok(answer) => return Ok(Ok(answer)),
                Err(error) => error,
            };
            let Some(limit) = RateLimit::of_request(&error) else { return Ok(Err(error)) };
            let delay = limit.delay(attempt).ok_or_else(|| limited(&self.host, limit, attempt))?;
            tokio::time::sleep(delay).await;
            attempt += 1;
        }
    }

    /// Sends a request, and cancels it if this future is dropped before the answer.
    async fn send_once(&self, request: ClientRequest) -> Result<ServerResult, ServiceError> {
        let options = PeerRequestOptions::no_options();
        let handle = self.service.send_cancellable_request(request, options).await?;
        let mut pending = PendingRequest { peer: self.service.peer().clone(), id: Some(handle.id.clone()) };
        let answer = handle.await_response().await;
        pending.id = None;
        answer
    }

    /// Returns whether the server responds.
    pub(super) async fn ping(&self) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        matches!(self.service.send_request(ping).await, Ok(_) | Err(ServiceError::McpError(_)))
    }

    /// Returns whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Calls a tool. Repetitions of a call have the same `message_id`. [`AgentError::McpAnswerLost`]
    /// means that the server may have received the call, and [`AgentError::Tool`] that the tool failed.
    pub(super) async fn call(
        &self,
        choice: &ToolChoice,
        message_id: Option<&str>,
    ) -> Result<ToolAnswer, AgentError> {
        let mut meta =
            RequestMetaObject::with_progress_token(ProgressToken(NumberOrString::String("task".into())));
        if let Some(id) = message_id {
            meta.0.0.insert(MESSAGE_ID_META.to_owned(), id.into());
        }
        let mut params =
            CallToolRequestParams::new(choice.tool.clone()).with_arguments(choice.arguments.clone());
        params.meta = Some(meta);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let answer = self.within_rate(|| self.send_once(request.clone())).await?;
        let answer = answer.map_err(|error| match error {
            ServiceError::McpError(_) => failed(&error, &self.secrets),
            lost => AgentError::McpAnswerLost { reason: reason_of(&lost, &self.secrets) },
        })?;
        let unsupported = |what: &str| AgentError::Tool {
            tool: choice.tool.clone(),
            reason: format!("it answered with {what}, which is not supported"),
        };
        let document = match answer {
            ServerResult::CustomResult(document) => document.0,
            ServerResult::InputRequiredResult(_) => return Err(unsupported("a question")),
            ServerResult::CreateTaskResult(_) => return Err(unsupported("a task")),
            answer => serde_json::to_value(&answer).map_err(|error| failed(&error, &self.secrets))?,
        };
        let answer = ToolAnswer::of(document);
        answer.failure(&choice.tool, &self.secrets).map_or(Ok(answer), Err)
    }

    /// Closes the connection and terminates its program.
    pub(super) async fn close(self) {
        // Errors do not matter, because the server is no longer used.
        let _ended = self.service.cancel().await;
        drop(self.program);
    }

    /// Closes the connection for all its users and terminates its program.
    pub(super) fn end(&self) {
        self.service.cancellation_token().cancel();
        drop(self.program.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl std::fmt::Debug for McpConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpConnection").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// A request whose answer is pending. Dropping it cancels the request.
struct PendingRequest {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Without a runtime, the connection is closed, too.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let cancelled = CancelledNotificationParam::new(Some(id), None);
            // Fails if the connection is closed.
            let _closed = peer.notify_cancelled(cancelled).await;
        });
    }
}

/// Returns the error of a server whose rate limit rejects all attempts.
fn limited(host: &str, limit: RateLimit, attempts: u32) -> AgentError {
    AgentError::Unavailable {
        host: host.to_owned(),
        status: TOO_MANY_REQUESTS,
        attempts,
        retry_after: limit.retry_after,
        excerpt: String::new(),
    }
}

fn failed(error: &dyn std::fmt::Display, secrets: &ResolvedSecrets) -> AgentError {
    AgentError::McpServer { reason: reason_of(error, secrets) }
}

fn reason_of(error: &dyn std::fmt::Display, secrets: &ResolvedSecrets) -> String {
    clean(plain_message(&error.to_string()).as_bytes(), secrets)
}

fn filled(
    place: &str,
    template: &Template,
    around: &RunnerSurroundings,
    secrets: &mut ResolvedSecrets,
) -> Result<String, AgentError> {
    // Settings of a server are the same for all tasks: they reference variables, not the input.
    let scope = Scope { input: &Value::Null, instruction: None, context: &Value::Null };
    let environment = around.environment.as_ref();
    template.fill(&scope, plain, |name| secrets.read(environment, name)).map_err(|error| error.at(place))
}

/// Reports lines of standard error as progress. Drains the rest, so that the program never blocks. Returns
/// the last line.
async fn tell_errors(
    stderr: ChildStderr,
    secrets: ResolvedSecrets,
    progress: Option<UnboundedSender<Value>>,
) -> String {
    let (mut reader, mut line, mut told) = (BufReader::new(stderr), Vec::new(), 0);
    let mut last = Vec::new();
    loop {
        line.clear();
        // A line above the limit is reported in pieces.
        match (&mut reader).take(MAX_MESSAGE_BYTES as u64).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return clean(&last, &secrets),
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => line.clone_into(&mut last),
        }
        let Some(progress) = progress.as_ref().filter(|_| told < MAX_ERROR_LINES) else { continue };
        let text = clean(&line, &secrets);
        if !text.is_empty() {
            told += 1;
            let _unheard = progress.send(json!({"message": text}));
        }
    }
}
