//! One command for several executions: a confirmation with a typed count, then the result of each.

use axum::Form;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use maud::{Markup, html};
use serde_json::{Value, json};
use sinew_documents::words;

use crate::api_client::{ApiClient, ApiPath};
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, PageViewer, page_or_problem, problem_box, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line};

/// Maximum executions per form: one page of the list.
const MAX_EXECUTIONS: usize = 50;
/// Commands: verb of the API, title, and whether it accepts a reason.
pub(crate) const BULK_COMMANDS: [(&str, &str, bool); 4] = [
    ("retry", "Retry", true),
    ("cancel", "Cancel", true),
    ("pause", "Pause", true),
    ("resume", "Resume", false),
];

/// A command for several executions, as the form sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BulkForm {
    command: (&'static str, &'static str, bool),
    executions: Vec<String>,
    /// The count that the user typed; empty before the confirmation page.
    count: String,
    reason: String,
}

pub(crate) async fn work(request: PageRequest, Form(fields): Form<Vec<(String, String)>>) -> Response {
    let form = match BulkForm::read(&fields) {
        Ok(form) => form,
        Err(error) => return page_or_problem(&request, Err(error)),
    };
    if form.count.is_empty() {
        return question_page(&request, &form, None).into_response();
    }
    if form.count.trim() != form.executions.len().to_string() {
        let text = format!("{:?} is not the number of executions", shown_text::line(&form.count, 20));
        return question_page(&request, &form, Some(&ConsoleError::Input(text))).into_response();
    }
    outcome_page(&form).grown(&PageViewer::of(&request), outcomes(request.api, form))
}

/// Streams the result of each execution, then the totals.
fn outcomes(api: ApiClient, form: BulkForm) -> impl Stream<Item = Markup> + Send {
    let work = BulkWork { api, refused: 0, place: 0, form };
    stream::unfold(Some(work), |work: Option<BulkWork>| async move {
        let mut work = work?;
        let total = work.form.executions.len();
        let Some(id) = work.form.executions.get(work.place).cloned() else {
            let sum = html! {
                h2 role="status" { (total - work.refused) " done, " (work.refused) " rejected" }
                p { a href=(PageAddress::of(&["executions"])) { "Executions" } }
            };
            return Some((sum, None));
        };
        let path = ApiPath::of(&["executions", &id, work.form.command.0]);
        let outcome = work.api.post::<Value>(&path, &work.form.document()).await;
        work.place += 1;
        let place = html! { span.quiet { (work.place) " of " (total) } " " (execution_link(&id)) };
        let told = match outcome {
            Ok(_) => html! { p { (place) " done" } },
            Err(error) => {
                work.refused += 1;
                html! { p { (place) " rejected" } (problem_box(&error)) }
            }
        };
        Some((told, Some(work)))
    })
}

/// The remaining commands of a form.
struct BulkWork {
    api: ApiClient,
    form: BulkForm,
    /// Number of executions that already received the command.
    place: usize,
    refused: usize,
}

impl BulkForm {
    fn read(fields: &[(String, String)]) -> Result<Self, ConsoleError> {
        let text =
            |name: &str| fields.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
        let command = BULK_COMMANDS.into_iter().find(|(verb, ..)| *verb == text("command"));
        let command = command.ok_or_else(|| {
            ConsoleError::Input("command: expected retry, cancel, pause or resume".to_owned())
        })?;
        let mut executions: Vec<String> =
            fields.iter().filter(|(key, _)| key == "execution").map(|(_, id)| id.clone()).collect();
        executions.sort_unstable();
        executions.dedup();
        match executions.len() {
            0 => Err(ConsoleError::Input("no executions selected: select some in the list".to_owned())),
            1..=MAX_EXECUTIONS => Ok(Self {
                command,
                executions,
                count: text("count").to_owned(),
                reason: text("reason").trim().to_owned(),
            }),
            count => Err(ConsoleError::Input(format!(
                "{count} executions are selected; the maximum is {MAX_EXECUTIONS}"
            ))),
        }
    }

    fn document(&self) -> Value {
        if self.command.2 { json!({ "reason": self.reason }) } else { json!({}) }
    }

    fn command_of(&self, id: &str) -> CommandText {
        let command = CommandText::of_execution(&format!("sinew execution {}", self.command.0), id);
        if self.command.2 { command.flag("--reason", &self.reason) } else { command }
    }
}

fn question_page(request: &PageRequest, form: &BulkForm, error: Option<&ConsoleError>) -> ConsolePage {
    let (verb, title, takes_reason) = form.command;
    let count = words::count(form.executions.len(), "execution");
    let body = html! {
        div.narrow {
            h1 { (title) " " (count) "?" }
            @if let Some(error) = error { (problem_box(error)) }
            ul.touched { @for id in &form.executions { li { (execution_link(id)) " " (command_line(&form.command_of(id))) } } }
            form.steer method="post" action=(PageAddress::of(&["bulk"])) {
                (token_field(request))
                input type="hidden" name="command" value=(verb);
                @for id in &form.executions { input type="hidden" name="execution" value=(id); }
                @if takes_reason {
                    label { span { "Reason " span.quiet { "(stored with each execution)" } } input type="text" name="reason" value=(form.reason) autocomplete="off"; }
                }
                label { span { "Type the number of executions to confirm" } input type="text" inputmode="numeric" name="count" required autocomplete="off"; }
                div.actions {
                    button.primary.danger[verb == "cancel"] type="submit" data-command={ "sinew execution " (verb) " ID…" } { (title) " " (count) }
                    a.button href=(PageAddress::of(&["executions"])) { "Back" }
                }
            }
        }
    };
    let status = error.map_or(StatusCode::OK, ConsoleError::status);
    ConsolePage::new(ConsoleSection::Executions, title, body).with_status(status)
}

/// The page that shows each result as it arrives.
fn outcome_page(form: &BulkForm) -> ConsolePage {
    let (_, title, _) = form.command;
    let body = html! {
        div.narrow {
            h1 { (title) " " (words::count(form.executions.len(), "execution")) }
            (ConsolePage::growth())
        }
    };
    ConsolePage::new(ConsoleSection::Executions, title, body)
}

fn execution_link(id: &str) -> Markup {
    html! { a.id href=(PageAddress::execution(id)) { (shown_text::line(words::short_id(id), 60)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_name_a_command_and_some_executions() {
        let read = |pairs: &[(&str, &str)]| {
            let fields: Vec<_> =
                pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            BulkForm::read(&fields)
        };
        let form = read(&[("command", "cancel"), ("execution", "b"), ("execution", "a"), ("execution", "b")])
            .unwrap();
        assert_eq!(
            (form.command.0, form.executions, form.count.as_str()),
            ("cancel", vec!["a".to_owned(), "b".to_owned()], "")
        );
        assert!(read(&[("command", "cancel")]).is_err());
        assert!(read(&[("command", "delete"), ("execution", "a")]).is_err());
        let many: Vec<(String, String)> =
            (0..=MAX_EXECUTIONS).map(|n| ("execution".to_owned(), n.to_string())).collect();
        let many: Vec<_> = many.into_iter().chain([("command".to_owned(), "pause".to_owned())]).collect();
        assert!(BulkForm::read(&many).is_err());
    }
}
