//! Artifacts of an execution: a list, and a preview of the selected one.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::artifact::ArtifactRow;
use sinew_documents::words;

use super::artifact_preview::{artifact_bytes, preview};
use super::execution_head::{ExecutionTab, execution_head, execution_title, live_source, read_execution};
use super::node_inspector::{beside_node, selected_name};
use crate::api_client::ApiPath;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, live_part, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, size};

/// Artifacts that are listed.
const MAX_ROWS: usize = 500;
/// Maximum artifacts of the items of a map that are listed with the others.
const MAX_UNFOLDED: usize = 5;

/// Artifact that the address opens: its name with node and version, as commands take it.
#[derive(Clone, Debug, Default, Deserialize)]
struct ArtifactChoice {
    artifact: Option<String>,
}

pub(crate) async fn show(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = artifacts_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn artifacts_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let ArtifactChoice { artifact } = request.query()?;
    let execution = read_execution(request, id).await?;
    let id = execution.execution.as_str();
    let rows: Vec<ArtifactRow> = request.api.get(&ApiPath::of(&["executions", id, "artifacts"])).await?;
    let opened = rows.iter().find(|row| artifact.as_deref() == Some(row.reference().as_str()));
    let preview = match opened {
        Some(row) => Some(preview(request, id, row).await),
        None => None,
    };
    let content = html! {
        @if let Some(preview) = preview { (preview) }
        (live_part("artifacts", &artifact_list(id, &rows, artifact.as_deref())))
    };
    let node = selected_name(request)?;
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Artifacts, node.as_deref()))
        (beside_node(request, &execution, ExecutionTab::Artifacts, &content).await?)
    };
    let title = execution_title(&execution);
    Ok(ConsolePage::new(ConsoleSection::Executions, title, body).live(live_source(&execution)))
}

fn bytes_of(id: &str, row: &ArtifactRow) -> ApiPath {
    artifact_bytes(id, &row.reference())
}

/// The artifacts, those of many items of a map folded.
fn artifact_list(id: &str, rows: &[ArtifactRow], opened: Option<&str>) -> Markup {
    let mut items: BTreeMap<&str, Vec<&ArtifactRow>> = BTreeMap::new();
    for row in rows {
        if let Some(node) = node_of_item(&row.node) {
            items.entry(node).or_default().push(row);
        }
    }
    items.retain(|_, rows| rows.len() > MAX_UNFOLDED);
    let is_folded = |row: &&ArtifactRow| node_of_item(&row.node).is_some_and(|node| items.contains_key(node));
    let others: Vec<&ArtifactRow> = rows.iter().filter(|row| !is_folded(row)).collect();
    let is_open = |rows: &[&ArtifactRow]| rows.iter().any(|row| opened == Some(row.reference().as_str()));
    html! {
        @if rows.is_empty() { p.empty { "No artifacts." } }
        @if !others.is_empty() { (artifact_table(id, &others, opened)) }
        @for (node, rows) in &items {
            details open[is_open(rows)] {
                summary { (words::count(rows.len(), "artifact")) " of the items of " (shown_text::line(node, 60)) }
                (artifact_table(id, rows, opened))
            }
        }
    }
}

/// The node of an item of a map, loop or fork, such as `each` of `each_3`; `None` for other nodes.
fn node_of_item(label: &str) -> Option<&str> {
    let (node, index) = label.rsplit_once('_')?;
    (!node.is_empty() && !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())).then_some(node)
}

fn artifact_table(id: &str, rows: &[&ArtifactRow], opened: Option<&str>) -> Markup {
    html! {
        @if !rows.is_empty() {
            div.scroll tabindex="0" role="region" aria-label="Artifacts" {
                table.rows {
                    thead {
                        tr {
                            th.wide scope="col" { "Name" } th.number scope="col" { "Version" } th scope="col" { "Node" }
                            th scope="col" { "Type" } th.number scope="col" { "Size" } th scope="col" { "SHA-256" } th scope="col" { "Download" }
                        }
                    }
                    tbody {
                        @for row in rows.iter().take(MAX_ROWS) {
                            @let name = row.reference();
                            tr data-row aria-current=[(opened == Some(name.as_str())).then_some("true")] {
                                td.wide { a href=(PageAddress::of(&["executions", id, "artifacts"]).with("artifact", &name)) { (shown_text::line(row.meta.name.as_str(), 100)) } }
                                td.number { (row.meta.version) }
                                td {
                                    (shown_text::line(&row.node, 60))
                                    @if row.attempt > 1 { span.quiet { " attempt " (row.attempt) } }
                                }
                                td { (shown_text::line(&row.meta.media_type, 60)) }
                                td.number { (size(row.meta.size)) }
                                td { code title=(row.meta.sha256) { (shown_text::line(words::short(&row.meta.sha256), 20)) } }
                                td { a href=(bytes_of(id, row).address()) download { "Download" } }
                            }
                        }
                    }
                }
            }
            @if rows.len() > MAX_ROWS { p.notice { (rows.len() - MAX_ROWS) " more: " code { "sinew artifact list" } " lists all." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_maps_have_a_number() {
        let check =
            |label: &str, expected: Option<&str>| assert_eq!(node_of_item(label), expected, "{label}");
        check("each_3", Some("each"));
        check("each_order_12", Some("each_order"));
        check("each", None);
        check("each_", None);
        check("_3", None);
        check("each_3b", None);
    }
}
