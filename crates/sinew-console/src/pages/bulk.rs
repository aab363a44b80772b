//! One command for several executions: a confirmation with a typed count, then the result of each.

use axum::Form;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use maud::{Markup, html};
use serde_json::json;
use sinew_documents::bulk::{BulkGroup, BulkPreview, BulkResult};
use sinew_documents::words;

use crate::api_client::{ApiClient, ApiPath};
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, PageViewer, page_or_problem, problem_box, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line};

/// Maximum executions per form, as many as a bulk operation has.
const MAX_EXECUTIONS: usize = 10_000;
/// Executions per request to the API: progress is shown, and the work can be stopped, between requests.
const PART: usize = 50;
/// Rejections that are shown in detail.
const MAX_SHOWN_REJECTIONS: usize = 100;
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
    /// Filter of a form that names no executions: all that match.
    filter: String,
    /// Id of the bulk operation: a new one unless the form has one, as the confirmation page does.
    id: String,
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
        return page_or_problem(&request, preview_page(&request, form).await);
    }
    if form.count.trim() != form.executions.len().to_string() {
        let text = format!("{:?} is not the number of executions", shown_text::line(&form.count, 20));
        return question_page(&request, &form, &[], Some(&ConsoleError::Input(text))).into_response();
    }
    outcome_page(&form).grown(&PageViewer::of(&request), outcomes(request.api, form))
}

/// The confirmation page: the API lists the executions that match, by workflow and error.
async fn preview_page(request: &PageRequest, mut form: BulkForm) -> Result<ConsolePage, ConsoleError> {
    if !form.executions.is_empty() {
        return Ok(question_page(request, &form, &[], None));
    }
    let body = json!({ "command": form.command.0, "filter": form.filter, "reason": form.reason });
    let preview: BulkPreview = request.api.post(&bulk_path(), &body).await?;
    if preview.executions.is_empty() {
        let text = format!("no execution that matches accepts {}", form.command.0);
        return Err(ConsoleError::Input(text));
    }
    (form.id, form.executions) = (preview.id, preview.executions);
    Ok(question_page(request, &form, &preview.groups, None))
}

fn bulk_path() -> ApiPath {
    ApiPath::of(&["executions", "bulk"])
}

/// Streams the progress of the commands, then the totals. Leaving the page stops the rest.
fn outcomes(api: ApiClient, form: BulkForm) -> impl Stream<Item = Markup> + Send {
    let work = BulkWork { api, accepted: 0, rejected: 0, place: 0, form };
    stream::unfold(Some(work), |work: Option<BulkWork>| async move {
        let mut work = work?;
        let total = work.form.executions.len();
        if work.place == total {
            let sum = html! {
                h2 role="status" { (work.accepted) " accepted, " (work.rejected) " rejected" }
                @if work.form.command.0 == "retry" && work.accepted > 0 {
                    p { "Accepted retries are running and may fail again." }
                }
                p { a href=(PageAddress::of(&["executions"])) { "Executions" } }
            };
            return Some((sum, None));
        }
        let part = &work.form.executions[work.place..total.min(work.place + PART)];
        let body = json!({
            "command": work.form.command.0, "executions": part, "id": work.form.id, "reason": work.form.reason,
        });
        let result = work.api.post::<BulkResult>(&bulk_path(), &body).await;
        work.place += part.len();
        let place = html! { span.quiet { (work.place) " of " (total) } };
        Some(match result {
            Ok(result) => {
                let shown = MAX_SHOWN_REJECTIONS.saturating_sub(work.rejected);
                (work.accepted, work.rejected) =
                    (work.accepted + result.accepted, work.rejected + result.rejected);
                let rejected = result.outcomes.iter().filter(|outcome| !outcome.accepted).take(shown);
                let progress = html! {
                    p { (place) " " (work.accepted) " accepted, " (work.rejected) " rejected" }
                    @for one in rejected {
                        p {
                            (execution_link(&one.execution)) " rejected: " (shown_text::line(one.error.as_deref().unwrap_or_default(), 200))
                            @if let Some(code) = &one.code { " " (shown_text::line(code, 40)) }
                        }
                    }
                };
                (progress, Some(work))
            }
            // The API is unavailable, or no longer permits the command.
            Err(error) => (html! { p { (place) " stopped" } (problem_box(&error)) }, None),
        })
    })
}

/// The remaining commands of a form.
struct BulkWork {
    api: ApiClient,
    form: BulkForm,
    /// Number of executions that already received the command.
    place: usize,
    accepted: usize,
    rejected: usize,
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
        // The confirmation page sends all ids in one field.
        executions.extend(text("executions").split_whitespace().map(str::to_owned));
        executions.sort_unstable();
        executions.dedup();
        let is_all = text("all") == "yes";
        if is_all {
            executions.clear();
        }
        match executions.len() {
            0 if !is_all => {
                Err(ConsoleError::Input("no executions selected: select some in the list".to_owned()))
            }
            0..=MAX_EXECUTIONS => Ok(Self {
                command,
                executions,
                filter: text("filter").to_owned(),
                id: match text("id") {
                    "" => uuid::Uuid::new_v4().simple().to_string(),
                    id => id.to_owned(),
                },
                count: text("count").to_owned(),
                reason: text("reason").trim().to_owned(),
            }),
            count => Err(ConsoleError::Input(format!(
                "{count} executions are selected; the maximum is {MAX_EXECUTIONS}"
            ))),
        }
    }

    fn command_text(&self) -> CommandText {
        let command = CommandText::new(&format!("sinew execution {}", self.command.0));
        let command = match self.executions.as_slice() {
            ids if self.filter.is_empty() => {
                ids.iter().take(SHOWN_IDS).fold(command, |command, id| command.word(id))
            }
            _ => command.flag("--where", &self.filter),
        };
        if self.command.2 { command.flag("--reason", &self.reason) } else { command }
    }
}

/// Ids in the shown command.
const SHOWN_IDS: usize = 5;

fn question_page(
    request: &PageRequest,
    form: &BulkForm,
    groups: &[BulkGroup],
    error: Option<&ConsoleError>,
) -> ConsolePage {
    let (verb, title, takes_reason) = form.command;
    let count = words::count(form.executions.len(), "execution");
    let body = html! {
        div.narrow {
            h1 { (title) " " (count) "?" }
            @if let Some(error) = error { (problem_box(error)) }
            form.steer method="post" action=(PageAddress::of(&["bulk"])) {
                (token_field(request))
                input type="hidden" name="command" value=(verb);
                input type="hidden" name="id" value=(form.id);
                input type="hidden" name="filter" value=(form.filter);
                input type="hidden" name="executions" value=(form.executions.join(" "));
                @if takes_reason {
                    label { span { "Reason " span.quiet { "(stored with each execution)" } } input type="text" name="reason" value=(form.reason) autocomplete="off"; }
                }
                label { span { "Type the number of executions to confirm" } input type="text" inputmode="numeric" name="count" required autocomplete="off"; }
                div.actions {
                    button.primary.danger[verb == "cancel"] type="submit" data-command={ "sinew execution " (verb) " …" } { (title) " " (count) }
                    a.button href=(PageAddress::of(&["executions"])) { "Back" }
                }
            }
            (command_line(&form.command_text()))
            @if groups.is_empty() {
                ul.touched { @for id in &form.executions { li { (execution_link(id)) } } }
            } @else {
                (group_table(groups))
            }
        }
    };
    let status = error.map_or(StatusCode::OK, ConsoleError::status);
    ConsolePage::new(ConsoleSection::Executions, title, body).with_status(status)
}

/// What will change: counts by workflow and error, with samples.
fn group_table(groups: &[BulkGroup]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Executions by workflow and error" {
            table.rows {
                thead { tr { th.number scope="col" { "Count" } th scope="col" { "Workflow" } th.wide scope="col" { "Error" } th scope="col" { "Samples" } } }
                tbody {
                    @for group in groups {
                        tr {
                            td.number { (group.count) }
                            td { (shown_text::line(&group.workflow, 48)) }
                            td.wide {
                                @if let Some(code) = &group.error { (shown_text::line(code, 40)) " " }
                                @if let Some(message) = &group.message { (shown_text::line(message, 120)) }
                            }
                            td { @for id in &group.samples { (execution_link(id)) " " } }
                        }
                    }
                }
            }
        }
    }
}

/// The page that shows each result as it arrives.
fn outcome_page(form: &BulkForm) -> ConsolePage {
    let (_, title, _) = form.command;
    let body = html! {
        div.narrow {
            h1 { (title) " " (words::count(form.executions.len(), "execution")) }
            p { a.button href=(PageAddress::of(&["executions"])) { "Stop" } " " span.quiet { "Leaving this page stops the remaining commands." } }
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
        let all =
            read(&[("command", "retry"), ("all", "yes"), ("filter", "status:failed"), ("execution", "a")])
                .unwrap();
        assert_eq!((all.executions.len(), all.filter.as_str()), (0, "status:failed"));
        assert_eq!(all.command_text().to_string(), "sinew execution retry --where status:failed");
        let confirmed =
            read(&[("command", "retry"), ("executions", "b a"), ("id", "x"), ("count", "2")]).unwrap();
        assert_eq!(
            (confirmed.executions, confirmed.id.as_str()),
            (vec!["a".to_owned(), "b".to_owned()], "x")
        );
        assert!(read(&[("command", "cancel")]).is_err());
        assert!(read(&[("command", "delete"), ("execution", "a")]).is_err());
        let many: Vec<(String, String)> =
            (0..=MAX_EXECUTIONS).map(|n| ("execution".to_owned(), n.to_string())).collect();
        let many: Vec<_> = many.into_iter().chain([("command".to_owned(), "pause".to_owned())]).collect();
        assert!(BulkForm::read(&many).is_err());
    }
}
