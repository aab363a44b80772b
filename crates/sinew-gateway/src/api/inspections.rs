//! Views of an execution that was exported to a file: computed from the file alone, and not stored.

use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use sinew_diagram::Direction;
use sinew_documents::comparison::ExecutionComparison;
use sinew_documents::export::ExportViews;
use sinew_inspection::describe::describe;
use sinew_inspection::diff;
use sinew_inspection::drawing::{self, DrawnProgress};
use sinew_inspection::events::{self, EventWords};
use sinew_inspection::node_description::describe_node;
use sinew_inspection::record::{self, Record};
use sinew_inspection::timeline::{TimelineWindow, timeline};
use sinew_inspection::tree::{TreeOptions, tree};
use sinew_inspection::view_context::{MeshPresence, ViewContext};
use sinew_inspection::waiting::waits;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::unique_keys::{BadJson, check_unique_keys_within};
use sinew_protocol::{Vocabulary, code};

use super::api_call::{ApiCall, answer, answer_written, too_many_values, written};
use super::route::{ApiRoute, post};
use crate::http_error::HttpProblem;

/// Maximum number of nodes with input and output.
const MAX_NODES: usize = 200;
/// Maximum number of values in an export, in arrays and objects. An object takes about 500 bytes of
/// memory, and its views contain it twice.
const MAX_EXPORT_VALUES: usize = 300_000;
/// Maximum number of events; the latest are returned.
const MAX_EVENTS: usize = 500;
/// Depth of the tree.
const DEPTH: usize = 3;

/// Maximum size of an inspected export.
const MAX_EXPORT_BYTES: usize = 16 << 20;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        post(
            "/inspections",
            "InspectExport",
            "Show views of an exported execution; nothing is stored",
            inspect,
        )
        .file()
        .body_bytes(MAX_EXPORT_BYTES)
        .returns::<ExportViews>(),
        post("/comparisons", "CompareExports", "Compare two exported executions; nothing is stored", compare)
            .json::<ComparedExports>()
            .body_bytes(2 * MAX_EXPORT_BYTES)
            .returns::<ExecutionComparison>(),
    ]
}

/// Returns all views for people: description, tree, nodes, timeline, events and drawing.
async fn inspect(call: ApiCall) -> Result<Response, HttpProblem> {
    let body = call.body.clone();
    let document = call.compute(move || {
        let record = read_export(&body)?;
        drop(body);
        written_views(&record)
    });
    Ok(answer_written(StatusCode::OK, document.await??))
}

/// Two exported executions to compare.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComparedExports {
    /// Content of the first export.
    first: String,
    /// Content of the second export.
    second: String,
    /// Only this node (with its index: `enrich_3`) and its children.
    node: Option<String>,
}

/// Returns a comparison of two exports.
async fn compare(call: ApiCall) -> Result<Response, HttpProblem> {
    let place = call.computation().await?;
    let ComparedExports { first, second, node } = call.json()?;
    let compared = place.compute(move || {
        let (first, second) = (read_export(first.as_bytes())?, read_export(second.as_bytes())?);
        // Times of open nodes end with the later export.
        let now = first.at().max(second.at());
        let compared = diff::compare(&first, &second, now, node.as_deref());
        compared.ok_or_else(|| {
            let text = "neither execution has this node";
            HttpProblem::from(Failure::new(FailureKind::NotFound, code::NO_SUCH_NODE.as_str(), text))
        })
    });
    answer(&compared.await??)
}

fn read_export(bytes: &[u8]) -> Result<Record, HttpProblem> {
    // The reader of exports reports all other errors.
    if let Err(BadJson::TooManyValues(_)) = check_unique_keys_within(bytes, MAX_EXPORT_VALUES) {
        let hint = "use `sinew execution describe FILE` for larger exports";
        return Err(too_many_values("the export", MAX_EXPORT_VALUES).with_hint(Some(hint.to_owned())));
    }
    Ok(record::parse(bytes).map_err(|error| {
        Failure::new(
            FailureKind::Failed,
            code::NOT_EXPORT_OF_EXECUTION.as_str(),
            format!("the file is not an exported execution: {error}"),
        )
        .hint("create an export with `sinew execution export ID`")
    })?)
}

/// Serializes the views of a record directly: as JSON values they would take several times the
/// memory.
fn written_views(record: &Record) -> Result<Vec<u8>, HttpProblem> {
    // Times of open nodes end with the export.
    let (now, presence) = (record.at(), MeshPresence::default());
    let context = ViewContext::of(&record.execution, now, &presence);
    let options = TreeOptions { depth: DEPTH, ..TreeOptions::default() };
    let graph = &record.execution.program().graph;
    let progress = DrawnProgress::of(graph, record.execution.journal()).with_waits(&waits(record, &context));
    let drawing = drawing::draw(graph.plan(), Direction::TopDown, Some(&progress));
    let count = record.execution.state().acts.len().min(MAX_NODES) as u32;
    let mut lines = events::lines(record, EventWords::Mesh(Vocabulary::Current));
    let skipped = lines.len().saturating_sub(MAX_EVENTS);
    lines.drain(..skipped);
    written(&ExportViews {
        description: describe(record, now, &presence),
        tree: tree(record, &context, &options),
        nodes: (0..count).map(|act| describe_node(record, act, &context)).collect(),
        timeline: timeline(record, now, TimelineWindow::first(MAX_NODES)),
        events: lines.into_iter().map(|event| event.line).collect(),
        skipped_events: skipped,
        drawing: sinew_diagram::svg(&drawing).ok(),
    })
}
