//! Named artifacts of the mesh, with preview, versions and a diff of two of them.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::artifact::{MeshArtifact, MeshArtifactPage};
use sinew_documents::words;

use super::artifact_preview::{artifact_bytes, preview};
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    ConsolePage, ConsoleSection, EXECUTIONS_CHANGE, LiveSource, live_part, page_or_problem, problem_box,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, size, time_mark};
use crate::text_diff::text_diff;

/// Filter, page and selected artifacts in the address.
#[derive(Clone, Debug, Default, Deserialize)]
struct MeshArtifactChoice {
    name: Option<String>,
    workflow: Option<String>,
    cursor: Option<String>,
    /// The shown artifact and its execution.
    execution: Option<String>,
    artifact: Option<String>,
    /// The artifact to compare with and its execution.
    with_execution: Option<String>,
    with: Option<String>,
}

impl MeshArtifactChoice {
    fn list_address(&self) -> PageAddress {
        PageAddress::of(&["artifacts"])
            .with_some("name", self.name.as_deref())
            .with_some("workflow", self.workflow.as_deref())
    }

    fn opened_address(&self, row: &MeshArtifact) -> PageAddress {
        self.list_address()
            .with_some("cursor", self.cursor.as_deref())
            .with("execution", &row.execution)
            .with("artifact", &row.artifact.reference())
    }

    fn shows(&self, row: &MeshArtifact) -> bool {
        self.execution.as_deref() == Some(&row.execution)
            && self.artifact.as_deref() == Some(row.artifact.reference().as_str())
    }
}

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = artifacts_page(&request).await;
    page_or_problem(&request, page)
}

async fn artifacts_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let choice: MeshArtifactChoice = request.query()?;
    let path = ApiPath::of(&["artifacts"])
        .with_some("name", choice.name.as_deref())
        .with_some("workflow", choice.workflow.as_deref())
        .with_some("cursor", choice.cursor.as_deref());
    let list: MeshArtifactPage = request.api.get(&path).await?;
    let opened = list.artifacts.iter().find(|row| choice.shows(row));
    let opened = match opened {
        Some(row) => Some(opened_part(request, &choice, row, &list.artifacts).await),
        None => None,
    };
    let body = html! {
        div.head { h1 { "Artifacts" } (command_line(&CommandText::new("sinew artifact list ID"))) }
        form.filter method="get" {
            label.wide { span { "Name contains" } input type="text" name="name" value=[choice.name.as_deref()] data-filter autocomplete="off"; }
            label { span { "Workflow" } input type="text" name="workflow" value=[choice.workflow.as_deref()] autocomplete="off"; }
            button type="submit" { "Filter" }
        }
        @if let Some(opened) = opened { (opened) }
        (live_part("artifacts", &table(request, &choice, &list)))
        nav.pages aria-label="Pages" {
            @if choice.cursor.is_some() { a href=(choice.list_address()) { "Newest" } }
            @if let Some(next) = &list.next { a href=(choice.list_address().with("cursor", next)) { "Older" } }
        }
    };
    let source =
        if choice.cursor.is_none() { LiveSource::List(EXECUTIONS_CHANGE) } else { LiveSource::Still };
    Ok(ConsolePage::new(ConsoleSection::Artifacts, "Artifacts", body).live(source))
}

/// The selected artifact: versions, content, and changes since another version.
async fn opened_part(
    request: &PageRequest,
    choice: &MeshArtifactChoice,
    row: &MeshArtifact,
    all: &[MeshArtifact],
) -> Markup {
    let others: Vec<&MeshArtifact> = all
        .iter()
        .filter(|other| other.artifact.meta.name == row.artifact.meta.name && !choice.shows(other))
        .collect();
    let compared = match (choice.with_execution.as_deref(), choice.with.as_deref()) {
        (Some(execution), Some(with)) => Some(difference(request, row, execution, with).await),
        _ => None,
    };
    html! {
        (preview(request, &row.execution, &row.artifact).await)
        @if !others.is_empty() {
            p.opened {
                "Compare with: "
                @for other in others.iter().take(20) {
                    a.label href=(choice.opened_address(row).with("with_execution", &other.execution).with("with", &other.artifact.reference())) {
                        (shown_text::line(words::short_id(&other.execution), 30)) " " (shown_text::line(&other.artifact.reference(), 60))
                    }
                    " "
                }
            }
        }
        @if let Some(compared) = compared { section { h2 { "Changes" } (compared) } }
    }
}

/// The diff of two artifacts; the other one is the older side.
async fn difference(request: &PageRequest, row: &MeshArtifact, execution: &str, with: &str) -> Markup {
    let old_path = artifact_bytes(execution, with);
    let new_path = artifact_bytes(&row.execution, &row.artifact.reference());
    let texts =
        futures_util::future::try_join(request.api.get_text(&old_path), request.api.get_text(&new_path));
    match texts.await {
        Ok((old, new)) => text_diff([with, &row.artifact.reference()], &old, &new),
        Err(error) => problem_box(&error),
    }
}

fn table(request: &PageRequest, choice: &MeshArtifactChoice, list: &MeshArtifactPage) -> Markup {
    html! {
        @if list.artifacts.is_empty() { p.empty { "No named artifacts in these executions." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Artifacts" {
                table.rows {
                    thead {
                        tr {
                            th.wide scope="col" { "Name" } th.number scope="col" { "Version" } th scope="col" { "Workflow" } th scope="col" { "Execution" }
                            th scope="col" { "Node" } th.side scope="col" { "Type" } th.number scope="col" { "Size" } th scope="col" { "Started" } th scope="col" { "Download" }
                        }
                    }
                    tbody {
                        @for row in &list.artifacts {
                            tr data-row aria-current=[choice.shows(row).then_some("true")] {
                                td.wide { a href=(choice.opened_address(row)) { (shown_text::line(row.artifact.meta.name.as_str(), 100)) } }
                                td.number { (row.artifact.meta.version) }
                                td { a href=(PageAddress::workflow(&row.workflow)) { (shown_text::line(&row.workflow, 50)) } }
                                td { a.id href=(PageAddress::execution(&row.execution)) { (shown_text::line(words::short_id(&row.execution), 40)) } }
                                td { (shown_text::line(&row.artifact.node, 50)) }
                                td.side { (shown_text::line(&row.artifact.meta.media_type, 50)) }
                                td.number { (size(row.artifact.meta.size)) }
                                td { (time_mark(row.started, request.now)) }
                                td { a href=(artifact_bytes(&row.execution, &row.artifact.reference()).address()) download { "Download" } }
                            }
                        }
                    }
                }
            }
        }
    }
}
