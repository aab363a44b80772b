//! The list of executions: filtered by the server, one page at a time, with the filter in the address.

use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_inspection::words;

use super::bulk::BULK_COMMANDS;
use super::execution_rows::{BULK_FORM, RowChoice, execution_table};
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::documents::{ExecutionListDocument, WorkflowListRow};
use crate::page_frame::{
    ConsolePage, ConsoleSection, LiveSource, live_part, may_steer, page_or_problem, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::command_line;
use crate::status_mark::status_mark;

/// Executions of a page.
const PAGE_ROWS: &str = "50";
/// Statuses, in the order of the filter.
const STATUSES: [&str; 6] = ["running", "waiting", "paused", "failed", "cancelled", "succeeded"];
/// Spans of time that the filter offers: value, milliseconds, text.
const SPANS: [(&str, u64, &str); 5] = [
    ("15m", 15 * 60_000, "15 minutes"),
    ("1h", 3_600_000, "hour"),
    ("24h", 86_400_000, "day"),
    ("7d", 7 * 86_400_000, "week"),
    ("30d", 30 * 86_400_000, "30 days"),
];

/// The filter, as the address holds it.
#[derive(Clone, Debug, Default, Deserialize)]
struct ListFilter {
    #[serde(default)]
    status: String,
    #[serde(default)]
    workflow: String,
    #[serde(default)]
    label: String,
    #[serde(default)]
    since: String,
    #[serde(default)]
    cursor: String,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = executions_page(&request).await;
    page_or_problem(&request, page)
}

async fn executions_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let filter: ListFilter = request.query()?;
    let path = ApiPath::of(&["executions"])
        .with("limit", PAGE_ROWS)
        .with_some("status", Some(&filter.status))
        .with_some("workflow", Some(&filter.workflow))
        .with_some("label", Some(&filter.label))
        .with_some("since", filter.since_ms(request.now)?.map(|ms| ms.to_string()).as_deref())
        .with_some("cursor", Some(&filter.cursor));
    let workflows_path = ApiPath::of(&["workflows"]);
    let (list, workflows) = futures_util::future::try_join(
        request.api.get::<ExecutionListDocument>(&path),
        request.api.get::<Vec<WorkflowListRow>>(&workflows_path),
    )
    .await?;
    let body = html! {
        div.head {
            h1 { "Executions" }
            (command_line(&filter.command()))
            a.button href=(PageAddress::of(&["import"])) { "Import…" }
        }
        (filter.form(&workflows))
        @if may_steer(request) { (bulk_form(request)) }
        (live_part("list", &list_part(request, &filter, &list)))
    };
    let source = if filter.cursor.is_empty() { LiveSource::Poll } else { LiveSource::Still };
    Ok(ConsolePage::new(ConsoleSection::Executions, "Executions", body).live(source))
}

/// Commands for the rows that are ticked. The next page says what they would touch.
fn bulk_form(request: &PageRequest) -> Markup {
    html! {
        form.filter.bulk id=(BULK_FORM) method="post" action=(PageAddress::of(&["bulk"])) aria-label="Chosen executions" {
            (token_field(request))
            span.quiet { "With those that are ticked:" }
            @for (verb, title, _) in BULK_COMMANDS { button type="submit" name="command" value=(verb) data-command={ "sinew execution " (verb) " ID…" } { (title) "…" } }
        }
    }
}

fn list_part(request: &PageRequest, filter: &ListFilter, list: &ExecutionListDocument) -> Markup {
    html! {
        @if list.unlisted_shards > 0 {
            p.notice { (words::count(list.unlisted_shards, "shard")) " without an executor: starts that are stored there may be missing." }
        }
        @if list.executions.is_empty() {
            p.empty {
                @if filter.is_empty() {
                    "There is no execution yet. " a href=(PageAddress::of(&["workflows"])) { "Start a workflow" } "."
                } @else {
                    "No execution matches. " a href=(PageAddress::of(&["executions"])) { "Show all" } "."
                }
            }
        } @else {
            @let choice = if may_steer(request) { RowChoice::Offered } else { RowChoice::None };
            (execution_table(&list.executions, request.now, choice))
            nav.pages aria-label="Pages" {
                @if !filter.cursor.is_empty() { a href=(filter.address("")) { "Newest" } }
                @if let Some(next) = &list.next { a rel="next" href=(filter.address(next)) { "Older" } }
            }
        }
    }
}

impl ListFilter {
    fn is_empty(&self) -> bool {
        [&self.status, &self.workflow, &self.label, &self.since].iter().all(|part| part.is_empty())
    }

    /// Milliseconds since 1970 UTC from which executions are listed; `None` lists all.
    fn since_ms(&self, now: Timestamp) -> Result<Option<u64>, ConsoleError> {
        if self.since.is_empty() {
            return Ok(None);
        }
        let span = SPANS.iter().find(|(value, ..)| *value == self.since);
        let (_, ms, _) =
            span.ok_or_else(|| ConsoleError::Input("since: expected 15m, 1h, 24h, 7d or 30d".to_owned()))?;
        Ok(Some(u64::try_from(now.as_millisecond()).unwrap_or_default().saturating_sub(*ms)))
    }

    fn with_status(&self, status: &str) -> PageAddress {
        Self { status: status.to_owned(), ..self.clone() }.address("")
    }

    fn address(&self, cursor: &str) -> PageAddress {
        PageAddress::of(&["executions"])
            .with_some("status", Some(&self.status))
            .with_some("workflow", Some(&self.workflow))
            .with_some("label", Some(&self.label))
            .with_some("since", Some(&self.since))
            .with_some("cursor", Some(cursor))
    }

    /// The command that lists the same.
    fn command(&self) -> CommandText {
        let command = CommandText::new("sinew execution list");
        let command =
            self.status.split(',').fold(command, |command, status| command.flag("--status", status));
        let command = command.flag("--workflow", &self.workflow);
        let command =
            self.label.split(',').fold(command, |command, label| command.flag("--label", label.trim()));
        command.flag("--since", &self.since)
    }

    fn form(&self, workflows: &[WorkflowListRow]) -> Markup {
        let chosen: Vec<&str> = self.status.split(',').filter(|word| !word.is_empty()).collect();
        html! {
            form.filter method="get" role="search" aria-label="Filter" {
                ul.chips aria-label="Status" {
                    li { a href=(self.with_status("")) aria-current=[chosen.is_empty().then_some("true")] { "All" } }
                    @for status in STATUSES {
                        @let is_chosen = chosen.contains(&status);
                        @let rest: Vec<&str> = chosen.iter().copied().filter(|word| *word != status)
                            .chain((!is_chosen).then_some(status)).collect();
                        li {
                            a href=(self.with_status(&rest.join(","))) aria-current=[is_chosen.then_some("true")] {
                                (status_mark(status))
                            }
                        }
                    }
                }
                @if !self.status.is_empty() { input type="hidden" name="status" value=(self.status); }
                label { span { "Workflow" }
                    select name="workflow" {
                        option value="" { "any" }
                        @for row in workflows {
                            option value=(row.name) selected[row.name == self.workflow] { (crate::shown_text::line(&row.name, 60)) }
                        }
                        // A workflow may have been deleted while its executions are still there.
                        @if !self.workflow.is_empty() && workflows.iter().all(|row| row.name != self.workflow) {
                            option value=(self.workflow) selected { (crate::shown_text::line(&self.workflow, 60)) }
                        }
                    }
                }
                label { span { "Label" }
                    input type="text" name="label" value=(self.label) placeholder="team=a" data-filter autocomplete="off";
                }
                label { span { "Started in the last" }
                    select name="since" {
                        option value="" { "any time" }
                        @for (value, _, text) in SPANS { option value=(value) selected[value == self.since] { (text) } }
                    }
                }
                button type="submit" { "Filter" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_filter() {
        let check = |filter: ListFilter, command: &str, address: &str| {
            assert_eq!(filter.command().to_string(), command);
            assert_eq!(filter.address("").to_string(), address);
        };
        check(ListFilter::default(), "sinew execution list", "/console/executions");
        check(
            ListFilter {
                status: "failed,waiting".to_owned(),
                workflow: "a b".to_owned(),
                label: "team=a, stage=b".to_owned(),
                since: "1h".to_owned(),
                cursor: "x".to_owned(),
            },
            "sinew execution list --status failed --status waiting --workflow 'a b' --label team=a --label stage=b --since 1h",
            "/console/executions?status=failed%2Cwaiting&workflow=a+b&label=team%3Da%2C+stage%3Db&since=1h",
        );
    }

    #[test]
    fn spans_count_back_from_now() {
        let now: Timestamp = "1970-01-01T02:00:00Z".parse().unwrap();
        let since = |text: &str| ListFilter { since: text.to_owned(), ..ListFilter::default() }.since_ms(now);
        assert_eq!(since("1h").unwrap(), Some(3_600_000));
        assert_eq!(since("24h").unwrap(), Some(0));
        assert_eq!(since("").unwrap(), None);
        assert!(since("1y").is_err());
    }
}
