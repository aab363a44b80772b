//! Statistics of workflows, and quarantined messages.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use sinew_documents::figures::{WorkflowFigures, WorkflowOutcomes};
use sinew_documents::mesh::QuarantinePage;
use sinew_operations::failure::Failure;
use sinew_operations::quarantine::message_row;
use sinew_operations::workflow_figures::{count_outcomes, read_workflow_figures};
use sinew_runtime::local;

use super::api_call::{ApiCall, answer, row_limit};
use super::route::{ApiRoute, get};
use crate::http_error::HttpProblem;

/// Default number of minutes of workflow statistics.
const FIGURES_MINUTES: u64 = 60;
/// Maximum number of minutes of workflow statistics.
const MAX_FIGURES_MINUTES: u64 = 7 * 24 * 60;
/// Default number of quarantined messages.
const QUARANTINE_ROWS: usize = 50;
/// Maximum number of quarantined messages.
const MAX_QUARANTINE_ROWS: usize = 500;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get(
            "/workflow-figures",
            "ListWorkflowFigures",
            "List executions ended and failed, and their durations, by workflow and time range",
            workflows,
        )
        .query::<FiguresQuery>()
        .returns::<WorkflowFigures>(),
        get(
            "/workflows/{name}/outcomes",
            "CountOutcomes",
            "Count the outcomes of a workflow by version",
            outcomes,
        )
        .returns::<WorkflowOutcomes>(),
        get("/quarantine", "ListQuarantine", "List quarantined messages with the reasons", quarantine)
            .query::<QuarantineQuery>()
            .returns::<QuarantinePage>(),
    ]
}

/// Query of the figures of workflows.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FiguresQuery {
    /// Number of minutes, at most 10,080. Default: 60.
    minutes: Option<u64>,
}

/// Returns the outcomes and durations of all workflows by time span.
async fn workflows(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: FiguresQuery = call.query()?;
    let minutes = query.minutes.unwrap_or(FIGURES_MINUTES).clamp(1, MAX_FIGURES_MINUTES);
    let offered = |name: &str| call.operations.offers(name);
    let history = &call.state.history;
    let figures = read_workflow_figures(&call.operator, history, local::now(), minutes, &offered).await?;
    if !figures.is_whole {
        history.fill_in_background(call.operator.mesh());
    }
    answer(&figures)
}

/// Returns the outcomes of a workflow's executions by version.
async fn outcomes(call: ApiCall) -> Result<Response, HttpProblem> {
    let outcomes = count_outcomes(&call.operator, &call.state.history, call.path("name")).await?;
    if !outcomes.is_whole {
        call.state.history.fill_in_background(call.operator.mesh());
    }
    answer(&outcomes)
}

/// Query of the quarantine.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuarantineQuery {
    /// Maximum number of messages, at most 500. The newest are returned. Default: 50.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

/// Returns the quarantined messages without their bodies, oldest first.
async fn quarantine(call: ApiCall) -> Result<Response, HttpProblem> {
    call.check_whole()?;
    let query: QuarantineQuery = call.query()?;
    let limit = row_limit(query.limit, QUARANTINE_ROWS, MAX_QUARANTINE_ROWS)?;
    let found = call.operator.mesh().quarantine().list(limit).await.map_err(Failure::from)?;
    answer(&QuarantinePage { messages: found.iter().map(message_row).collect() })
}
