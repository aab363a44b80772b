//! The REST API below `/api/v1`: operations on a mesh over HTTP, with the documents of `-o json`.
//!
//! Place in the flow: a route of the table names an [`ApiOperation`], which calls one function of
//! `sinew-operations` under the caller's own name and serializes its result. No decisions are made
//! here.

mod agents;
mod answer_schemas;
mod api_call;
mod approvals;
mod change_stream;
mod drawings;
mod editor;
mod event_stream;
mod executions;
mod figures;
mod frame_stream;
mod inspections;
mod mesh_views;
mod openapi;
mod placed_drawing;
mod problems;
mod progress_stream;
mod start_files;
mod steering;
mod table;
mod workflows;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};

use crate::access::CallerIdentity;
use crate::http_error::HttpProblem;
use crate::state::GatewayState;

pub(crate) use table::{API_ROUTES, ApiOperation};

use api_call::ApiCall;

/// Base path of the API.
pub(crate) const BASE: &str = "/api/v1";

/// Answers one request.
pub(crate) async fn serve(
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    operation: ApiOperation,
    path: BTreeMap<String, String>,
    request: Request,
) -> Response {
    // A gateway that exposes only a part of a mesh may have untrusted callers, who must not see the
    // API's data about executions. Callers whose keys have patterns see their own part.
    if !state.operations.exposes_everything() {
        let text = "a gateway that exposes only a part of the mesh (--expose) has no API";
        return HttpProblem::not_found(text).into_response();
    }
    let limit = operation.body_bytes(state.limits.body_bytes);
    let sees_all = state.operations_of(&caller).offers_everything();
    let answer = match ApiCall::read(state, &caller, path, request, limit).await {
        Ok(call) => perform(operation, call).await,
        Err(problem) => Err(problem),
    };
    answer.unwrap_or_else(|problem| {
        // A hint may name a workflow or agent that the caller may not see.
        let problem = if sees_all { problem } else { problem.with_hint(None) };
        problem.into_response()
    })
}

async fn perform(operation: ApiOperation, call: ApiCall) -> Result<Response, HttpProblem> {
    // Checks names of workflows and agents in paths, without revealing whether an invisible one
    // exists.
    if call.has_path("name") {
        call.check_offered(call.path("name"))?;
    }
    match operation {
        ApiOperation::Document => Ok(openapi::respond()),
        ApiOperation::Pulse => agents::pulse(call).await,
        ApiOperation::GetActivity => agents::activity(call).await,
        ApiOperation::ListExecutions => executions::list(call).await,
        ApiOperation::CountExecutions => executions::count(call).await,
        ApiOperation::StartExecution => steering::start(call).await,
        ApiOperation::DescribeExecution => executions::describe(call).await,
        ApiOperation::GetRecord => executions::record(call).await,
        ApiOperation::GetRecordedCase => editor::recorded_case(call).await,
        ApiOperation::GetTree => executions::tree(call).await,
        ApiOperation::GetTimeline => executions::timeline(call).await,
        ApiOperation::CompareExecutions => executions::compare(call).await,
        ApiOperation::DescribeNode => executions::node(call).await,
        ApiOperation::GetEvents => executions::events(call).await,
        ApiOperation::GetResult => executions::result(call).await,
        ApiOperation::DrawExecution => drawings::draw_execution(call).await,
        ApiOperation::ListArtifacts => executions::artifacts(call).await,
        ApiOperation::GetArtifact => executions::artifact(call).await,
        ApiOperation::CancelExecution => steering::cancel(call).await,
        ApiOperation::PauseExecution => steering::pause(call).await,
        ApiOperation::ResumeExecution => steering::resume(call).await,
        ApiOperation::RetryExecution => steering::retry(call).await,
        ApiOperation::ForkExecution => steering::fork(call).await,
        ApiOperation::ListApprovals => approvals::list(call).await,
        ApiOperation::GetApproval => approvals::show(call).await,
        ApiOperation::Decide => approvals::decide(call).await,
        ApiOperation::ListWorkflows => workflows::list(call).await,
        ApiOperation::DescribeWorkflow => workflows::describe(call).await,
        ApiOperation::ListVersions => workflows::versions(call).await,
        ApiOperation::DrawWorkflow => workflows::draw(call).await,
        ApiOperation::ValidateWorkflow => workflows::validate(call).await,
        ApiOperation::DeployWorkflow => workflows::deploy(call).await,
        ApiOperation::DeleteWorkflow => workflows::delete(call).await,
        ApiOperation::ListAgents => agents::list(call).await,
        ApiOperation::DescribeAgent => agents::describe(call).await,
        ApiOperation::RetireAgent => agents::retire(call).await,
        ApiOperation::TryConversion => workflows::try_conversion(call).await,
        ApiOperation::DrawMap => mesh_views::map(call).await,
        ApiOperation::ListMeshArtifacts => mesh_views::artifacts(call).await,
        ApiOperation::FollowTraffic => mesh_views::traffic(call).await,
        ApiOperation::FollowChanges => change_stream::follow_changes(call).await,
        ApiOperation::InspectExport => inspections::inspect(call).await,
        ApiOperation::ListTools => agents::tools(call).await,
        ApiOperation::CompareExports => inspections::compare(call).await,
        ApiOperation::RunCases => editor::run_cases(call).await,
        ApiOperation::DryRunFile => editor::dry_run_file(call).await,
        ApiOperation::GetSource => workflows::source(call).await,
        ApiOperation::ListExecutionAgents => executions::agents(call).await,
        ApiOperation::ListAgentProcesses => agents::processes(call).await,
        ApiOperation::ListArtifactUses => mesh_views::artifact_uses(call).await,
        ApiOperation::FollowProgress => progress_stream::follow(call).await,
        ApiOperation::ListWorkflowFigures => figures::workflows(call).await,
        ApiOperation::CountOutcomes => figures::outcomes(call).await,
        ApiOperation::ListQuarantine => figures::quarantine(call).await,
        ApiOperation::GetTrafficFigures => mesh_views::traffic_figures(call).await,
        ApiOperation::ExamineMesh => agents::examine_mesh(call).await,
    }
}
