//! An ended execution as a case for `sinew test`.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use sinew_documents::words;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, may_steer, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, text_block};

/// Maximum size of a case that a button copies, to limit the size of the page.
const MAX_COPIED_BYTES: usize = 64 << 10;

/// Node whose result the case expects.
#[derive(Clone, Debug, Default, Deserialize)]
struct CaseChoice {
    node: Option<String>,
}

pub(crate) async fn show(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = case_page(&id, &request).await;
    page_or_problem(&request, page)
}

/// API path of the case of an execution or one of its nodes.
fn case_path(id: &str, node: Option<&str>) -> ApiPath {
    ApiPath::of(&["executions", id, "case"]).with_some("node", node)
}

/// Reads the test file of an execution, as text.
pub(super) async fn read_case(
    request: &PageRequest,
    id: &str,
    node: Option<&str>,
) -> Result<String, ConsoleError> {
    let case: Value = request.api.get(&case_path(id, node)).await?;
    Ok(serde_json::to_string_pretty(&case).unwrap_or_default())
}

/// The equivalent command.
fn case_command(id: &str, node: Option<&str>) -> CommandText {
    CommandText::of_execution("sinew execution export", id)
        .with("--case")
        .flag("--node", node.unwrap_or_default())
}

async fn case_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let CaseChoice { node } = request.query()?;
    let node = node.as_deref().filter(|node| !node.is_empty());
    let text = read_case(request, id, node).await?;
    let body = html! {
        p.quiet { a href=(PageAddress::execution(id).with_some("node", node)) { (shown_text::line(words::short_id(id), 40)) } }
        div.head {
            h1 { "Test case" @if let Some(node) = node { " of " (shown_text::line(node, 80)) } }
            (command_line(&case_command(id, node)))
        }
        p { "This test file repeats the answers of agents and people in this execution. Save it next to the workflow file and run it with " code { "sinew test FILE.test.yaml" } "." }
        div.actions {
            @if text.len() <= MAX_COPIED_BYTES { button.copy type="button" data-copy=(text) hidden { "Copy" } }
            @if may_steer(request) { a.button href=(PageAddress::of(&["desk"]).with("execution", id).with_some("node", node)) { "Open in the workflow editor" } }
            a.button href=(case_path(id, node).address()) { "Download" }
        }
        (text_block(&text, &case_path(id, node).address()))
    };
    Ok(ConsolePage::new(ConsoleSection::Executions, "Test case", body))
}

/// A link to the case of an execution or one of its nodes.
pub(super) fn case_link(id: &str, node: Option<&str>) -> Markup {
    html! {
        a.button href=(PageAddress::of(&["executions", id, "case"]).with_some("node", node)) data-command=(shown_text::name(&case_command(id, node).to_string())) { "Copy as test case" }
    }
}
