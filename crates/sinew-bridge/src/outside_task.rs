//! A task of the mesh as a task of an external agent: sent once, recorded, and followed to its end
//! by any process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sinew_agent::{CancellationToken, Context, Failure, QuestionToPerson, StepEffect};
use sinew_mesh::crash;
use sinew_protocol::a2a::{
    Message, Part, PartContent, SendMessageResponse, StreamResponse, Task, TaskState, TaskStatus, is_terminal,
};
use sinew_protocol::card::PERSON_QUESTION;
use sinew_protocol::{Fault, code};
use tokio::time::{Instant, sleep};

use crate::bridge_file::BridgeSettings;
use crate::error::{BridgeError, quoted};
use crate::remote_client::{CallFailure, RemoteClient, RemoteEvents, SendAnswer};
use crate::remote_output::{data_of, output_of, output_of_message, words_of};
use crate::task_message::{OutgoingParts, answer_parts, message, parts_of};
use crate::task_view::{TaskView, state_word};

/// Time without events of a stream after which the task is queried.
const STREAM_SILENCE: Duration = Duration::from_mins(1);
/// Delays between queries of a task: the first and the maximum, doubled in between.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// Time without any response about a task after which the attempt fails. Another attempt continues
/// the same task.
const MAX_SILENCE: Duration = Duration::from_mins(5);
/// Attempts to send a message that the agent did not accept, and the first delay between them.
const SEND_TRIES: (u32, Duration) = (5, Duration::from_millis(500));
/// Maximum delay that an agent may request before a message is sent again.
const MAX_SEND_WAIT: Duration = Duration::from_secs(30);
/// Queries for the task of a message whose response was lost, and the first delay between them: the
/// message may still be in transit.
const FIND_TRIES: (u32, Duration) = (4, Duration::from_millis(500));
/// Timeout for the cancellation of an abandoned task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum number of questions of one task that a workflow answers.
const MAX_QUESTIONS: u32 = 20;
/// Maximum size of a question for the caller, in bytes.
const MAX_QUESTION_BYTES: usize = 32 << 10;
/// Maximum length of a task id, in bytes.
const MAX_ID_BYTES: usize = 1_024;
/// Maximum size of a message that replaces a task, in bytes; it is stored in the log of the task.
const MAX_DIRECT_BYTES: usize = 512 << 10;

/// External agent, as the handler of its tasks.
pub(crate) struct OutsideAgent {
    pub(crate) client: RemoteClient,
    pub(crate) settings: Arc<BridgeSettings>,
    pub(crate) has_input_schema: bool,
    pub(crate) has_output_schema: bool,
    /// Fires before this process returns its running tasks: other processes continue them, so
    /// external tasks are not cancelled.
    pub(crate) halting: CancellationToken,
}

/// Outcome of sending a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum SentMessage {
    /// The agent created a task.
    Task { task: String, context: String },
    /// The agent responded with a message.
    Message { message: Message },
}

/// Start of a response that is kept in this process.
#[derive(Default)]
struct HeldAnswer {
    first: Option<StreamResponse>,
    events: Option<Box<RemoteEvents>>,
}

/// Answered question, as stored in the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct AnsweredQuestion {
    question: String,
    parts: Vec<Part>,
    /// Extensions of the answer.
    #[serde(default)]
    extensions: Vec<String>,
}

/// A message of an activation, with its position.
struct OutsideMessage<'a> {
    id: String,
    parts: &'a [Part],
    extensions: &'a [String],
    /// Task that the message continues.
    task: Option<&'a str>,
}

type TaskSlot = Arc<Mutex<Option<String>>>;

impl OutsideAgent {
    /// Processes a task of the mesh.
    pub(crate) async fn perform(self: Arc<Self>, input: Value, context: Context) -> Result<Value, Failure> {
        let known = TaskSlot::default();
        let work = self.work(&input, &context, &known);
        tokio::select! {
            biased;
            done = work => done,
            () = context.cancel().cancelled() => {
                self.give_up(&known).await;
                Err(Fault::cancelled(code::TASK_CANCELLED.as_str(), "the task was cancelled").into())
            }
        }
    }

    async fn give_up(&self, known: &TaskSlot) {
        let task = known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(task) = task.filter(|_| !self.halting.is_cancelled()) else { return };
        match tokio::time::timeout(CANCEL_TIMEOUT, self.client.cancel(&task)).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                let error = failure.into_error("CancelTask");
                tracing::warn!(task, %error, "cannot cancel a task of the external agent");
            }
            Err(_) => tracing::warn!(task, "cannot cancel a task of the external agent: no response"),
        }
    }

    async fn work(&self, input: &Value, context: &Context, known: &TaskSlot) -> Result<Value, Failure> {
        let outgoing = parts_of(input, self.has_input_schema, context).await?;
        let places = (&self.client, &*self.settings);
        let mut round = 0;
        loop {
            let (sent, held) = self.send(&outgoing, round, context).await?;
            let (task, task_context) = match sent {
                SentMessage::Task { task, context } => (task, context),
                SentMessage::Message { message } => {
                    return output_of_message(&message, self.has_output_schema, places, context).await;
                }
            };
            *known.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.clone());
            crash::point("bridge.sent");
            let ended = Box::pin(self.conduct((&task, &task_context), held, round, context)).await?;
            match ended.status.state {
                TaskState::Completed => {
                    return output_of(&ended, self.has_output_schema, places, context).await;
                }
                state => {
                    // An earlier attempt with this outcome has already reported it; this attempt
                    // sends the message again.
                    let ended_in = context
                        .steps()
                        .run(&format!("ended-{round}"), StepEffect::Repeat, |_| async {
                            Ok(context.attempt())
                        })
                        .await?;
                    if ended_in >= context.attempt() {
                        let text = quoted(&words_of(ended.status.message.as_ref()));
                        return Err(failure(BridgeError::TaskEnded { state: state_word(state), text }));
                    }
                    round += 1;
                }
            }
        }
    }

    /// Sends the message of a round, unless a process has already sent it.
    async fn send(
        &self,
        outgoing: &OutgoingParts,
        round: u32,
        context: &Context,
    ) -> Result<(SentMessage, HeldAnswer), Failure> {
        let id = format!("{}-{round}", context.activation());
        let task = outgoing.reply_to.as_deref();
        let place = OutsideMessage { id, parts: &outgoing.parts, extensions: &[], task };
        self.send_recorded(&format!("send-{round}"), &place, context).await
    }

    /// Sends a message only once, regardless of the number of processes.
    async fn send_recorded(
        &self,
        step: &str,
        place: &OutsideMessage<'_>,
        context: &Context,
    ) -> Result<(SentMessage, HeldAnswer), Failure> {
        let effect = if self.settings.resend { StepEffect::Repeat } else { StepEffect::Once };
        let mut held = HeldAnswer::default();
        let sending = async |held: &mut HeldAnswer| {
            let sent = self.send_message(place, held).await.map_err(failure)?;
            crash::point("bridge.unrecorded");
            Ok(sent)
        };
        let kept = &mut held;
        let sent = context.steps().run(step, effect, async move |_| sending(kept).await).await;
        let sent = match sent {
            Err(lost) if lost.fault().code == code::STEP_FATE_UNKNOWN.as_str() => {
                let found = context.steps().run(&format!("find-{step}"), StepEffect::Repeat, async |_| {
                    let reason = "a process stopped while it was sending the message".to_owned();
                    self.find(place, reason).await.map_err(failure)
                });
                found.await?
            }
            sent => sent?,
        };
        Ok((sent, held))
    }

    async fn send_message(
        &self,
        place: &OutsideMessage<'_>,
        held: &mut HeldAnswer,
    ) -> Result<SentMessage, BridgeError> {
        let context = place.task.is_none().then_some(place.id.as_str());
        let mut message = message(&place.id, place.parts, place.task, context);
        message.extensions = Some(place.extensions.to_vec()).filter(|extensions| !extensions.is_empty());
        let (tries, mut wait) = SEND_TRIES;
        let mut tried = 0;
        loop {
            tried += 1;
            let lost = match self.client.send(&message).await {
                Ok(answer) => {
                    count_message("sent");
                    return sent_message(answer, place.task, held);
                }
                Err(CallFailure::Busy { retry_after_ms, .. }) if tried < tries => {
                    let asked = retry_after_ms.map_or(wait, Duration::from_millis);
                    sleep(asked.clamp(wait, MAX_SEND_WAIT)).await;
                    wait *= 2;
                    continue;
                }
                Err(CallFailure::Unsent(_)) if tried < tries => {
                    sleep(wait).await;
                    wait *= 2;
                    continue;
                }
                Err(failure) if failure.leaves_fate_open() => failure.into_error("SendMessage").to_string(),
                Err(other) => return Err(other.into_error("SendMessage")),
            };
            if self.settings.resend && tried < tries {
                sleep(wait).await;
                wait *= 2;
                continue;
            }
            return self.find(place, quoted(&lost)).await;
        }
    }

    /// Finds the task of a message that may have been accepted.
    async fn find(&self, place: &OutsideMessage<'_>, reason: String) -> Result<SentMessage, BridgeError> {
        let (tries, mut wait) = FIND_TRIES;
        for tried in 0..tries {
            if tried > 0 {
                sleep(wait).await;
                wait *= 2;
            }
            let tasks = match place.task {
                Some(task) => self.client.task(task, 100).await.map(|task| vec![task]),
                None => self.client.tasks_of(&place.id).await,
            };
            match tasks {
                Ok(tasks) => {
                    // An agent may ignore the context of a list query, or assign its own context to
                    // a task.
                    let is_ours = |task: &&Task| {
                        let mut messages = task.history.iter().flatten();
                        messages.any(|message| message.id.0 == place.id)
                            || (place.task.is_none() && task.context_id.0 == place.id)
                    };
                    if let Some(task) = tasks.iter().find(is_ours) {
                        count_message("found");
                        return sent_task(&task.id.0, &task.context_id.0, place.task);
                    }
                }
                Err(failure) if failure.is_passing() => {}
                Err(failure) => {
                    tracing::info!(error = %failure.into_error("ListTasks"), "cannot look up a task of the external agent");
                    break;
                }
            }
        }
        count_message("unknown");
        Err(BridgeError::FateUnknown { reason })
    }

    /// Follows a task to its end, and gets the answers to its questions.
    async fn conduct(
        &self,
        (task, task_context): (&str, &str),
        mut held: HeldAnswer,
        round: u32,
        context: &Context,
    ) -> Result<Task, Failure> {
        let mut view = TaskView::new(task, task_context);
        let mut answered = String::new();
        for nth in 1..=MAX_QUESTIONS {
            view = self.follow(view, std::mem::take(&mut held), &answered, context).await.map_err(failure)?;
            if view.task.status.state != TaskState::InputRequired {
                return Ok(view.task);
            }
            let key = format!("question-{round}-{nth}");
            let asked =
                context.steps().run(&format!("asked-{round}-{nth}"), StepEffect::Repeat, async |_| {
                    self.ask(&view.task.status, &key, context).await
                });
            let AnsweredQuestion { question, parts, extensions } = asked.await?;
            answered = question;
            let id = format!("{}-{round}-a{nth}", context.activation());
            let place = OutsideMessage { id, parts: &parts, extensions: &extensions, task: Some(task) };
            (_, held) = self.send_recorded(&format!("answer-{round}-{nth}"), &place, context).await?;
            view = TaskView::new(task, task_context);
        }
        let text = format!("the external agent asked more than {MAX_QUESTIONS} questions");
        Err(failure(BridgeError::TaskEnded { state: "input-required", text }))
    }

    /// Gets the answer to a question of the agent: from the configured workflow or people,
    /// otherwise from the caller of the task, which is `input-required` meanwhile. A task of an
    /// execution has no caller, so people answer.
    async fn ask(
        &self,
        status: &TaskStatus,
        key: &str,
        context: &Context,
    ) -> Result<AnsweredQuestion, Failure> {
        let (question, message) = (question_id(status), status.message.as_ref());
        let (words, data) = (words_of(message), data_of(message));
        let default = if context.has_caller() { None } else { Some(PERSON_QUESTION) };
        match self.settings.ask.as_deref().or(default) {
            Some(PERSON_QUESTION) => {
                let asked = QuestionToPerson { prompt: words, data, ..QuestionToPerson::default() };
                let answer = Box::pin(context.ask_person(key, asked)).await?;
                let comment = || answer.comment.clone().map(Value::from).unwrap_or(answer.approved.into());
                let answer = if answer.answer.is_null() { comment() } else { answer.answer.clone() };
                Ok(AnsweredQuestion { question, parts: answer_parts(&answer), extensions: Vec::new() })
            }
            Some(workflow) => {
                let input = json!({"agent": context.agent(), "question": words, "data": data});
                let answer = Box::pin(context.parked(context.call_keyed(workflow, key, input))).await?;
                Ok(AnsweredQuestion { question, parts: answer_parts(&answer), extensions: Vec::new() })
            }
            None => {
                let extensions = message.and_then(|it| it.extensions.clone()).unwrap_or_default();
                let answer = context.ask_caller(question_parts(message), extensions).await?;
                let (parts, extensions) = (answer.parts, answer.extensions.unwrap_or_default());
                Ok(AnsweredQuestion { question, parts, extensions })
            }
        }
    }

    /// Waits until a task has ended, or asks a question other than `answered`. Reopens streams that
    /// end.
    async fn follow(
        &self,
        mut view: TaskView,
        held: HeldAnswer,
        answered: &str,
        context: &Context,
    ) -> Result<TaskView, BridgeError> {
        let invalid = |defect: &dyn std::fmt::Display| BridgeError::Answer {
            operation: "SubscribeToTask",
            reason: defect.to_string(),
        };
        let mut answered = answered;
        let mut settled = |view: &TaskView| {
            if view.task.status.state == TaskState::Working {
                // The answer was received: any further question is new.
                answered = "";
            }
            view.is_settled()
                && (is_terminal(view.task.status.state) || question_id(&view.task.status) != answered)
        };
        let (mut events, mut heard, mut wait) = (held.events, Instant::now(), POLL_INTERVAL.0);
        if let Some(first) = held.first {
            view.apply(first).map_err(|defect| invalid(&defect))?;
        }
        loop {
            if settled(&view) {
                return Ok(self.complete(view).await);
            }
            if let Some(stream) = &mut events {
                match stream.next(STREAM_SILENCE).await {
                    Ok(Some(event)) => {
                        tell(context, &event);
                        view.apply(event).map_err(|defect| invalid(&defect))?;
                        (heard, wait) = (Instant::now(), POLL_INTERVAL.0);
                    }
                    Ok(None) => events = None,
                    Err(failure) if failure.is_passing() => events = None,
                    Err(failure) => return Err(failure.into_error("SubscribeToTask")),
                }
                continue;
            }
            match self.client.task(&view.task.id.0, 0).await {
                Ok(task) => {
                    view.replace(task).map_err(|defect| invalid(&defect))?;
                    heard = Instant::now();
                }
                Err(failure) if failure.is_passing() && heard.elapsed() < MAX_SILENCE => {
                    sleep(wait).await;
                    wait = (wait * 2).min(POLL_INTERVAL.1);
                    continue;
                }
                Err(failure) => return Err(failure.into_error("GetTask")),
            }
            if settled(&view) {
                return Ok(self.complete(view).await);
            }
            if self.client.endpoint.streams {
                // A refusal means that the task has ended, or that it must be queried.
                events = self.client.subscribe(&view.task.id.0).await.ok();
            }
            // Limits the request rate to an agent that ends its streams immediately.
            sleep(wait).await;
            wait = (wait * 2).min(POLL_INTERVAL.1);
        }
    }

    /// Returns the task with all of its artifacts: a stream may have started in the middle.
    async fn complete(&self, mut view: TaskView) -> TaskView {
        if is_terminal(view.task.status.state)
            && let Ok(task) = self.client.task(&view.task.id.0, 0).await
            && task.status.state == view.task.status.state
        {
            let streamed = view.clone();
            if view.replace(task).is_err() {
                return streamed;
            }
        }
        view
    }
}

/// Initialises the counters, so that the first message counts as an increase.
pub(crate) fn begin_counts() {
    for outcome in ["sent", "found", "unknown"] {
        metrics::counter!("sinew_bridge_messages_total", "outcome" => outcome).increment(0);
    }
}

fn count_message(outcome: &'static str) {
    metrics::counter!("sinew_bridge_messages_total", "outcome" => outcome).increment(1);
}

/// Decodes the response to a message.
fn sent_message(
    answer: SendAnswer,
    expected: Option<&str>,
    held: &mut HeldAnswer,
) -> Result<SentMessage, BridgeError> {
    let first = match answer {
        SendAnswer::Stream(first, events) => {
            held.events = Some(events);
            first
        }
        SendAnswer::Whole(SendMessageResponse::Task(task)) => StreamResponse::Task(task),
        SendAnswer::Whole(SendMessageResponse::Message(message)) => StreamResponse::Message(message),
        SendAnswer::Whole(_) => {
            let reason = "it is neither a task nor a message".to_owned();
            return Err(BridgeError::Answer { operation: "SendMessage", reason });
        }
    };
    let sent = match &first {
        StreamResponse::Task(task) => sent_task(&task.id.0, &task.context_id.0, expected)?,
        StreamResponse::StatusUpdate(update) => sent_task(&update.task_id.0, &update.context_id.0, expected)?,
        StreamResponse::ArtifactUpdate(update) => {
            sent_task(&update.task_id.0, &update.context_id.0, expected)?
        }
        StreamResponse::Message(message) => {
            let bytes = serde_json::to_vec(message).map_or(0, |bytes| bytes.len());
            if bytes > MAX_DIRECT_BYTES {
                let reason =
                    format!("a message without a task has {bytes} bytes; the limit is {MAX_DIRECT_BYTES}");
                return Err(BridgeError::Answer { operation: "SendMessage", reason });
            }
            held.events = None;
            return Ok(SentMessage::Message { message: message.clone() });
        }
        _ => {
            let reason = "an event of an unknown kind".to_owned();
            return Err(BridgeError::Answer { operation: "SendMessage", reason });
        }
    };
    held.first = Some(first);
    Ok(sent)
}

fn sent_task(task: &str, context: &str, expected: Option<&str>) -> Result<SentMessage, BridgeError> {
    let wrong = |reason: String| Err(BridgeError::Answer { operation: "SendMessage", reason });
    let is_id = |id: &str| id.len() <= MAX_ID_BYTES && !id.chars().any(char::is_control);
    if task.is_empty() || !is_id(task) || !is_id(context) {
        return wrong("its task has no usable id".to_owned());
    }
    match expected {
        Some(expected) if expected != task => wrong(format!("it is about task {:?}", quoted(task))),
        _ => Ok(SentMessage::Task { task: task.to_owned(), context: context.to_owned() }),
    }
}

/// Reports the content of an event to observers.
fn tell(context: &Context, event: &StreamResponse) {
    match event {
        StreamResponse::StatusUpdate(update) => {
            let text = words_of(update.status.message.as_ref());
            if !text.is_empty() && update.status.state == TaskState::Working {
                context.progress(json!({"message": quoted(&text)}));
            }
        }
        StreamResponse::ArtifactUpdate(update) if update.append != Some(true) => {
            let name = update.artifact.name.as_deref().unwrap_or(&update.artifact.id.0);
            context
                .progress(json!({"message": format!("artifact {}", quoted(name)), "artifact": quoted(name)}));
        }
        _ => {}
    }
}

/// Returns the id of a question, which is constant until it is answered.
fn question_id(status: &TaskStatus) -> String {
    let id = status.message.as_ref().map(|message| message.id.0.as_str());
    let text = words_of(status.message.as_ref());
    let words = [id.unwrap_or_default(), status.timestamp.as_deref().unwrap_or_default(), &text].join("@");
    words.chars().take(MAX_ID_BYTES).collect()
}

/// Returns the texts and data of a question, as far as they fit into an event.
fn question_parts(message: Option<&Message>) -> Vec<Part> {
    let parts = message.iter().flat_map(|message| &message.parts);
    let shown = parts.filter(|part| matches!(part.content, PartContent::Text(_) | PartContent::Data(_)));
    let mut left = MAX_QUESTION_BYTES;
    let mut fitting = Vec::new();
    for part in shown {
        let size = serde_json::to_vec(part).map_or(usize::MAX, |json| json.len());
        if size <= left {
            left -= size;
            fitting.push(part.clone());
        }
    }
    if fitting.is_empty() { vec![Part::text(quoted(&words_of(message)))] } else { fitting }
}

fn failure(error: BridgeError) -> Failure {
    Fault::from(error).into()
}
