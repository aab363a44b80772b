//! Agents that do what conformance suites ask for. They speak A2A's binding to NATS themselves, not through the SDK, so that
//! every answer that A2A knows can come from them: tasks in all states, artifacts of all kinds and in pieces, and messages.
//!
//! The beginning of a message's id chooses the scenario; an agent with a scenario of its own does that one always.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sinew_mesh::rpc::RpcRequest;
use sinew_mesh::{HeaderMap, Mesh, MeshError};
use sinew_protocol::a2a::{A2aError, CoreMethod, ErrorCode, SendMessageRequest, format_timestamp, part_data};
use sinew_protocol::card::{Announcement, CARD_INTERVAL, Delivery};
use sinew_protocol::jsonrpc::{Method, Refused, Request, Response, raw, result};
use sinew_protocol::mcp_offer::{MCP_EXTENSION, client_responses, requests_part};
use sinew_protocol::task::METADATA;
use sinew_protocol::{ActivationKey, ExecutionId, TaskId, Token, header};

use crate::scenarios::{
    AgentScenario, ArtifactPiece, Question, StateChange, Step, ToggledCard, scenario_of_message,
};

/// Tasks on a page that names no size.
const DEFAULT_PAGE: u64 = 50;
/// Refusal of webhooks, which the binding to NATS leaves to gateways.
const NO_PUSH: &str = "webhooks are the business of a gateway over HTTP";
/// When a task changed last, in milliseconds since 1970.
static LAST_CHANGE: AtomicI64 = AtomicI64::new(0);
/// A task, and the number of its last event.
struct ScenarioTask {
    execution: ExecutionId,
    id: TaskId,
    task: Value,
    seq: u64,
    /// Data of the first message, and answers under `answers`.
    data: Value,
    /// The question that is open, and the steps behind it.
    open: Option<(Question, Vec<Step>)>,
}

/// Tasks by caller and id.
type ScenarioTasks = HashMap<(String, String), ScenarioTask>;

/// One agent in this process. Clones are the same agent.
#[derive(Clone)]
pub(crate) struct ScenarioAgent {
    mesh: Mesh,
    name: String,
    /// The one thing that it does; `None` for the agent that does all scenarios of messages.
    scenario: Option<Arc<AgentScenario>>,
    tasks: Arc<Mutex<ScenarioTasks>>,
    toggled: Arc<Mutex<HashSet<String>>>,
}

type Answer = Result<(Value, Option<u64>), A2aError>;

impl ScenarioAgent {
    /// Serves an agent of this name until the process ends. Its card was announced when this returns.
    pub(crate) async fn serve(
        mesh: Mesh,
        name: &str,
        scenario: Option<AgentScenario>,
    ) -> Result<(), MeshError> {
        let description = scenario.as_ref().map(|it| it.description.clone());
        let announcement = Announcement {
            name: name.to_owned(),
            description: description.unwrap_or_else(|| "Does the scenarios of messages".to_owned()),
            version: "1.0.0".to_owned(),
            input_schema: scenario.as_ref().and_then(|it| it.input_schema.clone()),
            delivery: Delivery::Direct,
            offer: scenario.as_ref().map(|it| it.offer.clone()).unwrap_or_default(),
            ..Announcement::default()
        };
        let agent = Self {
            mesh,
            name: name.to_owned(),
            scenario: scenario.map(Arc::new),
            tasks: Arc::default(),
            toggled: Arc::default(),
        };
        let card = announcement.card(agent.mesh.namespace());
        let mut calls = agent.mesh.services().serve_rpc(name).await?;
        agent.mesh.cards().announce(&card).await?;
        let mesh = agent.mesh.clone();
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(CARD_INTERVAL);
            loop {
                interval.tick().await;
                // The next announcement makes up for one that was lost.
                let _ = mesh.cards().announce(&card).await;
            }
        });
        tokio::spawn(async move {
            while let Some(call) = calls.next().await {
                tokio::spawn(agent.clone().answer(call));
            }
        });
        Ok(())
    }

    /// Announces an agent that does nothing, or takes it back.
    async fn toggle(&self, toggled: &ToggledCard) {
        let name = toggled.name.clone();
        let is_new = {
            let mut known = self.toggled.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = known.insert(name.clone());
            if !is_new {
                known.remove(&name);
            }
            is_new
        };
        let done = if is_new {
            let announcement = Announcement {
                name,
                description: "Comes and goes".to_owned(),
                offer: toggled.offer.clone(),
                ..Announcement::default()
            };
            self.mesh.cards().announce(&announcement.card(self.mesh.namespace())).await
        } else {
            self.mesh.cards().retract(&name).await
        };
        if let Err(error) = done {
            tracing::warn!(%error, "a card was not changed");
        }
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, ScenarioTasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self, call: RpcRequest) {
        let caller = call.caller.to_string();
        let (request, method) = match Request::read(&call.body) {
            Err(Refused { id, error }) => return respond(call, &id, Err(*error)).await,
            Ok(request) => match request.method {
                Method::Core(method) => (request, method),
                Method::GetAgentCard => {
                    let error = A2aError::new(ErrorCode::MethodNotFound, "the card is announced");
                    return respond(call, &request.id, Err(error)).await;
                }
            },
        };
        let id = request.id.clone();
        let is_streaming = method == CoreMethod::SendStreamingMessage;
        if !is_streaming && method != CoreMethod::SendMessage {
            let answer = self.perform(&caller, method, &request);
            return respond(call, &id, answer).await;
        }
        let params: SendMessageRequest = match request.params() {
            Ok(params) => params,
            Err(error) => return respond(call, &id, Err(error)).await,
        };
        let configuration = params.configuration.as_ref();
        if configuration.is_some_and(|wanted| wanted.task_push_notification_config.is_some()) {
            return respond(call, &id, Err(A2aError::push_not_supported(NO_PUSH))).await;
        }
        let at_once = configuration.and_then(|wanted| wanted.return_immediately) == Some(true);
        let (task, mut steps) = match self.begin(&caller, &params, is_streaming) {
            Ok(begun) => begun,
            Err(error) => return respond(call, &id, Err(error)).await,
        };
        while let Some(Step::ToggleCard(card)) = steps.first() {
            self.toggle(card).await;
            steps.remove(0);
        }
        if let Some(Step::Message(parts)) = steps.first() {
            let message = agent_message(&format!("{task}-answer"), parts);
            return respond(call, &id, Ok((json!({"message": message}), None))).await;
        }
        let key = (caller, task);
        if is_streaming || at_once {
            // The first snapshot tells a question that is asked at once, and that an answer was taken.
            let is_first = matches!(steps.first(), Some(Step::Ask(_))) || params.message.task_id.is_some();
            if is_first && !steps.is_empty() {
                let rest = steps.split_off(1);
                let asks = matches!(steps.first(), Some(Step::Ask(_)));
                let behind = if asks { rest.clone() } else { Vec::new() };
                self.work(&key, [steps, behind].concat()).await;
                steps = if asks { Vec::new() } else { rest };
            }
            respond(call, &id, self.named_snapshot(&key)).await;
            self.work(&key, steps).await;
        } else {
            self.work(&key, steps).await;
            respond(call, &id, self.named_snapshot(&key)).await;
        }
    }

    /// The task of a message and what is to be done for it: nothing for a message that came before.
    fn begin(
        &self,
        caller: &str,
        params: &SendMessageRequest,
        is_streaming: bool,
    ) -> Result<(String, Vec<Step>), A2aError> {
        let message = &params.message;
        let sent = serde_json::to_value(message).map_err(|error| A2aError::internal(error.to_string()))?;
        if let Some(id) = &message.task_id {
            let key = (caller.to_owned(), id.0.clone());
            let mut tasks = self.tasks();
            let known = tasks.get_mut(&key).ok_or_else(|| A2aError::task_not_found(id.0.clone()))?;
            if is_terminal(&known.task) {
                return Err(A2aError::unsupported_operation("the task has ended"));
            }
            if message
                .context_id
                .as_ref()
                .is_some_and(|context| known.task["contextId"] != context.0.as_str())
            {
                return Err(A2aError::invalid_params("the task belongs to another context"));
            }
            push(&mut known.task, "history", sent);
            let Some((question, behind)) = known.open.take() else {
                return Ok((id.0.clone(), scenario_of_message(&message.id.0)));
            };
            let answers = client_responses(message).cloned().unwrap_or_default();
            let mut left = question.requests.clone();
            left.retain(|key, _| !answers.contains_key(key));
            for (key, answer) in answers {
                known.data["answers"][key] = answer;
            }
            if !left.is_empty() {
                let again = Step::Ask(Question { text: question.text, requests: left });
                return Ok((id.0.clone(), [vec![again], behind].concat()));
            }
            let working = StateChange { state: "TASK_STATE_WORKING".to_owned(), text: None, fault: None };
            let behind = behind.iter().map(|step| step.filled(&known.data)).collect();
            return Ok((id.0.clone(), [vec![Step::State(working)], behind].concat()));
        }
        let execution = ExecutionId::of(self.mesh.namespace(), caller, &message.id.0);
        let activation = ActivationKey::of::<&str>(&execution, Token::of(&self.name).as_str(), &[], 0);
        let id = TaskId::of(&execution, &activation, 1);
        let data = message.parts.iter().find_map(part_data).cloned().unwrap_or_default();
        let mut tasks = self.tasks();
        let mut id = id;
        let mut key = (caller.to_owned(), id.to_string());
        for attempt in 2.. {
            match tasks.get(&key) {
                None => break,
                // The suite of A2A sends one message many times, and expects a new task once the last one has ended.
                Some(known)
                    if !is_streaming && is_terminal(&known.task) && message.id.0.starts_with("tck-input") =>
                {
                    id = TaskId::of(&execution, &activation, attempt);
                    key.1 = id.to_string();
                }
                Some(_) => return Ok((id.to_string(), Vec::new())),
            }
        }
        let steps = match &self.scenario {
            Some(scenario) => scenario.steps.iter().map(|step| step.filled(&data)).collect(),
            None => scenario_of_message(&message.id.0),
        };
        let answers_at_once = |step: &Step| matches!(step, Step::Message(_));
        if !steps.iter().any(answers_at_once) {
            let context = message.context_id.as_ref().map_or(execution.as_str(), |context| &context.0);
            let mut task = json!({"id": id.as_str(), "contextId": context, "history": [sent]});
            task["status"] = status("TASK_STATE_SUBMITTED", None);
            tasks.insert(key, ScenarioTask { execution, id: id.clone(), task, seq: 0, data, open: None });
        }
        Ok((id.to_string(), steps))
    }

    /// Does the steps one by one, and tells each as an event.
    async fn work(&self, key: &(String, String), steps: Vec<Step>) {
        for (index, step) in steps.iter().enumerate() {
            if let Step::Work(milliseconds) = step {
                tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
                continue;
            }
            if let Step::Ask(question) = step
                && let Some(known) = self.tasks().get_mut(key)
            {
                known.open = Some((question.clone(), steps[index + 1..].to_vec()));
            }
            let Some((execution, id, seq, event, is_last)) = self.apply(key, step) else { return };
            let mut headers = HeaderMap::new();
            headers.insert(header::A2A_SEQ, seq.to_string());
            if is_last {
                headers.insert(header::A2A_END, "completed");
            }
            let told = self.mesh.tasks().report_progress(&execution, &id, headers, event.to_string().into());
            if let Err(error) = told.await {
                tracing::warn!(%error, "an event was not told");
            }
            if matches!(step, Step::Ask(_)) {
                return;
            }
        }
    }

    /// Changes a task, and gives its next event. `None` once the task has ended.
    fn apply(&self, key: &(String, String), step: &Step) -> Option<(ExecutionId, TaskId, u64, Value, bool)> {
        let mut tasks = self.tasks();
        let known = tasks.get_mut(key)?;
        if is_terminal(&known.task) {
            return None;
        }
        let about = json!({"taskId": known.task["id"], "contextId": known.task["contextId"]});
        let artifact_update = |artifact: Value, append: bool, is_last: bool| {
            let mut update = about.clone();
            update["artifact"] = artifact;
            update["append"] = append.into();
            update["lastChunk"] = is_last.into();
            json!({"artifactUpdate": update})
        };
        let event = match step {
            Step::Artifact(part) => {
                let artifact = json!({"artifactId": "artifact-1", "name": "artifact", "parts": [part]});
                push(&mut known.task, "artifacts", artifact.clone());
                artifact_update(artifact, false, true)
            }
            Step::Piece(ArtifactPiece { text, append, is_last }) => {
                let artifact =
                    json!({"artifactId": "artifact-1", "name": "artifact", "parts": [{"text": text}]});
                if *append {
                    push(&mut known.task["artifacts"][0], "parts", json!({"text": text}));
                } else {
                    push(&mut known.task, "artifacts", artifact.clone());
                }
                artifact_update(artifact, *append, *is_last)
            }
            Step::State(StateChange { state, text, fault }) => {
                known.task["status"] = status(state, text.as_deref().map(|words| (known.id.as_str(), words)));
                if let Some(fault) = fault {
                    known.task["metadata"][METADATA]["fault"] = fault.clone();
                }
                let mut update = about;
                update["status"] = known.task["status"].clone();
                json!({"statusUpdate": update})
            }
            Step::Ask(question) => {
                let words = question.text.as_str();
                known.task["status"] = status("TASK_STATE_INPUT_REQUIRED", Some((known.id.as_str(), words)));
                let message = &mut known.task["status"]["message"];
                message["messageId"] = format!("{}-question-{}", known.id, known.seq + 1).into();
                push(message, "extensions", MCP_EXTENSION.into());
                push(message, "parts", json!(requests_part(&question.requests)));
                let mut update = about;
                update["status"] = known.task["status"].clone();
                json!({"statusUpdate": update})
            }
            Step::Message(_) | Step::Work(_) | Step::WorkSeconds(_) | Step::ToggleCard(_) => return None,
        };
        known.seq += 1;
        Some((known.execution.clone(), known.id.clone(), known.seq, event, is_terminal(&known.task)))
    }

    fn named_snapshot(&self, key: &(String, String)) -> Answer {
        let tasks = self.tasks();
        let known = tasks.get(key).ok_or_else(|| A2aError::task_not_found(key.1.clone()))?;
        Ok((json!({"task": known.task}), Some(known.seq)))
    }

    fn perform(&self, caller: &str, method: CoreMethod, request: &Request) -> Answer {
        let params: Value = request.params()?;
        let id = params["id"].as_str().unwrap_or_default().to_owned();
        let key = (caller.to_owned(), id.clone());
        let absent = || A2aError::task_not_found(id.clone());
        match method {
            CoreMethod::GetTask => {
                let tasks = self.tasks();
                let known = tasks.get(&key).ok_or_else(absent)?;
                let mut task = known.task.clone();
                let most = params["historyLength"].as_u64().and_then(|most| usize::try_from(most).ok());
                if let (Some(most), Some(history)) = (most, task["history"].as_array_mut()) {
                    history.drain(..history.len().saturating_sub(most));
                }
                Ok((task, Some(known.seq)))
            }
            CoreMethod::SubscribeToTask => {
                let tasks = self.tasks();
                let known = tasks.get(&key).ok_or_else(absent)?;
                if is_terminal(&known.task) {
                    return Err(A2aError::unsupported_operation("the task has ended"));
                }
                Ok((json!({"task": known.task}), Some(known.seq)))
            }
            CoreMethod::CancelTask => self.cancel(&key),
            CoreMethod::ListTasks => Ok((self.list(caller, &params), None)),
            CoreMethod::GetExtendedAgentCard => {
                Err(A2aError::extended_card_not_configured("the public card is the whole card"))
            }
            CoreMethod::CreateTaskPushNotificationConfig
            | CoreMethod::GetTaskPushNotificationConfig
            | CoreMethod::ListTaskPushNotificationConfigs
            | CoreMethod::DeleteTaskPushNotificationConfig => Err(A2aError::push_not_supported(NO_PUSH)),
            other => Err(A2aError::unsupported_operation(other.wire_name())),
        }
    }

    fn cancel(&self, key: &(String, String)) -> Answer {
        let is_open = |known: &ScenarioTask| !is_terminal(&known.task);
        if !self.tasks().get(key).map(is_open).ok_or_else(|| A2aError::task_not_found(key.1.clone()))? {
            return Err(A2aError::task_not_cancelable(key.1.clone()));
        }
        let (agent, key) = (self.clone(), key.clone());
        let changed = agent.apply(
            &key,
            &Step::State(StateChange { state: "TASK_STATE_CANCELED".to_owned(), text: None, fault: None }),
        );
        if let Some((execution, id, seq, event, _)) = changed {
            tokio::spawn(async move {
                let mut headers = HeaderMap::new();
                headers.insert(header::A2A_SEQ, seq.to_string());
                headers.insert(header::A2A_END, "canceled");
                let tasks = agent.mesh.tasks();
                let told = tasks.report_progress(&execution, &id, headers, event.to_string().into());
                if let Err(error) = told.await {
                    tracing::warn!(%error, "an event was not told");
                }
            });
        }
        let tasks = self.tasks();
        let known = tasks.get(&key).ok_or_else(|| A2aError::task_not_found(key.1.clone()))?;
        Ok((known.task.clone(), Some(known.seq)))
    }

    /// A page of tasks, newest status first.
    fn list(&self, caller: &str, params: &Value) -> Value {
        let place = |task: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&task["status"]["timestamp"]), text(&task["id"]))
        };
        let is_wanted = |task: &Value| {
            let is = |wanted: &Value, found: &Value| wanted.is_null() || wanted == found;
            is(&params["contextId"], &task["contextId"])
                && is(&params["status"], &task["status"]["state"])
                && params["statusTimestampAfter"].as_str().is_none_or(|after| place(task).0.as_str() >= after)
        };
        let tasks = self.tasks();
        let own = tasks.iter().filter(|((owner, _), known)| owner == caller && is_wanted(&known.task));
        let mut found: Vec<Value> = own.map(|(_, known)| known.task.clone()).collect();
        drop(tasks);
        found.sort_by_key(|task| std::cmp::Reverse(place(task)));
        let total = found.len();
        if let Some((at, id)) = params["pageToken"].as_str().and_then(|token| token.split_once('~')) {
            found.retain(|task| place(task) < (at.to_owned(), id.to_owned()));
        }
        let size = params["pageSize"].as_u64().unwrap_or(DEFAULT_PAGE);
        let is_last = found.len() as u64 <= size;
        found.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        let next = found.last().filter(|_| !is_last).map(place);
        if params["includeArtifacts"] != true {
            for task in found.iter_mut().filter_map(Value::as_object_mut) {
                task.remove("artifacts");
            }
        }
        let next = next.map(|(at, id)| format!("{at}~{id}")).unwrap_or_default();
        json!({"tasks": found, "nextPageToken": next, "pageSize": size, "totalSize": total})
    }
}

fn is_terminal(task: &Value) -> bool {
    let state = task["status"]["state"].as_str().unwrap_or_default();
    ["COMPLETED", "FAILED", "CANCELED", "REJECTED"].iter().any(|end| state.ends_with(end))
}

fn push(owner: &mut Value, member: &str, item: Value) {
    match owner[member].as_array_mut() {
        Some(items) => items.push(item),
        None => owner[member] = json!([item]),
    }
}

fn status(state: &str, words: Option<(&str, &str)>) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_millis()).unwrap_or_default();
    // Two changes in one millisecond have an order, as a list of tasks shows it.
    let last = LAST_CHANGE.fetch_max(now, Ordering::Relaxed);
    let now = if last < now { now } else { LAST_CHANGE.fetch_add(1, Ordering::Relaxed) + 1 };
    let now = format_timestamp(now);
    let mut status = json!({"state": state, "timestamp": now});
    if let Some((task, words)) = words {
        let mut message = agent_message(&format!("{task}-{state}"), &json!([{"text": words}]));
        message["taskId"] = task.into();
        status["message"] = message;
    }
    status
}

fn agent_message(id: &str, parts: &Value) -> Value {
    json!({"messageId": id, "role": "ROLE_AGENT", "parts": parts})
}

async fn respond(call: RpcRequest, id: &Value, answer: Answer) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, "1.0");
    let body = match answer {
        Ok((value, seq)) => {
            if let Some(seq) = seq {
                headers.insert(header::A2A_SEQ, seq.to_string());
            }
            result(id, &raw(&value))
        }
        Err(error) => Response::error(id.clone(), &error).to_bytes(),
    };
    if let Err(error) = call.respond(headers, body).await {
        tracing::warn!(%error, "a call was not answered");
    }
}
