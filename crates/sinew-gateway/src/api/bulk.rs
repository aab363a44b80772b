//! One command for many executions: a preview that freezes their list, then the commands in parts.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use sinew_documents::bulk::{BulkPreview, BulkResult, BulkVerb};
use sinew_documents::execution_filter::ExecutionFilter;
use sinew_documents::timestamp::Timestamp;
use sinew_operations::bulk::BulkOrder;
use sinew_protocol::access::AccessRole;
use sinew_runtime::local;

use super::api_call::{ApiCall, answer, bad_request};
use super::executions::offered_filter;
use super::route::{ApiRoute, post};
use super::steering::PreviewOr;
use crate::http_error::HttpProblem;

/// Maximum number of executions per request that sends commands.
const MAX_EXECUTIONS: usize = 500;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        post(
            "/executions/bulk",
            "SteerExecutions",
            "Send one command to many executions: preview with a filter, then send with the ids of the preview",
            bulk,
        )
        .role(AccessRole::Client)
        .required_json::<BulkBody>()
        .returns::<PreviewOr<BulkPreview, BulkResult>>(),
    ]
}

/// Command for many executions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkBody {
    /// Command to send.
    command: BulkVerb,
    /// List the executions that match this filter (`workflow:orders error:SINEW-5001 since:1h`),
    /// without changing them. Either this or `executions` is required.
    filter: Option<String>,
    /// Ids of executions to change, at most 500 per request: a part of those of the preview.
    #[serde(default)]
    executions: Vec<String>,
    /// The `id` of the preview. Requests with the same id send no command twice. Default: a new id.
    #[schemars(length(min = 1, max = 100))]
    id: Option<String>,
    /// Reason, recorded with each execution.
    #[serde(default)]
    reason: String,
}

async fn bulk(call: ApiCall) -> Result<Response, HttpProblem> {
    let body: BulkBody = call.json()?;
    let mut order = BulkOrder::new(body.command, body.reason);
    if let Some(id) = body.id {
        if id.is_empty() || id.len() > 100 {
            return Err(bad_request("id: expected 1 to 100 bytes"));
        }
        order.id = id;
    }
    let Some(filter) = body.filter else { return send(&call, &order, &body.executions).await };
    if !body.executions.is_empty() {
        return Err(bad_request("specify either a filter or executions"));
    }
    let filter = ExecutionFilter::parse(&filter, Timestamp(local::now()));
    let filter = filter.map_err(|error| bad_request(format!("filter: {error}")))?;
    let preview = match offered_filter(&call, filter).await? {
        Some(filter) => call.operator.plan_bulk(&filter, &order).await?,
        None => BulkPreview {
            id: order.id,
            command: order.verb,
            count: 0,
            groups: Vec::new(),
            executions: Vec::new(),
            searched: None,
        },
    };
    answer(&preview)
}

async fn send(call: &ApiCall, order: &BulkOrder, executions: &[String]) -> Result<Response, HttpProblem> {
    if executions.is_empty() || executions.len() > MAX_EXECUTIONS {
        let text = format!("executions: expected 1 to {MAX_EXECUTIONS} ids, not {}", executions.len());
        return Err(bad_request(text));
    }
    let mut ids = Vec::with_capacity(executions.len());
    for id in executions {
        ids.push(call.find(id).await?);
    }
    let outcomes = call.operator.send_bulk(order, ids, |_| {}).await;
    answer(&BulkResult::of(order.id.clone(), outcomes))
}
