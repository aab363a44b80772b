//! The list of executions: filtered by the server, paged, with the filter in the address.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use sinew_documents::execution_list::ExecutionPage;
use sinew_documents::figures::ExecutionCounts;
use sinew_documents::words;
use sinew_documents::workflow::DeployedRow;

use super::bulk::BULK_COMMANDS;
use super::execution_rows::{BULK_FORM, RowChoice, execution_table};
use super::list_filter::{FoundTarget, ListFilter};
use super::read_execution;
use crate::api_client::ApiPath;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    ConsolePage, ConsoleSection, EXECUTIONS_CHANGE, LiveSource, live_part, may_steer, page_or_problem,
    problem_box, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::command_line;

/// Executions per page.
const PAGE_ROWS: &str = "50";

pub(crate) async fn show(request: PageRequest) -> Response {
    let filter: ListFilter = match request.query() {
        Ok(filter) => filter,
        Err(error) => return page_or_problem(&request, Err(error)),
    };
    let refusal = match found_address(&request, &filter).await {
        Ok(Some(address)) => return Redirect::to(&address.to_string()).into_response(),
        Ok(None) => None,
        Err(error) => Some(error),
    };
    let page = executions_page(&request, &filter, refusal.as_ref()).await;
    page_or_problem(&request, page)
}

/// Address for the text of the search box; `None` if it is empty.
async fn found_address(
    request: &PageRequest,
    filter: &ListFilter,
) -> Result<Option<PageAddress>, ConsoleError> {
    if filter.find.trim().is_empty() {
        return Ok(None);
    }
    Ok(Some(match filter.target()? {
        FoundTarget::List(filter) => filter.address(""),
        FoundTarget::Execution(id, list) => match read_execution(request, &id).await {
            Ok(found) => PageAddress::execution(&found.execution),
            Err(error) if error.status() == StatusCode::NOT_FOUND => list.address(""),
            Err(error) => return Err(error),
        },
    }))
}

async fn executions_page(
    request: &PageRequest,
    filter: &ListFilter,
    refusal: Option<&ConsoleError>,
) -> Result<ConsolePage, ConsoleError> {
    let path = filter.list_path(request.now, PAGE_ROWS)?;
    let counts_path = filter.counts_path(request.now)?;
    let workflows_path = ApiPath::of(&["workflows"]);
    let counts = async {
        match &counts_path {
            Some(path) => request.api.get::<ExecutionCounts>(path).await.map(Some),
            None => Ok(None),
        }
    };
    let (list, workflows, counts) = futures_util::future::try_join3(
        request.api.get::<ExecutionPage>(&path),
        request.api.get::<Vec<DeployedRow>>(&workflows_path),
        counts,
    )
    .await?;
    let body = html! {
        div.head {
            h1 { "Executions" }
            (command_line(&filter.command()))
            a.button href=(PageAddress::of(&["import"])) { "Import…" }
        }
        @if let Some(refusal) = refusal { (problem_box(refusal)) }
        (live_part("statuses", &filter.chips(counts.as_ref())))
        (filter.form(&workflows))
        div.head {
            (filter.columns())
            // A view is a named address in the local storage of the browser; a module fills the
            // list.
            form #views hidden aria-label="Saved views" {
                ul.chips {}
                label { span.unseen { "View name" } input type="text" name="name" placeholder="View name" maxlength="40" required autocomplete="off"; }
                button type="submit" { "Save view" }
            }
        }
        @if may_steer(request) { (bulk_form(request, filter)) }
        (live_part("list", &list_part(request, filter, &list)))
    };
    let source = if filter.cursor.is_empty() && refusal.is_none() {
        LiveSource::List(EXECUTIONS_CHANGE)
    } else {
        LiveSource::Still
    };
    let status = refusal.map_or(StatusCode::OK, ConsoleError::status);
    Ok(ConsolePage::new(ConsoleSection::Executions, "Executions", body).live(source).with_status(status))
}

/// Commands for the selected rows. The next page asks for confirmation.
fn bulk_form(request: &PageRequest, filter: &ListFilter) -> Markup {
    html! {
        form.filter.bulk id=(BULK_FORM) method="post" action=(PageAddress::of(&["bulk"])) aria-label="Selected executions" {
            (token_field(request))
            span.quiet { "Selected executions:" }
            label { input type="checkbox" name="all" value="yes"; " All that match the filter" }
            input type="hidden" name="filter" value=(filter.language());
            @for (verb, title, _) in BULK_COMMANDS { button type="submit" name="command" value=(verb) data-command={ "sinew execution " (verb) " ID…" } { (title) "…" } }
        }
    }
}

fn list_part(request: &PageRequest, filter: &ListFilter, list: &ExecutionPage) -> Markup {
    html! {
        @if list.unlisted_shards > 0 {
            p.notice { (words::count(list.unlisted_shards, "shard")) " without an executor: pending starts may be missing from this list." }
        }
        @if let Some(searched) = &list.searched { p.quiet { (searched.line()) "." } }
        @if list.executions.is_empty() {
            p.empty {
                @if filter.is_empty() {
                    "No executions yet. " a href=(PageAddress::of(&["workflows"])) { "Start a workflow" } "."
                } @else {
                    "No matching executions. " a href=(PageAddress::of(&["executions"])) { "Show all" } "."
                }
            }
        } @else {
            @let choice = if may_steer(request) { RowChoice::Offered } else { RowChoice::None };
            (execution_table(&list.executions, request.now, choice, &|column| filter.shows(column)))
        }
        nav.pages aria-label="Pages" {
            @if !filter.cursor.is_empty() { a href=(filter.address("")) { "Newest" } }
            @if let Some(next) = &list.next { a rel="next" href=(filter.address(next)) { "Older" } }
        }
    }
}
