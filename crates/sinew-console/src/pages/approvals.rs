//! The inbox of questions for people: oldest first, each with the data to judge and its decision.

use axum::Form;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use futures_util::future::join_all;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};
use sinew_documents::approval::OpenApproval;
use sinew_documents::words;

use super::decision_form::DecisionForm;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    ConsolePage, ConsoleSection, EXECUTIONS_CHANGE, LiveSource, live_part, may_steer, page_or_problem,
    problem_box, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, time_mark};

/// Questions that are listed.
const MAX_ROWS: usize = 100;

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = approvals_page(&request, &DecisionForm::default(), &[]).await;
    page_or_problem(&request, page)
}

/// Sends the decision of one card, or of all selected cards, and shows the remaining questions.
pub(crate) async fn decide(request: PageRequest, Form(fields): Form<Vec<(String, String)>>) -> Response {
    let mut forms = DecisionForm::read(&fields);
    forms.truncate(MAX_ROWS);
    if forms.is_empty() {
        let error = ConsoleError::Input("no questions selected: select some in the list".to_owned());
        return page_or_problem(&request, approvals_page(&request, &DecisionForm::default(), &[error]).await);
    }
    let sent = forms.iter().map(|form| form.send(&form.execution, &request));
    let errors: Vec<ConsoleError> = join_all(sent).await.into_iter().filter_map(Result::err).collect();
    if errors.is_empty() {
        return Redirect::to(request.address()).into_response();
    }
    // The form of a card is shown again with its values.
    let form = match forms.into_iter().next() {
        Some(form) if !form.is_bulk => form,
        _ => DecisionForm::default(),
    };
    let page = approvals_page(&request, &form, &errors).await;
    page_or_problem(&request, page)
}

async fn approvals_page(
    request: &PageRequest,
    form: &DecisionForm,
    errors: &[ConsoleError],
) -> Result<ConsolePage, ConsoleError> {
    let filter: QuestionFilter = request.query()?;
    let path = ApiPath::of(&["approvals"])
        .with_some("workflow", filter.workflow.as_deref())
        .with_some("text", filter.text.as_deref())
        .with_some("person", filter.person.as_deref())
        .with_some("where", filter.conditions.as_deref());
    let questions: Vec<OpenApproval> = request.api.get(&path).await?;
    let command = CommandText::new("sinew approval list")
        .flag("--workflow", filter.workflow.as_deref().unwrap_or_default())
        .flag("--text", filter.text.as_deref().unwrap_or_default())
        .flag("--person", filter.person.as_deref().unwrap_or_default())
        .flag("--where", filter.conditions.as_deref().unwrap_or_default());
    let is_marked = form.lacks_comment() && questions.iter().any(|question| form.is_for(question));
    let body = html! {
        div.head { h1 { "Approvals" } (command_line(&command)) }
        (filter.form())
        @for error in errors.iter().filter(|_| !is_marked) { (problem_box(error)) }
        @if may_steer(request) && questions.len() > 1 { (bulk_form(request)) }
        (live_part("questions", &question_list(request, &filter, &questions, form)))
    };
    let status = errors.first().map_or(StatusCode::OK, ConsoleError::status);
    Ok(ConsolePage::new(ConsoleSection::Approvals, "Approvals", body)
        .live(LiveSource::List(EXECUTIONS_CHANGE))
        .with_status(status))
}

/// The filter in the address; the server applies it.
#[derive(Clone, Debug, Default, Deserialize)]
struct QuestionFilter {
    workflow: Option<String>,
    text: Option<String>,
    person: Option<String>,
    #[serde(rename = "where")]
    conditions: Option<String>,
}

impl QuestionFilter {
    fn is_empty(&self) -> bool {
        let all = [&self.workflow, &self.text, &self.person, &self.conditions];
        all.into_iter().flatten().all(String::is_empty)
    }

    fn form(&self) -> Markup {
        html! {
            form.filter method="get" role="search" aria-label="Filter" {
                label { span { "Workflow" } input type="text" name="workflow" value=[self.workflow.as_deref()] autocomplete="off"; }
                label.wide { span { "Question, node, execution or data contains" } input type="text" name="text" value=[self.text.as_deref()] data-filter autocomplete="off"; }
                label { span { "Data" } input type="text" name="where" value=[self.conditions.as_deref()] placeholder="amount<100" autocomplete="off"; }
                label { span { "For person" } input type="text" name="person" value=[self.person.as_deref()] autocomplete="off"; }
                button type="submit" { "Filter" }
            }
        }
    }
}

/// One decision and one reason for all selected cards.
fn bulk_form(request: &PageRequest) -> Markup {
    html! {
        details.bulk-decision {
            summary { "Decide several" }
            form.steer #bulk method="post" {
                (token_field(request))
                label { span { "Comment for all selected questions " span.quiet { "(required to reject)" } } input type="text" name="comment" required autocomplete="off"; }
                div.actions {
                    button.primary type="submit" name="decision" value="approve" formnovalidate data-command="sinew approval approve ID…" { "Approve selected" }
                    button.danger type="submit" name="decision" value="reject" data-command="sinew approval reject ID… --comment …" { "Reject selected" }
                }
            }
        }
    }
}

fn question_list(
    request: &PageRequest,
    filter: &QuestionFilter,
    questions: &[OpenApproval],
    form: &DecisionForm,
) -> Markup {
    let is_several = questions.len() > 1;
    html! {
        @if questions.is_empty() {
            p.empty {
                @if filter.is_empty() { "No pending approvals." }
                @else { "No matching questions. " a href=(PageAddress::of(&["approvals"])) { "Show all" } "." }
            }
        }
        ul.questions {
            @for question in questions.iter().take(MAX_ROWS) { (card(request, question, form, is_several)) }
        }
        @if questions.len() > MAX_ROWS { p.notice { (questions.len() - MAX_ROWS) " more" } }
    }
}

fn card(request: &PageRequest, question: &OpenApproval, form: &DecisionForm, is_several: bool) -> Markup {
    let wait = &question.wait;
    let asked = wait.question.as_ref();
    let prompt = shown_text::line(asked.map_or("Decision", |asked| asked.prompt.as_str()), 200);
    let none = DecisionForm::default();
    html! {
        li data-row {
            div.title-line {
                @if is_several && may_steer(request) {
                    input type="checkbox" name="question" form="bulk" value=(DecisionForm::bulk_value(question)) aria-label={ "Select: " (prompt) };
                }
                a.title href=(PageAddress::of(&["executions", &question.execution, "approval"]).with_some("node", wait.node.as_deref())) { (prompt) }
            }
            (review_list(&question.review))
            p.quiet {
                @for above in &question.path { (shown_text::line(above, 60)) " › " }
                (shown_text::line(&question.workflow, 60))
                " " a.id href=(PageAddress::execution(&question.execution)) { (shown_text::line(words::short_id(&question.execution), 40)) }
                @if let Some(node) = &wait.node { ", " (shown_text::line(node, 60)) }
                ", asked " (time_mark(wait.since, request.now))
                @if let Some(until) = &wait.until { ", due " (time_mark(*until, request.now)) }
                @if let Some(asked) = asked.filter(|asked| !asked.allowed.is_empty()) {
                    ", for " (shown_text::line(&asked.allowed.join(", "), 120))
                }
            }
            @if may_steer(request) {
                @let shown = if form.is_for(question) { form } else { &none };
                (shown.markup(request, question, Some(request.address())))
            }
        }
    }
}

/// The fields to judge a question by.
fn review_list(review: &Map<String, Value>) -> Markup {
    html! {
        @if !review.is_empty() {
            dl.facts {
                @for (name, value) in review {
                    div { dt { (shown_text::line(name, 60)) } dd { (shown_text::line(&value.as_str().map_or_else(|| value.to_string(), str::to_owned), 220)) } }
                }
            }
        }
    }
}
