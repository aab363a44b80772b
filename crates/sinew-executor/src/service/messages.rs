//! Messages that an execution sends: tasks, inputs of sub-workflows, and their results.

use sinew_protocol::code;
use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use sinew_engine::{ExecutionOutcome, SharedJson, TaskRequest};
use sinew_mesh::artifact::ArtifactOwner;
use sinew_mesh::card::AnnouncedCard;
use sinew_mesh::{HeaderMap, MeshError};
use sinew_protocol::a2a::{Part, PartContent, SendMessageRequest};
use sinew_protocol::artifact::sha256;
use sinew_protocol::card::{self, Delivery};
use sinew_protocol::journal::{ExecutionMeta, ParentRef};
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::task::{
    Content, Draft, NodeRequestIds, ResultArtifact, TaskExtra, WorkflowNodeRequest, point_to, result_task,
    write_inline,
};
use sinew_protocol::unique_keys::read_unique_within;
use sinew_protocol::usage::{ModelTotals, TaskUsage};
use sinew_protocol::{ArtifactName, Fault, ResultToken, Token, Vocabulary, header};
use sinew_shard::outgoing;
use sinew_source::violation_code;

use super::Shared;
use super::intake::broke;
use super::read_permits::memory_of;
use crate::measures::execution_facts;
use sinew_execution::Call;
use sinew_execution::request::{CardSchemas, Sender, output_name, request};

const JSON: &str = "application/json";
/// Maximum bytes of a stored value, and maximum number of values in it: each takes about 70 bytes
/// of memory, and the shard waits meanwhile.
const MAX_VALUE_BYTES: usize = 32 << 20;
const MAX_VALUES: usize = 1_000_000;

impl Shared {
    /// Returns whether a task is for a workflow.
    pub(super) fn is_workflow(&self, call: &Call) -> bool {
        outgoing::is_for_workflow(call, |name| self.programs.workflows.get(name).is_some())
    }

    /// Returns whether a task is sent to the agent's endpoint instead of its queue.
    pub(super) fn is_direct(&self, call: &Call) -> bool {
        !self.is_workflow(call)
            && self
                .cards
                .get(call.ask.target.name())
                .is_some_and(|announced| card::delivery(&announced.card) == Delivery::Direct)
    }

    /// Returns whether a task is sent to the node endpoint of its agent.
    pub(super) fn is_node_request(&self, call: &Call) -> bool {
        self.may_send_nodes
            && !self.is_workflow(call)
            && self.cards.get(call.ask.target.name()).is_some_and(|announced| {
                card::takes_node_requests(&announced.card)
                    && card::delivery(&announced.card) == Delivery::Direct
            })
    }

    /// Returns whether the agent of a task is online but no longer serves a node endpoint.
    pub(super) fn took_back_node_requests(&self, call: &Call) -> bool {
        self.is_workflow(call)
            || (self.cards.get(call.ask.target.name()).is_some() && !self.is_node_request(call))
    }

    /// Encodes a task in the short form. `None` if it is too large: then its input must be stored
    /// first.
    pub(super) fn node_request(call: &Call, meta: &ExecutionMeta, token: &ResultToken) -> Option<Bytes> {
        let (ask, attempt) = (&call.ask, call.key.attempt);
        let (execution, task, activation) = (&call.execution, &call.task, &call.activation);
        let ids = NodeRequestIds { execution, task, activation, attempt, token };
        let span = execution_facts::task_trace(meta, call.key.act);
        let mut request = WorkflowNodeRequest::new(&ids, &ask.input);
        request.workflow_name = Cow::Borrowed(&call.workflow);
        request.node_id = Cow::Borrowed(&call.label);
        request.input_schema = ask.input_schema.as_ref().map(Cow::Borrowed);
        request.output_schema = ask.output_schema.as_ref().map(Cow::Borrowed);
        request.suggested_output_filename =
            Cow::Owned(output_name(&call.workflow, &call.label, call.task.as_str()));
        request.deadline = call.deadline;
        request.user = Some(Cow::Borrowed(meta.on_behalf_of()));
        request.user_config = (!meta.user_config.is_null()).then_some(Cow::Borrowed(&meta.user_config));
        if let Some(conversation) = meta.conversation() {
            request.context_id = Some(Cow::Owned(conversation.context_id));
            request.caller = Some(Cow::Owned(conversation.caller));
        }
        request.purpose = Cow::Borrowed(&ask.tag);
        request.node = (call.node != call.label).then_some(Cow::Borrowed(&*call.node));
        request.path.clone_from(&call.path);
        request.instruction = ask.instruction.as_deref().map(Cow::Borrowed);
        request.context = (!ask.context.is_null()).then_some(Cow::Borrowed(&ask.context));
        request.traceparent = span.as_deref().map(Cow::Borrowed);
        let body = request.to_bytes();
        (body.len() <= INLINE_LIMIT).then(|| body.into())
    }

    /// Returns the headers of every message about an execution.
    pub(super) fn headers(meta: &ExecutionMeta) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(parent) = &meta.traceparent {
            headers.insert(header::TRACE_PARENT, parent.as_str());
        }
        headers
    }

    /// Returns the headers of messages for a task, whose span is a child of the execution's.
    pub(super) fn headers_within(meta: &ExecutionMeta, call: &Call) -> HeaderMap {
        let mut headers = Self::headers(meta);
        if let Some(parent) = execution_facts::task_trace(meta, call.key.act) {
            headers.insert(header::TRACE_PARENT, parent.as_str());
        }
        headers
    }

    /// Returns the subject for the result of a task.
    pub(super) fn result_subject(&self, call: &Call, agent: &Token) -> String {
        self.mesh.subject(&outgoing::result_subject(self.shards, &self.key, call, agent))
    }

    /// Encodes a task for the queue of an agent that accepts the short form. `None` for all other
    /// tasks, and for queues that may not exist yet.
    pub(super) fn queued_node_task(&self, call: &Call, meta: &ExecutionMeta) -> Option<(HeaderMap, Bytes)> {
        let agent = call.ask.target.name();
        let announced = self.cards.get(agent)?;
        let is_queued = card::takes_node_requests(&announced.card)
            && card::delivery(&announced.card) == Delivery::Queue
            && !self.is_workflow(call);
        if !is_queued || !self.queues.has(agent) {
            return None;
        }
        self.short_task(call, meta)
    }

    /// Encodes a task in the short form for the queue of its agent. `None` if it is too large.
    fn short_task(&self, call: &Call, meta: &ExecutionMeta) -> Option<(HeaderMap, Bytes)> {
        let body = Self::node_request(call, meta, &ResultToken::of(&self.key, &call.task))?;
        let mut headers = HeaderMap::new();
        let result_subject = self.result_subject(call, &Token::of(call.ask.target.name()));
        headers.insert(header::RESULT_SUBJECT, result_subject.as_str());
        Some((headers, body))
    }

    /// Encodes a task as its agent receives it. A large input is stored first.
    pub(super) async fn task(
        &self,
        call: &Call,
        meta: &ExecutionMeta,
    ) -> Result<(HeaderMap, Bytes), MeshError> {
        let agent = call.ask.target.name();
        if self.cards.get(agent).is_some_and(|announced| card::takes_node_requests(&announced.card))
            && let Some(worded) = self.short_task(call, meta)
        {
            return Ok(worded);
        }
        let (headers, message) = self.message(call, meta).await?;
        Ok((headers, serde_json::to_vec(&message).unwrap_or_default().into()))
    }

    /// Creates the message of a task before it is encoded.
    pub(super) async fn message(
        &self,
        call: &Call,
        meta: &ExecutionMeta,
    ) -> Result<(HeaderMap, SendMessageRequest), MeshError> {
        let announced = self.cards.get(call.ask.target.name());
        let schemas = announced.as_ref().map_or_else(CardSchemas::default, |announced| CardSchemas {
            input: card::input_schema(&announced.card),
            output: card::output_schema(&announced.card),
        });
        let sender = Sender {
            app: meta.workflow.clone(),
            user: meta.on_behalf_of().to_owned(),
            session: meta.execution.to_string(),
            task: meta.parent.as_ref().map_or_else(|| meta.execution.to_string(), |p| p.task.to_string()),
            vocabulary: self.vocabulary,
        };
        let mut message = request(call, &sender, schemas).message;
        if let Some(conversation) = meta.conversation() {
            message.message = message.message.with_context_id(conversation.context_id);
        }
        let (input, address) = self.inline_or_stored(call, meta).await?;
        match &address {
            Some(address) => point_to(&mut message, address),
            // Current releases of Solace Agent Mesh expect a file part.
            None if self.vocabulary == Vocabulary::Spec => write_inline(&mut message, &input),
            None => {}
        }
        let result_subject = self.result_subject(call, &Token::of(call.ask.target.name()));
        let extra = TaskExtra {
            input: address.is_none().then_some(input),
            instruction: call.ask.instruction.clone(),
            context: Self::context(call, &sender.user, meta),
            tag: call.ask.tag.clone(),
            activation: call.activation.clone(),
            attempt: call.key.attempt,
            deadline: call.deadline,
            result_subject: result_subject.clone(),
        };
        extra.put(&mut message);
        let mut headers = Self::headers_within(meta, call);
        headers.insert(header::ACTIVATION, call.activation.as_str());
        headers.insert(header::ATTEMPT, call.key.attempt.to_string().as_str());
        if let Some(deadline) = call.deadline {
            headers.insert(header::DEADLINE, deadline.to_string().as_str());
        }
        headers.insert(header::RESULT_SUBJECT, result_subject.as_str());
        headers.insert(header::MESSAGE_ID, call.task.as_str());
        Ok((headers, message))
    }

    /// Returns the context of the input, as agents receive it.
    fn context(call: &Call, user: &str, meta: &ExecutionMeta) -> Value {
        let mut context = serde_json::json!({
            "user": user,
            "workflow": call.workflow,
            "execution": call.execution.as_str(),
            "node": call.node,
            "path": call.path,
            "task": call.task.as_str(),
            "activation": call.activation.as_str(),
            "attempt": call.key.attempt,
            "purpose": call.ask.tag,
            "request": call.ask.context,
        });
        if let Some(conversation) = meta.conversation() {
            context["caller"] = conversation.caller.into();
        }
        if !meta.user_config.is_null() {
            context["user_config"] = meta.user_config.clone();
        }
        context
    }

    /// Returns the input of a task inline, or null and its address after storing it.
    pub(super) async fn inline_or_stored(
        &self,
        call: &Call,
        meta: &ExecutionMeta,
    ) -> Result<(Value, Option<String>), MeshError> {
        let bytes = serde_json::to_vec(&*call.ask.input).unwrap_or_default();
        if bytes.len() <= INLINE_LIMIT {
            return Ok((Value::clone(&call.ask.input), None));
        }
        let name = ArtifactName::parse(&format!("input_{}.json", &sha256(call.label.as_bytes())[..12]))?;
        let place = ArtifactOwner {
            app: &meta.workflow,
            user: meta.caller.as_str(),
            execution: &call.execution,
            task: &call.task,
        };
        let stored = self.artifacts.put_object(&place, name, 0, JSON, bytes.into()).await?;
        Ok((Value::Null, address(&stored.part).map(str::to_owned)))
    }

    /// Returns a stored value by its address, and its size in memory.
    pub(super) async fn value(&self, address: &str) -> Result<(Value, usize), Fault> {
        let fetched = self.artifacts.fetch_within(address, MAX_VALUE_BYTES).await;
        let bytes = fetched.map_err(|error| match error {
            MeshError::TooLarge { size, limit, .. } => {
                let text = format!("artifact {address} has {size} bytes; a value can have at most {limit}");
                Fault::invalid(code::VALUE_TOO_LARGE.as_str(), text)
            }
            error => Fault::from(error),
        })?;
        // Parsing millions of values takes long: other shards continue meanwhile.
        let read = tokio::task::spawn_blocking(move || {
            read_unique_within(&bytes, MAX_VALUES).map(|value| (value, memory_of(&bytes)))
        });
        let read = read.await.map_err(|error| broke("reading a stored value", &error))?;
        // Stored bytes never change, so they are not read again: a retry would never end.
        read.map_err(|error| {
            let text = format!("artifact {address} is not a usable JSON value: {error}");
            Fault::error(error.code(code::ANSWER_BREAKS_OUTPUT_SCHEMA.as_str()), text).with_retryable(false)
        })
    }

    /// Returns whether an output has a schema: that of its task, or else of its agent's card.
    pub(super) fn has_output_schema(&self, ask: &TaskRequest) -> bool {
        let of_card = |card: Arc<AnnouncedCard>| card::output_schema(&card.card).is_some();
        ask.output_schema.is_some()
            || (ask.tag == TaskRequest::WORK && self.cards.get(ask.target.name()).is_some_and(of_card))
    }

    /// Rejects an output that violates the schema of its task, or else of its agent's card.
    pub(super) fn check_output(&self, ask: &TaskRequest, output: &SharedJson) -> Result<(), Fault> {
        let announced = self.cards.get(ask.target.name());
        let of_card = announced.as_ref().and_then(|announced| card::output_schema(&announced.card));
        // Routing and judging tasks have their own outputs; only work has the agent's schema.
        let of_card = of_card.filter(|_| ask.tag == TaskRequest::WORK);
        let Some(schema) = ask.output_schema.as_ref().or(of_card) else { return Ok(()) };
        let compiled = match self.schemas.get(schema) {
            Ok(compiled) => compiled,
            // An unusable schema was rejected when the workflow was validated or the card
            // announced.
            Err(error) => return Err(Fault::error(error.code(), error.to_string()).with_retryable(false)),
        };
        compiled.check(output).map_err(|violations| {
            let told: Vec<String> = violations
                .iter()
                .map(|violation| match violation.pointer.as_str() {
                    "" => format!("(root): {}", violation.message),
                    pointer => format!("{pointer}: {}", violation.message),
                })
                .collect();
            let text = format!("the agent's output violates its schema: {}", told.join("; "));
            Fault::invalid(violation_code(&violations, code::ANSWER_BREAKS_OUTPUT_SCHEMA.as_str()), text)
                .with_details(told)
        })
    }

    /// Encodes the result of a sub-workflow like an agent's. A large output is stored first.
    pub(super) async fn child_result(
        &self,
        meta: &ExecutionMeta,
        parent: &ParentRef,
        outcome: &ExecutionOutcome,
        usage: ModelTotals,
    ) -> Result<Bytes, MeshError> {
        let result = outgoing::child_result(outcome);
        let name = sinew_execution::reply::result_name(&meta.workflow, meta.execution.as_str())?;
        let (end, artifacts) = match result {
            Ok(value) => {
                let bytes: Bytes = serde_json::to_vec(&value).unwrap_or_default().into();
                let (app, user) = (meta.workflow.as_str(), meta.caller.as_str());
                let place = ArtifactOwner { app, user, execution: &parent.execution, task: &parent.task };
                let stored = self.artifacts.put(&place, name, 0, JSON, bytes).await?;
                let content = Content::of(&stored.part).unwrap_or(Content::Data(value));
                (Ok(stored.meta.reference()), vec![ResultArtifact { meta: stored.meta, content }])
            }
            Err(fault) => (Err(fault), Vec::new()),
        };
        let draft = Draft {
            session: parent.execution.as_str(),
            artifacts: &artifacts,
            usage: TaskUsage::of_execution(usage),
            vocabulary: self.vocabulary,
            ..Draft::new(&parent.task, end)
        };
        Ok(serde_json::to_vec(&result_task(draft)).unwrap_or_default().into())
    }
}

/// Returns the address of a stored artifact.
fn address(part: &Part) -> Option<&str> {
    match &part.content {
        PartContent::Url(url) => Some(url),
        _ => None,
    }
}
