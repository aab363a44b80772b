//! JSON Schemas of the API's responses, generated from the response types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use sinew_inspection::agent_work::AgentWork;
use sinew_inspection::describe::ExecutionDescription;
use sinew_inspection::diff::ExecutionComparison;
use sinew_inspection::node_description::NodeDescription;
use sinew_inspection::record::RecordDocument;
use sinew_inspection::retry::RetryPreview;
use sinew_inspection::timeline::Timeline;
use sinew_inspection::tree::TreeBranch;
use sinew_operations::agent_list::{AgentDetails, AgentRow, RetiredAgent};
use sinew_operations::agent_service::AgentProcess;
use sinew_operations::approvals::{ApprovalDetails, OpenApproval, RecordedDecision};
use sinew_operations::deployed_workflows::{DeployedRow, ToolRow, VersionRow, WorkflowDescription};
use sinew_operations::deployment::Deployed;
use sinew_operations::doctor::DoctorCheck;
use sinew_operations::dry_run::DryRun;
use sinew_operations::execution_artifacts::ArtifactRow;
use sinew_operations::execution_result::ExecutionResult;
use sinew_operations::execution_start::StartPreview;
use sinew_operations::mesh_activity::{ExecutionCounts, MeshActivity};
use sinew_operations::mesh_status::MeshStatus;
use sinew_operations::traffic_figures::TrafficReport;
use sinew_operations::workflow_figures::{WorkflowFigures, WorkflowOutcomes};
use sinew_operations::workflow_search::ValidationReport;
use sinew_operations::workflow_source::WorkflowSource;

use super::executions::{EventPage, ExecutionPage};
use super::figures::QuarantinePage;
use super::inspections::ExportViews;
use super::mesh_views::{ArtifactUses, MeshArtifactPage};
use super::steering::{ForkedExecution, StartedExecution, SteeredExecution};
use super::table::ApiOperation;
use super::workflows::RemovedWorkflow;

/// Member of a JSON Schema with its definitions.
const DEFINITIONS: &str = "$defs";

/// Answer of an operation that says first what it would do.
#[derive(JsonSchema)]
#[schemars(inline, untagged)]
#[expect(dead_code, reason = "stands for the types in the schema alone")]
enum PreviewOr<P, D> {
    Preview(P),
    Done(D),
}

/// A new execution that goes on with the newest version of a workflow, in the place of another one.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "stands for the document in the schema alone")]
struct RetriedExecution {
    /// Id of the new execution.
    execution: String,
    /// Name of the workflow.
    workflow: String,
    /// Id of the old execution.
    retry_of: String,
}

/// Returns the schema of an operation's response, or `None` if the response is not JSON.
pub(super) fn answer_schema(operation: ApiOperation) -> Option<Value> {
    use ApiOperation as Op;
    Some(match operation {
        Op::DrawExecution
        | Op::DrawWorkflow
        | Op::DrawMap
        | Op::GetArtifact
        | Op::FollowProgress
        | Op::FollowTraffic
        | Op::FollowChanges => return None,
        // Documents with their own format: OpenAPI, test files, reports of cases, trials of
        // functions.
        Op::Document | Op::GetRecordedCase | Op::RunCases | Op::TryConversion => of::<Map<String, Value>>(),
        Op::Pulse => of::<MeshStatus>(),
        Op::GetActivity => of::<MeshActivity>(),
        Op::ListExecutions => of::<ExecutionPage>(),
        Op::CountExecutions => of::<ExecutionCounts>(),
        Op::StartExecution => of::<StartedExecution<'_>>(),
        Op::DescribeExecution => of::<ExecutionDescription>(),
        Op::GetRecord => of::<RecordDocument<'_>>(),
        Op::GetTree => of::<Vec<TreeBranch>>(),
        Op::GetTimeline => of::<Timeline>(),
        Op::CompareExecutions | Op::CompareExports => of::<ExecutionComparison>(),
        Op::DescribeNode => of::<NodeDescription>(),
        Op::GetEvents => of::<EventPage>(),
        Op::GetResult => of::<ExecutionResult>(),
        Op::ListArtifacts => of::<Vec<ArtifactRow>>(),
        Op::CancelExecution | Op::PauseExecution | Op::ResumeExecution => of::<SteeredExecution<'_>>(),
        Op::RetryExecution => {
            of::<PreviewOr<RetryPreview, PreviewOr<SteeredExecution<'_>, RetriedExecution>>>()
        }
        Op::ForkExecution => of::<PreviewOr<StartPreview, ForkedExecution<'_>>>(),
        Op::ListApprovals => of::<Vec<OpenApproval>>(),
        Op::GetApproval => of::<ApprovalDetails>(),
        Op::Decide => of::<RecordedDecision>(),
        Op::ListWorkflows => of::<Vec<DeployedRow>>(),
        Op::DescribeWorkflow => of::<WorkflowDescription<'_>>(),
        Op::ListVersions => of::<Vec<VersionRow>>(),
        Op::ValidateWorkflow => of::<ValidationReport>(),
        Op::DeployWorkflow => of::<Vec<Deployed>>(),
        Op::DeleteWorkflow => of::<RemovedWorkflow<'_>>(),
        Op::ListAgents => of::<Vec<AgentRow>>(),
        Op::DescribeAgent => of::<AgentDetails>(),
        Op::RetireAgent => of::<RetiredAgent>(),
        Op::ListTools => of::<Vec<ToolRow>>(),
        Op::ListMeshArtifacts => of::<MeshArtifactPage>(),
        Op::InspectExport => of::<ExportViews<'_>>(),
        Op::DryRunFile => of::<DryRun>(),
        Op::GetSource => of::<WorkflowSource>(),
        Op::ListExecutionAgents => of::<Vec<AgentWork>>(),
        Op::ListAgentProcesses => of::<Vec<AgentProcess>>(),
        Op::ListArtifactUses => of::<ArtifactUses>(),
        Op::GetTrafficFigures => of::<TrafficReport>(),
        Op::ExamineMesh => of::<Vec<DoctorCheck>>(),
        Op::ListWorkflowFigures => of::<WorkflowFigures>(),
        Op::CountOutcomes => of::<WorkflowOutcomes>(),
        Op::ListQuarantine => of::<QuarantinePage>(),
    })
}

/// Returns the JSON Schema of a type as serialized, with its definitions.
pub(super) fn of<T: JsonSchema>() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.subschema_for::<T>().to_value();
    let definitions = generator.take_definitions(true);
    if let Some(members) = schema.as_object_mut().filter(|_| !definitions.is_empty()) {
        members.insert(DEFINITIONS.to_owned(), Value::Object(definitions));
    }
    schema
}
