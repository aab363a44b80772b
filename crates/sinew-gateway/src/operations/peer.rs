//! Requests to an agent's A2A endpoint on the mesh, under the caller's name.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sinew_executor::client::ClientError;
use sinew_mesh::{HeaderMap, Mesh, MeshError};
use sinew_protocol::a2a::{A2A_VERSION, A2aError, CoreMethod, ErrorCode, Task, TaskQueryParams};
use sinew_protocol::card::CARD_LATE_AFTER;
use sinew_protocol::jsonrpc::{Method, Request, Response, error_of, fault_of, temporary_error};
use sinew_protocol::{Fault, code, header};
use tokio::time::Instant;

use super::target::TaskLocation;
use super::{A2aOperations, OperationCall, short};

/// Time limit for the response to one request. Executors answer a repeated request again, so a lost
/// response costs no more.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a request without responders is retried: executors subscribe soon after a start or
/// takeover.
const OPENING_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two attempts to reach an endpoint without responders.
const OPENING_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of requests for a task of an agent, each of which may reach another replica.
/// Replicas query each other for unknown tasks; those of an older version, or without permission,
/// do not.
pub(super) const REPLICA_TRIES: usize = 4;

/// Response of an agent.
#[derive(Debug)]
pub(super) struct PeerReply {
    result: Box<RawValue>,
    /// Number of the last event that the result includes.
    pub(super) seq: Option<u64>,
}

/// A task with the number of the last event that it includes.
#[derive(Debug)]
pub(super) struct NumberedTask {
    pub(super) task: Task,
    pub(super) seq: Option<u64>,
}

/// Error of an agent, or the reason why no response arrived.
#[derive(Debug)]
pub(super) struct PeerError {
    error: A2aError,
    /// Whether the request was sent more than once, so that an earlier one may have been processed.
    pub(super) was_repeated: bool,
    /// Whether the agent may have received the request and did not respond.
    pub(super) is_silent: bool,
}

impl From<PeerError> for A2aError {
    fn from(error: PeerError) -> Self {
        error.error
    }
}

impl PeerError {
    /// Returns the error of requested work. A response to a repeated request reveals nothing about
    /// the result of an earlier, unanswered one.
    pub(super) fn of_work(self) -> A2aError {
        if self.was_repeated { unanswered(self.error) } else { self.error }
    }

    /// Returns the A2A error code.
    pub(super) fn code(&self) -> ErrorCode {
        self.error.code
    }
}

impl PeerReply {
    /// Parses the result as its type.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, A2aError> {
        serde_json::from_str(self.result.get()).map_err(|error| {
            let text = format!("cannot read the agent's response: {}", short(&error.to_string(), 300));
            A2aError::new(ErrorCode::InvalidAgentResponse, text)
        })
    }
}

/// The result of a JSON-RPC response, left unparsed.
#[derive(Deserialize)]
struct ResultMember<'a> {
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

impl A2aOperations {
    /// Calls an agent once, for at most `timeout`.
    pub(super) async fn ask_once(
        &self,
        call: &OperationCall,
        agent: &str,
        method: CoreMethod,
        params: &impl Serialize,
        timeout: Duration,
    ) -> Result<PeerReply, PeerError> {
        let mesh = self.shared.client.mesh().on_behalf_of(call.caller.clone());
        let mut headers = HeaderMap::new();
        if !call.extensions.is_empty() {
            headers.insert(header::A2A_EXTENSIONS, call.extensions.join(","));
        }
        call.trace.child().put(&mut headers);
        ask_peer(&mesh, agent, method, headers, params, timeout).await
    }

    /// Calls an agent repeatedly until it responds, at most for the time of a blocking call. For
    /// repeatable requests only.
    pub(super) async fn ask_again(
        &self,
        call: &OperationCall,
        agent: &str,
        method: CoreMethod,
        params: &impl Serialize,
    ) -> Result<PeerReply, PeerError> {
        let until = Instant::now() + self.shared.blocking;
        let mut was_repeated = false;
        loop {
            let left = until.saturating_duration_since(Instant::now()).max(OPENING_PAUSE);
            match self.ask_once(call, agent, method, params, REQUEST_TIMEOUT.min(left)).await {
                // If an observer subscribes to all subjects, NATS does not report the lack of
                // responders: the card decides.
                Err(error) if error.is_silent && self.is_gone(agent) => {
                    let error = mesh_failed(&MeshError::NobodyAnswers { what: format!("agent {agent}") });
                    return Err(PeerError { error, was_repeated: true, is_silent: true });
                }
                Err(error) if error.is_silent && Instant::now() < until => {
                    was_repeated = true;
                    tokio::time::sleep(OPENING_PAUSE).await;
                }
                asked => return asked.map_err(|error| PeerError { was_repeated, ..error }),
            }
        }
    }

    /// Returns whether an agent has no card, or has not announced itself for a while.
    fn is_gone(&self, agent: &str) -> bool {
        let cards = &self.shared.cards;
        !self.is_workflow(agent) && cards.age(agent).is_none_or(|age| age > CARD_LATE_AFTER)
    }

    /// Calls the agent of a task, and retries while another replica may know the task.
    pub(super) async fn ask_for_task(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        method: CoreMethod,
        params: &impl Serialize,
    ) -> Result<PeerReply, PeerError> {
        let tries = if place.is_workflow { 1 } else { REPLICA_TRIES };
        let mut tried = 0;
        loop {
            tried += 1;
            match self.ask_again(call, &place.agent, method, params).await {
                Err(error) if error.code() == ErrorCode::TaskNotFound && tried < tries => {}
                asked => return asked,
            }
        }
    }

    /// Returns the caller's task in its current state.
    pub(super) async fn task_of_peer(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
    ) -> Result<NumberedTask, A2aError> {
        let params = TaskQueryParams { tenant: None, id: place.id.clone(), history_length: None };
        let reply = self.ask_for_task(call, place, CoreMethod::GetTask, &params).await?;
        Ok(NumberedTask { task: reply.read()?, seq: reply.seq })
    }
}

/// Calls an agent once, under the name of this connection's caller, for at most `timeout`.
pub(super) async fn ask_peer(
    mesh: &Mesh,
    agent: &str,
    method: CoreMethod,
    mut headers: HeaderMap,
    params: &impl Serialize,
    timeout: Duration,
) -> Result<PeerReply, PeerError> {
    let method = Method::Core(method);
    let body = Request::new(1, method, params).to_bytes();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    let until = Instant::now() + OPENING_TIMEOUT;
    let reply = loop {
        let asked =
            mesh.services().call_rpc(agent, method.as_str(), headers.clone(), body.clone(), timeout).await;
        match asked {
            // The request reached no responder, so it can be sent again.
            Err(MeshError::NobodyAnswers { .. }) if Instant::now() < until => {
                tokio::time::sleep(OPENING_PAUSE).await;
            }
            asked => break asked,
        }
    };
    let refused = |error: A2aError| PeerError { error, was_repeated: false, is_silent: false };
    let reply = reply.map_err(|error| {
        let is_silent = matches!(error, MeshError::NoAnswer { .. } | MeshError::Unreachable { .. });
        PeerError { error: mesh_failed(&error), was_repeated: false, is_silent }
    })?;
    let seq = reply.headers.get(header::A2A_SEQ).and_then(|text| text.as_str().parse().ok());
    if let Ok(ResultMember { result: Some(result) }) = serde_json::from_slice(&reply.body) {
        return Ok(PeerReply { result: result.to_owned(), seq });
    }
    let bad = |text: String| A2aError::new(ErrorCode::InvalidAgentResponse, text);
    let response = Response::read(&reply.body)
        .map_err(|error| refused(bad(format!("cannot read the agent's response: {error}"))))?;
    match response.into_result() {
        Err(error) => Err(refused(error)),
        Ok(_) => Err(refused(bad("the agent's response has no result".to_owned()))),
    }
}

/// Returns the error of a request that may have been accepted although its agent did not respond,
/// if `later` reveals nothing about it. Errors of the agent about the request itself are unchanged.
pub(super) fn unanswered(later: A2aError) -> A2aError {
    let says_nothing =
        later.code == ErrorCode::TaskNotFound || fault_of(&later).code == code::NOBODY_ANSWERS.as_str();
    if !says_nothing {
        return later;
    }
    let text = format!("the agent did not respond, so it may have accepted the request: {}", later.message);
    error_of(&Fault::error(code::NO_ANSWER_ON_MESH.as_str(), text))
}

/// Converts an error of the mesh to an A2A error.
pub(crate) fn mesh_failed(error: &MeshError) -> A2aError {
    match error {
        MeshError::TooLarge { .. } => error_of(&Fault::invalid(error.code(), error.to_string())),
        MeshError::NobodyAnswers { .. } => {
            temporary_error(error.code(), format!("{error}: no process serves it now"))
        }
        error if error.is_transient() => temporary_error(error.code(), error.to_string()),
        error => error_of(&Fault::error(error.code(), error.to_string())),
    }
}

/// Converts an error of the client to an A2A error.
pub(super) fn client_failed(error: &ClientError) -> A2aError {
    match error {
        ClientError::Mesh(error) => mesh_failed(error),
        ClientError::Command(bad) => {
            error_of(&Fault::invalid(sinew_protocol::command::BadCommand::CODE, bad.to_string()))
        }
        ClientError::Plan(fault) => error_of(fault),
        error => error_of(&Fault::error(known(error.code()), error.to_string())),
    }
}

/// Returns a documented code, or the general code for any other text.
fn known(code: &str) -> String {
    let known = code::page(code).map(|_| code.to_owned());
    known.unwrap_or_else(|| code::AGENT_REFUSED_A2A_OPERATION.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_after_silence_do_not_say_that_nothing_was_done() {
        let nobody = mesh_failed(&MeshError::NobodyAnswers { what: "agent one".to_owned() });
        let check = |later: A2aError, expected: &str| {
            assert_eq!(fault_of(&unanswered(later.clone())).code, expected, "{later:?}");
        };
        check(nobody, "SINEW-7055");
        check(A2aError::task_not_found("t"), "SINEW-7055");
        check(A2aError::invalid_params("no"), "SINEW-7005");
        check(error_of(&Fault::error(code::AGENT_BUSY.as_str(), "full")), "SINEW-5113");
    }
}
