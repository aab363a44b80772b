//! Reports over closed executions: slow nodes, and the cost of models.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::report::{CostReport, NodeReport, ReportCoverage};
use sinew_documents::timestamp::Timestamp;

use super::agents::times;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, duration, time_mark};

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// Default number of days of a report.
const DAYS: u64 = 7;
/// Maximum number of days of a report.
const MAX_DAYS: u64 = 366;

/// The choice in the address.
#[derive(Clone, Debug, Default, Deserialize)]
struct ReportChoice {
    days: Option<String>,
    by: Option<String>,
}

impl ReportChoice {
    fn days(&self) -> u64 {
        let days = self.days.as_deref().and_then(|days| days.trim().parse().ok());
        days.unwrap_or(DAYS).clamp(1, MAX_DAYS)
    }

    fn path(&self, report: &str, now: Timestamp) -> ApiPath {
        let since = now.ms().saturating_sub(self.days() * DAY_MS).to_string();
        ApiPath::of(&["reports", report]).with("since", &since).with_some("by", self.by.as_deref())
    }

    fn head(&self, report: &str, title: &str, groups: &[(&str, &str)], now: Timestamp) -> Markup {
        let command = CommandText::new(&format!("sinew report {report}"));
        let command = command.flag("--since", &format!("{}d", self.days()));
        let command = command.flag("--by", self.by.as_deref().unwrap_or_default());
        let by = self.by.as_deref().unwrap_or_default();
        html! {
            div.head {
                h1 { (title) }
                (command_line(&command))
                a.button href=(self.path(report, now).with("format", "csv").address()) { "Download CSV" }
            }
            ul.chips {
                @for (name, title) in groups {
                    li { a href=(PageAddress::of(&["reports", report]).with("by", name).with("days", &self.days().to_string())) aria-current=[(by == *name).then_some("true")] { (title) } }
                }
            }
            form.filter method="get" {
                label { span { "Days" } input type="text" inputmode="numeric" name="days" value=(self.days()) autocomplete="off"; }
                label { span { "Group" } input type="text" name="by" value=(by) placeholder="label:customer" autocomplete="off"; }
                button type="submit" { "Show" }
            }
        }
    }
}

pub(crate) async fn nodes(request: PageRequest) -> Response {
    let page = async {
        let choice: ReportChoice = request.query()?;
        let report: NodeReport = request.api.get(&choice.path("nodes", request.now)).await?;
        let groups = [("", "Nodes"), ("workflow", "Workflows"), ("agent", "Agents")];
        let body = html! {
            (choice.head("nodes", "Slow nodes", &groups, request.now))
            (coverage_line(&report.coverage, request.now))
            (node_table(&report))
        };
        Ok::<_, ConsoleError>(ConsolePage::new(ConsoleSection::Traffic, "Slow nodes", body))
    };
    let page = page.await;
    page_or_problem(&request, page)
}

pub(crate) async fn cost(request: PageRequest) -> Response {
    let page = async {
        let choice: ReportChoice = request.query()?;
        let report: CostReport = request.api.get(&choice.path("cost", request.now)).await?;
        let groups = [("", "Workflows"), ("node", "Nodes"), ("model", "Models"), ("agent", "Agents")];
        let body = html! {
            (choice.head("cost", "Cost of models", &groups, request.now))
            (coverage_line(&report.coverage, request.now))
            (cost_table(&report))
        };
        Ok::<_, ConsoleError>(ConsolePage::new(ConsoleSection::Traffic, "Cost of models", body))
    };
    let page = page.await;
    page_or_problem(&request, page)
}

/// What a report covers.
fn coverage_line(coverage: &ReportCoverage, now: Timestamp) -> Markup {
    html! {
        p.quiet {
            (coverage.executions) " closed executions that ended since " (time_mark(coverage.since, now)) "."
            @if !coverage.is_whole {
                " Older ones were not read"
                @if let Some(from) = coverage.from { ": the report starts " (time_mark(from, now)) }
                "."
            }
        }
    }
}

fn node_table(report: &NodeReport) -> Markup {
    html! {
        @if report.rows.is_empty() { p.empty { "No tasks ended in this time." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Slow nodes" {
                table.rows {
                    thead {
                        tr {
                            th.wide scope="col" { "Name" } th.number scope="col" { "Tasks" } th.number scope="col" { "Failed" }
                            th.number scope="col" { "Work p50 / p95" } th.number scope="col" { "Queue p50 / p95" }
                            th.number scope="col" { "Work in total" } th.number scope="col" { "Queue in total" }
                        }
                    }
                    tbody {
                        @for row in &report.rows {
                            tr data-row {
                                td.wide { (shown_text::line(&row.name, 120)) }
                                td.number { (row.tasks) } td.number { (row.failed) }
                                td.number { (times(Some(row.work_ms))) } td.number { (times(Some(row.queue_ms))) }
                                td.number { (duration(Some(row.working_ms))) } td.number { (duration(Some(row.queued_ms))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cost_table(report: &CostReport) -> Markup {
    let price = |cost: Option<f64>| cost.map_or_else(|| "–".to_owned(), |cost| format!("${cost:.4}"));
    html! {
        @if report.rows.is_empty() { p.empty { "No model was called in this time." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Cost of models" {
                table.rows {
                    thead {
                        tr {
                            th.wide scope="col" { "Name" } th.number scope="col" { "Executions" } th.number scope="col" { "Turns" }
                            th.number scope="col" { "Input tokens" } th.number scope="col" { "Output tokens" } th.number scope="col" { "Cost" }
                        }
                    }
                    tbody {
                        @for row in &report.rows {
                            tr data-row {
                                td.wide { (shown_text::line(&row.name, 120)) } td.number { (row.executions) } td.number { (row.used.turns) }
                                td.number { (row.used.input_tokens) } td.number { (row.used.output_tokens) } td.number { (price(row.used.cost_usd)) }
                            }
                        }
                        tr {
                            td.wide { b { "Total" } } td.number {} td.number { (report.total.turns) }
                            td.number { (report.total.input_tokens) } td.number { (report.total.output_tokens) } td.number { b { (price(report.total.cost_usd)) } }
                        }
                    }
                }
            }
        }
    }
}
