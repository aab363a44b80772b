//! The nodes of an execution as a table, filtered by status.

use std::collections::BTreeMap;

use maud::{Markup, html};
use sinew_documents::execution::ExecutionDescription;
use sinew_documents::node::TreeBranch;
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words;

use super::execution::NodeChoice;
use super::list_filter::{comma_words, toggled};
use crate::command_text::CommandText;
use crate::page_request::PageAddress;
use crate::shown_text::{self, command_line, duration};
use crate::status_mark::status_mark;

/// Maximum listed nodes; others can be found by name.
const MAX_ROWS: usize = 300;
/// Statuses, in the order of the filter.
const STATUSES: [NodeStatus; 8] = [
    NodeStatus::Failed,
    NodeStatus::Waiting,
    NodeStatus::Running,
    NodeStatus::Queued,
    NodeStatus::Planned,
    NodeStatus::Succeeded,
    NodeStatus::Skipped,
    NodeStatus::Cancelled,
];

/// The table of nodes with its filter.
pub(super) fn nodes_part(
    execution: &ExecutionDescription,
    tree: &[TreeBranch],
    choice: &NodeChoice,
) -> Markup {
    let id = execution.execution.as_str();
    let (folded, tree): (Vec<&TreeBranch>, Vec<&TreeBranch>) =
        tree.iter().partition(|branch| folds(choice) && branch.row.may_fold());
    let mut rows = Vec::new();
    flatten(tree, 0, &mut rows);
    let has_quiet = rows.iter().any(|(_, branch)| branch.row.quiet);
    html! {
        section {
            div.head { h2 #nodes { "Nodes" } (command_line(&tree_command(id, choice))) }
            (search(id, choice))
            (status_chips(id, choice))
            @if rows.is_empty() && folded.is_empty() { p.empty { "No nodes have this status." } } @else if !rows.is_empty() {
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
                            @for (level, branch) in rows.iter().take(MAX_ROWS) { (nested_row(id, branch, choice, *level)) }
                        }
                    }
                }
            }
            @if !folded.is_empty() {
                p.more { (folded_words(&folded)) " " a href=(quiet_address(id, choice, "1")) { "Show them" } }
            } @else if has_quiet && choice.quiet.is_some() {
                p.more { a href=(quiet_address(id, choice, "")) { "Collapse quiet nodes" } }
            }
            @if rows.len() > MAX_ROWS {
                p.notice { (rows.len() - MAX_ROWS) " more nodes: " code { "sinew execution tree" } " lists all." }
            }
        }
    }
}

/// Rows of a tree, each node before its children.
fn flatten<'t>(
    tree: impl IntoIterator<Item = &'t TreeBranch>,
    level: usize,
    out: &mut Vec<(usize, &'t TreeBranch)>,
) {
    for branch in tree {
        out.push((level, branch));
        flatten(branch.children.as_slice(), level + 1, out);
    }
}

/// Quiet nodes are collapsed unless the address requests them or filters by status.
fn folds(choice: &NodeChoice) -> bool {
    choice.quiet.is_none() && choice.status.as_deref().unwrap_or_default().is_empty()
}

/// `3 quiet nodes: 1 planned, 2 succeeded.`
fn folded_words(folded: &[&TreeBranch]) -> String {
    let mut counts: BTreeMap<NodeStatus, usize> = BTreeMap::new();
    for branch in folded {
        *counts.entry(branch.row.status).or_default() += 1;
    }
    let parts = status_counts(&counts);
    format!("{}: {}.", words::count(folded.len(), "quiet node"), parts.join(", "))
}

/// Numbers of nodes by status, as `2 succeeded`.
fn status_counts(counts: &BTreeMap<NodeStatus, usize>) -> Vec<String> {
    counts.iter().map(|(status, count)| format!("{count} {}", status.as_str())).collect()
}

/// The same page with quiet nodes listed, or collapsed if `quiet` is empty.
fn quiet_address(id: &str, choice: &NodeChoice, quiet: &str) -> PageAddress {
    let choice = NodeChoice { quiet: Some(quiet.to_owned()), ..choice.clone() };
    choice.address(id).with_some("node", choice.node.as_deref())
}

/// A form that finds a node by name, for graphs that are too large to read.
fn search(id: &str, choice: &NodeChoice) -> Markup {
    html! {
        form.filter method="get" role="search" aria-label="Find node" action=(choice.tab.address(id)) {
            @for (name, value) in choice.fields() {
                @if let Some(value) = value.filter(|value| !value.is_empty()) { input type="hidden" name=(name) value=(value); }
            }
            label { span { "Node" } input type="text" name="node" placeholder="enrich, or enrich_3" data-filter autocomplete="off"; }
            button type="submit" { "Find" }
        }
    }
}

/// Links that filter by status.
fn status_chips(id: &str, choice: &NodeChoice) -> Markup {
    let chosen = comma_words(choice.status.as_deref().unwrap_or_default());
    let with = |status: String| -> PageAddress {
        let choice = NodeChoice { status: Some(status), ..choice.clone() };
        choice.address(id).with_some("node", choice.node.as_deref())
    };
    html! {
        ul.chips aria-label="Node status" {
            li { a href=(with(String::new())) aria-current=[chosen.is_empty().then_some("true")] { "All" } }
            @for (status, word) in STATUSES.map(|status| (status, status.as_str())) {
                li {
                    a href=(with(toggled(&chosen, word))) aria-current=[chosen.contains(&word).then_some("true")] {
                        (status_mark(status))
                    }
                }
            }
        }
    }
}

/// The equivalent command.
fn tree_command(id: &str, choice: &NodeChoice) -> CommandText {
    let chosen = comma_words(choice.status.as_deref().unwrap_or_default());
    let command = CommandText::of_execution("sinew execution tree", id);
    let command = if choice.quiet.is_some() { command.with("--no-fold") } else { command };
    chosen.iter().fold(command, |command, status| command.flag("--status", status))
}

/// A row of the table. Children of maps, loops and forks are summarized as counts.
pub(crate) fn node_row(id: &str, branch: &TreeBranch, choice: &NodeChoice) -> Markup {
    nested_row(id, branch, choice, 0)
}

/// A row that is indented by its level.
fn nested_row(id: &str, branch: &TreeBranch, choice: &NodeChoice, level: usize) -> Markup {
    let is_selected = choice.node.as_deref() == Some(branch.label.as_str());
    let (row, folded) = (&branch.row, status_counts(&branch.folded));
    html! {
        tr data-row aria-current=[is_selected.then_some("true")] {
            td {
                @if level > 0 { span.quiet aria-hidden="true" { ("└ ".repeat(level.min(4))) } }
                a href=(choice.address_of(id, &branch.label)) data-node-link=(branch.label) { (shown_text::line(&branch.label, 80)) } " " span.quiet { (shown_text::line(&row.kind, 40)) }
            }
            td { (status_mark(row.status)) }
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
