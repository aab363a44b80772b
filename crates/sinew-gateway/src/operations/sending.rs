//! Messages to agents and workflows.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use sinew_engine::ExecutionMode;
use sinew_mesh::{Mesh, MeshError};
use sinew_operations::input_check;
use sinew_protocol::a2a::{
    A2aError, CoreMethod, ErrorCode, Part, SendMessageRequest, SendMessageResponse, Task,
    TaskPushNotificationConfig, check_message, is_terminal, trim_history,
};
use sinew_protocol::behalf::CallingTask;
use sinew_protocol::card::AGENT_CALL_PREFIX;
use sinew_protocol::command::{Command, StartCommand};
use sinew_protocol::jsonrpc::{error_of, raw};
use sinew_protocol::task::TaskExtra;
use sinew_protocol::{ActivationKey, ExecutionId, Fault, FaultKind, TaskId, Token, code};
use tokio::time::Instant;

use super::message_files::{self, FileOwner};
use super::peer::{PeerError, REPLICA_TRIES, mesh_failed, unanswered};
use super::push_configs::PushOrigin;
use super::stream::{StreamStart, TaskStream, is_interrupted};
use super::target::TaskLocation;
use super::{A2aOperations, MAX_TEXT, OperationCall, is_settled, named_task, short};

/// Interval of queries for the task of an agent that did not respond.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Size of a request without its parameters, with its headers.
const ENVELOPE_BYTES: usize = 16 << 10;

impl A2aOperations {
    /// Sends a message and waits until its task has ended or needs input, unless the client wants
    /// an immediate response.
    pub(super) async fn send(
        &self,
        call: &OperationCall,
        params: SendMessageRequest,
    ) -> Result<Box<RawValue>, A2aError> {
        let (mut params, history) = checked(params)?;
        let push = take_push(&mut params);
        push.as_ref().map(|push| self.check_push(push)).transpose()?;
        if let Some(task) = &params.message.task_id {
            let place = self.locate(call, &task.0.clone()).await?;
            return self.send_to_task(call, &place, params, (history, push)).await;
        }
        let agent = self.agent_of_message(call, &params).await?;
        self.check_modes(&agent, &params)?;
        self.check_extensions(call, &agent)?;
        self.store_files(call, &agent, &mut params).await?;
        let Some(push) = push else {
            let (place, answer) = self.begin(call, agent, &params).await?;
            return Ok(show_answer(&place, answer, history));
        };
        // The task must exist before its webhook is stored, and the webhook must be stored before
        // the wait.
        let configuration = params.configuration.get_or_insert_default();
        let is_immediate = configuration.return_immediately.replace(true) == Some(true);
        let (place, answer) = self.begin(call, agent, &params).await?;
        let Some(shown) = self.store_push_of(call, &place, &answer, push).await? else {
            return Ok(show_answer(&place, answer, history));
        };
        if is_immediate {
            return Ok(show_answer(&place, answer, history));
        }
        let mut task = self.settled_task(call, &shown).await?;
        trim_history(&mut task, history);
        Ok(named_task(&task))
    }

    /// Stores the webhook of a message and returns the id of the task as the client sees it.
    /// Returns `None` if the response is not a task.
    async fn store_push_of(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        answer: &PeerAnswer,
        push: TaskPushNotificationConfig,
    ) -> Result<Option<String>, A2aError> {
        let SendMessageResponse::Task(task) = &answer.response else { return Ok(None) };
        let mut place = place.clone();
        place.id.clone_from(&task.id.0);
        let shown = format!("{}{}", place.shown_prefix(), place.id);
        self.store_push(call, &place, (&shown, PushOrigin::Message), push).await?;
        Ok(Some(shown))
    }

    /// Stores the webhook of a message to a task, after the message was accepted.
    async fn store_push_beside(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        params: &SendMessageRequest,
        push: Option<TaskPushNotificationConfig>,
    ) -> Result<(), A2aError> {
        let (Some(push), Some(task)) = (push, &params.message.task_id) else { return Ok(()) };
        self.store_push(call, place, (&task.0, PushOrigin::Message), push).await.map(drop)
    }

    /// Sends a message and returns the events of its task.
    pub(super) async fn send_streaming(
        &self,
        call: &OperationCall,
        params: SendMessageRequest,
    ) -> Result<TaskStream, A2aError> {
        let (mut params, history) = checked(params)?;
        let push = take_push(&mut params);
        push.as_ref().map(|push| self.check_push(push)).transpose()?;
        if let Some(task) = &params.message.task_id {
            let place = self.locate(call, &task.0.clone()).await?;
            return self.stream_to_task(call, place, params, (history, push)).await;
        }
        let agent = self.agent_of_message(call, &params).await?;
        self.check_modes(&agent, &params)?;
        self.check_extensions(call, &agent)?;
        self.store_files(call, &agent, &mut params).await?;
        params.configuration.get_or_insert_default().return_immediately = Some(true);
        if self.is_workflow(&agent) {
            let (place, answer) = self.begin(call, agent, &params).await?;
            if let Some(push) = push {
                self.store_push_of(call, &place, &answer, push).await?;
            }
            return self.stream_answer(call, place, answer, None, history);
        }
        // An agent's events are not stored, so the gateway subscribes before it sends the request.
        let (execution, task) = self.own_ids(call, &agent, &params.message.id.0);
        let feed = self.shared.client.mesh().tasks().watch_progress(Some(&execution), Some(&task)).await;
        let feed = feed.map_err(|error| mesh_failed(&error))?;
        let place = TaskLocation::new(&call.endpoint, agent, false, task.as_str().to_owned());
        let answer = self.send_to_agent(call, &place, CoreMethod::SendStreamingMessage, &params).await?;
        if let Some(push) = push {
            self.store_push_of(call, &place, &answer, push).await?;
        }
        self.stream_answer(call, place, answer, Some(feed), history)
    }

    /// Stores the files of a message on the mesh, after the message was checked, and an input that is
    /// too large for a message to a workflow. Agents get small files inline.
    async fn store_files(
        &self,
        call: &OperationCall,
        agent: &str,
        params: &mut SendMessageRequest,
    ) -> Result<(), A2aError> {
        let mesh = self.shared.client.mesh();
        let is_workflow = self.is_workflow(agent);
        if is_workflow {
            self.fetch_files(&mut params.message).await?;
        }
        let is_large = is_workflow && message_bytes(params) > max_bytes(mesh);
        if let Some(text) = message_files::text_of(&params.message).filter(|_| is_large) {
            let input = self.shared.client.input_of_text(agent, &text).await;
            params.message.parts = vec![Part::data(input.map_err(A2aError::invalid_params)?)];
        }
        let is_large_data = is_large && message_files::is_data(&params.message);
        if !is_large_data && !message_files::has_files(&params.message) {
            return Ok(());
        }
        let (execution, task) = self.own_ids(call, agent, &params.message.id.0);
        let owner = FileOwner { agent, caller: call.caller.as_str(), execution: &execution, task: &task };
        let files = if is_workflow {
            let prepared = message_files::prepare_files(mesh, &owner, &mut params.message).await?;
            check_start(agent, &execution, params)?;
            self.check_input(agent, &prepared.input).await?;
            prepared.files
        } else {
            message_files::prepare_large_files(mesh, &owner, &mut params.message).await?
        };
        check_size(mesh, params)?;
        for file in files {
            mesh.artifacts().store(file).await.map_err(|error| mesh_failed(&error))?;
        }
        Ok(())
    }

    /// Rejects an input that the workflow would reject. A workflow that the gateway cannot read
    /// checks it itself.
    async fn check_input(&self, workflow: &str, input: &Value) -> Result<(), A2aError> {
        if workflow.starts_with(AGENT_CALL_PREFIX) {
            // The agent checks its input.
            return Ok(());
        }
        let program = match self.shared.client.programs().meant(workflow, None).await {
            Ok(program) => program,
            Err(fault) if fault.kind == FaultKind::Invalid => return Err(error_of(&fault)),
            Err(_) => return Ok(()),
        };
        let checked = input_check::check_input(&program, input, &ExecutionMode::default());
        checked.map_err(|failure| error_of(&Fault::invalid(failure.code, failure.message)))
    }

    /// Starts the work of a message. Responds when the task is settled, or immediately if
    /// requested.
    async fn begin(
        &self,
        call: &OperationCall,
        agent: Arc<str>,
        params: &SendMessageRequest,
    ) -> Result<(TaskLocation, PeerAnswer), A2aError> {
        if self.is_workflow(&agent) {
            let id = ExecutionId::of(self.mesh_namespace(), call.caller.as_str(), &params.message.id.0);
            let place = TaskLocation::new(&call.endpoint, agent, true, id.as_str().to_owned());
            let reply = self.ask_again(call, &place.agent, CoreMethod::SendMessage, params).await;
            let reply = reply.map_err(PeerError::of_work)?;
            self.remember(&place);
            return Ok((place, PeerAnswer { seq: reply.seq, response: reply.read()? }));
        }
        let (_, task) = self.own_ids(call, &agent, &params.message.id.0);
        let place = TaskLocation::new(&call.endpoint, agent, false, task.as_str().to_owned());
        let answer = self.send_to_agent(call, &place, CoreMethod::SendMessage, params).await?;
        Ok((place, answer))
    }

    /// Calls an agent. An agent that does not respond does not get the work again: its task is
    /// looked up instead, because a replica of an older version would take a repeated message for a
    /// new one.
    async fn send_to_agent(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        method: CoreMethod,
        params: &SendMessageRequest,
    ) -> Result<PeerAnswer, A2aError> {
        let until = Instant::now() + self.shared.blocking;
        let configuration = params.configuration.as_ref();
        let at_once = configuration.and_then(|wanted| wanted.return_immediately) == Some(true);
        // Replicas of older versions know their own tasks only, so a message to a task may have to
        // try several.
        let tries = if params.message.task_id.is_some() { REPLICA_TRIES } else { 1 };
        let mut tried = 0;
        loop {
            tried += 1;
            match self.ask_once(call, &place.agent, method, params, self.shared.agent_silence).await {
                Ok(reply) => return Ok(PeerAnswer { seq: reply.seq, response: reply.read()? }),
                Err(error) if error.code() == ErrorCode::TaskNotFound && tried < tries => {}
                Err(error) if !error.is_silent => return Err(error.into()),
                Err(_) => break,
            }
        }
        loop {
            let found = self.task_of_peer(call, place).await.map_err(unanswered)?;
            if at_once || is_settled(found.task.status.state) || Instant::now() >= until {
                return Ok(PeerAnswer { seq: found.seq, response: SendMessageResponse::Task(found.task) });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends a message to an existing task: a decision that a workflow waits for, or any message to
    /// an agent.
    async fn send_to_task(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        mut params: SendMessageRequest,
        (history, push): (Option<u32>, Option<TaskPushNotificationConfig>),
    ) -> Result<Box<RawValue>, A2aError> {
        let found = self.task_of_peer(call, place).await?;
        let is_decided = self.check_message_to(call, place, &found.task, &params).await?;
        if !place.is_workflow {
            self.store_push_beside(call, place, &params, push).await?;
            params.message.task_id = Some(sinew_protocol::a2a::TaskId::new(place.id.as_str()));
            let answer = self.send_to_agent(call, place, CoreMethod::SendMessage, &params).await?;
            return Ok(show_answer(place, answer, history));
        }
        if !is_decided {
            self.decide(call, place, &params.message).await?;
        }
        self.store_push_beside(call, place, &params, push).await?;
        let at_once = params.configuration.and_then(|wanted| wanted.return_immediately) == Some(true);
        if !at_once {
            self.wait_settled(place).await?;
        }
        let mut task = self.task_of_peer(call, place).await?.task;
        trim_history(&mut task, history);
        place.show(&mut task);
        Ok(named_task(&task))
    }

    /// Rejects a message to a task that has ended, or that names another context. Returns true for
    /// a decision that was already accepted: a client that lost the response sends it again,
    /// whatever the state of the task.
    async fn check_message_to(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        task: &Task,
        params: &SendMessageRequest,
    ) -> Result<bool, A2aError> {
        check_context(task, params)?;
        if place.is_workflow && self.was_decided(call, place, &params.message.id.0).await? {
            return Ok(true);
        }
        check_open(task).map(|()| false)
    }

    /// Like [`A2aOperations::send_to_task`], but returns the subsequent events of the task.
    async fn stream_to_task(
        &self,
        call: &OperationCall,
        place: TaskLocation,
        mut params: SendMessageRequest,
        (history, push): (Option<u32>, Option<TaskPushNotificationConfig>),
    ) -> Result<TaskStream, A2aError> {
        let found = self.task_of_peer(call, &place).await?;
        let is_decided = self.check_message_to(call, &place, &found.task, &params).await?;
        let answer = if place.is_workflow {
            if !is_decided {
                self.decide(call, &place, &params.message).await?;
            }
            self.store_push_beside(call, &place, &params, push).await?;
            let found = self.task_of_peer(call, &place).await?;
            PeerAnswer { seq: found.seq, response: SendMessageResponse::Task(found.task) }
        } else {
            self.store_push_beside(call, &place, &params, push).await?;
            params.message.task_id = Some(sinew_protocol::a2a::TaskId::new(place.id.as_str()));
            params.configuration.get_or_insert_default().return_immediately = Some(true);
            self.send_to_agent(call, &place, CoreMethod::SendMessage, &params).await?
        };
        self.stream_answer(call, place, answer, None, history)
    }

    /// Returns the response as the start of a stream.
    fn stream_answer(
        &self,
        call: &OperationCall,
        mut place: TaskLocation,
        answer: PeerAnswer,
        feed: Option<sinew_mesh::live::ProgressFeed>,
        history: Option<u32>,
    ) -> Result<TaskStream, A2aError> {
        let mut task = match answer.response {
            SendMessageResponse::Task(task) => task,
            other => {
                let answer = PeerAnswer { seq: None, response: other };
                return Ok(TaskStream::one(show_answer(&place, answer, history)));
            }
        };
        // Later requests must use the agent's own task id.
        place.id.clone_from(&task.id.0);
        trim_history(&mut task, history);
        let ended = is_terminal(task.status.state);
        place.show(&mut task);
        let first = named_task(&task);
        let asks = is_interrupted(task.status.state);
        let beginning = StreamStart { first: Some(first), seq: answer.seq.unwrap_or(0), ended, asks, feed };
        self.follow(call, place, beginning)
    }

    /// Rejects a message whose client accepts none of the agent's output media types.
    fn check_modes(&self, agent: &str, params: &SendMessageRequest) -> Result<(), A2aError> {
        let Some(wanted) = params.configuration.as_ref().map(|wanted| &wanted.accepted_output_modes) else {
            return Ok(());
        };
        let Some(announced) = self.shared.cards.get(agent).filter(|_| !wanted.is_empty()) else {
            return Ok(());
        };
        let skills = announced.card.skills.iter().filter_map(|skill| skill.output_modes.as_ref()).flatten();
        let modes: Vec<&String> = announced.card.default_output_modes.iter().chain(skills).collect();
        if wanted.iter().any(|wanted| modes.iter().any(|mode| accepts_mode(wanted, mode))) {
            return Ok(());
        }
        let modes = modes.iter().map(|mode| mode.as_str()).collect::<Vec<_>>().join(", ");
        let text = format!(
            "acceptedOutputModes: the agent supports none of them; it supports {}",
            short(&modes, 300)
        );
        Err(A2aError::content_type_not_supported(text))
    }

    /// Rejects a call that omits an extension which the agent requires.
    fn check_extensions(&self, call: &OperationCall, agent: &str) -> Result<(), A2aError> {
        let Some(announced) = self.shared.cards.get(agent) else { return Ok(()) };
        let extensions = announced.card.capabilities.extensions.iter().flatten();
        let mut required = extensions.filter(|extension| extension.required == Some(true));
        match required.find(|extension| !call.extensions.contains(&extension.uri)) {
            None => Ok(()),
            Some(missing) => {
                let text = format!("the agent requires the extension {}", short(&missing.uri, 200));
                Err(A2aError::new(ErrorCode::ExtensionSupportRequired, text))
            }
        }
    }

    /// Returns the ids of a caller's own task, which are derived from the message.
    pub(super) fn own_ids(&self, call: &OperationCall, agent: &str, message: &str) -> (ExecutionId, TaskId) {
        let execution = ExecutionId::of(self.mesh_namespace(), call.caller.as_str(), message);
        let activation = ActivationKey::of::<&str>(&execution, Token::of(agent).as_str(), &[], 0);
        let task = TaskId::of(&execution, &activation, 1);
        (execution, task)
    }
}

/// Rejects what an executor would reject in a message, except its input.
fn check_start(workflow: &str, execution: &ExecutionId, params: &SendMessageRequest) -> Result<(), A2aError> {
    let unreadable = |text: String| error_of(&Fault::invalid(code::CALL_INPUT_UNAVAILABLE.as_str(), text));
    let metadata = params.metadata.as_ref();
    TaskExtra::find(metadata).transpose().map_err(|error| unreadable(error.to_string()))?;
    CallingTask::find(metadata).transpose().map_err(|error| unreadable(error.to_string()))?;
    let mut command = StartCommand::new(execution.clone(), workflow, Value::Null);
    command.session = params.message.context_id.as_ref().map_or_else(String::new, |id| id.0.clone());
    Command::Start(Box::new(command)).check().map_err(|bad| error_of(&bad.into()))
}

/// Returns the maximum size of a message that the mesh transports.
fn max_bytes(mesh: &Mesh) -> usize {
    mesh.client().max_payload().saturating_sub(ENVELOPE_BYTES)
}

fn message_bytes(params: &SendMessageRequest) -> usize {
    raw(params).get().len()
}

/// Rejects a message that is too large for the mesh.
fn check_size(mesh: &Mesh, params: &SendMessageRequest) -> Result<(), A2aError> {
    let (limit, size) = (max_bytes(mesh), message_bytes(params));
    if size <= limit {
        return Ok(());
    }
    Err(mesh_failed(&MeshError::TooLarge { what: "a call", size: size as u64, limit: limit as u64 }))
}

/// Response of an agent to a message.
struct PeerAnswer {
    seq: Option<u64>,
    response: SendMessageResponse,
}

/// Rejects a message to a task of another context than the message names.
fn check_context(task: &Task, params: &SendMessageRequest) -> Result<(), A2aError> {
    if params.message.context_id.as_ref().is_some_and(|context| *context != task.context_id) {
        return Err(A2aError::invalid_params("message.contextId: the task belongs to another context"));
    }
    Ok(())
}

/// Rejects a message to a task that has ended.
fn check_open(task: &Task) -> Result<(), A2aError> {
    if is_terminal(task.status.state) {
        let text = "the task has ended and accepts no more messages";
        let mut error = A2aError::unsupported_operation(text);
        let fault = Fault::invalid(code::GATEWAY_TASK_TAKES_NO_MESSAGE.as_str(), text);
        error.data = Some(merge_details(&error, &error_of(&fault)));
        return Err(error);
    }
    Ok(())
}

/// Merges the details of an A2A error with Sinew's error code.
pub(super) fn merge_details(error: &A2aError, own: &A2aError) -> Value {
    let mut details = match error.error_info_data(None) {
        Value::Array(details) => details,
        _ => Vec::new(),
    };
    details.extend(own.data.as_ref().and_then(|data| data.as_array()).into_iter().flatten().cloned());
    Value::Array(details)
}

/// Returns whether a client's media range includes an agent's media type.
fn accepts_mode(wanted: &str, mode: &str) -> bool {
    let bare = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (wanted, mode) = (bare(wanted), bare(mode));
    match wanted.split_once('/') {
        _ if wanted == "*" => true,
        Some(("*", "*")) => true,
        Some((kind, "*")) => mode.split('/').next() == Some(kind),
        _ => wanted == mode,
    }
}

fn show_answer(place: &TaskLocation, answer: PeerAnswer, history: Option<u32>) -> Box<RawValue> {
    match answer.response {
        SendMessageResponse::Task(mut task) => {
            trim_history(&mut task, history);
            place.show(&mut task);
            named_task(&task)
        }
        SendMessageResponse::Message(mut message) => {
            place.show_in_message(&mut message);
            raw(&SendMessageResponse::Message(message))
        }
        other => raw(&other),
    }
}

/// Takes the webhook from a message; agents do not receive it.
fn take_push(params: &mut SendMessageRequest) -> Option<TaskPushNotificationConfig> {
    params.configuration.as_mut()?.task_push_notification_config.take()
}

/// Checks a message, and takes the gateway's members from it: the tenant, and the length of the
/// history.
fn checked(mut params: SendMessageRequest) -> Result<(SendMessageRequest, Option<u32>), A2aError> {
    check_message(&params.message, "message")?;
    let too_long = |text: &str| text.len() > MAX_TEXT;
    if too_long(&params.message.id.0) || params.message.context_id.as_ref().is_some_and(|id| too_long(&id.0))
    {
        let text = format!("message: messageId and contextId can have at most {MAX_TEXT} bytes");
        return Err(A2aError::invalid_params(text));
    }
    params.tenant = None;
    let history = params.configuration.as_ref().and_then(|wanted| wanted.history_length);
    Ok((params, history))
}
