//! Input that tasks wait for, and answers of callers to agents.

use serde_json::{Map, Value, json};
use sinew_protocol::a2a::{A2aError, CoreMethod, Message, Part, SendMessageResponse, Task, TaskState};
use sinew_protocol::artifact::sha256;
use sinew_protocol::jsonrpc::raw;
use sinew_protocol::mcp_offer::{MCP_EXTENSION, client_requests, responses_part};

use super::questions::OpenQuestion;
use super::{A2aOperations, OperationCall, OperationReply};

/// Input that a task waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AskedInput {
    /// The task waits for nothing that its caller could provide.
    Nothing,
    /// Questions of a workflow to people.
    Questions(Vec<OpenQuestion>),
    /// Requests of an agent to its caller's client, by key.
    Requests(Map<String, Value>),
    /// A question of an agent as plain text.
    Words(String),
}

/// Answer of a caller to an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgentAnswer {
    /// Answers of the caller's client, by the keys of the requests.
    Responses(Map<String, Value>),
    /// A text.
    Words(String),
}

impl A2aOperations {
    /// Returns the input that a task of this caller waits for.
    pub(crate) async fn asked_input(
        &self,
        call: &OperationCall,
        task: &Task,
    ) -> Result<AskedInput, A2aError> {
        if task.status.state != TaskState::InputRequired {
            return Ok(AskedInput::Nothing);
        }
        if self.locate(call, &task.id.0).await?.is_workflow {
            return self.open_questions(call, &task.id.0).await.map(AskedInput::Questions);
        }
        let message = task.status.message.as_ref();
        if let Some(requests) = message.and_then(client_requests) {
            return Ok(AskedInput::Requests(requests.clone()));
        }
        let texts: Vec<&str> = message.iter().flat_map(|message| message.texts()).collect();
        Ok(AskedInput::Words(texts.join("\n")))
    }

    /// Sends the answer to an agent's task and returns the task: immediately, or after it has ended
    /// or asks again. Repeating an answer to a question is idempotent.
    pub(crate) async fn answer_agent(
        &self,
        call: &OperationCall,
        task: &Task,
        answer: AgentAnswer,
        at_once: bool,
    ) -> Result<SendMessageResponse, A2aError> {
        let (part, extensions) = match answer {
            AgentAnswer::Responses(responses) => (responses_part(&responses), vec![MCP_EXTENSION]),
            AgentAnswer::Words(words) => (Part::text(words), Vec::new()),
        };
        let question = task.status.message.as_ref().map_or("", |message| message.id.0.as_str());
        let identity = json!([task.id.0, question, task.status.timestamp, part]).to_string();
        let mut message = Message::user(format!("answer-{}", &sha256(identity.as_bytes())[..32]), vec![part])
            .with_task_id(task.id.0.as_str())
            .with_context_id(task.context_id.0.as_str());
        if !extensions.is_empty() {
            message = message.with_extensions(extensions);
        }
        let params = raw(&json!({"message": message, "configuration": {"returnImmediately": at_once}}));
        match self.perform(call, CoreMethod::SendMessage, &params).await? {
            OperationReply::Value(value) => serde_json::from_str(value.get())
                .map_err(|error| A2aError::internal(format!("cannot read the agent's response: {error}"))),
            OperationReply::Incomplete { .. } | OperationReply::Stream(_) => {
                Err(A2aError::internal("expected a single response, not a stream"))
            }
        }
    }
}
