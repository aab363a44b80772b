//! Questions for people, and their answers.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sinew_documents::approval::{ApprovalDetails, OpenApproval};
use sinew_operations::approvals::DecisionRequest;

use super::api_call::{ApiCall, answer};
use super::route::{ApiRoute, get, post};
use crate::http_error::HttpProblem;
use sinew_operations::approvals::RecordedDecision;
use sinew_protocol::access::AccessRole;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get("/approvals", "ListApprovals", "List questions that wait for people", list)
            .query::<ApprovalsQuery>()
            .returns::<Vec<OpenApproval>>(),
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
    /// Only questions whose text, node or execution contains this text, ignoring case.
    text: Option<String>,
    /// Only questions that this person may answer, including questions that anyone may answer.
    person: Option<String>,
}

impl ApprovalsQuery {
    fn takes(&self, one: &OpenApproval) -> bool {
        let wanted = self.text.as_deref().unwrap_or_default().to_lowercase();
        let question = one.wait.question.as_ref();
        let texts = [
            question.map_or("", |question| question.prompt.as_str()),
            one.wait.node.as_deref().unwrap_or_default(),
            &one.execution,
        ];
        let allowed = question.map(|question| question.allowed.as_slice()).unwrap_or_default();
        let person = self.person.as_deref().filter(|person| !person.is_empty());
        texts.iter().any(|text| text.to_lowercase().contains(&wanted))
            && person.is_none_or(|person| allowed.is_empty() || allowed.iter().any(|one| one == person))
    }
}

async fn list(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: ApprovalsQuery = call.query()?;
    let mut open = call.operator.approvals(query.workflow.as_deref()).await?;
    open.retain(|one| call.operations.opens(&one.workflow, &one.caller) && query.takes(one));
    answer(&open)
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
