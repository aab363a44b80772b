//! Questions for people, and their answers.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sinew_documents::approval::{ApprovalCount, ApprovalDetails, OpenApproval};
use sinew_operations::approval_filter::{ApprovalFilter, FieldCondition};
use sinew_operations::approvals::DecisionRequest;

use super::api_call::{ApiCall, answer};
use super::route::{ApiRoute, get, post};
use crate::http_error::HttpProblem;
use sinew_operations::approvals::RecordedDecision;
use sinew_protocol::access::AccessRole;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get("/approvals", "ListApprovals", "List questions that wait for people, oldest first", list)
            .query::<ApprovalsQuery>()
            .returns::<Vec<OpenApproval>>(),
        get("/approval-count", "CountApprovals", "Count the questions that wait for people", count)
            .returns::<ApprovalCount>(),
        get("/executions/{id}/approval", "GetApproval", "Get a question with the data to review", show)
            .query::<ApprovalQuery>()
            .returns::<ApprovalDetails>(),
        post("/executions/{id}/decisions", "Decide", "Approve, reject or answer a question", decide)
            .role(AccessRole::Client)
            .json::<DecisionBody>()
            .returns::<RecordedDecision>(),
    ]
}

/// Query of a list of questions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalsQuery {
    /// Only entries of this workflow.
    workflow: Option<String>,
    /// Only questions whose text, node, execution or data contains this text, ignoring case.
    text: Option<String>,
    /// Only questions that this person may answer, including questions that anyone may answer.
    person: Option<String>,
    /// Only questions whose data meets conditions, as `amount<100 and customer=ann`. Fields are those
    /// of the question's data or the execution's input (`order.amount`), `workflow`, `node`,
    /// `execution` and `caller`. Operators: `=`, `!=`, `<`, `<=`, `>`, `>=`.
    #[serde(rename = "where")]
    conditions: Option<String>,
}

async fn list(call: ApiCall) -> Result<Response, HttpProblem> {
    let ApprovalsQuery { workflow, text, person, conditions } = call.query()?;
    let conditions = FieldCondition::parse_all(&conditions.unwrap_or_default())?;
    let filter = ApprovalFilter { workflow, text, person, conditions };
    let mut open = call.operator.approvals(&filter).await?;
    open.retain(|one| call.operations.opens(&one.workflow, &one.caller));
    answer(&open)
}

async fn count(call: ApiCall) -> Result<Response, HttpProblem> {
    let opens = |workflow: &str, caller: &str| call.operations.opens(workflow, caller);
    answer(&call.operator.approval_count(opens).await?)
}

/// Query of a question.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalQuery {
    /// Node that asks. Required if several nodes ask.
    node: Option<String>,
}

async fn show(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: ApprovalQuery = call.query()?;
    let id = call.execution().await?;
    answer(&call.operator.find_approval(&id, query.node.as_deref()).await?.details())
}

/// Decision about a question.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    /// Node that asks. Required if several nodes ask.
    node: Option<String>,
    /// `approve` or `reject`.
    decision: DecisionWord,
    /// Data of the answer, for a question that needs more than an approval.
    #[serde(default)]
    data: Value,
    /// Comment, recorded with the decision. Required to reject.
    comment: Option<String>,
}

/// Decision of a person.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum DecisionWord {
    Approve,
    Reject,
}

async fn decide(call: ApiCall) -> Result<Response, HttpProblem> {
    let body: DecisionBody = call.json()?;
    let reject = body.decision == DecisionWord::Reject;
    let id = call.execution().await?;
    let found = call.operator.find_approval(&id, body.node.as_deref()).await?;
    let decision = DecisionRequest { id: None, data: body.data, comment: body.comment, reject };
    answer(&call.operator.decide(found.asking_node(), decision).await?)
}
