//! The audit: who changed what, why and from where.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::audit::{AuditEntry, AuditReport};
use sinew_documents::words;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, clock_mark, command_line};

/// The filter in the address; the server applies it.
#[derive(Clone, Debug, Default, Deserialize)]
struct AuditChoice {
    who: Option<String>,
    what: Option<String>,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = audit_page(&request).await;
    page_or_problem(&request, page)
}

async fn audit_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let choice: AuditChoice = request.query()?;
    let path = ApiPath::of(&["audit"])
        .with_some("who", choice.who.as_deref())
        .with_some("what", choice.what.as_deref());
    let report: AuditReport = request.api.get(&path).await?;
    let command = CommandText::new("sinew audit")
        .flag("--who", choice.who.as_deref().unwrap_or_default())
        .flag("--what", choice.what.as_deref().unwrap_or_default());
    let body = html! {
        div.head { h1 { "Audit" } (command_line(&command)) }
        p.quiet { "Changes of the last seven days, newest first. Commands are listed as they were sent; the execution has the verdict. A name is unproven if the user could have given any name." }
        form.filter method="get" role="search" aria-label="Filter" {
            label { span { "Who" } input type="text" name="who" value=[choice.who.as_deref()] autocomplete="off"; }
            label { span { "What, or its target" } input type="text" name="what" value=[choice.what.as_deref()] data-filter autocomplete="off"; }
            button type="submit" { "Filter" }
        }
        (entry_table(&report))
        @if !report.is_whole { p.notice { "Older changes are not shown: " code { "sinew audit --limit" } " lists them." } }
        @if !report.unread.is_empty() { p.notice { "The gateway may not read: " (report.unread.join(", ")) } }
    };
    Ok(ConsolePage::new(ConsoleSection::Traffic, "Audit", body))
}

fn entry_table(report: &AuditReport) -> Markup {
    html! {
        @if report.rows.is_empty() { p.empty { "No changes." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Audit" {
                table.rows {
                    thead {
                        tr {
                            th scope="col" { "At (UTC)" } th scope="col" { "Who" } th scope="col" { "What" } th scope="col" { "Target" }
                            th scope="col" { "Detail" } th scope="col" { "From" } th scope="col" { "Key" } th.wide scope="col" { "Why" }
                        }
                    }
                    tbody { @for entry in &report.rows { (entry_row(entry)) } }
                }
            }
        }
    }
}

fn entry_row(entry: &AuditEntry) -> Markup {
    let is_command =
        ["cancel", "pause", "resume", "retry", "approve", "reject"].contains(&entry.what.as_str());
    let shown = |text: &str, limit: usize| {
        if text.is_empty() { "–".to_owned() } else { shown_text::line(text, limit) }
    };
    html! {
        tr data-row {
            td { (clock_mark(entry.at)) }
            td { (shown_text::line(&entry.who, 60)) @if entry.unproven { " " span.quiet { "(unproven)" } } }
            td { (shown(&entry.what, 30)) }
            td {
                @if is_command { a.id href=(PageAddress::execution(&entry.target)) { (shown_text::line(words::short_id(&entry.target), 40)) } }
                @else { (shown(&entry.target, 60)) }
            }
            td { (shown(&entry.detail, 40)) }
            td { (shown(&entry.via, 10)) }
            td { (shown(&entry.key, 20)) }
            td.wide { (shown(&entry.why, 200)) }
        }
    }
}
