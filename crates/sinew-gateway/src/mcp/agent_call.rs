//! One call of an agent or workflow for a host: starts a task, waits for it, and passes its
//! questions to the client.

use std::time::Duration;

use rmcp::model::{
    CreateTaskResult, ElicitRequestParams, ErrorCode, ErrorData, InputRequest, InputRequests,
    InputRequiredResult, InputResponses, ProgressNotificationParam, ProgressToken, ServerRequest,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Value, json};
use sinew_protocol::a2a::{
    A2aError, AgentCard, CoreMethod, Message, Part, PartContent, SendMessageResponse, StreamResponse, Task,
    TaskState, format_timestamp, is_terminal,
};
use sinew_protocol::code;
use sinew_protocol::command::lacks_reason;
use sinew_protocol::jsonrpc::raw;
use sinew_protocol::mcp_offer::McpOffer;
use uuid::Uuid;

use super::MESSAGE_ID_META;
use super::client_abilities::{ClientAbilities, LogSeverity, tell_log};
use super::client_input::{GivenInput, given_input, requests_of};
use super::question_form::{answer_of, form_for_reason, form_of};
use super::tool_result::{TaskNews, coded_error, mcp_task, news_of};
use crate::operations::{
    A2aOperations, AskedInput, OpenQuestion, OperationCall, OperationReply, StreamItem, TaskStream,
};

/// How long a client that keeps tasks waits for a result instead.
const TASK_GRACE: Duration = Duration::from_secs(1);
/// Maximum number of times that an older client is asked one question.
const MAX_FORMS: u32 = 3;
/// Maximum number of input rounds per call.
const MAX_ROUNDS: u32 = 32;
/// Maximum size of a result in the artifact store that is embedded in the response.
const MAX_FETCHED_RESULT: usize = 1 << 20;
/// Maximum length of a client's message id.
const MAX_MESSAGE_ID: usize = 200;
/// Separates a task's id from its input round in the state that a client repeats.
const ROUND_SIGN: char = '~';

/// A call of an agent or workflow.
pub(super) struct AgentCall {
    operations: A2aOperations,
    pub(super) call: OperationCall,
    card: AgentCard,
    abilities: ClientAbilities,
    pub(super) message_id: String,
    /// Whether the client can find its task again: it named the message, or keeps tasks.
    pub(super) is_found_again: bool,
    /// Id of the task, derived from the message.
    pub(super) task: String,
    progress: Option<ProgressToken>,
    /// Minimum severity of messages that the client reads.
    log: Option<LogSeverity>,
    peer: Peer<RoleServer>,
}

/// Parts of a client's request that a call needs.
pub(super) struct CallRequest {
    /// Input of a new task, or the reason why it is invalid.
    pub(super) input: Result<Value, String>,
    /// State that the client repeats; `None` for a new task.
    pub(super) state: Option<String>,
    /// Responses to the call's questions.
    pub(super) responses: Option<InputResponses>,
}

/// Outcome of a call.
pub(super) enum CallOutcome {
    /// The agent responded with a message instead of a task.
    Message(Box<Message>),
    /// The task has ended, or waits for input that this client does not provide.
    Task(Box<Task>, AskedInput),
    /// The task is running, and the client keeps it.
    Begun(CreateTaskResult),
    /// The client has to repeat the call with this input.
    InputRequired(InputRequiredResult),
    /// The input is not valid for the agent.
    BadInput(String),
}

/// Reason why a call has no outcome.
pub(super) enum CallError {
    /// The operation was rejected.
    Refused(A2aError),
    /// The request violates the protocol.
    Protocol(ErrorData),
}

impl From<A2aError> for CallError {
    fn from(error: A2aError) -> Self {
        Self::Refused(error)
    }
}

/// A task that waits for input or has ended, or a message instead of a task.
enum SettledCall {
    Task(Box<Task>),
    Message(Box<Message>),
}

/// A started task whose progress is reported.
enum BegunTask {
    Events(TaskStream),
    /// The agent responded with a message instead of a task.
    Message(Box<Message>),
}

/// Effect of a client's responses.
enum GivenEffect {
    /// No response matches an open question.
    Nothing,
    /// The user dismissed the forms.
    Declined,
    /// The task continued, up to this state.
    Settled(SettledCall),
}

impl AgentCall {
    /// Creates a call of this agent. Fails for a client that lacks a capability which the agent's
    /// offer needs.
    pub(super) fn new(
        operations: &A2aOperations,
        call: OperationCall,
        card: AgentCard,
        log: Option<LogSeverity>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Self, ErrorData> {
        let abilities = ClientAbilities::of(context);
        abilities.check(&McpOffer::of(&card))?;
        let chosen = context.meta.0.0.get(MESSAGE_ID_META);
        let message_id = match chosen.map(Value::as_str) {
            None => Uuid::now_v7().to_string(),
            Some(Some(id)) if (1..=MAX_MESSAGE_ID).contains(&id.len()) => id.to_owned(),
            Some(_) => {
                let text = format!("_meta {MESSAGE_ID_META}: expected a text of 1 to {MAX_MESSAGE_ID} bytes");
                return Err(malformed(&text));
            }
        };
        let task = operations.task_of_message(&call, &card.name, &message_id);
        Ok(Self {
            operations: operations.clone(),
            call,
            card,
            abilities,
            message_id,
            is_found_again: chosen.is_some() || abilities.keeps_tasks,
            task,
            progress: context.meta.get_progress_token(),
            log: LogSeverity::of_request(context).or(log.filter(|_| !abilities.repeats_with_answers)),
            peer: context.peer.clone(),
        })
    }

    /// Returns the call for a request that never becomes a task.
    pub(super) fn without_tasks(mut self) -> Self {
        self.abilities.keeps_tasks = false;
        self
    }

    /// Answers the call.
    pub(super) async fn answer(&self, request: CallRequest) -> Result<CallOutcome, CallError> {
        let CallRequest { input, state, mut responses } = request;
        let (mut settled, mut round) = match state.as_deref() {
            Some(state) => self.resume(state).await?,
            None => match input {
                Ok(input) => (self.begin(&input).await?, 0),
                Err(text) => return Ok(CallOutcome::BadInput(text)),
            },
        };
        let mut is_new = state.is_none();
        loop {
            let task = match settled {
                SettledCall::Message(message) => return Ok(CallOutcome::Message(message)),
                SettledCall::Task(task) => *task,
            };
            if is_terminal(task.status.state) {
                return Ok(CallOutcome::Task(Box::new(task), AskedInput::Nothing));
            }
            let asked = self.operations.asked_input(&self.call, &task).await?;
            if let Some(given) = responses.take() {
                match self.give(&task, &asked, &given).await? {
                    GivenEffect::Nothing => {}
                    GivenEffect::Declined => return Ok(CallOutcome::Task(Box::new(task), asked)),
                    GivenEffect::Settled(next) => {
                        (settled, round, is_new) = (next, round + 1, false);
                        continue;
                    }
                }
            }
            let requests = requests_of(&self.card.name, &asked, self.abilities);
            // An agent's initial questions come before there is a task to keep.
            let asks_first = is_new && !self.is_workflow() || state.is_some();
            if self.abilities.keeps_tasks && (requests.is_empty() || !asks_first) {
                let begun = begun_at(&self.operations, &self.call, &task).await;
                return Ok(CallOutcome::Begun(CreateTaskResult::new(mcp_task(&task, &begun))));
            }
            if requests.is_empty() || round >= MAX_ROUNDS {
                return Ok(CallOutcome::Task(Box::new(task), asked));
            }
            if self.abilities.repeats_with_answers {
                let state = format!("{}{ROUND_SIGN}{round}", task.id.0);
                return Ok(CallOutcome::InputRequired(InputRequiredResult::new(Some(requests), Some(state))));
            }
            let next = match &asked {
                AskedInput::Questions(questions) => match questions.first() {
                    Some(question) => Box::pin(self.ask_question(&task, question)).await?,
                    None => None,
                },
                _ => self.ask_requests(&task, &asked, requests).await?,
            };
            match next {
                Some(next) => (settled, round, is_new) = (next, round + 1, false),
                None => return Ok(CallOutcome::Task(Box::new(task), asked)),
            }
        }
    }

    /// Starts the task, and waits until it needs input or has ended.
    async fn begin(&self, input: &Value) -> Result<SettledCall, A2aError> {
        if self.abilities.keeps_tasks {
            return self.begin_task(input).await;
        }
        if self.progress.is_none() && self.log.is_none() {
            return self.send(input, false).await;
        }
        let mut events = match self.begin_events(input).await? {
            BegunTask::Events(events) => events,
            BegunTask::Message(message) => return Ok(SettledCall::Message(message)),
        };
        let mut told = 0_u32;
        while let Some(item) = events.next().await {
            let event: StreamResponse = match item {
                StreamItem::Event { body, .. } => match serde_json::from_slice(&body) {
                    Ok(event) => event,
                    Err(_) => continue,
                },
                StreamItem::Failed(error) => return Err(error),
            };
            match &event {
                StreamResponse::Message(message) => {
                    return Ok(SettledCall::Message(Box::new(message.clone())));
                }
                StreamResponse::Task(task) if is_settled(task.status.state) => break,
                // The workflow is paused: it may take days until the task starts.
                StreamResponse::Task(task)
                    if task.status.state == TaskState::Submitted && self.is_workflow() =>
                {
                    return Ok(SettledCall::Task(Box::new(task.clone())));
                }
                StreamResponse::StatusUpdate(update) if is_settled(update.status.state) => {
                    // One node may ask while others are running: only the task's state shows
                    // whether it waits.
                    let (_, task) = self.operations.find_task(&self.call, &self.task).await?;
                    if is_settled(task.status.state) {
                        break;
                    }
                }
                _ => {}
            }
            if let Some(news) = news_of(&event) {
                told += 1;
                self.tell(told, news).await;
            }
        }
        let task = self.operations.settled_task(&self.call, &self.task).await?;
        Ok(SettledCall::Task(Box::new(task)))
    }

    /// Starts the task and returns its events: of a workflow from the first one, of an agent from
    /// now on.
    async fn begin_events(&self, input: &Value) -> Result<BegunTask, A2aError> {
        let reply = if self.is_workflow() {
            if let SettledCall::Message(message) = self.send(input, true).await? {
                return Ok(BegunTask::Message(message));
            }
            let call = OperationCall { last_event: Some(0), ..self.call.clone() };
            let params = raw(&json!({"id": self.task}));
            self.operations.perform(&call, CoreMethod::SubscribeToTask, &params).await?
        } else {
            self.perform(CoreMethod::SendStreamingMessage, &self.message(input, false)).await?
        };
        match reply {
            OperationReply::Stream(events) => Ok(BegunTask::Events(events)),
            OperationReply::Value(_) | OperationReply::Incomplete { .. } => {
                Err(A2aError::internal("expected a stream"))
            }
        }
    }

    fn is_workflow(&self) -> bool {
        self.operations.is_workflow(&self.operations.served_name(&self.card.name))
    }

    /// Starts a task for a client that keeps tasks, and waits only briefly for its end.
    async fn begin_task(&self, input: &Value) -> Result<SettledCall, A2aError> {
        let begun = self.send(input, true).await?;
        let goes_on = matches!(&begun, SettledCall::Task(task) if !is_settled(task.status.state));
        // The same message starts the same execution, so a second one waits for it. An agent would
        // start again.
        if !goes_on || !self.is_workflow() {
            return Ok(begun);
        }
        let waited = tokio::time::timeout(TASK_GRACE, self.send(input, false)).await;
        waited.unwrap_or(Ok(begun))
    }

    async fn tell(&self, count: u32, news: TaskNews) {
        if self.log.is_some_and(|least| news.severity >= least) {
            tell_log(&self.peer, &self.card.name, news.severity, &news.text).await;
        }
        let Some(token) = self.progress.clone() else { return };
        let told = ProgressNotificationParam::new(token, f64::from(count)).with_message(news.text);
        // A disconnected client needs no progress.
        let _ = self.peer.notify_progress(told).await;
    }

    async fn send(&self, input: &Value, at_once: bool) -> Result<SettledCall, A2aError> {
        let reply = self.perform(CoreMethod::SendMessage, &self.message(input, at_once)).await?;
        let OperationReply::Value(value) = reply else {
            return Err(A2aError::internal("expected a single response, not a stream"));
        };
        let response = serde_json::from_str(value.get());
        settled_of(response.map_err(|error| A2aError::internal(error.to_string()))?)
    }

    async fn perform(&self, method: CoreMethod, params: &Value) -> Result<OperationReply, A2aError> {
        self.operations.perform(&self.call, method, &raw(params)).await
    }

    fn message(&self, input: &Value, at_once: bool) -> Value {
        json!({
            "message": {
                "messageId": self.message_id,
                "role": "ROLE_USER",
                "parts": [{"data": input}],
                "metadata": {"skill": self.card.name},
            },
            "configuration": {"returnImmediately": at_once},
        })
    }

    /// Resumes a task that requested input. The id comes from the client and grants no access: the
    /// caller's access to the task is checked as usual.
    async fn resume(&self, state: &str) -> Result<(SettledCall, u32), CallError> {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let read = state.rsplit_once(ROUND_SIGN).filter(|(_, round)| is_number(round));
        let read = read.and_then(|(task, round)| Some((task, round.parse::<u32>().ok()?)));
        let Some((task, round)) = read else {
            return Err(CallError::Protocol(malformed("requestState: not issued by this server")));
        };
        let (agent, task) = self.operations.find_task(&self.call, task).await?;
        if agent != self.card.name {
            let text = "requestState: belongs to a call of another tool";
            return Err(CallError::Protocol(malformed(text)));
        }
        if is_settled(task.status.state) || self.abilities.keeps_tasks {
            return Ok((SettledCall::Task(Box::new(task)), round));
        }
        // Another person has answered in the meantime.
        let task = self.operations.settled_task(&self.call, &task.id.0).await?;
        Ok((SettledCall::Task(Box::new(task)), round))
    }

    /// Sends a client's responses to a task, and waits until it needs input or has ended.
    async fn give(
        &self,
        task: &Task,
        asked: &AskedInput,
        responses: &InputResponses,
    ) -> Result<GivenEffect, A2aError> {
        match given_input(asked, responses) {
            GivenInput::Nothing => Ok(GivenEffect::Nothing),
            GivenInput::Declined => Ok(GivenEffect::Declined),
            GivenInput::Decisions(answers) => {
                for answer in answers {
                    self.operations.answer_question(&self.call, &task.id.0, answer).await?;
                }
                let task = self.operations.settled_task(&self.call, &task.id.0).await?;
                Ok(GivenEffect::Settled(SettledCall::Task(Box::new(task))))
            }
            GivenInput::Answer(answer) => {
                let at_once = self.abilities.keeps_tasks;
                let response = self.operations.answer_agent(&self.call, task, answer, at_once).await?;
                Ok(GivenEffect::Settled(settled_of(response)?))
            }
        }
    }

    /// Asks the user of an older client, and returns the task after the answer. Returns `None`
    /// without an answer.
    async fn ask_question(
        &self,
        task: &Task,
        question: &OpenQuestion,
    ) -> Result<Option<SettledCall>, A2aError> {
        let id = task.id.0.as_str();
        let mut form = form_of(&self.card.name, question);
        let closed = self.operations.question_closed(&self.call, id, question);
        tokio::pin!(closed);
        for _ in 0..MAX_FORMS {
            let limit = Some(self.operations.blocking_timeout());
            tokio::select! {
                asked = self.peer.create_elicitation_with_timeout(form, limit) => {
                    let Some(answer) = asked.ok().and_then(|result| answer_of(question, &result)) else {
                        return Ok(None);
                    };
                    if lacks_reason(answer.decision.reject, answer.decision.comment.as_deref()) {
                        form = form_for_reason(&self.card.name, question);
                        continue;
                    }
                    self.operations.answer_question(&self.call, id, answer).await?;
                }
                // Another person has decided, or the call has timed out.
                closed = &mut closed => closed?,
            }
            let task = self.operations.settled_task(&self.call, id).await?;
            return Ok(Some(SettledCall::Task(Box::new(task))));
        }
        Ok(None)
    }

    /// Passes an agent's questions to an older client, one by one, and returns the task after the
    /// answers. Returns `None` without an answer.
    async fn ask_requests(
        &self,
        task: &Task,
        asked: &AskedInput,
        requests: InputRequests,
    ) -> Result<Option<SettledCall>, A2aError> {
        let mut responses = InputResponses::new();
        for (key, request) in requests {
            let Some(request) = server_request(request) else { continue };
            let answer =
                tokio::time::timeout(self.operations.blocking_timeout(), self.peer.send_request(request));
            // A client that rejects the request provides no answer to it.
            let answer = answer.await.ok().and_then(Result::ok);
            if let Some(answer) = answer.and_then(|answer| serde_json::to_value(answer).ok()) {
                responses.insert(key, answer);
            }
        }
        match self.give(task, asked, &responses).await? {
            GivenEffect::Settled(settled) => Ok(Some(settled)),
            GivenEffect::Nothing | GivenEffect::Declined => Ok(None),
        }
    }
}

/// Converts a request for older clients, which receive it while the call waits.
fn server_request(request: InputRequest) -> Option<ServerRequest> {
    Some(match request {
        InputRequest::Elicitation(request) => {
            debug_assert!(matches!(request.params, ElicitRequestParams::FormElicitationParams { .. }));
            ServerRequest::ElicitRequest(request)
        }
        InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
        InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
        _ => return None,
    })
}

fn settled_of(response: SendMessageResponse) -> Result<SettledCall, A2aError> {
    match response {
        SendMessageResponse::Task(task) => Ok(SettledCall::Task(Box::new(task))),
        SendMessageResponse::Message(message) => Ok(SettledCall::Message(Box::new(message))),
        _ => Err(A2aError::internal("the response is neither a task nor a message")),
    }
}

fn malformed(text: &str) -> ErrorData {
    coded_error(ErrorCode::INVALID_PARAMS, code::GATEWAY_MESSAGE_MALFORMED.as_str(), text, false)
}

/// Returns when a task started, as an A2A timestamp; its last change if that is unknown.
pub(super) async fn begun_at(operations: &A2aOperations, call: &OperationCall, task: &Task) -> String {
    let begun = operations.begun_at(call, &task.id.0).await.ok().flatten();
    let begun = begun.and_then(|at| i64::try_from(at).ok()).map(format_timestamp);
    begun.or_else(|| task.status.timestamp.clone()).unwrap_or_else(|| format_timestamp(0))
}

/// Embeds JSON results of the artifact store in the task. The result of a workflow is its first
/// artifact, and the others are files.
pub(super) async fn fetch_results(operations: &A2aOperations, task: &mut Task) {
    let is_workflow = task.metadata.as_ref().is_some_and(|metadata| metadata.get("workflow_name").is_some());
    let results = task.artifacts.iter_mut().flatten().take(if is_workflow { 1 } else { usize::MAX });
    let parts = results.flat_map(|artifact| &mut artifact.parts);
    for part in parts.filter(|part| part.media_type.as_deref() == Some("application/json")) {
        if let Some(data) = fetched(operations, part).await {
            part.content = PartContent::Data(data);
        }
    }
}

async fn fetched(operations: &A2aOperations, part: &Part) -> Option<Value> {
    let PartContent::Url(address) = &part.content else { return None };
    let bytes = operations.stored_bytes(&address.parse().ok()?, MAX_FETCHED_RESULT).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn is_settled(state: TaskState) -> bool {
    is_terminal(state) || matches!(state, TaskState::InputRequired | TaskState::AuthRequired)
}
