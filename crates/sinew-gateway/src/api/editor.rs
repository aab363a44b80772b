//! Operations on files before deployment: cases of a test file, cases from ended executions, and
//! dry runs. Nothing is stored, and no agent is called.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sinew_case_runner::{CaseReport, PostedCases};
use sinew_documents::finding::Finding;
use sinew_documents::trial::{CaseResults, DryRun};
use sinew_inspection::record::Record;
use sinew_operations::dry_run::dry_run;
use sinew_operations::failure::Failure;
use sinew_operations::posted_file::posted_workflow;
use sinew_operations::workflow_search::listed_findings;
use sinew_operations::workflow_source::read_source;

use super::api_call::{ApiCall, answer};
use super::route::{ApiRoute, get, post};
use super::workflows::FileQuery;
use crate::http_error::HttpProblem;
use serde_json::Map;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get(
            "/executions/{id}/case",
            "GetRecordedCase",
            "Get a test file with a case in which agents reply as they did in a closed execution",
            recorded_case,
        )
        .query::<RecordedCaseQuery>()
        .returns::<Map<String, Value>>(),
        post(
            "/tests",
            "RunCases",
            "Run the cases of a test file on a workflow file or a model agent, in virtual time",
            run_cases,
        )
        .json::<CasesBody>()
        .returns::<Map<String, Value>>(),
        post(
            "/dry-runs",
            "DryRunFile",
            "Preview which agents a workflow file would call, and with which input",
            dry_run_file,
        )
        .json::<DryRunBody>()
        .returns::<DryRun>(),
    ]
}

/// Test file, and the workflow file or model agent file that its cases test.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CasesBody {
    /// Name of the file in the cases.
    name: Option<String>,
    /// Content of the workflow file or agent file.
    text: String,
    /// Name of the test file in diagnostics.
    cases_name: Option<String>,
    /// Content of the test file.
    cases: String,
}

/// Runs cases in virtual time. `problems` contains errors of the test file itself.
async fn run_cases(call: ApiCall) -> Result<Response, HttpProblem> {
    // Acquired before the body is parsed, so that parsed values do not wait for a permit.
    let place = call.computation().await?;
    let CasesBody { name, text, cases_name, cases } = call.json()?;
    let name = FileQuery::named(name).name()?.to_owned();
    let cases_name = cases_name.or_else(|| Some("workflow.test.yaml".to_owned()));
    let cases_name = FileQuery::named(cases_name).name()?.to_owned();
    let report = place.compute(move || {
        let posted = PostedCases { file_name: &name, file: &text, name: &cases_name, cases: &cases };
        case_results(&sinew_case_runner::run_posted_cases(posted))
    });
    answer(&report.await?)
}

fn case_results(report: &CaseReport) -> CaseResults {
    let problems = report.broken.iter().flat_map(|failure| match &failure.diagnostics {
        Some(diagnostics) => listed_findings(diagnostics),
        None => vec![Finding::error(failure.code, failure.message.clone())],
    });
    CaseResults { problems: Some(problems.collect()), ..report.results(false) }
}

/// Workflow file and input for a dry run.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DryRunBody {
    /// Name of the file in diagnostics.
    name: Option<String>,
    /// Content of the workflow file.
    text: String,
    /// Name of the workflow. Default: the first workflow in the file.
    workflow: Option<String>,
    /// Input of the execution.
    #[serde(default)]
    input: Value,
}

/// Returns which agents an execution would call, with which input.
async fn dry_run_file(call: ApiCall) -> Result<Response, HttpProblem> {
    let place = call.computation().await?;
    let DryRunBody { name, text, workflow, input } = call.json()?;
    let name = FileQuery::named(name).name()?.to_owned();
    let tried = place.compute(move || {
        let loaded = posted_workflow(&name, text.as_bytes(), None)?;
        let run = dry_run(&loaded, workflow.as_deref(), input)?;
        Ok::<_, Failure>(run)
    });
    answer(&tried.await??)
}

/// Query of a case.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedCaseQuery {
    /// Expect the result of this node instead of that of the execution.
    node: Option<String>,
    /// Name of the workflow file in the case. Default: the deployed file.
    workflow: Option<String>,
}

async fn recorded_case(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: RecordedCaseQuery = call.query()?;
    let record = call.found().await?.record;
    let workflow = match query.workflow {
        Some(workflow) => workflow,
        None => deployed_file(&call, &record).await.unwrap_or_else(|| format!("{}.yaml", record.plan().name)),
    };
    answer(&sinew_case_runner::recorded_case(&record, &workflow, query.node.as_deref())?)
}

/// Returns the file name from which an execution's workflow was deployed, without folders.
async fn deployed_file(call: &ApiCall, record: &Record) -> Option<String> {
    let digest = record.execution.program().graph.digest();
    let source = read_source(&call.operator, &record.plan().name, Some(digest)).await.ok()?;
    let name = &source.files.first()?.name;
    name.rsplit(['/', '\\']).next().map(str::to_owned)
}
