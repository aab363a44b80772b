//! The timeline of an execution: a bar for each activation, with a fill for each kind of time.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::timeline::{SpanKind, Timeline, TimelineRow, TimelineSpan};
use sinew_documents::words;

use super::execution_head::{ExecutionTab, execution_head, execution_title, live_source, read_execution};
use super::node_inspector::{beside_node, selected_name};
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, live_part, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, duration};
use crate::status_mark::status_mark;
use crate::time_scale::TimeScale;

/// Activations per page.
const MAX_ROWS: &str = "200";
/// Activations per CSV file.
const MAX_CSV_ROWS: &str = "2000";
/// Width of the chart in its own units.
const CHART_WIDTH: f64 = 1000.0;
/// Height of a row.
const ROW_HEIGHT: f64 = 20.0;
/// Height of the axis.
const AXIS_HEIGHT: f64 = 22.0;
/// Minimum width of a bar, so that short spans are visible.
const MIN_BAR: f64 = 1.5;
/// Kinds of time, in the order of the legend.
const KINDS: [SpanKind; 7] = [
    SpanKind::Queued,
    SpanKind::AgentQueue,
    SpanKind::Agent,
    SpanKind::BackOff,
    SpanKind::Timer,
    SpanKind::Person,
    SpanKind::Children,
];

/// CSS class and label of a kind of time.
const fn look_of(kind: SpanKind) -> (&'static str, &'static str) {
    match kind {
        SpanKind::Queued => ("queued", "queued"),
        SpanKind::AgentQueue => ("agent_queue", "agent queue"),
        SpanKind::Agent => ("agent", "agent"),
        SpanKind::BackOff => ("back_off", "back-off"),
        SpanKind::Timer => ("timer", "timer"),
        SpanKind::Person => ("person", "person"),
        SpanKind::Children => ("children", "children"),
    }
}

/// The range in the address.
#[derive(Clone, Debug, Default, Deserialize)]
struct TimelineView {
    /// Milliseconds since the start; the start if empty.
    #[serde(default)]
    from: String,
    /// Milliseconds since the start; the end if empty.
    #[serde(default)]
    to: String,
    /// Present if idle time is omitted.
    cut: Option<String>,
    /// Present if quiet nodes are shown individually.
    quiet: Option<String>,
}

impl TimelineView {
    /// The page with this range.
    fn address(&self, id: &str) -> PageAddress {
        ExecutionTab::Timeline
            .address(id)
            .with_some("from", Some(&self.from))
            .with_some("to", Some(&self.to))
            .with_some("cut", self.cut.as_deref())
            .with_some("quiet", self.quiet.as_deref())
    }

    /// API path of this range.
    fn path(&self, id: &str, max_rows: &str) -> ApiPath {
        ApiPath::of(&["executions", id, "timeline"])
            .with("limit", max_rows)
            .with_some("from", Some(self.from.trim()))
            .with_some("to", Some(self.to.trim()))
    }

    fn range(&self, duration_ms: u64) -> Result<(u64, u64), ConsoleError> {
        let read = |text: &str, otherwise: u64| match text.trim() {
            "" => Ok(otherwise),
            text => {
                text.parse().map_err(|_| ConsoleError::Input("from, to: expected milliseconds".to_owned()))
            }
        };
        Ok((read(&self.from, 0)?, read(&self.to, duration_ms)?))
    }
}

pub(crate) async fn show(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = timeline_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn timeline_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let view: TimelineView = request.query()?;
    let execution = read_execution(request, id).await?;
    let id = execution.execution.as_str();
    let mut timeline: Timeline = request.api.get(&view.path(id, MAX_ROWS)).await?;
    let node = selected_name(request)?;
    let scale = scale_of(&view, &timeline)?;
    let has_quiet = timeline.rows.iter().any(|row| row.quiet);
    let folded = if view.quiet.is_some() { Vec::new() } else { take_folded(&mut timeline) };
    let here = view.address(id);
    let content = html! {
        (view_form(&view, node.as_deref(), &timeline, (id, has_quiet)))
        div.head {
            (command_line(&timeline_command(id, &view)))
            a.button href=(view.path(id, MAX_CSV_ROWS).with("format", "csv").address()) data-command=(shown_text::name(&timeline_command(id, &view).with("--csv").to_string())) { "Download CSV" }
        }
        (live_part("timeline", &html! {
            (timeline_part(Some(&here), &scale, &timeline))
            (folded_note(&folded, &view, id, node.as_deref()))
        }))
    };
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Timeline, node.as_deref()))
        (beside_node(request, &execution, ExecutionTab::Timeline, &content).await?)
    };
    let title = execution_title(&execution);
    Ok(ConsolePage::new(ConsoleSection::Executions, title, body).live(live_source(&execution)))
}

fn timeline_command(id: &str, view: &TimelineView) -> CommandText {
    let time = |text: &str| match text.trim() {
        "" => String::new(),
        ms => format!("{ms}ms"),
    };
    let command = CommandText::of_execution("sinew execution timeline", id)
        .flag("--from", &time(&view.from))
        .flag("--to", &time(&view.to));
    if view.quiet.is_some() { command.with("--no-fold") } else { command }
}

/// Removes the rows of quiet nodes that need no attention.
fn take_folded(timeline: &mut Timeline) -> Vec<TimelineRow> {
    let rows = std::mem::take(&mut timeline.rows);
    let (folded, shown) = rows.into_iter().partition(TimelineRow::may_fold);
    timeline.rows = shown;
    folded
}

/// The number of collapsed rows, and their total time.
fn folded_note(folded: &[TimelineRow], view: &TimelineView, id: &str, node: Option<&str>) -> Markup {
    let own = folded.iter().flat_map(|row| &row.spans).filter(|span| span.kind != SpanKind::Children);
    let time: u64 = own.map(|span| span.to.saturating_sub(span.from)).sum();
    let open = TimelineView { quiet: Some("1".to_owned()), ..view.clone() };
    html! {
        @if !folded.is_empty() {
            p.more {
                (words::count(folded.len(), "quiet activation")) ", " (words::duration(time)) " in total. "
                a href=(open.address(id).with_some("node", node)) { "Show them" }
            }
        }
    }
}

/// The form of the shown range. Dragging across the chart fills it in.
fn view_form(
    view: &TimelineView,
    node: Option<&str>,
    timeline: &Timeline,
    (id, has_quiet): (&str, bool),
) -> Markup {
    let end = timeline.duration_ms;
    html! {
        form.filter #range method="get" aria-label="Range" {
            @if let Some(node) = node { input type="hidden" name="node" value=(node); }
            label { span { "From, ms" } input type="number" name="from" min="0" max=(end) value=(view.from); }
            label { span { "To, ms" } input type="number" name="to" min="0" max=(end) value=(view.to); }
            label.check { input type="checkbox" name="cut" value="1" checked[view.cut.is_some()]; span { "hide idle time" } }
            @if has_quiet || view.quiet.is_some() {
                label.check { input type="checkbox" name="quiet" value="1" checked[view.quiet.is_some()]; span { "show quiet nodes" } }
            }
            button type="submit" { "Show" }
            @if !view.from.is_empty() || !view.to.is_empty() {
                a.button href=(TimelineView { from: String::new(), to: String::new(), ..view.clone() }.address(id).with_some("node", node)) { "Show all" }
            }
            ul.legend aria-label="Kinds of time" {
                @for (kind, words) in KINDS.map(look_of) { li { span class={ "sample " (kind) } {} (words) } }
                li { span.sample.critical {} "critical path" }
            }
        }
    }
}

fn scale_of(view: &TimelineView, timeline: &Timeline) -> Result<TimeScale, ConsoleError> {
    let range = view.range(timeline.duration_ms)?;
    if view.cut.is_none() {
        return Ok(TimeScale::whole(range));
    }
    let spans = timeline.rows.iter().flat_map(|row| &row.spans).filter(|span| is_work(span));
    let spans: Vec<(u64, u64)> = spans.map(|span| (span.from, span.to)).collect();
    Ok(TimeScale::cut(range, &spans))
}

/// The timeline of an exported execution: the full range, without links to nodes.
pub(super) fn whole_timeline(timeline: &Timeline) -> Markup {
    html! {
        ul.legend aria-label="Kinds of time" {
            @for (kind, words) in KINDS.map(look_of) { li { span class={ "sample " (kind) } {} (words) } }
            li { span.sample.critical {} "critical path" }
        }
        (timeline_part(None, &TimeScale::whole((0, timeline.duration_ms)), timeline))
    }
}

/// Chart and table. Nodes link to `here` if the execution is on the mesh.
fn timeline_part(here: Option<&PageAddress>, scale: &TimeScale, timeline: &Timeline) -> Markup {
    html! {
        @if timeline.rows.is_empty() { p.empty { (if timeline.duration_ms > 0 { "No activations in this range." } else { "No activations yet." }) } } @else {
            (chart(timeline, scale))
            (span_table(here, timeline))
            @if timeline.more > 0 { p.notice { (timeline.more) " more activations are not shown; choose a shorter range." } }
        }
    }
}

/// Returns true if the span itself is work: a map that waits for its children is idle when they
/// are.
fn is_work(span: &TimelineSpan) -> bool {
    matches!(span.kind, SpanKind::Agent | SpanKind::AgentQueue | SpanKind::Queued)
}

fn chart(timeline: &Timeline, scale: &TimeScale) -> Markup {
    let height = AXIS_HEIGHT + ROW_HEIGHT * timeline.rows.len() as f64;
    let x = |at: u64| scale.place(at) * CHART_WIDTH;
    html! {
        div.gantt {
            ol.names aria-hidden="true" { @for row in &timeline.rows { li.critical[row.critical] title=(shown_text::name(&row.node)) { (shown_text::line(&row.node, 48)) } } }
            svg.bars data-range=(format!("{},{}", scale.range().0, scale.range().1)) data-cut=[scale.has_gaps().then_some("1")]
                viewBox=(format!("0 0 {CHART_WIDTH} {height:.0}")) preserveAspectRatio="none" height=(format!("{height:.0}")) width="100%" role="img" aria-label="Chart of the table below" {
                @for at in scale.ticks() {
                    line.tick x1=(place(x(at))) x2=(place(x(at))) y1=(AXIS_HEIGHT) y2=(place(height)) {}
                }
                @for gap in scale.gaps() { rect.gap x=(place(x(*gap))) y=(AXIS_HEIGHT) width="3" height=(place(height - AXIS_HEIGHT)) {} }
                @for (number, row) in timeline.rows.iter().enumerate() {
                    @let top = AXIS_HEIGHT + ROW_HEIGHT * number as f64;
                    @if row.critical { rect.critical x="0" y=(place(top)) width=(CHART_WIDTH) height=(ROW_HEIGHT) {} }
                    @if row.spans.is_empty() && scale.shows(row.at, row.at) {
                        rect.moment x=(place(x(row.at))) y=(place(top + 6.0)) width="2" height=(ROW_HEIGHT - 12.0) {
                            title { (shown_text::line(&row.node, 80)) ": no duration" }
                        }
                    }
                    @for span in row.spans.iter().filter(|span| scale.shows(span.from, span.to)) {
                        rect class={ "bar " (look_of(span.kind).0) } x=(place(x(span.from))) y=(place(top + 4.0))
                            width=(place((x(span.to) - x(span.from)).max(MIN_BAR))) height=(ROW_HEIGHT - 8.0) {
                            title { (shown_text::line(&row.node, 80)) ": " (words_of(span)) ", " (duration(Some(span.to.saturating_sub(span.from)))) }
                        }
                    }
                }
            }
            ul.ticks aria-hidden="true" { @for at in scale.ticks() { li { (duration(Some(at))) } } }
        }
    }
}

/// A number of the chart with one decimal.
fn place(number: f64) -> String {
    format!("{number:.1}")
}

fn words_of(span: &TimelineSpan) -> String {
    let (_, words) = look_of(span.kind);
    if span.kind == SpanKind::Agent && span.attempt > 1 {
        format!("{words}, attempt {}", span.attempt)
    } else {
        words.to_owned()
    }
}

/// The table: the total of each kind of time.
fn span_table(here: Option<&PageAddress>, timeline: &Timeline) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Times" {
            table.rows {
                thead {
                    tr {
                        th scope="col" { "Node" } th scope="col" { "Status" } th.number scope="col" { "Start" }
                        @for (_, words) in KINDS.map(look_of) { th.number scope="col" { (words) } }
                        th scope="col" { "Critical path" }
                    }
                }
                tbody { @for row in &timeline.rows { (time_row(here, row)) } }
            }
        }
    }
}

fn time_row(here: Option<&PageAddress>, row: &TimelineRow) -> Markup {
    let sum = |kind: SpanKind| -> u64 {
        row.spans.iter().filter(|span| span.kind == kind).map(|span| span.to.saturating_sub(span.from)).sum()
    };
    html! {
        tr data-row {
            td {
                @match here {
                    Some(here) => a href=(here.clone().with("node", &row.node)) { (shown_text::line(&row.node, 80)) },
                    None => (shown_text::line(&row.node, 80)),
                }
            }
            td { (status_mark(row.status)) }
            td.number { (words::duration(row.at)) }
            @for kind in KINDS { td.number { @match sum(kind) { 0 => "–", ms => (words::duration(ms)) } } }
            td { @if row.critical { "critical" } }
        }
    }
}
