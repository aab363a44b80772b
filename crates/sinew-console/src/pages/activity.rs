//! Activity on Pulse: executions per minute, and the top errors.

use maud::{Markup, html};
use sinew_documents::figures::{ErrorCount, MeshActivity, MinuteActivity};

use crate::page_frame::code_link;
use crate::page_request::PageAddress;
use crate::shown_text;

/// Width of a minute in a chart, and of its bar.
const MINUTE_WIDTH: (usize, usize) = (10, 8);
/// Height of a chart.
const CHART_HEIGHT: u64 = 48;
/// Minimum height of a non-empty bar, so that one execution is visible next to thousands.
const MIN_BAR_HEIGHT: u64 = 2;

/// The count of a minute that a chart shows.
type MinuteFigure = fn(&MinuteActivity) -> u64;

/// Charts: title, class of the bars, number.
const CHARTS: [(&str, &str, MinuteFigure); 3] = [
    ("Started", "started", |minute| minute.started),
    ("Ended", "ended", |minute| minute.ended),
    ("Failed", "failed", |minute| minute.failed),
];

/// Bar charts per minute, each with its own scale.
pub(super) fn activity_part(activity: &MeshActivity) -> Markup {
    html! {
        section {
            h2 { "Per minute " span.quiet { "last " (activity.minutes.len()) " minutes" } }
            @if !activity.is_whole { p.notice { "Older executions are still being read." } }
            ul.charts {
                @for (title, class, figure) in CHARTS { (chart(title, class, &activity.minutes, figure)) }
            }
            details {
                summary { "Show as table" }
                div.scroll tabindex="0" role="region" aria-label="Per minute" {
                    table.rows {
                        thead { tr { th scope="col" { "Minute" } @for (title, ..) in CHARTS { th.number scope="col" { (title) } } } }
                        tbody {
                            @for minute in activity.minutes.iter().rev() {
                                tr { td { (shown_text::clock_mark(minute.at)) } @for (.., figure) in CHARTS { td.number { (figure(minute)) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn chart(title: &str, class: &str, minutes: &[MinuteActivity], figure: MinuteFigure) -> Markup {
    let (total, most): (u64, u64) =
        (minutes.iter().map(figure).sum(), minutes.iter().map(figure).max().unwrap_or_default());
    let view_box = format!("0 0 {} {CHART_HEIGHT}", minutes.len() * MINUTE_WIDTH.0);
    html! {
        li {
            p { b { (total) } " " (title.to_lowercase()) " " span.quiet { "max " (most) " per minute" } }
            svg.minutes viewBox=(view_box) preserveAspectRatio="none" role="img"
                aria-label={ (title) ": " (total) " executions, max " (most) " per minute" } {
                @for (place, minute) in minutes.iter().enumerate() {
                    @let height = bar_height(figure(minute), most);
                    @if height > 0 {
                        rect class={ "minute " (class) } x=(place * MINUTE_WIDTH.0) y=(CHART_HEIGHT - height) width=(MINUTE_WIDTH.1) height=(height) {
                            title { (minute.at) ": " (figure(minute)) }
                        }
                    }
                }
            }
        }
    }
}

fn bar_height(number: u64, most: u64) -> u64 {
    if number == 0 || most == 0 {
        return 0;
    }
    let share = u128::from(number) * u128::from(CHART_HEIGHT) / u128::from(most);
    u64::try_from(share).unwrap_or(CHART_HEIGHT).max(MIN_BAR_HEIGHT)
}

/// Errors, most frequent first, each with a link to the executions that failed with it.
pub(super) fn errors_part(errors: &[ErrorCount]) -> Markup {
    html! {
        section {
            h2 { "Top errors" }
            @if errors.is_empty() { p.empty { "No failed executions in this period." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Top errors" {
                    table.rows {
                        thead { tr { th scope="col" { "Error" } th.wide scope="col" { "Meaning" } th.number scope="col" { "Executions" } th scope="col" { "Latest" } } }
                        tbody {
                            @for error in errors {
                                tr data-row {
                                    td { (code_link(&error.code)) }
                                    td.wide { (sinew_codes::title(&error.code).unwrap_or("–")) }
                                    td.number { a href=(failed_by(&error.code)) { (error.count) } }
                                    td { a.id href=(PageAddress::execution(&error.latest)) { (shown_text::line(sinew_documents::words::short_id(&error.latest), 40)) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The list of executions that failed with an error.
fn failed_by(code: &str) -> PageAddress {
    PageAddress::of(&["executions"]).with("status", "failed").with("error", code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_execution_is_seen_beside_thousands() {
        for (number, most, height) in
            [(0, 0, 0), (0, 9, 0), (1, 1, 48), (1, 9_000, 2), (5, 10, 24), (u64::MAX, u64::MAX, 48)]
        {
            assert_eq!(bar_height(number, most), height, "{number} of {most}");
        }
    }
}
