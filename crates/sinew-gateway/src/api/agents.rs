//! Agents, tools, and the state of the mesh.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use sinew_documents::agent::{AgentDetails, AgentProcess, AgentRow};
use sinew_documents::catalogue::{CatalogueEntry, CataloguePage};
use sinew_documents::execution_filter::ExecutionFilter;
use sinew_documents::figures::MeshActivity;
use sinew_documents::mesh::{DoctorCheck, MeshStatus};
use sinew_operations::agent_list::{
    AgentIntake, describe_agent, list_agents, list_callable, retire_agent, select_agents, set_intake,
};
use sinew_operations::agent_service::ask_processes;
use sinew_operations::catalogue::{CATALOGUE_PAGE, CatalogueQuery, MAX_CATALOGUE_PAGE};
use sinew_operations::deployed_workflows::ToolRow;
use sinew_operations::doctor::{self, DoctorOptions};
use sinew_operations::failure::Failure;
use sinew_operations::mesh_activity::read_activity;
use sinew_operations::mesh_status;
use sinew_runtime::local;

use super::api_call::{ApiCall, answer, row_limit};
use super::executions::offered_filter;
use super::route::{ApiRoute, delete, get, post};
use super::workflows::contains;
use crate::http_error::HttpProblem;
use crate::operations::short;
use sinew_operations::agent_list::RetiredAgent;
use sinew_protocol::access::AccessRole;
use sinew_protocol::catalogue::Stage;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get("/pulse", "Pulse", "Executors, shards, streams, agents and open executions", pulse)
            .returns::<MeshStatus>(),
        get(
            "/pulse/activity",
            "GetActivity",
            "Executions started, ended and failed per minute, and the most frequent errors",
            activity,
        )
        .query::<ActivityQuery>()
        .returns::<MeshActivity>(),
        get("/agents", "ListAgents", "List agents with their work, offline ones and long queues first", list)
            .query::<AgentsQuery>()
            .returns::<Vec<AgentRow>>(),
        get("/agents/{name}", "DescribeAgent", "Get state, skills and schemas of an agent", describe)
            .query::<AgentQuery>()
            .returns::<AgentDetails>(),
        delete("/agents/{name}", "RetireAgent", "Retire an offline agent; it is no longer listed", retire)
            .role(AccessRole::Admin)
            .returns::<RetiredAgent>(),
        post(
            "/agents/{name}/drain",
            "DrainAgent",
            "Let the processes of an agent finish their tasks and take no new ones",
            drain,
        )
        .role(AccessRole::Admin)
        .json::<IntakeBody>()
        .returns::<AgentIntake>(),
        post(
            "/agents/{name}/undrain",
            "UndrainAgent",
            "Let the processes of an agent take tasks again",
            undrain,
        )
        .role(AccessRole::Admin)
        .json::<IntakeBody>()
        .returns::<AgentIntake>(),
        get(
            "/agents/{name}/processes",
            "ListAgentProcesses",
            "List the processes of an agent with their metrics and last errors",
            processes,
        )
        .returns::<Vec<AgentProcess>>(),
        get("/doctor", "ExamineMesh", "Check the mesh; each finding states how to fix it", examine_mesh)
            .returns::<Vec<DoctorCheck>>(),
        get("/tools", "ListTools", "List workflows as tools, with the schemas of their arguments", tools)
            .returns::<Vec<ToolRow>>(),
        get(
            "/catalogue",
            "SearchCatalogue",
            "List or search the agents and workflows that are online",
            catalogue,
        )
        .query::<CatalogueQuery>()
        .returns::<CataloguePage>(),
        get(
            "/catalogue/{name}",
            "DescribeEntry",
            "Get the attributes and schemas of an agent or workflow in the catalogue",
            describe_entry,
        )
        .returns::<CatalogueEntry>(),
    ]
}

async fn catalogue(call: ApiCall) -> Result<Response, HttpProblem> {
    let mut query: CatalogueQuery = call.query()?;
    query.limit = Some(row_limit(query.limit, CATALOGUE_PAGE, MAX_CATALOGUE_PAGE)?);
    // An unreachable mesh is an error, not an empty catalogue.
    call.operator.online().await?;
    answer(&call.operations.find_entries(&query))
}

async fn describe_entry(call: ApiCall) -> Result<Response, HttpProblem> {
    let name = call.path("name");
    let entry = call.operations.find(|all| all.entry(name)).await.map_err(Failure::from)?;
    match entry {
        Some(entry) => answer(&entry),
        None => Err(HttpProblem::not_found(format!("workflow or agent {:?} not found", short(name, 64)))),
    }
}

/// Query of a list of agents.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentsQuery {
    /// Only entries whose name or description contains this text, ignoring case.
    text: Option<String>,
    /// Include workflows, which are called like agents. The list is sorted by name and has no work.
    #[serde(default)]
    workflows: bool,
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

async fn list(call: ApiCall) -> Result<Response, HttpProblem> {
    let AgentsQuery { text, workflows, q, stage, maintainer, label, tag } = call.query()?;
    let selection = CatalogueQuery { q, stage, maintainer, label, tag, ..CatalogueQuery::default() };
    let (mesh, cards) = (call.operator.mesh(), call.operator.online().await?);
    let mut rows =
        if workflows { list_callable(mesh, &cards).await? } else { list_agents(mesh, &cards).await? };
    if selection.selects() {
        let records = call.operations.records();
        let offers = |name: &str| call.operations.offers(name);
        let selected = select_agents(mesh, &cards, (&records, &selection), offers).await?;
        rows.retain(|row| selected.contains(&row.name));
    }
    rows.retain(|row| {
        call.operations.offers(&row.name)
            && contains(text.as_deref(), &[&row.name, &row.description, &row.skills.join(" ")])
    });
    answer(&rows)
}

/// Which processes of an agent are drained.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IntakeBody {
    /// Id of one process, or the beginning of it. All processes by default.
    process: Option<String>,
}

async fn drain(call: ApiCall) -> Result<Response, HttpProblem> {
    change_intake(&call, false).await
}

async fn undrain(call: ApiCall) -> Result<Response, HttpProblem> {
    change_intake(&call, true).await
}

async fn change_intake(call: &ApiCall, open: bool) -> Result<Response, HttpProblem> {
    let body: IntakeBody = call.json()?;
    let (mesh, cards) = (call.operator.mesh(), call.operator.online().await?);
    answer(&set_intake(mesh, &cards, call.path("name"), body.process.as_deref(), open).await?)
}

/// Query of an agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentQuery {
    /// Include the latest executions that failed because of the agent.
    #[serde(default)]
    errors: bool,
}

async fn describe(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: AgentQuery = call.query()?;
    let mut agent =
        describe_agent(call.operator.mesh(), &call.operator.online().await?, call.path("name")).await?;
    if query.errors {
        agent.last_errors = Some(match offered_filter(&call, ExecutionFilter::default()).await? {
            Some(visible) => call.operator.agent_errors(&agent.name, visible).await?,
            None => Vec::new(),
        });
    }
    answer(&agent)
}

async fn retire(call: ApiCall) -> Result<Response, HttpProblem> {
    answer(&retire_agent(call.operator.mesh(), &call.operator.online().await?, call.path("name")).await?)
}

async fn processes(call: ApiCall) -> Result<Response, HttpProblem> {
    // The error for an unknown name lists similar names.
    let mesh = call.operator.mesh();
    let agent = describe_agent(mesh, &call.operator.online().await?, call.path("name")).await?;
    answer(&ask_processes(mesh, &agent.name).await?)
}

async fn examine_mesh(call: ApiCall) -> Result<Response, HttpProblem> {
    call.check_whole()?;
    answer(&doctor::examine(Ok(call.operator.mesh().clone()), &DoctorOptions::default()).await)
}

async fn tools(call: ApiCall) -> Result<Response, HttpProblem> {
    let mut rows: Vec<ToolRow> = call.operator.tools().await?.values().map(ToolRow::of).collect();
    rows.retain(|row| call.operations.offers(&row.workflow));
    answer(&rows)
}

async fn pulse(call: ApiCall) -> Result<Response, HttpProblem> {
    call.check_whole()?;
    answer(&mesh_status::read_status(&call.operator, &call.operator.online().await?).await?)
}

/// Default number of minutes of activity.
const ACTIVITY_MINUTES: usize = 60;
/// Maximum number of minutes of activity.
const MAX_ACTIVITY_MINUTES: usize = 24 * 60;

/// Query of the activity.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActivityQuery {
    /// Number of minutes, including the current one, at most 1,440. Default: 60.
    minutes: Option<usize>,
}

async fn activity(call: ApiCall) -> Result<Response, HttpProblem> {
    call.check_whole()?;
    let query: ActivityQuery = call.query()?;
    let minutes = query.minutes.unwrap_or(ACTIVITY_MINUTES).clamp(1, MAX_ACTIVITY_MINUTES);
    let activity = read_activity(&call.operator, &call.state.history, local::now(), minutes).await?;
    if !activity.is_whole {
        call.state.history.fill_in_background(call.operator.mesh());
    }
    answer(&activity)
}
