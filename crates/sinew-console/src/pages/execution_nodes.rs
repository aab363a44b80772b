//! The nodes of an execution as a table, filtered by status.

use maud::{Markup, html};

use super::execution::NodeChoice;
use super::list_filter::{comma_words, toggled};
use crate::command_text::CommandText;
use crate::documents::{ExecutionDocument, TreeDocument};
use crate::page_request::PageAddress;
use crate::shown_text::{self, command_line, duration};
use crate::status_mark::status_mark;

/// Nodes in a page; a larger tree is reached node by node.
const MAX_ROWS: usize = 300;
/// Statuses, in the order of the filter.
const STATUSES: [&str; 8] =
    ["failed", "waiting", "running", "queued", "planned", "succeeded", "skipped", "cancelled"];

/// The table of nodes with its filter.
pub(super) fn nodes_part(
    execution: &ExecutionDocument,
    tree: &[TreeDocument],
    choice: &NodeChoice,
) -> Markup {
    let id = execution.execution.as_str();
    let mut rows = Vec::new();
    flatten(tree, 0, &mut rows);
    html! {
        section {
            div.head { h2 #nodes { "Nodes" } (command_line(&tree_command(id, choice))) }
            (status_chips(id, choice))
            @if rows.is_empty() { p.empty { "No node has this status." } } @else {
                div.scroll tabindex="0" role="region" aria-labelledby="nodes" {
                    table.rows {
                        thead {
                            tr {
                                th scope="col" { "Node" }
                                th scope="col" { "Status" }
                                th.number scope="col" { "Attempts" }
                                th.number scope="col" { "Time" }
                                th scope="col" { "Agent" }
                                th.wide scope="col" { "Message" }
                            }
                        }
                        tbody {
                            @for (level, row) in rows.iter().take(MAX_ROWS) { (nested_row(id, row, choice, *level)) }
                        }
                    }
                }
            }
            @if rows.len() > MAX_ROWS {
                p.notice { (rows.len() - MAX_ROWS) " more nodes: " code { "sinew execution tree" } " lists all." }
            }
        }
    }
}

/// Rows of a tree, each node before those below it.
fn flatten<'t>(tree: &'t [TreeDocument], level: usize, out: &mut Vec<(usize, &'t TreeDocument)>) {
    for row in tree {
        out.push((level, row));
        flatten(&row.children, level + 1, out);
    }
}

/// Chips that choose statuses.
fn status_chips(id: &str, choice: &NodeChoice) -> Markup {
    let chosen = comma_words(choice.status.as_deref().unwrap_or_default());
    let with = |status: String| -> PageAddress {
        let choice = NodeChoice { status: Some(status), ..choice.clone() };
        choice.address(id).with_some("node", choice.node.as_deref())
    };
    html! {
        ul.chips aria-label="Status of nodes" {
            li { a href=(with(String::new())) aria-current=[chosen.is_empty().then_some("true")] { "All" } }
            @for status in STATUSES {
                li {
                    a href=(with(toggled(&chosen, status))) aria-current=[chosen.contains(&status).then_some("true")] {
                        (status_mark(status))
                    }
                }
            }
        }
    }
}

/// The command that lists the same.
fn tree_command(id: &str, choice: &NodeChoice) -> CommandText {
    let chosen = comma_words(choice.status.as_deref().unwrap_or_default());
    let command = CommandText::of_execution("sinew execution tree", id);
    chosen.iter().fold(command, |command, status| command.flag("--status", status))
}

/// A node of a table. Children of maps, loops and forks are one line with counts, until the node is opened.
pub(crate) fn node_row(id: &str, row: &TreeDocument, choice: &NodeChoice) -> Markup {
    nested_row(id, row, choice, 0)
}

/// A node that stands so many levels below the workflow.
fn nested_row(id: &str, row: &TreeDocument, choice: &NodeChoice, level: usize) -> Markup {
    let is_selected = choice.node.as_deref() == Some(row.label.as_str());
    let folded: Vec<String> = row.folded.iter().map(|(word, count)| format!("{count} {word}")).collect();
    html! {
        tr data-row aria-current=[is_selected.then_some("true")] {
            td {
                @if level > 0 { span.quiet aria-hidden="true" { ("└ ".repeat(level.min(4))) } }
                a href=(choice.address_of(id, &row.label)) data-node-link=(row.label) { (shown_text::line(&row.label, 80)) } " " span.quiet { (shown_text::line(&row.kind, 40)) }
            }
            td { (status_mark(&row.status)) }
            td.number {
                @if row.activations > 1 { "#" (row.activations) } @else if row.attempts > 0 { (row.attempts) } @else { "–" }
            }
            td.number { (duration(row.duration_ms)) }
            td {
                @if let Some(agent) = &row.agent { a href=(PageAddress::agent(agent)) { (shown_text::line(agent, 48)) } }
            }
            td.wide {
                (shown_text::line(row.message.as_deref().unwrap_or_default(), 240))
                @if !folded.is_empty() { " " span.quiet { (folded.join(", ")) } }
            }
        }
    }
}
