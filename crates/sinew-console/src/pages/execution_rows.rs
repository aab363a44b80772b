//! Executions as rows of a table.

use maud::{Markup, html};
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::model_usage::totals_words;
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words;

use crate::page_request::PageAddress;
use crate::shown_text::{self, duration, elapsed_ms, time_mark};
use crate::status_mark::status_mark;

/// Maximum characters of a message.
const MAX_MESSAGE_CHARS: usize = 200;
/// Maximum labels per row.
const MAX_LABELS: usize = 3;

/// Id of the form for selected rows.
pub(crate) const BULK_FORM: &str = "bulk";

/// Whether rows can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowChoice {
    /// A check box adds the row to the form [`BULK_FORM`] of the page.
    Offered,
    /// Rows cannot be selected.
    None,
}

/// Returns true if a table has the column.
pub(crate) type ShowsColumn<'a> = &'a dyn Fn(&str) -> bool;

/// Every column.
pub(crate) fn all_columns(_: &str) -> bool {
    true
}

/// The rows as a table; each links to its execution.
pub(crate) fn execution_table(
    rows: &[ExecutionRow],
    now: Timestamp,
    choice: RowChoice,
    shows: ShowsColumn<'_>,
) -> Markup {
    // Hide the column if no execution called a model.
    let has_models = rows.iter().any(|row| !row.usage.is_empty());
    let shows = |column: &str| shows(column) && (column != "models" || has_models);
    html! {
        div.scroll tabindex="0" role="region" aria-label="Executions" {
            table.rows {
                thead {
                    tr {
                        @if choice == RowChoice::Offered { th scope="col" { span.unseen { "Select" } input type="checkbox" data-choose-all hidden aria-label="Select all on this page"; } }
                        th scope="col" { "Status" }
                        th scope="col" { "Execution" }
                        th scope="col" { "Workflow" }
                        @if shows("started") { th scope="col" { "Started" } }
                        @if shows("time") { th.number scope="col" { "Time" } }
                        @if shows("reason") { th.wide scope="col" { "Waiting for, or error" } }
                        @if shows("models") { th.side scope="col" { "Models" } }
                        @if shows("labels") { th.side scope="col" { "Labels" } }
                        @if shows("caller") { th.side scope="col" { "Caller" } }
                    }
                }
                tbody { @for row in rows { (execution_row(row, now, choice, &shows)) } }
            }
        }
    }
}

fn execution_row(row: &ExecutionRow, now: Timestamp, choice: RowChoice, shows: ShowsColumn<'_>) -> Markup {
    let elapsed = elapsed_ms(row.started, row.ended, now);
    html! {
        tr data-row {
            @if choice == RowChoice::Offered {
                td { input type="checkbox" name="execution" value=(row.execution) form=(BULK_FORM) aria-label=(format!("Select {}", shown_text::line(words::short_id(&row.execution), 40))); }
            }
            td { (status_mark(row.status)) }
            td { a.id href=(PageAddress::execution(&row.execution)) title=(shown_text::name(&row.execution)) { (shown_text::line(words::short_id(&row.execution), 40)) } }
            td { a href=(PageAddress::of(&["executions"]).with("workflow", &row.workflow)) { (shown_text::line(&row.workflow, 48)) } }
            @if shows("started") { td { (time_mark(row.started, now)) } }
            @if shows("time") { td.number { (duration(elapsed)) } }
            @if shows("reason") { td.wide { (message(row)) } }
            @if shows("models") { td.side { (totals_words(&row.usage)) } }
            @if shows("labels") { td.side {
                @for (key, value) in row.attributes.labels.iter().take(MAX_LABELS) {
                    a.label href=(PageAddress::of(&["executions"]).with("label", &format!("{key}={value}"))) {
                        (shown_text::line(&format!("{key}={value}"), 40))
                    } " "
                }
                @if row.attributes.labels.len() > MAX_LABELS { "+" (row.attributes.labels.len() - MAX_LABELS) }
            } }
            @if shows("caller") { td.side { (shown_text::line(&row.caller, 30)) } }
        }
    }
}

fn message(row: &ExecutionRow) -> Markup {
    html! {
        @if let Some(waiting) = &row.waiting {
            (shown_text::line(waiting, MAX_MESSAGE_CHARS))
        } @else if let Some(fault) = &row.fault {
            @if let Some(node) = &fault.node {
                a href=(PageAddress::execution(&row.execution).with("node", node)) { (shown_text::line(node, 60)) } ": "
            }
            (shown_text::line(&fault.message, MAX_MESSAGE_CHARS))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn model_calls_have_a_column_if_there_are_any() {
        let row = |id: &str, usage| -> ExecutionRow {
            let (status, started) = ("succeeded", "2026-11-23T10:00:00Z");
            let row = json!({"execution": id, "workflow": "w", "status": status, "started": started, "caller": "c", "usage": usage});
            serde_json::from_value(row).unwrap()
        };
        let page = |rows: &[ExecutionRow]| {
            execution_table(rows, Timestamp::default(), RowChoice::None, &all_columns).into_string()
        };
        let (plain, asked) = (row("a", json!({})), row("b", json!({"turns": 2, "cost_usd": 0.25})));
        assert!(!page(std::slice::from_ref(&plain)).contains("Models"));
        let both = page(&[plain, asked]);
        assert!(both.contains("Models") && both.contains("2 turns, 0 tokens, $0.2500"), "{both}");
    }
}
