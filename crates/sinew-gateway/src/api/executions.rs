//! Reading executions.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use sinew_documents::agent::AgentWork;
use sinew_documents::artifact::ArtifactRow;
use sinew_documents::comparison::ExecutionComparison;
use sinew_documents::event::{EventLine, EventPage};
use sinew_documents::execution::ExecutionDescription;
use sinew_documents::execution_filter::{BadFilter, ExecutionFilter};
use sinew_documents::execution_list::ExecutionPage;
use sinew_documents::figures::ExecutionCounts;
use sinew_documents::node::{NodeDescription, TreeBranch};
use sinew_documents::node_status::NodeStatus;
use sinew_documents::timeline::Timeline;
use sinew_documents::timestamp::Timestamp;
use sinew_inspection::agent_work::agent_work;
use sinew_inspection::describe::describe as describe_execution;
use sinew_inspection::diff;
use sinew_inspection::events::{self, EventWords, RecordedEvent};
use sinew_inspection::node_description::{describe_node, find_activation};
use sinew_inspection::record;
use sinew_inspection::timeline::{self, TimelineWindow};
use sinew_inspection::timeline_text;
use sinew_inspection::tree::{self, TreeOptions};
use sinew_inspection::view_context::ViewContext;
use sinew_operations::execution_artifacts::{self, LeftArtifact};
use sinew_operations::execution_list::{ExecutionCursor, ListDepth, RestOfList};
use sinew_operations::execution_result::ExecutionResult;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::mesh_activity::count_executions;
use sinew_operations::mesh_operator::RowDetails;
use sinew_protocol::artifact::sha256;
use sinew_protocol::{Vocabulary, code};
use sinew_runtime::local;

use super::api_call::{ApiCall, answer, bad_request, row_limit};
use super::event_stream;
use super::route::{ApiRoute, EVENT_STREAM, get};
use crate::files::{FileBytes, saved_as, take_place};
use crate::http_error::HttpProblem;
use sinew_inspection::record::RecordDocument;

/// Default page size of executions.
const PAGE: usize = 50;
/// Maximum page size of executions.
const MAX_PAGE: usize = 500;
/// Page size of events.
const EVENTS_PAGE: usize = 1_000;
/// Maximum depth of a tree: a plan may nest maps and loops thousands deep.
const MAX_TREE_DEPTH: usize = 100;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get("/executions", "ListExecutions", "List executions, running first, then newest", list)
            .query::<ListQuery>()
            .returns::<ExecutionPage>(),
        get("/execution-counts", "CountExecutions", "Count executions by status", count)
            .query::<CountQuery>()
            .returns::<ExecutionCounts>(),
        get(
            "/executions/{id}",
            "DescribeExecution",
            "Describe an execution: status, causes and next steps",
            describe,
        )
        .returns::<ExecutionDescription>(),
        get("/executions/{id}/record", "GetRecord", "Get the complete record of an execution", record)
            .query::<RecordQuery>()
            .returns::<RecordDocument<'_>>(),
        get("/executions/{id}/tree", "GetTree", "List the nodes of an execution as a tree", tree)
            .query::<TreeQuery>()
            .returns::<Vec<TreeBranch>>(),
        get("/executions/{id}/timeline", "GetTimeline", "Get the durations of activations by kind", timeline)
            .query::<TimelineQuery>()
            .returns::<Timeline>()
            .or_media(&["text/csv"]),
        get(
            "/executions/{id}/comparison",
            "CompareExecutions",
            "Compare two executions: nodes, and changes of values as JSON Patch",
            compare,
        )
        .query::<ComparisonQuery>()
        .returns::<ExecutionComparison>(),
        get("/executions/{id}/node", "DescribeNode", "Get input, output and attempts of a node", node)
            .query::<NodeQuery>()
            .returns::<NodeDescription>(),
        get(
            "/executions/{id}/events",
            "GetEvents",
            "List events, as a page or as a stream (text/event-stream)",
            events,
        )
        .query::<EventsQuery>()
        .returns::<EventPage>()
        .or_media(&[EVENT_STREAM]),
        get(
            "/executions/{id}/agents",
            "ListExecutionAgents",
            "List the agents that an execution called: tasks, failures, durations, tokens and cost",
            agents,
        )
        .returns::<Vec<AgentWork>>(),
        get("/executions/{id}/result", "GetResult", "Get output or error of an execution", result)
            .returns::<ExecutionResult>(),
        get("/executions/{id}/artifacts", "ListArtifacts", "List the artifacts of an execution", artifacts)
            .returns::<Vec<ArtifactRow>>(),
        get("/executions/{id}/artifact", "GetArtifact", "Download an artifact", artifact)
            .query::<ArtifactQuery>()
            .returns_media("application/octet-stream"),
    ]
}

/// Query of a list of executions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only executions with one of these statuses, separated by commas, such as `failed,waiting`.
    status: Option<String>,
    /// Only entries of this workflow.
    workflow: Option<String>,
    /// Only executions with all of these labels, separated by commas, such as `team=a,stage=test`.
    label: Option<String>,
    /// Only executions started at or after this time, in milliseconds since 1970 UTC.
    since: Option<u64>,
    /// Only executions started before this time, in milliseconds since 1970 UTC.
    until: Option<u64>,
    /// Only executions that failed with one of these codes, separated by commas, such as
    /// `SINEW-5001`.
    error: Option<String>,
    /// Only executions of this version: the digest of the plan, or a prefix of it.
    version: Option<String>,
    /// Only executions started with this idempotency key.
    key: Option<String>,
    /// Only executions started by this caller.
    caller: Option<String>,
    /// Only executions that called this agent or workflow.
    agent: Option<String>,
    /// Only executions in which this node failed or waits.
    node: Option<String>,
    /// Only executions that wait for this: `agent`, `workflow`, `person`, `timer`, `script`, `retry`,
    /// `operator`, `executor`, or the name of an agent.
    waiting: Option<String>,
    /// Only executions whose input contains this text, regardless of case.
    input: Option<String>,
    /// Only executions whose output contains this text, regardless of case.
    output: Option<String>,
    /// Further terms, as in the search box: `status:failed key:order-17 "no route"`.
    filter: Option<String>,
    /// Page size, at most 500. Default: 50.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// Splits a comma-separated parameter.
fn comma_parts(text: Option<&str>) -> Vec<String> {
    let words = text.unwrap_or_default().split(',').map(str::trim);
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

impl ListQuery {
    fn filter(&self) -> Result<ExecutionFilter, HttpProblem> {
        let now = Timestamp(local::now());
        let bad = |error: BadFilter| bad_request(error.to_string());
        let text = self.filter.as_deref().unwrap_or_default();
        let mut filter = ExecutionFilter::parse(text, now).map_err(bad)?;
        let terms = [
            ("status", &self.status),
            ("label", &self.label),
            ("error", &self.error),
            ("version", &self.version),
            ("key", &self.key),
            ("caller", &self.caller),
            ("agent", &self.agent),
            ("node", &self.node),
            ("waiting", &self.waiting),
            ("input", &self.input),
            ("output", &self.output),
        ];
        for (key, value) in terms {
            filter.add(key, value.as_deref().unwrap_or_default(), now).map_err(bad)?;
        }
        filter.workflow.extend(self.workflow.clone());
        filter.since = self.since.or(filter.since);
        filter.until = self.until.or(filter.until);
        Ok(filter)
    }
}

/// Limits a filter to the workflows that the caller may see; `None` if none remains.
pub(super) async fn offered_filter(
    call: &ApiCall,
    mut filter: ExecutionFilter,
) -> Result<Option<ExecutionFilter>, HttpProblem> {
    filter.owner = call.operations.owner().map(ToString::to_string);
    if call.operations.offers_every_name() {
        return Ok(Some(filter));
    }
    let deployed = call.operator.workflows().await?.list().into_iter();
    let offered = deployed.map(|one| one.deployment.name.clone()).chain(filter.workflow.clone());
    let offered = offered.filter(|name| call.operations.offers(name));
    let wanted = std::mem::take(&mut filter.workflow);
    filter.workflow = offered.filter(|name| wanted.is_empty() || wanted.contains(name)).collect();
    // An empty list would match every name.
    Ok((!filter.workflow.is_empty()).then_some(filter))
}

/// Query of numbers of executions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountQuery {
    /// Only entries of this workflow.
    workflow: Option<String>,
    /// Only executions started at or after this time, in milliseconds since 1970 UTC.
    since: Option<u64>,
    /// Only executions started before this time, in milliseconds since 1970 UTC.
    until: Option<u64>,
    /// Only executions that failed with one of these codes, separated by commas, such as
    /// `SINEW-5001`.
    error: Option<String>,
}

async fn count(call: ApiCall) -> Result<Response, HttpProblem> {
    let CountQuery { workflow, since, until, error } = call.query()?;
    let filter = ExecutionFilter {
        workflow: workflow.into_iter().collect(),
        since,
        until,
        errors: comma_parts(error.as_deref()),
        ..ExecutionFilter::default()
    };
    let Some(filter) = offered_filter(&call, filter).await? else {
        return answer(&ExecutionCounts { is_whole: true, ..ExecutionCounts::default() });
    };
    let counts = count_executions(&call.operator, &call.state.history, &filter).await?;
    if !counts.is_whole {
        call.state.history.fill_in_background(call.operator.mesh());
    }
    answer(&counts)
}

async fn list(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: ListQuery = call.query()?;
    let limit = row_limit(query.limit, PAGE, MAX_PAGE)?;
    let after = query.cursor.as_deref().map(str::parse::<ExecutionCursor>).transpose();
    let after = after.map_err(|_| bad_request("cursor: not the `next` of a page"))?;
    let depth =
        ListDepth { limit: limit + 1, details: RowDetails::All, after, counts_rest: RestOfList::Dropped };
    let Some(filter) = offered_filter(&call, query.filter()?).await? else {
        return answer(&ExecutionPage {
            executions: Vec::new(),
            next: None,
            searched: None,
            unlisted_shards: 0,
        });
    };
    let found = call.operator.search(&filter, depth).await?;
    let mut executions = found.rows;
    // The next filter or page may need the headers of all records.
    call.state.history.fill_in_background(call.operator.mesh());
    let next = (executions.len() > limit).then(|| ExecutionCursor::of(&executions[limit - 1]));
    let next = next.or(found.stopped_at).map(|cursor| cursor.to_string());
    executions.truncate(limit);
    let unlisted_shards = call.operator.client.unlisted_shards().await.map_err(Failure::from)?.len();
    answer(&ExecutionPage { executions, next, searched: found.searched, unlisted_shards })
}

async fn describe(call: ApiCall) -> Result<Response, HttpProblem> {
    let found = call.found().await?;
    answer(&describe_execution(&found.record, local::now(), &found.presence().await?))
}

/// Query of a record.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordQuery {
    /// Omit all values, questions, comments and messages.
    #[serde(default)]
    redact: bool,
}

async fn record(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: RecordQuery = call.query()?;
    let found = call.found().await?;
    let record = if query.redact { record::redact(&found.record) } else { found.record };
    answer(&record.document())
}

/// Query of a tree.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TreeQuery {
    /// Number of levels, at most 100. Default: 1 (the workflow's own nodes), or 100 with `node` or
    /// `status`.
    depth: Option<usize>,
    /// Only this node and its descendants.
    node: Option<String>,
    /// Only nodes with one of these statuses, separated by commas, at all levels, with their
    /// parents. For example, `failed,waiting`.
    status: Option<String>,
}

async fn tree(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: TreeQuery = call.query()?;
    let only = comma_parts(query.status.as_deref()).into_iter().map(|word| {
        NodeStatus::of_word(&word)
            .ok_or_else(|| bad_request(format!("status: {word:?} is not a status of nodes")))
    });
    let only: Vec<NodeStatus> = only.collect::<Result<_, HttpProblem>>()?;
    let found = call.found().await?;
    let context = ViewContext::of(&found.record.execution, local::now(), &found.presence().await?);
    let opens_all = query.node.is_some() || !only.is_empty();
    let depth = query.depth.unwrap_or(if opens_all { MAX_TREE_DEPTH } else { 1 });
    let depth = depth.clamp(1, MAX_TREE_DEPTH);
    let options = TreeOptions { depth, fold: Vec::new(), node: query.node, only };
    match tree::tree(&found.record, &context, &options) {
        Some(branches) => answer(&branches),
        None => Err(no_such_node(options.node.as_deref().unwrap_or_default())),
    }
}

/// Default number of activations in a timeline.
const TIMELINE_ROWS: usize = 200;
/// Maximum number of activations in a timeline.
const MAX_TIMELINE_ROWS: usize = 2_000;

/// Query of a timeline.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimelineQuery {
    /// Only activations that existed at or after this time, in milliseconds since the start of the
    /// execution.
    from: Option<u64>,
    /// Only activations that existed at or before this time, in milliseconds since the start of the
    /// execution.
    to: Option<u64>,
    /// Maximum number of activations, in order of creation, at most 2,000. Default: 200.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// `json` (default), or `csv` with one line per time span.
    format: Option<TimelineFormat>,
}

/// Format of a timeline.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum TimelineFormat {
    #[default]
    Json,
    Csv,
}

async fn timeline(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: TimelineQuery = call.query()?;
    let found = call.found().await?;
    let window = TimelineWindow {
        from: query.from.unwrap_or_default(),
        to: query.to.unwrap_or(u64::MAX),
        max_rows: row_limit(query.limit, TIMELINE_ROWS, MAX_TIMELINE_ROWS)?,
    };
    let times = timeline::timeline(&found.record, local::now(), window);
    if query.format.unwrap_or_default() == TimelineFormat::Json {
        return answer(&times);
    }
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"timeline.csv\""),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, timeline_text::csv(&times)).into_response())
}

/// Query of a node.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeQuery {
    /// Node with its index in maps and loops, such as `enrich_3`.
    name: String,
}

async fn node(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: NodeQuery = call.query()?;
    let found = call.found().await?;
    let context = ViewContext::of(&found.record.execution, local::now(), &found.presence().await?);
    let act = find_activation(&found.record, &query.name).ok_or_else(|| no_such_node(&query.name))?;
    answer(&describe_node(&found.record, act, &context))
}

async fn agents(call: ApiCall) -> Result<Response, HttpProblem> {
    let found = call.found().await?;
    answer(&agent_work(&found.record, local::now()))
}

fn no_such_node(node: &str) -> HttpProblem {
    let text = format!("the execution has no node {:?}", crate::operations::short(node, 100));
    Failure::new(FailureKind::NotFound, code::NO_SUCH_NODE.as_str(), text).into()
}

/// Query of a comparison.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComparisonQuery {
    /// Other execution: its id, a prefix of the id, or `@latest`.
    with: String,
    /// Only this node (with its index: `enrich_3`) and its children.
    node: Option<String>,
}

async fn compare(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: ComparisonQuery = call.query()?;
    let first = call.found().await?.record;
    let second = call.operator.record(&call.find(&query.with).await?).await?;
    let compared = call
        .compute(move || (diff::compare(&first, &second, local::now(), query.node.as_deref()), query.node));
    match compared.await? {
        (Some(compared), _) => answer(&compared),
        (None, node) => Err(no_such_node(node.as_deref().unwrap_or_default())),
    }
}

/// Query of events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Vocabulary of the events: `mesh` (default) for messages of the mesh protocol, `spec` for the
    /// terms of the published specification, `native` for events of the dialect, `facts` for the
    /// engine's facts.
    words: Option<EventVocabulary>,
    /// Only events of this node.
    node: Option<String>,
    /// Only events after the one with this `seq`.
    after: Option<String>,
    /// Only events before the one with this `seq`.
    before: Option<String>,
    /// `oldest` (default) or `newest` first.
    order: Option<EventOrder>,
    /// Page size, at most 1,000. Default: 1,000.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

/// Order of events.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum EventOrder {
    #[default]
    Oldest,
    Newest,
}

/// Vocabulary of events.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum EventVocabulary {
    Mesh,
    Spec,
    Native,
    Facts,
}

async fn events(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: EventsQuery = call.query()?;
    let words = match query.words.unwrap_or(EventVocabulary::Mesh) {
        EventVocabulary::Mesh => EventWords::Mesh(Vocabulary::Current),
        EventVocabulary::Spec => EventWords::Mesh(Vocabulary::Spec),
        EventVocabulary::Native => EventWords::Native,
        EventVocabulary::Facts => EventWords::Facts,
    };
    let header =
        |name: header::HeaderName| call.parts.headers.get(name).and_then(|value| value.to_str().ok());
    let is_stream = header(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream"));
    // A browser that lost a stream sends its position.
    let last = call.parts.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let after = last.filter(|_| is_stream).or(query.after.as_deref());
    let after = after.map(event_stream::parse_place).transpose()?.unwrap_or_default();
    let found = call.found().await?;
    if is_stream {
        return event_stream::respond(
            &call.state,
            found,
            event_stream::EventChoice { words, node: query.node, after },
        )
        .await;
    }
    let before = query.before.as_deref().map(event_stream::parse_place).transpose()?;
    let mut lines = events::lines(&found.record, words);
    if query.order.unwrap_or_default() == EventOrder::Newest {
        lines.reverse();
    }
    let is_wanted = |event: &RecordedEvent| {
        event.place() > after
            && before.is_none_or(|before| event.place() < before)
            && query.node.as_deref().is_none_or(|node| event.is_about(node))
    };
    let limit = row_limit(query.limit, EVENTS_PAGE, EVENTS_PAGE)?;
    let mut wanted = lines.into_iter().filter(is_wanted);
    let page: Vec<EventLine> = wanted.by_ref().take(limit).map(|event| event.line).collect();
    let next = wanted.next().and_then(|_| page.last()).map(|last| last.seq.clone());
    answer(&EventPage { events: page, next })
}

async fn result(call: ApiCall) -> Result<Response, HttpProblem> {
    answer(&ExecutionResult::of(&call.found().await?.record))
}

async fn artifacts(call: ApiCall) -> Result<Response, HttpProblem> {
    let found = call.found().await?;
    let rows: Vec<_> =
        execution_artifacts::artifacts(&found.record, None).iter().map(LeftArtifact::row).collect();
    answer(&rows)
}

/// Query of an artifact.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactQuery {
    /// Name of the artifact, `[NODE/]NAME[:vN]`. Default: the newest version.
    pub(super) name: String,
}

async fn artifact(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: ArtifactQuery = call.query()?;
    let found = call.found().await?;
    let place = take_place(&call.state).await?;
    let bytes = execution_artifacts::read_artifact(&found, &query.name).await?;
    let tag = format!("\"{}\"", sha256(&bytes));
    let saved_as = saved_as(execution_artifacts::artifact_name(&query.name));
    // An artifact is data, regardless of its name or type: browsers save it and display nothing.
    let about = |status: StatusCode, body: Body| {
        let headers = [
            (header::CONTENT_TYPE, "application/octet-stream"),
            (header::CONTENT_DISPOSITION, saved_as.as_str()),
            (header::ETAG, tag.as_str()),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (status, headers, body).into_response()
    };
    let file = FileBytes { bytes, place, tag: tag.clone() };
    Ok(file.respond(&call.parts.method, &call.parts.headers, about))
}
