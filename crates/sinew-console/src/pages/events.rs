//! Events of an execution, one page at a time, newest first.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::event::{EventLine, EventPage};

use super::execution_head::{ExecutionTab, execution_head, execution_title, live_source, read_execution};
use super::node_inspector::beside_node;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, LiveSource, live_part, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, clock_mark, command_line};

/// Events per page.
const PAGE_EVENTS: &str = "100";
/// Vocabularies of events: value and label.
const VOCABULARIES: [(&str, &str); 4] =
    [("mesh", "mesh"), ("native", "dialect"), ("facts", "engine (facts)"), ("spec", "specification")];

/// The filter in the address.
#[derive(Clone, Debug, Default, Deserialize)]
struct EventFilter {
    node: Option<String>,
    words: Option<String>,
    before: Option<String>,
}

pub(crate) async fn show(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = events_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn events_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let filter: EventFilter = request.query()?;
    let execution = read_execution(request, id).await?;
    let id = execution.execution.as_str();
    let path = ApiPath::of(&["executions", id, "events"])
        .with("order", "newest")
        .with("limit", PAGE_EVENTS)
        .with_some("node", filter.node.as_deref())
        .with_some("words", filter.words.as_deref())
        .with_some("before", filter.before.as_deref());
    let list: EventPage = request.api.get(&path).await?;
    let content = html! {
        form.filter method="get" role="search" aria-label="Filter events" {
            label { span { "Node" } input type="text" name="node" value=[filter.node.as_deref()] data-filter autocomplete="off"; }
            label { span { "Format" }
                select name="words" {
                    @for (value, text) in VOCABULARIES {
                        option value=(value) selected[filter.words.as_deref() == Some(value)] { (text) }
                    }
                }
            }
            button type="submit" { "Filter" }
            (command_line(&filter.command(id)))
        }
        (live_part("events", &event_list(id, &filter, &list)))
    };
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Events, filter.node.as_deref()))
        (beside_node(request, &execution, ExecutionTab::Events, &content).await?)
    };
    let source = if filter.before.is_none() { live_source(&execution) } else { LiveSource::Still };
    Ok(ConsolePage::new(ConsoleSection::Executions, execution_title(&execution), body).live(source))
}

fn event_list(id: &str, filter: &EventFilter, list: &EventPage) -> Markup {
    html! {
        @if list.events.is_empty() { p.empty { "No matching events." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Events, newest first" {
                table.rows {
                    thead { tr { th scope="col" { "Number" } th scope="col" { "Time" } th scope="col" { "Type" } th scope="col" { "Node" } th.wide scope="col" { "Event" } } }
                    tbody { @for event in &list.events { (event_row(id, event)) } }
                }
            }
            nav.pages aria-label="Pages" {
                @if filter.before.is_some() { a href=(filter.address(id, None)) { "Newest" } }
                @if let Some(next) = &list.next { a rel="next" href=(filter.address(id, Some(next))) { "Older" } }
            }
        }
    }
}

fn event_row(id: &str, event: &EventLine) -> Markup {
    html! {
        tr data-row {
            td { code { (event.seq) } }
            td { (clock_mark(event.at)) }
            td { (shown_text::line(&event.kind, 60)) }
            td {
                @if let Some(node) = &event.node { a href=(ExecutionTab::Events.address(id).with("node", node)) { (shown_text::line(node, 60)) } }
            }
            td.wide {
                details { summary { (shown_text::value_line(&event.event)) }
                    (shown_text::value_block(&event.event, &ApiPath::of(&["executions", id, "events"]).address()))
                }
            }
        }
    }
}

impl EventFilter {
    fn address(&self, id: &str, before: Option<&str>) -> PageAddress {
        PageAddress::of(&["executions", id, "events"])
            .with_some("node", self.node.as_deref())
            .with_some("words", self.words.as_deref())
            .with_some("before", before)
    }

    fn command(&self, id: &str) -> CommandText {
        let command = CommandText::of_execution("sinew execution events", id);
        let command = command.flag("--node", self.node.as_deref().unwrap_or_default());
        let command = match self.words.as_deref() {
            Some("native") => command.with("--native"),
            Some("facts") => command.with("--facts"),
            Some("spec") => command.with("--spec"),
            _ => command,
        };
        command.with("--reverse")
    }
}
