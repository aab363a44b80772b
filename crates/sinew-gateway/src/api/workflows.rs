//! Workflows of the mesh, and files that become workflows.

use std::collections::BTreeMap;
use std::path::Path;

use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_documents::finding::ValidationReport;
use sinew_documents::workflow::{
    Deployed, DeployedRow, VersionRow, WorkflowDescription, WorkflowSource, WorkflowState,
};
use sinew_execution::Program;
use sinew_executor::client::ClientError;
use sinew_inspection::drawing;
use sinew_operations::catalogue::CatalogueQuery;
use sinew_operations::conversion_trial::{trial_document, try_connection};
use sinew_operations::deployed_workflows::{WorkflowRemoval, describe_deployed, version_rows};
use sinew_operations::deployment::{deploy as deploy_file, find_deployed};
use sinew_operations::failure::Failure;
use sinew_operations::limited_deployment::{KeyNames, deploy_with_key};
use sinew_operations::node_types::{CatalogueDialect, node_types};
use sinew_operations::posted_file::{check_posted_file, posted_document, posted_workflow};
use sinew_operations::workflow_search::{SearchedFile, validation_report};
use sinew_operations::workflow_sockets::sockets_of;
use sinew_operations::workflow_source::read_source;

use super::api_call::{ApiCall, answer, answer_with, bad_request};
use super::drawings::{self, DrawingQuery};
use super::route::{ApiRoute, DRAWING_FORMATS, SVG, delete, get, post};
use super::steering::ResumeBody;
use crate::http_error::HttpProblem;
use serde_json::Map;
use sinew_protocol::access::AccessRole;
use sinew_protocol::catalogue::Stage;

/// Default name of a file, and of an unnamed workflow in it.
const DEFAULT_FILE: &str = "workflow.yaml";
const DEFAULT_NAME: &str = "workflow";
/// Alternative default name of a file.
const OTHER_FILE: &str = "unnamed-workflow.yaml";

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get("/workflows", "ListWorkflows", "List deployed workflows", list)
            .query::<WorkflowsQuery>()
            .returns::<Vec<DeployedRow>>(),
        get(
            "/workflows/{name}",
            "DescribeWorkflow",
            "Get nodes, schemas, callers and callees of a workflow",
            describe,
        )
        .query::<DescribeQuery>()
        .returns::<WorkflowDescription>(),
        get(
            "/workflows/{name}/versions",
            "ListVersions",
            "List the versions of a workflow, newest first",
            versions,
        )
        .returns::<Vec<VersionRow>>(),
        get(
            "/workflows/{name}/source",
            "GetSource",
            "Get the source files of a workflow with their diagnostics",
            source,
        )
        .query::<VersionQuery>()
        .returns::<WorkflowSource>(),
        get("/workflows/{name}/drawing", "DrawWorkflow", "Draw a workflow", draw)
            .query::<DrawingQuery>()
            .returns_media(SVG)
            .or_media(DRAWING_FORMATS),
        post("/validations", "ValidateWorkflow", "Validate a workflow file or an agent file", validate)
            .query::<ValidateQuery>()
            .file()
            .returns::<ValidationReport>(),
        post("/workflows", "DeployWorkflow", "Deploy the workflows of a file", deploy)
            .role(AccessRole::Admin)
            .query::<FileQuery>()
            .file()
            .returns::<Vec<Deployed>>(),
        delete("/workflows/{name}", "DeleteWorkflow", "Remove a workflow; open executions continue", remove)
            .role(AccessRole::Admin)
            .query::<DeleteQuery>()
            .returns::<RemovedWorkflow<'_>>(),
        get("/node-types", "ListNodeTypes", "Describe the node types of a dialect", list_node_types)
            .query::<NodeTypesQuery>()
            .returns::<Vec<Map<String, Value>>>(),
        post(
            "/conversions",
            "TryConversion",
            "Run the conversion function of a connection on a sample",
            try_conversion,
        )
        .json::<ConversionBody>()
        .returns::<Map<String, Value>>(),
    ]
}

/// Returns the routes that pause, resume and roll back a workflow.
pub(super) fn control_routes() -> Vec<ApiRoute> {
    vec![
        post(
            "/workflows/{name}/pause",
            "PauseWorkflow",
            "Pause a workflow: new executions are created and start when it is resumed",
            pause,
        )
        .role(AccessRole::Admin)
        .json::<PauseBody>()
        .returns::<WorkflowState>(),
        post(
            "/workflows/{name}/resume",
            "ResumeWorkflow",
            "Resume a workflow; kept executions start",
            resume,
        )
        .role(AccessRole::Admin)
        .json::<ResumeBody>()
        .returns::<WorkflowState>(),
        post(
            "/workflows/{name}/rollback",
            "RollBackWorkflow",
            "Make an earlier version the one that new executions run",
            roll_back,
        )
        .role(AccessRole::Admin)
        .json::<RollbackBody>()
        .returns::<WorkflowState>(),
    ]
}

/// Query of node types.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeTypesQuery {
    /// Dialect of the types.
    #[serde(default)]
    dialect: CatalogueDialect,
    /// A type, or in agentteam also `TYPE.SUBTYPE`. All types by default.
    r#type: Option<String>,
}

async fn list_node_types(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: NodeTypesQuery = call.query()?;
    answer(&node_types(query.dialect, query.r#type.as_deref(), None)?)
}

/// Query of a list of workflows.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkflowsQuery {
    /// Only entries whose name or description contains this text, ignoring case.
    text: Option<String>,
    /// Only entries that a search for these words finds.
    q: Option<String>,
    /// Only entries of this stage: `experimental`, `stable` or `deprecated`.
    stage: Option<Stage>,
    /// Only entries of this maintainer.
    maintainer: Option<String>,
    /// Only entries with this label: `KEY=VALUE`, or `KEY` for any value.
    label: Option<String>,
    /// Only entries with a skill of this tag.
    tag: Option<String>,
}

/// Returns whether one of the texts contains the wanted one, ignoring case.
pub(super) fn contains(wanted: Option<&str>, texts: &[&str]) -> bool {
    let wanted = wanted.unwrap_or_default().to_lowercase();
    texts.iter().any(|text| text.to_lowercase().contains(&wanted))
}

async fn list(call: ApiCall) -> Result<Response, HttpProblem> {
    let WorkflowsQuery { text, q, stage, maintainer, label, tag } = call.query()?;
    let selection = CatalogueQuery { q, stage, maintainer, label, tag, ..CatalogueQuery::default() };
    let mut rows = call.operator.list_workflows().await?;
    if selection.selects() {
        let records = call.operations.records();
        let offers = |name: &str| call.operations.offers(name);
        let selected = call.operator.select_workflows((&records, &selection), offers).await?;
        rows.retain(|row| selected.contains(&row.name));
    }
    rows.retain(|row| {
        call.operations.offers(&row.name) && contains(text.as_deref(), &[&row.name, &row.description])
    });
    answer(&rows)
}

/// Query of a workflow.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionQuery {
    /// Prefix of a version's digest. Default: the newest version.
    version: Option<String>,
}

async fn program(call: &ApiCall, digest: &str) -> Result<Program, HttpProblem> {
    let found = call.operator.client.programs().by_digest(digest).await;
    Ok(found.map_err(ClientError::Plan).map_err(Failure::from)?)
}

/// Query of a workflow's description.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescribeQuery {
    /// Prefix of a version's digest. Default: the newest version.
    version: Option<String>,
    /// Maximum number of nodes, in the order of the file. Default: all. `node_count` is the total
    /// number.
    nodes: Option<usize>,
}

async fn describe(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: DescribeQuery = call.query()?;
    let (name, digest) = find_deployed(&call.operator, call.path("name"), query.version.as_deref()).await?;
    let program = program(&call, &digest).await?;
    let nodes = query.nodes.unwrap_or(usize::MAX);
    let warnings = call.operator.start_warnings(program.graph.plan()).await;
    let described = describe_deployed(program.graph.plan(), &digest, &name, nodes);
    let deployed = call.operator.client.programs();
    answer(&WorkflowDescription { warnings, paused: deployed.pause_of(&name), ..described })
}

async fn versions(call: ApiCall) -> Result<Response, HttpProblem> {
    let name = call.path("name");
    find_deployed(&call.operator, name, None).await?;
    answer(&version_rows(&call.operator.workflows().await?, name))
}

async fn source(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: VersionQuery = call.query()?;
    answer(&read_source(&call.operator, call.path("name"), query.version.as_deref()).await?)
}

async fn draw(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: DrawingQuery = call.query()?;
    let (_, digest) = find_deployed(&call.operator, call.path("name"), query.version()).await?;
    if let Some(kept) = drawings::respond_kept(&call, &query, &digest).await {
        return kept;
    }
    let program = program(&call, &digest).await?;
    drawings::respond_plan(&call, &query, program.graph.plan(), &digest).await
}

/// Query of a file that is posted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileQuery {
    /// Name of the file in diagnostics, and of a workflow without a name.
    name: Option<String>,
    /// Dialect of the file. Default: detected from its content.
    dialect: Option<String>,
}

impl FileQuery {
    /// Returns a query with this name.
    pub(super) fn named(name: Option<String>) -> Self {
        Self { name, dialect: None }
    }

    pub(super) fn name(&self) -> Result<&str, HttpProblem> {
        let name = self.name.as_deref().unwrap_or(DEFAULT_FILE);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        match name.len() {
            1..=200 if name.bytes().all(is_plain) => Ok(name),
            _ => Err(bad_request("name: expected at most 200 letters, digits, dots, dashes and underscores")),
        }
    }
}

/// Query of a file that is checked.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValidateQuery {
    /// Name of the file in diagnostics, and of a workflow without a name.
    name: Option<String>,
    /// Dialect of the file. Default: detected from its content.
    dialect: Option<String>,
    /// Include `drawings`, the SVG of each workflow by name, except for workflows that are too
    /// large to draw. In the dialect `covalt`, include `sockets`, the sockets of each node with
    /// type, color and shape.
    #[serde(default)]
    drawing: bool,
}

async fn validate(call: ApiCall) -> Result<Response, HttpProblem> {
    let ValidateQuery { name, dialect, drawing } = call.query()?;
    let query = FileQuery { name, dialect };
    let (name, body) = (query.name()?.to_owned(), call.body.clone());
    let checked = call.compute(move || {
        let file = check_posted_file(&name, &body, query.dialect.as_deref())?;
        let drawings = drawing.then(|| drawings_of(&file));
        let sockets = drawing.then(|| file.loaded.as_ref().map(sockets_of).unwrap_or_default());
        let report = validation_report(&[file]);
        Ok::<_, Failure>(ValidationReport { drawings, sockets, ..report })
    });
    answer(&checked.await??)
}

/// Conversion function to try, with a sample value.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversionBody {
    /// Name of the file in diagnostics.
    name: Option<String>,
    /// Content of a workflow file in the dialect `agentteam`.
    text: String,
    /// Id of the connection in the file.
    connection: String,
    /// Sample value to convert.
    #[serde(default)]
    sample: Value,
}

/// Calls the conversion function of a connection with a sample, like an execution.
async fn try_conversion(call: ApiCall) -> Result<Response, HttpProblem> {
    let place = call.computation().await?;
    let ConversionBody { name, text, connection, sample } = call.json()?;
    let query = FileQuery::named(name);
    let name = query.name()?.to_owned();
    let tried = place.compute(move || {
        let document = posted_document(&name, text.as_bytes())?;
        let trial = try_connection(&document, &connection, &sample, Path::new(&name))?;
        Ok::<_, Failure>(trial_document(&trial, &document))
    });
    answer(&tried.await??)
}

/// Returns the drawings of a file's workflows, by name.
fn drawings_of(file: &SearchedFile) -> BTreeMap<String, String> {
    let workflows = file.loaded.iter().flat_map(|loaded| &loaded.workflows);
    let drawn = workflows.filter_map(|lowered| {
        let drawing = drawing::draw(&lowered.plan, sinew_diagram::Direction::TopDown, None);
        Some((lowered.plan.name.clone(), sinew_diagram::svg(&drawing).ok()?))
    });
    drawn.collect()
}

async fn deploy(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: FileQuery = call.query()?;
    let (name, body) = (query.name()?.to_owned(), call.body.clone());
    let is_named = query.name.is_some();
    let loaded = call.compute(move || {
        let dialect = query.dialect.as_deref();
        let loaded = posted_workflow(&name, &body, dialect)?;
        let has_default = loaded.workflows.iter().any(|workflow| workflow.plan.name == DEFAULT_NAME);
        if is_named || !has_default {
            return Ok::<_, Failure>(Some(loaded));
        }
        // A workflow may have the default name, because unnamed ones take the name of the file.
        let again = posted_workflow(OTHER_FILE, &body, dialect)?;
        let keeps = again.workflows.iter().any(|workflow| workflow.plan.name == DEFAULT_NAME);
        Ok(keeps.then_some(loaded))
    });
    let loaded = loaded
        .await??
        .ok_or_else(|| bad_request("name: the file does not name its workflow; add `?name=NAME.yaml`"))?;
    for workflow in &loaded.workflows {
        call.check_offered(&workflow.plan.name)?;
    }
    let operations = &call.operations;
    let deployed = if operations.offers_every_name() {
        deploy_file(call.operator.mesh(), &loaded).await?
    } else {
        let key = KeyNames { opens: &|name| operations.offers(name), patterns: operations.patterns() };
        deploy_with_key(&call.operator, loaded, key).await?
    };
    let deployed: Vec<Deployed> = deployed.into_iter().map(|one| one.deployed).collect();
    let status = if deployed.iter().any(|one| one.new) { StatusCode::CREATED } else { StatusCode::OK };
    answer_with(status, &deployed)
}

/// Pause of a workflow.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseBody {
    /// Reason, shown to callers whose executions are kept.
    #[serde(default)]
    reason: String,
}

async fn pause(call: ApiCall) -> Result<Response, HttpProblem> {
    let PauseBody { reason } = call.json()?;
    answer(&call.operator.pause_workflow(call.path("name"), &reason).await?)
}

async fn resume(call: ApiCall) -> Result<Response, HttpProblem> {
    let ResumeBody {} = call.json()?;
    answer(&call.operator.resume_workflow(call.path("name")).await?)
}

/// Rollback of a workflow.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// Version: prefix of the digest, or the version that the file specifies. Default: the version
    /// before the current one.
    version: Option<String>,
}

async fn roll_back(call: ApiCall) -> Result<Response, HttpProblem> {
    let RollbackBody { version } = call.json()?;
    answer(&call.operator.rollback_workflow(call.path("name"), version.as_deref()).await?)
}

/// Query of a removal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteQuery {
    /// Preview the removal without removing anything.
    #[serde(default)]
    dry_run: bool,
}

async fn remove(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: DeleteQuery = call.query()?;
    let removal = call.operator.preview_removal(call.path("name")).await?;
    if !query.dry_run {
        call.operator.remove_workflow(&removal).await?;
    }
    let status = if query.dry_run { "would delete" } else { "deleted" };
    let WorkflowRemoval { name, version, open_executions } = removal;
    answer(&RemovedWorkflow { name: &name, version: &version, status, open_executions })
}

/// Workflow that was removed or, in a dry run, would be removed.
#[derive(Serialize, JsonSchema)]
pub(super) struct RemovedWorkflow<'a> {
    /// Name of the workflow.
    name: &'a str,
    /// Digest of the newest version.
    version: &'a str,
    /// `deleted`, or `would delete` for a dry run.
    status: &'static str,
    /// Number of open executions, which continue.
    open_executions: usize,
}
