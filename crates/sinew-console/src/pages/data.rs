//! Data of an execution: input, output, and the result in the format of its dialect.

use axum::extract::Path;
use axum::response::Response;
use maud::html;

use super::execution_head::{ExecutionTab, execution_head, execution_title, live_source, read_execution};
use super::node_inspector::{beside_node, is_nothing, selected_name};
use super::recorded_case::case_link;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, live_part, page_or_problem};
use crate::page_request::PageRequest;
use crate::shown_text::{command_line, value_block};

pub(crate) async fn show(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = data_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn data_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let execution = read_execution(request, id).await?;
    let id = execution.execution.as_str();
    let whole = ApiPath::of(&["executions", id]).address();
    let content = html! {
        (live_part("data", &html! {
            section { h2 { "Input" } (value_block(&execution.input, &whole)) }
            section {
                h2 { "Output" }
                @match &execution.output {
                    Some(output) => (value_block(output, &whole)),
                    None => p.empty { "No output." },
                }
                (command_line(&CommandText::of_execution("sinew execution result", id)))
            }
            @if execution.ended.is_some() { p { (case_link(id, None)) } }
            @if !is_nothing(&execution.native) {
                section { h2 { "Result in the format of the dialect" } (value_block(&execution.native, &whole)) }
            }
        }))
    };
    let node = selected_name(request)?;
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Data, node.as_deref()))
        (beside_node(request, &execution, ExecutionTab::Data, &content).await?)
    };
    let title = execution_title(&execution);
    Ok(ConsolePage::new(ConsoleSection::Executions, title, body).live(live_source(&execution)))
}
