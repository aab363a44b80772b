//! Agents, tools, and the state of the mesh.

use axum::response::Response;
use sinew_operations::agent_list::{AgentDetails, AgentRow};
use sinew_operations::deployed_workflows::ToolRow;
use sinew_operations::mesh_status;

use super::api_call::{ApiCall, answer};
use crate::http_error::HttpProblem;

pub(super) fn list(call: &ApiCall) -> Result<Response, HttpProblem> {
    answer(&AgentRow::all(&call.state.operations.cards()))
}

pub(super) fn describe(call: &ApiCall) -> Result<Response, HttpProblem> {
    answer(&AgentDetails::of(&call.state.operations.cards(), call.path("name"))?)
}

pub(super) async fn tools(call: ApiCall) -> Result<Response, HttpProblem> {
    let rows: Vec<ToolRow> = call.operator.tools().await.values().map(ToolRow::of).collect();
    answer(&rows)
}

pub(super) async fn pulse(call: ApiCall) -> Result<Response, HttpProblem> {
    answer(&mesh_status::read_status(&call.operator, &call.state.operations.cards()).await?)
}
