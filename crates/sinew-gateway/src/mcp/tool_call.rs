//! One call of a tool: begins a task, waits for it, and asks the user of the client what the task asks.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, CreateTaskResult,
    ElicitationCapability, ErrorCode, ErrorData, InputRequiredResult, ProgressNotificationParam,
    ProgressToken, ProtocolVersion,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Value, json};
use sinew_protocol::a2a::{
    A2aError, AgentCard, CoreMethod, Message, Part, PartContent, SendMessageResponse, StreamResponse, Task,
    TaskState, format_timestamp, is_terminal,
};
use sinew_protocol::card::{self, AgentKind};
use sinew_protocol::jsonrpc::raw;
use sinew_protocol::{Fault, code};
use uuid::Uuid;

use super::MESSAGE_ID_META;
use super::question_form::{answer_of, answers_of, form_of, forms_of};
use super::tool_list::input_of;
use super::tool_result::{
    coded_error, error_of, failure, mcp_task, progress_of, refusal, result_of_message, result_of_task,
};
use crate::operations::{A2aOperations, OpenQuestion, OperationCall, OperationReply, StreamItem, TaskStream};

/// How long a client that keeps tasks waits for a result instead.
const TASK_GRACE: Duration = Duration::from_secs(1);
/// Questions that the user of one call is asked.
const MAX_QUESTIONS: usize = 32;
/// Bytes of a result in the store of artifacts that are put into the answer.
const MAX_FETCHED_RESULT: usize = 1 << 20;
/// Bytes of a message id that a client chooses.
const MAX_MESSAGE_ID: usize = 200;

/// Abilities of a client that decide how a call is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAbilities {
    /// Its user can be asked.
    pub(super) elicits: bool,
    /// It keeps tasks and asks for them.
    pub(super) keeps_tasks: bool,
    /// It repeats a call with the answers of its user; older ones are asked while the call waits.
    pub(super) repeats_with_answers: bool,
}

impl ClientAbilities {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let version = context.protocol_version();
        let abilities = context.client_capabilities();
        let has_forms = |it: &ElicitationCapability| it.form.is_some() || it.url.is_none();
        Self {
            elicits: abilities.as_ref().and_then(|it| it.elicitation.as_ref()).is_some_and(has_forms),
            keeps_tasks: abilities.as_ref().is_some_and(ClientCapabilities::supports_tasks),
            repeats_with_answers: version
                .is_some_and(|it| it.as_str() >= ProtocolVersion::V_2026_07_28.as_str()),
        }
    }
}

/// A call of a tool.
pub(super) struct ToolCall {
    operations: A2aOperations,
    pub(super) call: OperationCall,
    card: AgentCard,
    abilities: ClientAbilities,
    message_id: String,
    /// Id of the task, which follows from the message.
    pub(super) task: String,
    progress: Option<ProgressToken>,
    peer: Peer<RoleServer>,
}

/// A task that goes no further by itself, or a message instead of a task.
enum Settled {
    Task(Box<Task>),
    /// A task whose question the user has put away.
    Unanswered(Box<Task>),
    Message(Box<Message>),
}

/// Beginning of a task whose progress is told.
enum BegunTask {
    Events(TaskStream),
    /// The agent answered with a message instead of a task.
    Message(Box<Message>),
}

impl ToolCall {
    pub(super) fn new(
        operations: &A2aOperations,
        call: OperationCall,
        card: AgentCard,
        context: &RequestContext<RoleServer>,
    ) -> Result<Self, ErrorData> {
        let chosen = context.meta.0.0.get(MESSAGE_ID_META);
        let message_id = match chosen.map(Value::as_str) {
            None => Uuid::now_v7().to_string(),
            Some(Some(id)) if (1..=MAX_MESSAGE_ID).contains(&id.len()) => id.to_owned(),
            Some(_) => {
                let text = format!("_meta {MESSAGE_ID_META}: expected a text of 1 to {MAX_MESSAGE_ID} bytes");
                let code = code::GATEWAY_MESSAGE_MALFORMED.as_str();
                return Err(coded_error(ErrorCode::INVALID_PARAMS, code, &text, false));
            }
        };
        let task = operations.task_of_message(&call, &card.name, &message_id);
        Ok(Self {
            operations: operations.clone(),
            call,
            card,
            abilities: ClientAbilities::of(context),
            message_id,
            task,
            progress: context.meta.get_progress_token(),
            peer: context.peer.clone(),
        })
    }

    /// Answers the call.
    pub(super) async fn answer(&self, request: CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        let begun = match request.request_state {
            Some(ref task) => self.resume(task, &request).await?,
            None => match input_of(&self.card, request.arguments.unwrap_or_default()) {
                Ok(input) => self.begin(input).await,
                Err(text) => {
                    let code = code::TASK_INPUT_BREAKS_AGENT_INPUT_SCHEMA.as_str();
                    return Ok(failure(&Fault::invalid(code, text), None).into());
                }
            },
        };
        match begun {
            Ok(Settled::Message(message)) => Ok(result_of_message(&message).into()),
            Ok(Settled::Task(task)) => self.answer_with_task(*task).await,
            Ok(Settled::Unanswered(task)) => {
                let questions = questions_of(&self.operations, &self.call, &task).await;
                let questions = questions.map_err(|error| error_of(&error))?;
                Ok(self.result(*task, &questions).await.into())
            }
            Err(error) => refusal(&error).map(Into::into),
        }
    }

    /// Begins the task, and waits until it goes no further by itself.
    async fn begin(&self, input: Value) -> Result<Settled, A2aError> {
        if self.abilities.keeps_tasks {
            return self.begin_task(&input).await;
        }
        if self.progress.is_none() {
            return self.send(&input, false).await;
        }
        let mut events = match self.begin_events(&input).await? {
            BegunTask::Events(events) => events,
            BegunTask::Message(message) => return Ok(Settled::Message(message)),
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
                StreamResponse::Message(message) => return Ok(Settled::Message(Box::new(message.clone()))),
                StreamResponse::Task(task) if is_settled(task.status.state) => break,
                StreamResponse::StatusUpdate(update) if is_settled(update.status.state) => {
                    // One node may ask while others go on: the task itself says whether it waits.
                    let (_, task) = self.operations.find_task(&self.call, &self.task).await?;
                    if is_settled(task.status.state) {
                        break;
                    }
                }
                _ => {}
            }
            if let Some(text) = progress_of(&event) {
                told += 1;
                self.tell_progress(told, text).await;
            }
        }
        let task = self.operations.settled_task(&self.call, &self.task).await?;
        Ok(Settled::Task(Box::new(task)))
    }

    /// Begins the task and gives its events: of a workflow from the first one, of an agent from now on.
    async fn begin_events(&self, input: &Value) -> Result<BegunTask, A2aError> {
        let reply = if self.is_workflow() {
            if let Settled::Message(message) = self.send(input, true).await? {
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
                Err(A2aError::internal("a stream was expected"))
            }
        }
    }

    fn is_workflow(&self) -> bool {
        card::kind(&self.card) == AgentKind::Workflow
    }

    /// Begins a task for a client that keeps tasks, and waits for its end only a moment.
    async fn begin_task(&self, input: &Value) -> Result<Settled, A2aError> {
        let begun = self.send(input, true).await?;
        let goes_on = matches!(&begun, Settled::Task(task) if !is_settled(task.status.state));
        // The same message is the same execution, so a second one waits for it. An agent would begin anew.
        if !goes_on || !self.is_workflow() {
            return Ok(begun);
        }
        let waited = tokio::time::timeout(TASK_GRACE, self.send(input, false)).await;
        waited.unwrap_or(Ok(begun))
    }

    async fn tell_progress(&self, count: u32, text: String) {
        let Some(token) = self.progress.clone() else { return };
        let told = ProgressNotificationParam::new(token, f64::from(count)).with_message(text);
        // A client that went away needs no progress.
        let _ = self.peer.notify_progress(told).await;
    }

    async fn send(&self, input: &Value, at_once: bool) -> Result<Settled, A2aError> {
        let reply = self.perform(CoreMethod::SendMessage, &self.message(input, at_once)).await?;
        let OperationReply::Value(value) = reply else {
            return Err(A2aError::internal("one value was expected"));
        };
        match serde_json::from_str(value.get()) {
            Ok(SendMessageResponse::Task(task)) => Ok(Settled::Task(Box::new(task))),
            Ok(SendMessageResponse::Message(message)) => Ok(Settled::Message(Box::new(message))),
            _ => Err(A2aError::internal("the answer is not a task and not a message")),
        }
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

    /// Goes on with a task whose questions the client was given. The id comes back from the client, so it is only a name:
    /// whether this caller has the task is asked as for any other.
    async fn resume(
        &self,
        task: &str,
        request: &CallToolRequestParams,
    ) -> Result<Result<Settled, A2aError>, ErrorData> {
        let (agent, _) =
            self.operations.find_task(&self.call, task).await.map_err(|error| error_of(&error))?;
        if agent != self.card.name {
            let code = code::GATEWAY_MESSAGE_MALFORMED.as_str();
            let text = "requestState: it belongs to a call of another tool";
            return Err(coded_error(ErrorCode::INVALID_PARAMS, code, text, false));
        }
        Ok(self.give_answers(task, request).await)
    }

    async fn give_answers(&self, task: &str, request: &CallToolRequestParams) -> Result<Settled, A2aError> {
        if let Some(responses) = &request.input_responses {
            let questions = self.operations.open_questions(&self.call, task).await?;
            let answers = answers_of(&questions, responses);
            // A form that was put away must not be shown at once again.
            if answers.is_empty() && !questions.is_empty() {
                let (_, task) = self.operations.find_task(&self.call, task).await?;
                return Ok(Settled::Unanswered(Box::new(task)));
            }
            for answer in answers {
                self.operations.answer_question(&self.call, task, answer).await?;
            }
        }
        let task = self.operations.settled_task(&self.call, task).await?;
        Ok(Settled::Task(Box::new(task)))
    }

    /// The answer for a task, after the user was asked what can be asked.
    async fn answer_with_task(&self, mut task: Task) -> Result<CallToolResponse, ErrorData> {
        if self.abilities.keeps_tasks && !is_terminal(task.status.state) {
            let begun = begun_at(&self.operations, &self.call, &task).await;
            return Ok(CreateTaskResult::new(mcp_task(&task, &begun)).into());
        }
        for _ in 0..MAX_QUESTIONS {
            let questions = questions_of(&self.operations, &self.call, &task).await;
            let questions = questions.map_err(|error| error_of(&error))?;
            let Some(question) = questions.first().filter(|_| self.abilities.elicits) else {
                return Ok(self.result(task, &questions).await.into());
            };
            if self.abilities.repeats_with_answers {
                let forms = forms_of(&self.card.name, &questions);
                return Ok(InputRequiredResult::new(Some(forms), Some(task.id.0)).into());
            }
            match self.ask(&task, question).await {
                Ok(Some(again)) => task = again,
                Ok(None) => return Ok(self.result(task, &questions).await.into()),
                Err(error) => return refusal(&error).map(Into::into),
            }
        }
        Ok(self.result(task, &[]).await.into())
    }

    /// Asks the user of an older client, and gives the task as it is after the answer. None if there is no answer.
    async fn ask(&self, task: &Task, question: &OpenQuestion) -> Result<Option<Task>, A2aError> {
        let id = task.id.0.as_str();
        let form = form_of(&self.card.name, question);
        let asked = self.peer.create_elicitation_with_timeout(form, Some(self.operations.blocking_timeout()));
        let closed = self.operations.question_closed(&self.call, id, question);
        tokio::select! {
            asked = asked => {
                let Some(answer) = asked.ok().and_then(|result| answer_of(question, &result)) else {
                    return Ok(None);
                };
                self.operations.answer_question(&self.call, id, answer).await?;
            }
            // Another person has decided, or the time of the call is over.
            closed = closed => closed?,
        }
        self.operations.settled_task(&self.call, id).await.map(Some)
    }

    /// The result of a task. A result that lies in the store of artifacts is put into the answer, if it is not too large.
    async fn result(&self, mut task: Task, questions: &[OpenQuestion]) -> CallToolResult {
        fetch_results(&self.operations, &mut task).await;
        result_of_task(&task, questions)
    }
}

/// The questions of a task that waits for a person.
pub(super) async fn questions_of(
    operations: &A2aOperations,
    call: &OperationCall,
    task: &Task,
) -> Result<Vec<OpenQuestion>, A2aError> {
    if task.status.state != TaskState::InputRequired {
        return Ok(Vec::new());
    }
    operations.open_questions(call, &task.id.0).await
}

/// When a task began, as A2A writes moments; its last change if nobody knows.
pub(super) async fn begun_at(operations: &A2aOperations, call: &OperationCall, task: &Task) -> String {
    let begun = operations.begun_at(call, &task.id.0).await.ok().flatten();
    let begun = begun.and_then(|at| i64::try_from(at).ok()).map(format_timestamp);
    begun.or_else(|| task.status.timestamp.clone()).unwrap_or_else(|| format_timestamp(0))
}

/// Puts JSON results that lie in the store of artifacts into the task.
pub(super) async fn fetch_results(operations: &A2aOperations, task: &mut Task) {
    let parts = task.artifacts.iter_mut().flatten().flat_map(|artifact| &mut artifact.parts);
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
