//! Decodes the parts and metadata of a message into a task.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use sinew_mesh::async_nats::{HeaderMap, HeaderValue};
use sinew_protocol::a2a::{Message, Part, PartContent, SendMessageRequest, part_data};
use sinew_protocol::behalf::CallingTask;
use sinew_protocol::fault::Fault;
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::task::TaskExtra;
use sinew_protocol::{ExecutionId, Subject, TaskId, Token, header};

use crate::failure::UNREADABLE;
use crate::task_properties::{CallerContext, TaskProperties};

/// Maximum call depth of workflows before a task; deeper calls are rejected.
const DEEPEST: u32 = 32;

/// Type of a request in the published specification.
const SPEC_REQUEST: &str = "workflow_node_request";

/// A requested task.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) about: TaskProperties,
    pub(crate) input: Input,
    /// Subject for the result of an execution's task.
    pub(crate) result_subject: Option<String>,
    /// Message of a caller; `None` for a task of an execution.
    pub(crate) message: Option<Box<Message>>,
}

/// Location of a task's input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    Value(Value),
    /// Address of an artifact.
    Address(String),
}

/// Agent and mesh that a request is for.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) agent: &'a str,
}

impl Asked<'_> {
    fn token(&self) -> Token {
        Token::of(self.agent)
    }

    /// Returns the ids in the result subject of a task of this agent; `None` for any other subject.
    pub(crate) fn result_subject(&self, subject: &str) -> Option<(ExecutionId, TaskId)> {
        match Subject::parse(self.namespace, subject)? {
            Subject::Result { agent, execution, task, .. } if agent == self.token() => {
                Some((execution, task))
            }
            _ => None,
        }
    }
}

/// Parses a message from a task's subject or the A2A endpoint.
///
/// `ids` are derived from the subject, else from the caller's message.
pub(crate) fn read(
    asked: Asked<'_>,
    ids: impl FnOnce(Option<&TaskExtra>) -> Result<(ExecutionId, TaskId), Fault>,
    mut request: SendMessageRequest,
    headers: &HeaderMap,
) -> Result<Request, Fault> {
    let found = TaskExtra::take(request.metadata.as_mut())
        .or_else(|| TaskExtra::take(request.message.metadata.as_mut()));
    let extra = found.transpose()?;
    let (execution, task) = ids(extra.as_ref())?;
    let parts = &request.message.parts;
    let node = match MeshMessage::find(parts) {
        Some(Ok(MeshMessage::NodeRequest(node))) => Some(node),
        Some(Err(error)) => return Err(error.into()),
        _ => None,
    };
    let is_spec = |part: &Part| part_data(part).is_some_and(|data| data["type"] == SPEC_REQUEST);
    let vocabulary = if parts.iter().any(is_spec) { Vocabulary::Spec } else { Vocabulary::default() };
    let WorkflowNodeRequestData {
        workflow_name,
        node_id,
        input_schema,
        output_schema,
        suggested_output_filename,
        ..
    } = node.unwrap_or_default();
    let text = |name: &str| headers.get(name).map(HeaderValue::as_str);
    let depth: u32 = text(header::CALL_DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(0);
    if depth > DEEPEST {
        return Err(unreadable(format!("the call chain of agents and workflows is deeper than {DEEPEST}")));
    }
    let mut about = TaskProperties {
        workflow: workflow_name,
        node: node_id,
        session: request.message.context_id.as_ref().map_or_else(String::new, |context| context.0.clone()),
        input_schema,
        output_schema,
        output_name: suggested_output_filename,
        vocabulary,
        trace_parent: text(header::TRACE_PARENT).map(str::to_owned),
        depth,
        ..TaskProperties::new(asked.agent, execution, task)
    };
    let mut result_subject = None;
    let mut given = None;
    if let Some(extra) = extra {
        if asked.result_subject(&extra.result_subject) != Some((about.execution.clone(), about.task.clone()))
        {
            return Err(unreadable("the result subject does not belong to this task"));
        }
        about.calling = CallingTask::of(asked.namespace, &extra.result_subject);
        result_subject = Some(extra.result_subject);
        extra.activation.as_str().clone_into(&mut about.activation);
        about.attempt = extra.attempt;
        about.deadline = extra.deadline.map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
        about.instruction = extra.instruction;
        about.context = extra.context;
        if !about.session.is_empty() && about.session != about.execution.as_str() {
            let execution = about.execution.as_str().to_owned();
            let id = std::mem::replace(&mut about.session, execution);
            let caller = about.context["caller"].as_str().unwrap_or_default().to_owned();
            about.caller_context = Some(CallerContext { id, caller });
        }
        given = extra.input;
    } else if let Some(deadline) = text(header::DEADLINE) {
        let ms = deadline.parse().map_err(|_| unreadable("the deadline is not a number of milliseconds"))?;
        about.deadline = Some(UNIX_EPOCH + Duration::from_millis(ms));
    }
    if about.calling.is_none() {
        // Calls of the handler belong to the caller's task.
        about.calling = CallingTask::find(request.metadata.as_ref()).transpose()?;
    }
    let input = given.map_or_else(|| input(parts), Input::Value);
    let message = result_subject.is_none().then(|| Box::new(request.message));
    Ok(Request { about, input, result_subject, message })
}

impl Request {
    /// Returns whether the deadline has passed.
    pub(crate) fn is_late(&self, now: SystemTime) -> bool {
        self.about.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// Returns the input in the parts of a message: the first artifact, else the first data that is not
/// a message of the mesh, else the text as `{"text": …}`, else an empty object.
pub(crate) fn input(parts: &[Part]) -> Input {
    let address = parts.iter().find_map(|part| match &part.content {
        PartContent::Url(url) if url.starts_with("artifact://") => Some(url.clone()),
        _ => None,
    });
    if let Some(address) = address {
        return Input::Address(address);
    }
    let is_message = |data: &&Value| {
        let kind = data.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| sinew_protocol::message::TYPES.contains(&kind))
    };
    if let Some(data) = parts.iter().filter_map(part_data).find(|data| !is_message(data)) {
        return Input::Value(data.clone());
    }
    let texts: Vec<&str> = parts.iter().filter_map(Part::text_content).collect();
    Input::Value(if texts.is_empty() {
        Value::Object(Map::new())
    } else {
        json!({ "text": texts.join("\n") })
    })
}

pub(crate) fn unreadable(message: impl Into<String>) -> Fault {
    Fault::invalid(UNREADABLE, message)
}
