//! Open questions of a workflow to people, answered one by one, and tasks for other front ends.

use bytes::Bytes;
use serde_json::Value;
use sinew_engine::{WaitingFor, waiting};
use sinew_execution::Execution;
use sinew_mesh::card::Cards;
use sinew_operations::approvals::{AskingNode, DecisionRequest};
use sinew_protocol::a2a::{A2aError, CoreMethod, Task, is_terminal};
use sinew_protocol::artifact::StoredAt;
use sinew_protocol::artifact::sha256;
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::{ExecutionId, Fault, TaskId, Token, code};

use super::decision::{asking_nodes, execution_of};
use super::peer::{client_failed, mesh_failed};
use super::target::TaskLocation;
use super::{A2aOperations, Endpoint, OperationCall, is_settled};

/// Member of a question's data with the schema of its answer.
const ANSWER_SCHEMA: &str = "answer_schema";
/// Interval of queries for an agent's task.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// An unanswered question of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenQuestion {
    /// Node that asks.
    pub(crate) node: String,
    /// Activation of the node.
    pub(crate) activation: u32,
    /// Text for the person.
    pub(crate) prompt: String,
    /// JSON Schema of the answer, if the question has one: an object of strings, numbers, booleans
    /// and choices.
    pub(crate) answer_schema: Option<Value>,
}

/// A person's answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuestionAnswer {
    /// Node that asked.
    pub(crate) node: String,
    /// Activation of the node.
    pub(crate) activation: u32,
    /// The decision.
    pub(crate) decision: DecisionRequest,
}

impl A2aOperations {
    /// Returns how long a blocking call waits.
    pub(crate) fn blocking_timeout(&self) -> std::time::Duration {
        self.shared.blocking
    }

    /// Returns a live view of the mesh's agents, exposed or not.
    pub(crate) fn cards(&self) -> Cards {
        self.shared.cards.clone()
    }

    /// Returns the exposed agent or workflow with this token.
    pub(crate) fn card_by_token(&self, token: &str) -> Option<sinew_protocol::a2a::AgentCard> {
        let announced = self.shared.cards.by_token(&Token::parse(token).ok()?)?;
        self.offers(&announced.card.name).then(|| announced.card.clone())
    }

    /// Returns the id of the task that a message to an agent creates, as clients of the whole mesh
    /// see it.
    pub(crate) fn task_of_message(&self, call: &OperationCall, agent: &str, message: &str) -> String {
        if self.is_workflow(&self.served_name(agent)) {
            return ExecutionId::of(self.mesh_namespace(), call.caller.as_str(), message).to_string();
        }
        let (_, task) = self.own_ids(call, agent, message);
        let place = TaskLocation::new(&Endpoint::Mesh, agent.into(), false, String::new());
        format!("{}{task}", place.shown_prefix())
    }

    /// Returns the agent or workflow of a task of this caller, and the task's current state.
    pub(crate) async fn find_task(&self, call: &OperationCall, id: &str) -> Result<(String, Task), A2aError> {
        let place = self.locate(call, id).await?;
        let mut task = self.task_of_peer(call, &place).await?.task;
        place.show(&mut task);
        Ok((place.agent.to_string(), task))
    }

    /// Returns a task of this caller after it has ended or needs input, or in its state after the
    /// time of a blocking call.
    pub(crate) async fn settled_task(&self, call: &OperationCall, id: &str) -> Result<Task, A2aError> {
        let place = self.locate(call, id).await?;
        let until = tokio::time::Instant::now() + self.shared.blocking;
        loop {
            let mut task = self.task_of_peer(call, &place).await?.task;
            if is_settled(task.status.state) || tokio::time::Instant::now() >= until {
                place.show(&mut task);
                return Ok(task);
            }
            if place.is_workflow {
                self.wait_settled(&place).await?;
            } else {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Returns the open questions of a workflow's task. Agents' questions are plain text, so they
    /// have none.
    pub(crate) async fn open_questions(
        &self,
        call: &OperationCall,
        id: &str,
    ) -> Result<Vec<OpenQuestion>, A2aError> {
        let place = self.locate(call, id).await?;
        if !place.is_workflow || is_terminal(self.task_of_peer(call, &place).await?.task.status.state) {
            return Ok(Vec::new());
        }
        let execution = execution_of(&place)?;
        let found = self.shared.client.execution(&execution).await.map_err(|error| client_failed(&error))?;
        Ok(found.map(|(_, folded)| questions_of(&folded)).unwrap_or_default())
    }

    /// Sends a person's answer to a question of a workflow, under the caller's name.
    pub(crate) async fn answer_question(
        &self,
        call: &OperationCall,
        id: &str,
        answer: QuestionAnswer,
    ) -> Result<(), A2aError> {
        super::check_role(call, CoreMethod::SendMessage)?;
        let place = self.locate(call, id).await?;
        // The agent decides whether this caller may see the task.
        self.task_of_peer(call, &place).await?;
        let execution = execution_of(&place)?;
        let QuestionAnswer { node, activation, decision } = answer;
        let found = self.shared.client.execution(&execution).await.map_err(|error| client_failed(&error))?;
        let mut asking = found.into_iter().flat_map(|(_, folded)| asking_nodes(&execution, &folded));
        let target = asking.find(|(own, act, _)| *own == node && *act == activation);
        let target = target.map(|(_, _, asking)| asking);
        let own = AskingNode {
            execution,
            node: Some(node.clone()),
            activation: Some(activation),
            allowed: Vec::new(),
        };
        let DecisionRequest { data, comment, reject, .. } = &decision;
        let (approved, comment) = (!reject, comment.as_deref().unwrap_or_default());
        let message = format!("{id} {node} {activation} {approved} {data} {comment}");
        let message = sha256(message.as_bytes());
        self.send_decision(call, target.unwrap_or(own), decision, &message).await
    }

    /// Waits until a question is closed, at most for the time of a blocking call.
    pub(crate) async fn question_closed(
        &self,
        call: &OperationCall,
        id: &str,
        question: &OpenQuestion,
    ) -> Result<(), A2aError> {
        let place = self.locate(call, id).await?;
        let limit = self.shared.blocking;
        self.wait_until(&place, limit, |folded| !questions_of(folded).contains(question)).await
    }

    /// Returns when an execution started, in milliseconds since 1970, or `None` for a task of an
    /// agent.
    pub(crate) async fn begun_at(&self, call: &OperationCall, id: &str) -> Result<Option<u64>, A2aError> {
        let place = self.locate(call, id).await?;
        if !place.is_workflow {
            return Ok(None);
        }
        let record = self.shared.client.record(&execution_of(&place)?).await;
        Ok(record.map_err(|error| client_failed(&error))?.map(|record| record.meta.created))
    }

    /// Reads bytes from the artifact store for a caller who may see the task that they belong to.
    pub(crate) async fn artifact_bytes(
        &self,
        call: &OperationCall,
        address: &StoredAt,
        max_bytes: usize,
    ) -> Result<Bytes, A2aError> {
        let owners = [address.execution.to_string(), agent_task(&address.uri.app, &address.task)];
        let mut seen = Err(A2aError::task_not_found(address.execution.as_str()));
        for owner in &owners {
            seen = self.find_task(call, owner).await.map(drop);
            if seen.is_ok() {
                break;
            }
        }
        seen?;
        self.stored_bytes(address, max_bytes).await
    }

    /// Reads bytes from the artifact store that a task of the caller references.
    pub(crate) async fn stored_bytes(&self, address: &StoredAt, max_bytes: usize) -> Result<Bytes, A2aError> {
        let artifacts = self.shared.client.mesh().artifacts();
        artifacts.fetch_within(&address.to_string(), max_bytes).await.map_err(|error| match error {
            sinew_mesh::MeshError::TooLarge { .. } => {
                let text = format!("the artifact has more than {max_bytes} bytes");
                error_of(&Fault::invalid(code::GATEWAY_RESOURCE_TOO_LARGE.as_str(), text))
            }
            error => mesh_failed(&error),
        })
    }
}

/// Returns the id of an agent's task as clients of the whole mesh see it.
fn agent_task(agent: &str, task: &TaskId) -> String {
    format!("{}.{task}", Token::of(agent))
}

/// Returns the questions of an execution to people.
fn questions_of(folded: &Execution) -> Vec<OpenQuestion> {
    let ctx = folded.ctx();
    let waits = waiting(folded.state());
    let question = |wait: &sinew_engine::OpenWait| match (&wait.what, wait.act) {
        // An answer to it is passed on to the callee.
        (WaitingFor::CalleePerson { wait, .. }, Some(activation)) if wait.execution.is_some() => {
            Some(OpenQuestion {
                node: ctx.node_of(activation).id.clone(),
                activation,
                prompt: wait.prompt.clone(),
                answer_schema: None,
            })
        }
        (WaitingFor::Person(request), Some(activation)) => Some(OpenQuestion {
            node: ctx.node_of(activation).id.clone(),
            activation,
            prompt: request.prompt.clone(),
            answer_schema: request.data.get(ANSWER_SCHEMA).filter(|schema| schema.is_object()).cloned(),
        }),
        _ => None,
    };
    waits.iter().filter_map(question).collect()
}
