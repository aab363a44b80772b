//! Open questions for people.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::approval::OpenApproval;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    ConsolePage, ConsoleSection, EXECUTIONS_CHANGE, LiveSource, live_part, page_or_problem,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, time_mark};

/// Questions that are listed.
const MAX_ROWS: usize = 100;

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = approvals_page(&request).await;
    page_or_problem(&request, page)
}

async fn approvals_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let filter: QuestionFilter = request.query()?;
    let path = ApiPath::of(&["approvals"])
        .with_some("workflow", filter.workflow.as_deref())
        .with_some("text", filter.text.as_deref())
        .with_some("person", filter.person.as_deref());
    let questions: Vec<OpenApproval> = request.api.get(&path).await?;
    let command = CommandText::new("sinew approval list")
        .flag("--workflow", filter.workflow.as_deref().unwrap_or_default());
    let body = html! {
        div.head { h1 { "Approvals" } (command_line(&command)) }
        (filter.form())
        (live_part("questions", &question_list(request, &filter, &questions)))
    };
    Ok(ConsolePage::new(ConsoleSection::Approvals, "Approvals", body)
        .live(LiveSource::List(EXECUTIONS_CHANGE)))
}

/// The filter in the address; the server applies it.
#[derive(Clone, Debug, Default, Deserialize)]
struct QuestionFilter {
    workflow: Option<String>,
    text: Option<String>,
    person: Option<String>,
}

impl QuestionFilter {
    fn is_empty(&self) -> bool {
        [&self.workflow, &self.text, &self.person].into_iter().flatten().all(String::is_empty)
    }

    fn form(&self) -> Markup {
        html! {
            form.filter method="get" role="search" aria-label="Filter" {
                label { span { "Workflow" } input type="text" name="workflow" value=[self.workflow.as_deref()] autocomplete="off"; }
                label.wide { span { "Question, node or execution contains" } input type="text" name="text" value=[self.text.as_deref()] data-filter autocomplete="off"; }
                label { span { "For person" } input type="text" name="person" value=[self.person.as_deref()] autocomplete="off"; }
                button type="submit" { "Filter" }
            }
        }
    }
}

fn question_list(request: &PageRequest, filter: &QuestionFilter, questions: &[OpenApproval]) -> Markup {
    html! {
        @if questions.is_empty() {
            p.empty {
                @if filter.is_empty() { "No pending approvals." }
                @else { "No matching questions. " a href=(PageAddress::of(&["approvals"])) { "Show all" } "." }
            }
        }
        ul.questions {
            @for question in questions.iter().take(MAX_ROWS) {
                @let wait = &question.wait;
                @let asked = wait.question.as_ref();
                li data-row {
                    a.title href=(PageAddress::of(&["executions", &question.execution, "approval"]).with_some("node", wait.node.as_deref())) {
                        (shown_text::line(asked.map_or("Decision", |asked| asked.prompt.as_str()), 200))
                    }
                    p.quiet {
                        @for above in &question.path { (shown_text::line(above, 60)) " › " }
                        (shown_text::line(&question.workflow, 60))
                        @if let Some(node) = &wait.node { ", " (shown_text::line(node, 60)) }
                        ", asked " (time_mark(wait.since, request.now))
                        @if let Some(until) = &wait.until { ", due " (time_mark(*until, request.now)) }
                        @if let Some(asked) = asked.filter(|asked| !asked.allowed.is_empty()) {
                            ", for " (shown_text::line(&asked.allowed.join(", "), 120))
                        }
                    }
                }
            }
        }
        @if questions.len() > MAX_ROWS { p.notice { (questions.len() - MAX_ROWS) " more" } }
    }
}
