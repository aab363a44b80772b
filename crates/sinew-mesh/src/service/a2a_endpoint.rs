//! The A2A endpoint of an agent or workflow on the mesh: reads calls, delegates their operations,
//! and replies.
//!
//! This module contains everything that is independent of the implementation of an endpoint:
//! envelopes, headers, parameters, operations that the mesh does not support, and the order in
//! which an endpoint closes. Callers cannot distinguish an agent from a workflow.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_protocol::a2a::{
    A2A_VERSION, A2aError, AgentCard, CancelTaskParams, CoreMethod, ErrorCode, ListTasksParams,
    SendMessageRequest, TaskIdParams, TaskQueryParams,
};
use sinew_protocol::jsonrpc::{self, Method, Refused, Request, Response, raw};
use sinew_protocol::{Token, code, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::crash;
use crate::micro::Listed;
use crate::rpc::{RpcReply, RpcRequest, RpcServer};
use crate::service::waiting_calls::WaitingCalls;

/// Limit of calls that one process answers concurrently.
const MAX_CALLS: usize = 4_096;
/// Reply to requests for webhooks.
const NO_PUSH: &str = "push notifications are not supported on the mesh; subscribe to the task's progress";
/// Reply to requests for an extended card.
const ONE_CARD: &str = "no extended card exists; all callers get the same card";

/// Caller and headers of a call.
#[derive(Debug)]
pub struct A2aCall {
    /// Caller in the subject.
    pub caller: Token,
    /// Headers, except those with commands to the server.
    pub headers: HeaderMap,
    /// Body as received; empty once the call waits.
    body: Mutex<Bytes>,
    /// Permit of a call that is being answered.
    place: Mutex<Option<OwnedSemaphorePermit>>,
    waiting: Arc<WaitingCalls>,
}

impl A2aCall {
    /// Waits for a task and releases the permit of the call. `None` if too many calls wait and this
    /// one has waited longest: reply with the current task, because the caller may have
    /// disconnected.
    pub async fn wait<T>(&self, settled: impl Future<Output = T>) -> Option<T> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A call may wait for a long time, and its body may be large.
        self.body.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.waiting.wait(&self.caller, settled).await
    }

    /// Returns the JSON-RPC body as received, for another process to answer; empty once the call
    /// waits.
    pub fn body(&self) -> Bytes {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Limits of one process: calls that are being answered, and calls that wait.
#[derive(Clone, Debug)]
pub struct CallPermits {
    answering: Arc<Semaphore>,
    waiting: Arc<WaitingCalls>,
}

impl Default for CallPermits {
    fn default() -> Self {
        Self { answering: Arc::new(Semaphore::new(MAX_CALLS)), waiting: Arc::default() }
    }
}

/// Time of the reply to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerMoment {
    /// When the task has ended or requires input.
    Settled,
    /// When the task exists.
    Begun,
    /// When the task exists; its events are published as the task's progress.
    Streamed,
}

/// Result of an operation.
#[derive(Debug)]
pub struct A2aAnswer {
    result: Box<RawValue>,
    seq: Option<u64>,
}

impl A2aAnswer {
    /// Creates a reply with this result.
    pub fn of(result: &impl Serialize) -> Self {
        Self { result: raw(result), seq: None }
    }

    /// Creates a reply with a task, whose result names its kind.
    pub fn of_task(task: &impl Serialize) -> Self {
        #[derive(Serialize)]
        struct NamedTask<'a, T> {
            task: &'a T,
        }
        Self::of(&NamedTask { task })
    }

    /// Deserializes the result.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.result.get())
    }

    /// Returns the same reply with the number of the last event that it includes.
    #[must_use]
    pub fn with_seq(mut self, seq: u64) -> Self {
        self.seq = Some(seq);
        self
    }
}

/// Outcome of an operation.
pub type A2aOutcome = Result<A2aAnswer, A2aError>;

/// Operations of an A2A endpoint, with parsed parameters. Operations on webhooks and extended cards
/// are handled before.
pub trait A2aService: Send + Sync + 'static {
    /// Returns the public card.
    fn card(&self) -> impl Future<Output = Result<AgentCard, A2aError>> + Send;

    /// Accepts a message with an id and at least one part, and replies at this time.
    fn send_message(
        &self,
        call: &A2aCall,
        params: SendMessageRequest,
        moment: AnswerMoment,
    ) -> impl Future<Output = A2aOutcome> + Send;

    /// Returns a task of the caller.
    fn get_task(&self, call: &A2aCall, params: TaskQueryParams) -> impl Future<Output = A2aOutcome> + Send;

    /// Returns a page of the caller's tasks.
    fn list_tasks(&self, call: &A2aCall, params: ListTasksParams) -> impl Future<Output = A2aOutcome> + Send;

    /// Cancels a task of the caller, and replies once it has ended.
    fn cancel_task(
        &self,
        call: &A2aCall,
        params: CancelTaskParams,
    ) -> impl Future<Output = A2aOutcome> + Send;

    /// Returns an open task of the caller, whose events are published as the task's progress.
    fn subscribe(&self, call: &A2aCall, params: TaskIdParams) -> impl Future<Output = A2aOutcome> + Send;

    /// Returns the error for calls that arrived after the endpoint closed; `None` to answer them
    /// normally.
    fn late_refusal(&self) -> Option<A2aError> {
        None
    }
}

/// Endpoint that reads calls and passes them to a service.
pub struct A2aEndpoint<S> {
    service: Arc<S>,
    calls: RpcServer,
    /// Entry for `nats micro`, if the endpoint is listed; it counts calls.
    listed: Option<Arc<Listed>>,
    places: CallPermits,
    answering: TaskTracker,
}

impl<S: A2aService> A2aEndpoint<S> {
    /// Creates an endpoint for these calls.
    pub fn new(service: Arc<S>, calls: RpcServer, listed: Option<Listed>) -> Self {
        Self {
            service,
            calls,
            listed: listed.map(Arc::new),
            places: CallPermits::default(),
            answering: TaskTracker::new(),
        }
    }

    /// Shares the limits with other endpoints of the process.
    #[must_use]
    pub fn within(mut self, places: CallPermits) -> Self {
        self.places = places;
        self
    }

    /// Tracks calls that are being answered.
    #[must_use]
    pub fn tracked_by(mut self, answering: TaskTracker) -> Self {
        self.answering = answering;
        self
    }

    /// Answers calls until `closed` fires, then those that have arrived by then. Calls in progress
    /// continue.
    pub async fn serve(mut self, closed: CancellationToken) {
        loop {
            let call = tokio::select! {
                biased;
                () = closed.cancelled() => break,
                call = self.calls.next() => call,
            };
            let Some(call) = call else { return };
            self.take(call).await;
        }
        if let Err(error) = self.calls.stop().await {
            tracing::debug!(%error, "cannot close an A2A endpoint");
        }
        while let Some(call) = self.calls.next().await {
            match self.service.late_refusal() {
                Some(refusal) => respond(call, Value::Null, Err(refusal)).await,
                None => self.take(call).await,
            }
        }
    }

    async fn take(&self, call: RpcRequest) {
        let Ok(place) = Arc::clone(&self.places.answering).acquire_owned().await else { return };
        let (service, listed) = (Arc::clone(&self.service), self.listed.clone());
        let about = self.places.call(&call, place);
        self.answering.spawn(async move {
            let request = read_call(&call);
            answer(&*service, listed.as_deref(), call, about, request).await;
        });
    }
}

impl CallPermits {
    /// Creates a call with a permit; headers and body are still those of the request.
    fn call(&self, request: &RpcRequest, place: OwnedSemaphorePermit) -> A2aCall {
        A2aCall {
            caller: request.caller.clone(),
            headers: HeaderMap::new(),
            body: Mutex::default(),
            place: Mutex::new(Some(place)),
            waiting: Arc::clone(&self.waiting),
        }
    }
}

/// Answers calls that other processes of an agent received, checked and forwarded.
pub struct ForwardedCalls<S> {
    service: Arc<S>,
    places: CallPermits,
    answering: TaskTracker,
}

impl<S: A2aService> ForwardedCalls<S> {
    /// Creates an answerer with this service; `answering` tracks calls in progress.
    pub fn new(service: Arc<S>, answering: TaskTracker) -> Self {
        Self { service, places: CallPermits::default(), answering }
    }

    /// Answers a call; rejects it if too many are in progress.
    pub fn take(&self, call: RpcRequest) {
        let Ok(place) = Arc::clone(&self.places.answering).try_acquire_owned() else {
            let text = "the process that holds the task is at its limit of concurrent calls";
            let busy = jsonrpc::temporary_error(code::AGENT_BUSY.as_str(), text);
            self.answering.spawn(respond(call, Value::Null, Err(busy)));
            return;
        };
        let (service, about) = (Arc::clone(&self.service), self.places.call(&call, place));
        self.answering.spawn(async move {
            let request = Request::read(&call.body);
            answer(&*service, None, call, about, request).await;
        });
    }
}

impl<S> std::fmt::Debug for ForwardedCalls<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardedCalls").field("places", &self.places).finish_non_exhaustive()
    }
}

/// Returns the outcome of a call that another process of the agent answered.
pub fn relayed_outcome(reply: &RpcReply) -> A2aOutcome {
    /// Result of a reply, which remains text.
    #[derive(Deserialize)]
    struct ResultMember<'a> {
        #[serde(borrow, default)]
        result: Option<&'a RawValue>,
    }
    let seq = reply.headers.get(header::A2A_SEQ).and_then(|text| text.as_str().parse().ok());
    if let Ok(ResultMember { result: Some(result) }) = serde_json::from_slice(&reply.body) {
        return Ok(A2aAnswer { result: result.to_owned(), seq });
    }
    let bad = |text: String| {
        A2aError::new(ErrorCode::InternalError, format!("the response of another process is invalid: {text}"))
    };
    let response = Response::read(&reply.body).map_err(|error| bad(error.to_string()))?;
    Err(response.into_result().err().unwrap_or_else(|| bad("neither a result nor an error".to_owned())))
}

async fn answer<S: A2aService>(
    service: &S,
    listed: Option<&Listed>,
    mut call: RpcRequest,
    mut about: A2aCall,
    request: Result<Request, Refused>,
) {
    let began = Instant::now();
    let (id, outcome) = match request {
        Err(Refused { id, error }) => (id, Err(*error)),
        Ok(request) => {
            about.headers = std::mem::take(&mut call.headers);
            about.body = Mutex::new(std::mem::take(&mut call.body));
            let id = request.id.clone();
            let outcome = perform(service, &about, request).await;
            (id, outcome)
        }
    };
    if let Some(listed) = listed {
        // The message may quote the task, and everyone may read the statistics.
        let error = outcome.as_ref().err().map(|error| error.code.to_string());
        listed.answered(began.elapsed(), error.as_deref());
    }
    crash::point("reply.before");
    respond(call, id, outcome).await;
}

async fn respond(call: RpcRequest, id: Value, outcome: A2aOutcome) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    let body = match outcome {
        Ok(A2aAnswer { result, seq }) => {
            if let Some(seq) = seq {
                headers.insert(header::A2A_SEQ, seq.to_string());
            }
            jsonrpc::result(&id, &result)
        }
        Err(error) => Response::error(id, &error).to_bytes(),
    };
    if let Err(error) = call.respond(headers, body).await {
        tracing::debug!(%error, "cannot reply to a call");
    }
}

/// Parses a call.
fn read_call(call: &RpcRequest) -> Result<Request, Refused> {
    let text = |name: &str| call.headers.get(name).map(HeaderValue::as_str);
    let request =
        Request::read_with_headers(&call.body, text(header::A2A_VERSION), text(header::CONTENT_TYPE))?;
    let refused = |error: A2aError| Refused { id: request.id.clone(), error: Box::new(error) };
    if let Some(defect) = &call.defect {
        return Err(refused(A2aError::new(ErrorCode::InvalidRequest, defect)));
    }
    // Permissions apply to subjects, so the body must not name another method than the subject.
    if request.method.as_str() == call.method {
        return Ok(request);
    }
    Err(refused(A2aError::new(ErrorCode::InvalidRequest, "the method does not match the subject")))
}

async fn perform<S: A2aService>(service: &S, call: &A2aCall, request: Request) -> A2aOutcome {
    let Method::Core(method) = request.method else {
        return service.card().await.map(|card| A2aAnswer::of(&card));
    };
    match method {
        CoreMethod::SendMessage => {
            let params = read_message(&request)?;
            drop(request);
            let configuration = params.configuration.as_ref();
            let at_once = configuration.and_then(|wanted| wanted.return_immediately) == Some(true);
            let moment = if at_once { AnswerMoment::Begun } else { AnswerMoment::Settled };
            service.send_message(call, params, moment).await
        }
        CoreMethod::SendStreamingMessage => {
            service.send_message(call, read_message(&request)?, AnswerMoment::Streamed).await
        }
        CoreMethod::GetTask => service.get_task(call, request.params()?).await,
        CoreMethod::ListTasks => service.list_tasks(call, request.params()?).await,
        CoreMethod::CancelTask => service.cancel_task(call, request.params()?).await,
        CoreMethod::SubscribeToTask => service.subscribe(call, request.params()?).await,
        CoreMethod::CreateTaskPushNotificationConfig
        | CoreMethod::GetTaskPushNotificationConfig
        | CoreMethod::ListTaskPushNotificationConfigs
        | CoreMethod::DeleteTaskPushNotificationConfig => Err(A2aError::push_not_supported(NO_PUSH)),
        CoreMethod::GetExtendedAgentCard => Err(A2aError::extended_card_not_configured(ONE_CARD)),
        other => Err(A2aError::unsupported_operation(other.wire_name())),
    }
}

/// Parses a message, and checks what every endpoint requires.
fn read_message(request: &Request) -> Result<SendMessageRequest, A2aError> {
    let params: SendMessageRequest = request.params()?;
    if params.message.parts.is_empty() || params.message.id.0.is_empty() {
        return Err(A2aError::invalid_params("message: expected a messageId and at least one part"));
    }
    let configuration = params.configuration.as_ref();
    if configuration.is_some_and(|wanted| wanted.task_push_notification_config.is_some()) {
        return Err(A2aError::push_not_supported(NO_PUSH));
    }
    Ok(params)
}

impl<S> std::fmt::Debug for A2aEndpoint<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("A2aEndpoint").field("calls", &self.calls).finish_non_exhaustive()
    }
}
