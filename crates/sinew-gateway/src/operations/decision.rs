//! A message to a workflow that waits for a person's decision.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use sinew_engine::{OpenWait, WaitingFor, execution_status, waiting};
use sinew_execution::Execution;
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_operations::approvals::{AskingNode, DecisionRequest, asking_callees};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::mesh_operator::MeshOperator;
use sinew_protocol::a2a::{A2aError, Message, Part, PartContent};
use sinew_protocol::artifact::sha256;
use sinew_protocol::decision::WrittenDecision;
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::origin::ChangeOrigin;
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::{ExecutionId, Fault, Token, code};
use tokio::time::Instant;

use super::peer::{client_failed, mesh_failed};
use super::target::TaskLocation;
use super::{A2aOperations, OperationCall, short};

/// How long to wait for an event before reading the record.
const ASK_AFTER: Duration = Duration::from_secs(2);
/// How long to wait until an execution knows that the question of its callee is answered.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Events within this time are processed together.
const GATHER: Duration = Duration::from_millis(20);
/// Describes the format of a decision, for messages without one.
const HOW_TO_DECIDE: &str = "expected a text that begins with yes, or with no and the reason, or a data part with \
                             approved: true or false (or decision: approve or reject) and optionally comment, node, \
                             and data with the answer; a rejection needs a comment";

/// Decision of a person, as parsed from a message.
#[derive(Debug, PartialEq)]
pub(super) struct DecisionText {
    /// Node that the decision is for; `None` if only one waits.
    pub(super) node: Option<String>,
    pub(super) decision: DecisionRequest,
}

impl A2aOperations {
    /// Returns whether a message with this id was already sent to the execution and accepted as a
    /// decision. Returns the first error again if it was rejected.
    pub(super) async fn was_decided(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        message_id: &str,
    ) -> Result<bool, A2aError> {
        let execution = execution_of(place)?;
        let client = &self.shared.client;
        let id = command_of(message_id);
        let find = |record: ExecutionRecord| {
            record.commands.into_iter().find(|verdict| verdict.id == id && verdict.caller == call.caller)
        };
        let found = client.execution(&execution).await.map_err(|error| client_failed(&error))?;
        let Some((record, folded)) = found else { return Ok(false) };
        let mut verdict = find(record);
        let mut asked_in = execution;
        // A decision that was passed on to a callee is in the record of the callee.
        for callee in asking_callees(&folded) {
            if verdict.is_some() {
                break;
            }
            let record = client.record(&callee).await.map_err(|error| client_failed(&error))?;
            verdict = record.and_then(find);
            asked_in = callee;
        }
        match verdict {
            Some(verdict) if !verdict.accepted => {
                let operator = self.operator_of(call);
                let failure = operator.rejected_decision(&asked_in, None, &verdict.reason).await;
                Err(decision_failed(failure))
            }
            found => Ok(found.is_some()),
        }
    }

    /// Sends the decision in a message to the workflow's execution, under the caller's name.
    pub(super) async fn decide(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        message: &Message,
    ) -> Result<(), A2aError> {
        let execution = execution_of(place)?;
        let DecisionText { node, decision } = DecisionText::of(message)?;
        let found = self.operator_of(call).find_approval(&execution, node.as_deref()).await;
        let asking = found.map_err(decision_failed)?.asking_node();
        self.send_decision(call, asking.clone(), decision, &message.id.0).await?;
        if asking.execution == execution {
            return Ok(());
        }
        self.wait_reported(place, &execution, &asking).await
    }

    /// Waits until an execution knows that its callee no longer asks, so that its task does not show the
    /// answered question again. The callee reports that a moment after the decision.
    async fn wait_reported(
        &self,
        place: &TaskLocation,
        execution: &ExecutionId,
        answered: &AskingNode,
    ) -> Result<(), A2aError> {
        let is_open = |execution: &ExecutionId, folded: &Execution| {
            asking_nodes(execution, folded).iter().any(|(.., open)| {
                (&open.execution, open.activation) == (&answered.execution, answered.activation)
            })
        };
        let callee = self.shared.client.execution(&answered.execution).await;
        let callee = callee.map_err(|error| client_failed(&error))?;
        // The decisions of further people may be needed.
        if callee.is_some_and(|(_, folded)| is_open(&answered.execution, &folded)) {
            return Ok(());
        }
        let limit = self.shared.blocking.min(REPORT_TIMEOUT);
        self.wait_until(place, limit, |folded| !is_open(execution, folded)).await
    }

    /// Sends a decision under the caller's name. Repeating a message id is idempotent.
    pub(super) async fn send_decision(
        &self,
        call: &OperationCall,
        asking: AskingNode,
        decision: DecisionRequest,
        message_id: &str,
    ) -> Result<(), A2aError> {
        let decision = DecisionRequest { id: Some(command_of(message_id)), ..decision };
        self.operator_of(call).decide(asking, decision).await.map(drop).map_err(decision_failed)
    }

    fn operator_of(&self, call: &OperationCall) -> MeshOperator {
        let origin = ChangeOrigin { via: call.via, key: call.key.clone(), is_proven: true };
        MeshOperator::new(self.shared.client.on_behalf_of(call.caller.clone()).with_origin(origin))
            .in_groups(Arc::clone(&call.groups))
    }

    /// Waits until the execution has ended or waits for a person, at most for the time of a
    /// blocking call.
    pub(super) async fn wait_settled(&self, place: &TaskLocation) -> Result<(), A2aError> {
        self.wait_until(place, self.shared.blocking, |folded| {
            let state = folded.state();
            state.ended || execution_status(state, &waiting(state)) == ExecutionStatus::Waiting
        })
        .await
    }

    /// Waits until an execution matches or no longer exists, at most for this time.
    pub(super) async fn wait_until(
        &self,
        place: &TaskLocation,
        limit: Duration,
        is_wanted: impl Fn(&Execution) -> bool + Send + Sync,
    ) -> Result<(), A2aError> {
        let execution = execution_of(place)?;
        let until = Instant::now() + limit;
        let filter = EventFilter { execution: Some(execution.clone()), ..EventFilter::default() };
        let events = self.shared.client.mesh().events().follow(&filter, EventStart::Now).await;
        let mut events = events.map_err(|error| mesh_failed(&error))?;
        while Instant::now() < until {
            let found =
                self.shared.client.execution(&execution).await.map_err(|error| client_failed(&error))?;
            if found.is_none_or(|(_, folded)| is_wanted(&folded)) {
                break;
            }
            let _ = tokio::time::timeout(ASK_AFTER, events.next()).await;
            tokio::time::sleep(GATHER).await;
            while events.try_next().is_some() {}
        }
        Ok(())
    }
}

/// Derives the id of a message's command.
fn command_of(message_id: &str) -> Token {
    Token::of(&format!("a2a-{}", &sha256(message_id.as_bytes())[..32]))
}

pub(super) fn execution_of(place: &TaskLocation) -> Result<ExecutionId, A2aError> {
    ExecutionId::parse(&place.id).map_err(|_| A2aError::task_not_found(short(&place.id, 64)))
}

/// Returns the questions that an execution waits for: node and activation of this execution, and
/// the asking node.
pub(super) fn asking_nodes(execution: &ExecutionId, folded: &Execution) -> Vec<(String, u32, AskingNode)> {
    let ctx = folded.ctx();
    let asking = |wait: &OpenWait| {
        let act = wait.act?;
        let own = ctx.node_of(act).id.clone();
        match &wait.what {
            WaitingFor::Person(wait) => {
                let (execution, node) = (execution.clone(), Some(own.clone()));
                let allowed = wait.allowed.clone();
                Some((own, act, AskingNode { execution, node, activation: Some(act), allowed }))
            }
            WaitingFor::CalleePerson { wait, .. } => {
                let (execution, node) = (wait.execution.clone()?, Some(wait.node.clone()));
                let allowed = wait.allowed.clone();
                Some((own, act, AskingNode { execution, node, activation: Some(wait.activation), allowed }))
            }
            _ => None,
        }
    };
    waiting(folded.state()).iter().filter_map(asking).collect()
}

/// Converts the failure of a decision.
#[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
fn decision_failed(failure: Failure) -> A2aError {
    let text = match &failure.hint {
        Some(hint) if failure.kind != FailureKind::Conflict => format!("{}; {hint}", failure.message),
        _ => failure.message.clone(),
    };
    let text = short(&text, 600);
    match failure.kind {
        FailureKind::Conflict => not_awaited(&text),
        FailureKind::Usage | FailureKind::NotFound => A2aError::invalid_params(text),
        kind => {
            let is_transient = matches!(kind, FailureKind::Unreachable | FailureKind::TimedOut);
            error_of(&Fault::error(failure.code, text).with_retryable(is_transient))
        }
    }
}

fn not_awaited(text: &str) -> A2aError {
    let mut error = A2aError::unsupported_operation(text);
    let own = error_of(&Fault::invalid(code::GATEWAY_TASK_TAKES_NO_MESSAGE.as_str(), text));
    error.data = Some(super::sending::merge_details(&error, &own));
    error
}

impl DecisionText {
    /// Parses the only part of a message: a data part (`approved` or `decision`, `node`, `comment`,
    /// `data`), or a text that begins with yes or no. A second part could contradict it, and would
    /// be lost.
    fn of(message: &Message) -> Result<Self, A2aError> {
        let is_blank =
            |part: &&Part| matches!(&part.content, PartContent::Text(text) if text.trim().is_empty());
        let parts: Vec<&Part> = message.parts.iter().filter(|part| !is_blank(part)).collect();
        match parts.as_slice() {
            [Part { content: PartContent::Data(data), .. }] => Self::of_data(data),
            [Part { content: PartContent::Text(text), .. }] => Self::of_text(text.trim()),
            [] | [_] => Err(undecided()),
            several => Err(A2aError::invalid_params(format!(
                "message.parts: expected one part for a decision and its comment, found {}",
                several.len()
            ))),
        }
    }

    fn of_text(text: &str) -> Result<Self, A2aError> {
        let WrittenDecision { approved, comment, .. } =
            WrittenDecision::of_text(text).ok_or_else(undecided)?;
        let decision = DecisionRequest { comment, reject: !approved, ..DecisionRequest::default() };
        Ok(Self { node: None, decision })
    }

    fn of_data(data: &Value) -> Result<Self, A2aError> {
        if data.get("approved").is_none() && data.get("decision").is_none() {
            return Err(undecided());
        }
        let read = DecisionMembers::deserialize(data).map_err(|error| {
            A2aError::invalid_params(format!(
                "message.parts: {}; {HOW_TO_DECIDE}",
                short(&error.to_string(), 200)
            ))
        })?;
        let approved = match (read.approved, read.decision) {
            (Some(approved), None) => approved,
            (None, Some(DecisionKind::Approve)) => true,
            (None, Some(DecisionKind::Reject)) => false,
            _ => return Err(undecided()),
        };
        let decision =
            DecisionRequest { id: None, data: read.data, comment: read.comment, reject: !approved };
        Ok(Self { node: read.node, decision })
    }
}

/// Members of a data part with a decision. Unknown members are rejected, because they would be
/// lost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionMembers {
    approved: Option<bool>,
    /// The REST API's alternative to `approved`.
    decision: Option<DecisionKind>,
    node: Option<String>,
    comment: Option<String>,
    #[serde(default)]
    data: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum DecisionKind {
    Approve,
    Reject,
}

fn undecided() -> A2aError {
    A2aError::invalid_params(format!("message.parts: {HOW_TO_DECIDE}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_carry_decisions() {
        let check = |part: Part, node: Option<&str>, data: Value, comment: Option<&str>, reject: bool| {
            let read = DecisionText::of(&Message::user("m", vec![part.clone()])).unwrap();
            let (node, comment) = (node.map(str::to_owned), comment.map(str::to_owned));
            let decision = DecisionRequest { id: None, data, comment, reject };
            assert_eq!(read, DecisionText { node, decision }, "{part:?}");
        };
        check(Part::text("yes"), None, Value::Null, None, false);
        check(Part::text("Approved, go on"), None, Value::Null, Some("go on"), false);
        check(Part::text("no: too dear"), None, Value::Null, Some("too dear"), true);
        check(Part::text("no way"), None, Value::Null, Some("way"), true);
        check(Part::data(json!({"approved": false, "comment": "why"})), None, Value::Null, Some("why"), true);
        check(
            Part::data(json!({"decision": "approve", "data": 3, "node": "a"})),
            Some("a"),
            json!(3),
            None,
            false,
        );
        // A blank part contains no decision.
        let parts = vec![Part::text(" "), Part::text("no")];
        assert!(DecisionText::of(&Message::user("m", parts)).unwrap().decision.reject);
        let answer = json!({"approved": true, "data": {"limit": 5}});
        check(Part::data(answer), None, json!({"limit": 5}), None, false);
    }

    #[test]
    fn messages_without_a_decision_are_refused() {
        let texts =
            ["  ", "nothing of that", "not yet", "never", "don't", "ok? why", "yes if it is cheap", "okay"];
        let data = [
            json!({"approved": 1}),
            json!({"approved": "yes"}),
            json!({"limit": 5}),
            json!("yes"),
            json!({"decision": "later"}),
            json!({"approved": true, "decision": "reject"}),
            json!({"approved": true, "bogus": 5}),
            json!({"approved": true, "comment": 5}),
            json!({"approved": true, "node": 5}),
        ];
        let parts = texts.into_iter().map(Part::text).chain(data.into_iter().map(Part::data));
        let several = [
            vec![Part::text("yes"), Part::text("no")],
            vec![Part::data(json!({"approved": false})), Part::text("yes")],
            vec![Part::data(json!({"approved": true})), Part::data(json!({"approved": false}))],
            vec![],
        ];
        for parts in parts.map(|part| vec![part]).chain(several) {
            assert!(DecisionText::of(&Message::user("m", parts.clone())).is_err(), "{parts:?}");
        }
    }
}
