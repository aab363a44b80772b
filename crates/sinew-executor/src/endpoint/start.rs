//! Conversion of a call to the start of an execution: its input, its caller and its call depth.

use sinew_protocol::code;
use std::time::Duration;

use serde_json::Value;
use sinew_mesh::HeaderMap;
use sinew_mesh::a2a_endpoint::A2aCall;
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_mesh::history::HistoryFilter;
use sinew_protocol::a2a::{A2aError, Part, PartContent, SendMessageRequest, part_data};
use sinew_protocol::behalf::{CallingTask, OnBehalf};
use sinew_protocol::command::StartCommand;
use sinew_protocol::journal::{Conversation, Verdict};
use sinew_protocol::jsonrpc::{error_of, temporary_error};
use sinew_protocol::person_wait::CallingRef;
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::subject::Operation;
use sinew_protocol::task::{Content, ResultArtifact, TaskExtra};
use sinew_protocol::{ArtifactName, ArtifactRef, ExecutionId, Fault, Token, header};

use super::{KnownExecution, WorkflowEndpoints, broker, settled, short};
use crate::large_input::store_input;
use sinew_execution::reply::{WorkflowInput, input, wants_result};

/// Label that requests a structured result next to the text.
pub(super) const STRUCTURED: &str = "a2a.structured";
/// Maximum call depth, according to the header in which agents count it.
const DEEPEST: u32 = 32;
/// Wait for an event before the record is read, initially and at most.
const ASK_AFTER: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// Maximum number of the caller's ended executions in which to find an artifact.
const MAX_EARLIER: usize = 100;
/// Time without events after which to check whether the execution waits for a person.
const QUIET: Duration = Duration::from_millis(100);

impl WorkflowEndpoints {
    /// Converts a message to a start command.
    pub(super) async fn start(
        &self,
        workflow: &str,
        caller: &Token,
        execution: &ExecutionId,
        params: &SendMessageRequest,
        headers: &HeaderMap,
    ) -> Result<StartCommand, A2aError> {
        let bad = |code: &'static str, text: String| error_of(&Fault::invalid(code, text));
        let depth = headers.get(header::CALL_DEPTH).and_then(|text| text.as_str().parse().ok());
        if depth.is_some_and(|depth: u32| depth > DEEPEST) {
            return Err(bad(
                code::CALL_CYCLE.as_str(),
                format!("the call chain of agents and workflows is deeper than {DEEPEST}"),
            ));
        }
        let parts = &params.message.parts;
        let mut command = StartCommand::new(execution.clone(), workflow, Value::Null);
        let address = parts.iter().find_map(|part| match &part.content {
            PartContent::Url(url) if url.starts_with("artifact://") => Some(url.clone()),
            _ => None,
        });
        let extra = TaskExtra::find(params.metadata.as_ref()).transpose();
        let given = extra
            .map_err(|error| bad(code::CALL_INPUT_UNAVAILABLE.as_str(), error.to_string()))?
            .and_then(|extra| extra.input);
        if let Some(nth) = parts.iter().position(is_foreign_file).filter(|_| given.is_none()) {
            let text = format!(
                "message.parts[{nth}]: a workflow reads files of the mesh only; send the artifact's url, or send the \
                 file to a gateway, which stores it"
            );
            return Err(bad(code::CALL_INPUT_UNAVAILABLE.as_str(), text));
        }
        let value = match (given, input(parts)) {
            (Some(value), _) | (None, Ok(WorkflowInput::Value(value))) => Some(value),
            (None, Ok(WorkflowInput::Text(text))) => Some(self.read_text(workflow, &text).await?),
            (None, Ok(WorkflowInput::Artifact(_))) => None,
            (None, Err(error)) => return Err(bad(code::CALL_INPUT_UNAVAILABLE.as_str(), error.to_string())),
        };
        match value {
            None => command.input_artifact = address,
            Some(value) => match named_artifact(params) {
                None => self.give(&mut command, value).await?,
                Some(Err(text)) => return Err(bad(code::CALL_INPUT_UNAVAILABLE.as_str(), text)),
                Some(Ok(named)) => match self.artifact_of_caller(params, caller, &named).await? {
                    Some(NamedContent::Value(value)) => self.give(&mut command, value).await?,
                    Some(NamedContent::Address(address)) => command.input_artifact = Some(address),
                    None => {
                        let text = format!(
                            "neither the calling task nor the caller's tasks in this context have an artifact \
                             '{named}'; other artifacts are sent as a part with their url"
                        );
                        return Err(bad(code::CALL_INPUT_UNAVAILABLE.as_str(), text));
                    }
                },
            },
        }
        // The id of the execution is derived from the id of the message.
        command.idempotency_key = Some(params.message.id.0.clone()).filter(|id| !id.is_empty());
        command.user = caller.name().unwrap_or_else(|| caller.to_string());
        command.user_config = user_config(params);
        command.session = params.message.context_id.as_ref().map_or_else(String::new, |id| id.0.clone());
        if wants_result(parts, None) {
            command.labels.insert(STRUCTURED.to_owned(), "yes".to_owned());
        }
        (command.depth, command.chain, command.conversation) = self.above(params).await?;
        // `above` has verified the proof.
        let calling = CallingTask::find(params.metadata.as_ref()).and_then(Result::ok);
        command.calling =
            calling.map(|calling| CallingRef { execution: calling.execution, task: calling.task });
        command.behalf = Some(OnBehalf::of(&self.shared.key, execution, caller.clone()));
        Ok(command)
    }

    /// Returns the input in a text, by the input schema of the workflow.
    async fn read_text(&self, workflow: &str, text: &str) -> Result<Value, A2aError> {
        self.client.input_of_text(workflow, text).await.map_err(A2aError::invalid_params)
    }

    /// Finds an artifact that a message references by file name only: in the execution of the
    /// calling task, else in the caller's tasks that the message names, else in the ended ones of
    /// its context. The newest one is used.
    async fn artifact_of_caller(
        &self,
        params: &SendMessageRequest,
        caller: &Token,
        named: &ArtifactRef,
    ) -> Result<Option<NamedContent>, A2aError> {
        if let Some(Ok(calling)) = CallingTask::find(params.metadata.as_ref()) {
            if !calling.holds(&self.shared.key) {
                return Ok(None);
            }
            return Ok(self.find(&calling.execution).await?.and_then(|known| artifact_of(&known, named)));
        }
        for execution in named_tasks(params) {
            let known = self.find(&execution).await?.filter(|known| known.record.meta.caller == *caller);
            if let Some(found) = known.and_then(|known| artifact_of(&known, named)) {
                return Ok(Some(found));
            }
        }
        let Some(context) = &params.message.context_id else { return Ok(None) };
        let filter = HistoryFilter { caller: Some(caller.to_string()), ..HistoryFilter::default() };
        let ended =
            self.shared.mesh.history().list(&filter, MAX_EARLIER).await.map_err(|error| broker(&error))?;
        for one in ended {
            let known = self.find(&one.execution).await?;
            let known = known.filter(|known| super::task::session(&known.record.meta) == context.0);
            if let Some(found) = known.and_then(|known| artifact_of(&known, named)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Sets the input of a command. A large input is stored first.
    async fn give(&self, command: &mut StartCommand, value: Value) -> Result<(), A2aError> {
        command.input = value;
        let size = serde_json::to_vec(&command.input).map_or(0, |bytes| bytes.len());
        if size <= INLINE_LIMIT {
            return Ok(());
        }
        store_input(&self.shared.artifacts, command).await.map_err(|error| broker(&error))
    }

    /// Returns depth and names of the calling workflows, and their conversation, from the journal of
    /// the execution of the calling task.
    async fn above(
        &self,
        params: &SendMessageRequest,
    ) -> Result<(u32, Vec<String>, Option<Conversation>), A2aError> {
        let unproved = |text: &str| error_of(&Fault::invalid(code::CALL_WITHOUT_PROOF.as_str(), text));
        let Some(calling) = CallingTask::find(params.metadata.as_ref()) else {
            return Ok((0, Vec::new(), None));
        };
        let calling = calling.map_err(|error| unproved(&error.to_string()))?;
        if !calling.holds(&self.shared.key) {
            return Err(unproved("the call claims to be made during a task but does not prove it"));
        }
        let Some(above) = self.find(&calling.execution).await? else {
            return Err(unproved("the execution whose task makes the call is unknown"));
        };
        let start = above.folded.state().start.clone().unwrap_or_default();
        let mut chain = start.chain.clone();
        let conversation = above.record.meta.conversation();
        chain.push(above.record.meta.workflow);
        Ok((start.depth + 1, chain, conversation))
    }

    /// Waits until the caller's execution has started (`begun`), or until a blocking call can be
    /// answered. A call that is answered early gets the current execution.
    pub(super) async fn until(
        &self,
        call: &A2aCall,
        execution: &ExecutionId,
        begun: bool,
    ) -> Result<KnownExecution, A2aError> {
        // Boxed, because folding a record needs a large future, and many calls may wait.
        let enough = Box::pin(self.wait(execution, &call.caller, |known| begun || settled(known)));
        match call.wait(enough).await {
            Some(known) => known,
            None => self.find(execution).await?.ok_or_else(|| {
                let text = "too many calls wait for executions; this one is stored but has not started";
                temporary_error(code::NO_ANSWER_ON_MESH.as_str(), text)
            }),
        }
    }

    pub(super) async fn until_ended(
        &self,
        execution: &ExecutionId,
        caller: &Token,
    ) -> Result<KnownExecution, A2aError> {
        self.wait(execution, caller, |known| known.folded.state().ended).await
    }

    /// Fails if a start of this caller was rejected before this executor subscribed.
    async fn check_refused(&self, execution: &ExecutionId, caller: &Token) -> Result<(), A2aError> {
        let verdicts = self.client.verdicts(execution).await.map_err(|error| super::failed(&error))?;
        verdicts.iter().find_map(|verdict| refusal(verdict, caller)).map_or(Ok(()), Err)
    }

    /// Events only trigger a check; the record decides.
    async fn wait(
        &self,
        execution: &ExecutionId,
        caller: &Token,
        enough: impl Fn(&KnownExecution) -> bool,
    ) -> Result<KnownExecution, A2aError> {
        let filter = EventFilter { execution: Some(execution.clone()), ..EventFilter::default() };
        let mut events = self
            .shared
            .mesh
            .events()
            .follow(&filter, EventStart::Beginning)
            .await
            .map_err(|error| broker(&error))?;
        let mut patience = ASK_AFTER.0;
        let mut moved = false;
        let mut first = true;
        // Read the record first: it contains everything that was published before this executor
        // subscribed.
        match self.find(execution).await? {
            Some(known) if enough(&known) => return Ok(known),
            Some(_) => {}
            None => self.check_refused(execution, caller).await?,
        }
        loop {
            let wait = if moved { QUIET } else { patience };
            let mut refused = None;
            match tokio::time::timeout(wait, events.next()).await {
                Ok(event) if event.kind.as_str() == "command" => match told_refusal(&event.body, caller) {
                    Some(error) => refused = Some(error),
                    None => continue,
                },
                Ok(event) if event.kind.as_str() == "workflow_execution_result" => {}
                // The first event already proves that it has started.
                Ok(_) if std::mem::take(&mut first) => moved = true,
                Ok(_) => {
                    moved = true;
                    continue;
                }
                Err(_) => {
                    if !std::mem::take(&mut moved) {
                        patience = (patience * 2).min(ASK_AFTER.1);
                    }
                }
            }
            match (self.find(execution).await?, refused) {
                (Some(known), Some(error)) if known.record.meta.caller != *caller => return Err(error),
                // A start that lost its id to another one does not affect the execution with that
                // id.
                (Some(known), _) if enough(&known) => return Ok(known),
                (None, Some(error)) => return Err(error),
                (None, None) => self.check_refused(execution, caller).await?,
                _ => {}
            }
        }
    }
}

/// Returns the verdict on a rejected start of this caller from an event.
fn told_refusal(event: &[u8], caller: &Token) -> Option<A2aError> {
    refusal(&serde_json::from_slice::<Verdict>(event).ok()?, caller)
}

/// Returns the error for a rejected start of this caller.
fn refusal(verdict: &Verdict, caller: &Token) -> Option<A2aError> {
    if verdict.op != Operation::Start || verdict.accepted || verdict.caller != *caller {
        return None;
    }
    // Executors format reasons as `CODE: text`.
    let (code, text) =
        verdict.reason.split_once(": ").unwrap_or((code::START_REFUSED.as_str(), &verdict.reason));
    let (code, text) = match sinew_protocol::code::page(code) {
        Some(_) => (code, text),
        None => (code::START_REFUSED.as_str(), verdict.reason.as_str()),
    };
    Some(error_of(&Fault::invalid(code.to_owned(), short(text, 1_000))))
}

/// Content of a referenced artifact.
enum NamedContent {
    Value(Value),
    /// The address under which it is stored.
    Address(String),
}

/// Returns an artifact of an execution: of its agents, or an input or output in its events.
fn artifact_of(known: &KnownExecution, named: &ArtifactRef) -> Option<NamedContent> {
    let ctx = known.folded.ctx();
    let is_meant = |name: &ArtifactName, version: Option<u32>| {
        *name == named.name && named.version.is_none_or(|wanted| version == Some(wanted))
    };
    let replies = ctx.state.acts.iter().flat_map(|one| &one.replies);
    let replies = replies.filter_map(|replied| replied.result.as_ref().ok());
    let mut left = replies.flat_map(|reply| {
        let read = move |artifact| ResultArtifact::from_value(artifact, &reply.output);
        reply.artifacts.iter().filter_map(read)
    });
    if let Some(found) = left.rfind(|one| is_meant(&one.meta.name, Some(one.meta.version))) {
        return match &found.content {
            Content::Url(address) => Some(NamedContent::Address(address.clone())),
            inline => {
                let value = inline.bytes().and_then(|bytes| serde_json::from_slice(&bytes).ok());
                value.map(NamedContent::Value)
            }
        };
    }
    let values = sinew_execution::events::value_artifacts(&ctx, known.folded.id());
    let found = values.into_iter().rfind(|one| is_meant(&one.artifact.name, one.artifact.version));
    found.map(|found| NamedContent::Value(found.value))
}

/// Returns the tasks that a message names: the parent task, then those that it refers to.
fn named_tasks(params: &SendMessageRequest) -> Vec<ExecutionId> {
    let metadata = [&params.metadata, &params.message.metadata].into_iter().flatten();
    let parent = metadata.filter_map(|metadata| metadata.get("parentTaskId")?.as_str());
    let others = params.message.reference_task_ids.iter().flatten();
    parent.chain(others.map(|id| id.0.as_str())).filter_map(|id| ExecutionId::parse(id).ok()).collect()
}

/// Returns the user settings of a message (`a2aUserConfig`), from its metadata or from the
/// request's.
fn user_config(params: &SendMessageRequest) -> Value {
    let of = |metadata: &Option<Value>| metadata.as_ref()?.get("a2aUserConfig").cloned();
    let found = of(&params.message.metadata).or_else(|| of(&params.metadata));
    found.filter(Value::is_object).unwrap_or_default()
}

/// Returns the artifact that a message of the published specification references as its input: by
/// file name, in `invoked_with_artifacts`, next to a text. `None` for other messages.
fn named_artifact(params: &SendMessageRequest) -> Option<Result<ArtifactRef, String>> {
    if params.message.parts.iter().any(|part| part_data(part).is_some()) {
        return None;
    }
    let metadata = [&params.metadata, &params.message.metadata];
    let named = metadata.into_iter().flatten().find_map(|metadata| metadata.get("invoked_with_artifacts"))?;
    let Some([first, ..]) = named.as_array().map(Vec::as_slice) else {
        return Some(Err("'invoked_with_artifacts' is not a list of artifacts".to_owned()));
    };
    let name = first.get("filename").or(first.get("name")).and_then(Value::as_str).unwrap_or_default();
    let version = first.get("version").and_then(Value::as_u64).and_then(|version| version.try_into().ok());
    let read = ArtifactName::parse(name).map(|name| ArtifactRef { name, version });
    Some(read.map_err(|error| error.to_string()))
}

/// Returns whether a part is a file that is not stored on the mesh.
fn is_foreign_file(part: &Part) -> bool {
    match &part.content {
        PartContent::Raw(_) => true,
        PartContent::Url(url) => !url.starts_with("artifact://"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sinew_protocol::a2a::Message;

    use super::*;

    #[test]
    fn inputs_are_named_as_the_specification_has_it() {
        let named = |metadata: Value, parts: Vec<Part>| {
            let message = Message::user("m", parts);
            let params =
                SendMessageRequest { tenant: None, message, configuration: None, metadata: Some(metadata) };
            named_artifact(&params).map(|named| named.map(|named| named.to_string()))
        };
        let text = || vec![Part::text("Invoking workflow with input artifact: wi_F.json")];
        let metadata = |named: Value| json!({ "invoked_with_artifacts": named });
        let versioned = json!([{ "filename": "wi_F.json", "version": 1 }, { "filename": "other.json" }]);
        assert_eq!(named(metadata(versioned), text()), Some(Ok("wi_F.json:v1".to_owned())));
        assert_eq!(
            named(metadata(json!([{ "filename": "wi_F.json" }])), text()),
            Some(Ok("wi_F.json".to_owned()))
        );
        assert_eq!(named(json!({}), text()), None);
        let data = vec![Part::data(json!({ "a": 1 }))];
        assert_eq!(named(metadata(json!([{ "filename": "wi_F.json" }])), data), None);
        for wrong in [json!([]), json!("wi_F.json"), json!([{ "filename": "../x" }]), json!([{}])] {
            assert!(named(metadata(wrong.clone()), text()).is_some_and(|named| named.is_err()), "{wrong}");
        }
    }
}
