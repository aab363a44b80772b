//! Commands on an execution: each verb has a page that describes the effect, and a form that sends
//! the command.

use axum::Form;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sinew_documents::command::ForkedExecution;
use sinew_documents::execution::ExecutionDescription;
use sinew_documents::retry::StartPreview;
use sinew_documents::words;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, may_steer, page_or_problem, problem_box, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::pages::read_execution;
use crate::shown_text::{self, command_line};
use crate::status_mark::status_mark;

/// Maximum nodes per line of a dry run.
const MAX_NODES: usize = 100;

/// A command whose only parameter is a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlainCommand {
    verb: &'static str,
    title: &'static str,
    effect: &'static str,
    takes_reason: bool,
}

const CANCEL: PlainCommand = PlainCommand {
    verb: "cancel",
    title: "Cancel",
    effect: "Running agents are asked to stop, nodes that have not started are not run, and the execution ends as cancelled. It can be retried later.",
    takes_reason: true,
};
const PAUSE: PlainCommand = PlainCommand {
    verb: "pause",
    title: "Pause",
    effect: "Running work continues, but no new work starts until the execution is resumed.",
    takes_reason: true,
};
const RESUME: PlainCommand = PlainCommand {
    verb: "resume",
    title: "Resume",
    effect: "The execution continues where it was paused.",
    takes_reason: false,
};

/// The form of a plain command.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct CommandForm {
    #[serde(default)]
    reason: String,
}

pub(crate) async fn cancel(Path(id): Path<String>, request: PageRequest) -> Response {
    show_command(CANCEL, &id, &request).await
}

pub(crate) async fn pause(Path(id): Path<String>, request: PageRequest) -> Response {
    show_command(PAUSE, &id, &request).await
}

pub(crate) async fn resume(Path(id): Path<String>, request: PageRequest) -> Response {
    show_command(RESUME, &id, &request).await
}

pub(crate) async fn do_cancel(
    Path(id): Path<String>,
    request: PageRequest,
    Form(form): Form<CommandForm>,
) -> Response {
    give_command(CANCEL, &id, &request, &form).await
}

pub(crate) async fn do_pause(
    Path(id): Path<String>,
    request: PageRequest,
    Form(form): Form<CommandForm>,
) -> Response {
    give_command(PAUSE, &id, &request, &form).await
}

pub(crate) async fn do_resume(
    Path(id): Path<String>,
    request: PageRequest,
    Form(form): Form<CommandForm>,
) -> Response {
    give_command(RESUME, &id, &request, &form).await
}

async fn show_command(command: PlainCommand, id: &str, request: &PageRequest) -> Response {
    let page = command_page(command, id, request, "", None).await;
    page_or_problem(request, page)
}

async fn give_command(
    command: PlainCommand,
    id: &str,
    request: &PageRequest,
    form: &CommandForm,
) -> Response {
    let reason = form.reason.trim();
    let body = if command.takes_reason { json!({ "reason": reason }) } else { json!({}) };
    let path = ApiPath::of(&["executions", id, command.verb]);
    match request.api.post::<Value>(&path, &body).await {
        Ok(_) => to_execution(id),
        Err(error) => {
            let page = command_page(command, id, request, reason, Some(&error)).await;
            page_or_problem(request, page.map_err(|_| error))
        }
    }
}

/// Redirects to the execution after a form was accepted, so that reloading the page does not repeat
/// the command.
pub(crate) fn to_execution(id: &str) -> Response {
    Redirect::to(&PageAddress::execution(id).to_string()).into_response()
}

async fn command_page(
    command: PlainCommand,
    id: &str,
    request: &PageRequest,
    reason: &str,
    error: Option<&ConsoleError>,
) -> Result<ConsolePage, ConsoleError> {
    let execution = read_execution(request, id).await?;
    let line = CommandText::of_execution(&format!("sinew execution {}", command.verb), &execution.execution);
    let line = if command.takes_reason { line.with("--reason …") } else { line };
    let body = html! {
        (confirmation_head(&execution, command.title))
        p { (command.effect) }
        @if let Some(error) = error { (problem_box(error)) }
        @if may_steer(request) {
            form.steer method="post" {
                (token_field(request))
                @if command.takes_reason { (reason_field(reason)) }
                (buttons(&execution.execution, command.title, &line, command.verb == "cancel"))
            }
        }
        (command_line(&line))
    };
    Ok(confirmation(command.title, &body, error))
}

pub(crate) fn confirmation(title: &str, body: &Markup, error: Option<&ConsoleError>) -> ConsolePage {
    let status = error.map_or(StatusCode::OK, ConsoleError::status);
    ConsolePage::new(ConsoleSection::Executions, title, html! { div.narrow { (body) } }).with_status(status)
}

pub(crate) fn confirmation_head(execution: &ExecutionDescription, title: &str) -> Markup {
    html! {
        p.quiet {
            a href=(PageAddress::execution(&execution.execution)) {
                (shown_text::line(&execution.workflow, 60)) " " (shown_text::line(words::short_id(&execution.execution), 40))
            }
            " " (status_mark(execution.status))
        }
        h1 { (title) }
    }
}

pub(crate) fn reason_field(reason: &str) -> Markup {
    html! { label { span { "Reason " span.quiet { "(stored with the execution)" } } input type="text" name="reason" value=(reason) autocomplete="off"; } }
}

pub(crate) fn buttons(id: &str, title: &str, line: &CommandText, is_dangerous: bool) -> Markup {
    html! {
        div.actions {
            button.primary.danger[is_dangerous] type="submit" data-command=(shown_text::name(&line.to_string())) { (title) }
            a.button href=(PageAddress::execution(id)) { "Back" }
        }
    }
}

/// Splits comma-separated names.
pub(crate) fn names(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

pub(crate) fn preview_line(title: &str, nodes: &[String], why: &str) -> Markup {
    html! {
        @if !nodes.is_empty() {
            div {
                dt { (title) }
                dd {
                    @for node in nodes.iter().take(MAX_NODES) { code { (shown_text::line(node, 80)) } " " }
                    @if nodes.len() > MAX_NODES { "and " (nodes.len() - MAX_NODES) " more " }
                    @if !why.is_empty() { span.quiet { (why) } }
                }
            }
        }
    }
}

pub(crate) fn version_line(version: &str, what: &str) -> Markup {
    html! { div { dt { "Version" } dd { code { (shown_text::line(words::short(version), 20)) } " " span.quiet { (what) } } } }
}

/// A fork: nodes from which the new execution diverges, and outputs that it changes.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ForkForm {
    /// Names of nodes, separated by commas.
    #[serde(default)]
    at: String,
    /// A JSON object from node to output.
    #[serde(default)]
    outputs: String,
}

impl ForkForm {
    fn is_empty(&self) -> bool {
        names(&self.at).is_empty() && self.outputs.trim().is_empty()
    }

    fn document(&self, is_dry_run: bool) -> Result<Value, ConsoleError> {
        let outputs: Map<String, Value> = match self.outputs.trim() {
            "" => Map::new(),
            text => serde_json::from_str(text).map_err(|error| {
                ConsoleError::Input(format!("outputs: expected a JSON object from node to output: {error}"))
            })?,
        };
        Ok(json!({ "at": names(&self.at), "outputs": outputs, "dry_run": is_dry_run }))
    }

    fn command(&self, id: &str) -> CommandText {
        let command = CommandText::of_execution("sinew execution fork", id);
        let command = names(&self.at).into_iter().fold(command, |command, node| command.flag("--at", node));
        let outputs = serde_json::from_str::<Map<String, Value>>(self.outputs.trim()).unwrap_or_default();
        let set = |command: CommandText, (node, output): (String, Value)| {
            command.flag("--set", &format!("{node}.output={output}"))
        };
        outputs.into_iter().fold(command, set)
    }
}

pub(crate) async fn fork(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = async { fork_page(&id, &request, &request.query()?, None).await };
    let page = page.await;
    page_or_problem(&request, page)
}

pub(crate) async fn do_fork(
    Path(id): Path<String>,
    request: PageRequest,
    Form(form): Form<ForkForm>,
) -> Response {
    let started = async {
        let path = ApiPath::of(&["executions", &id, "fork"]);
        request.api.post::<ForkedExecution>(&path, &form.document(false)?).await
    };
    match started.await {
        Ok(started) => to_execution(&started.execution),
        Err(error) => {
            let page = fork_page(&id, &request, &form, Some(&error)).await;
            page_or_problem(&request, page.map_err(|_| error))
        }
    }
}

async fn fork_page(
    id: &str,
    request: &PageRequest,
    form: &ForkForm,
    error: Option<&ConsoleError>,
) -> Result<ConsolePage, ConsoleError> {
    let execution = read_execution(request, id).await?;
    let id = execution.execution.as_str();
    let preview = if form.is_empty() {
        None
    } else {
        let dry_run = async {
            let path = ApiPath::of(&["executions", id, "fork"]);
            request.api.post::<StartPreview>(&path, &form.document(true)?).await
        };
        Some(dry_run.await)
    };
    let is_possible = matches!(preview, Some(Ok(_)));
    let body = html! {
        (confirmation_head(&execution, "Fork"))
        p { "A fork starts a new execution that reuses the results of this one up to the named nodes and runs from there." }
        form.steer method="get" aria-label="Nodes and outputs" {
            label { span { "Nodes to run again " span.quiet { "(separated by commas)" } } input type="text" name="at" value=(form.at) autocomplete="off"; }
            label { span { "Changed outputs " span.quiet { "(JSON: {\"node\": output})" } } textarea.mono name="outputs" rows="4" spellcheck="false" { (form.outputs) } }
            div.actions { button type="submit" { "Preview" } }
        }
        @if let Some(error) = error { (problem_box(error)) }
        @match &preview {
            Some(Ok(preview)) => (fork_preview(preview)),
            Some(Err(error)) => (problem_box(error)),
            None => {}
        }
        @if may_steer(request) && is_possible {
            form.steer method="post" {
                (token_field(request))
                input type="hidden" name="at" value=(form.at);
                input type="hidden" name="outputs" value=(form.outputs);
                (buttons(id, "Fork", &form.command(id), false))
            }
        }
        (command_line(&form.command(id)))
    };
    Ok(confirmation("Fork", &body, error))
}

fn fork_preview(preview: &StartPreview) -> Markup {
    html! {
        dl.preview {
            div { dt { "Workflow" } dd { (shown_text::line(&preview.would_start, 80)) } }
            (preview_line("Would reuse", &preview.given, ""))
            @if let Some(version) = &preview.version { (version_line(version, "the version it was started with")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_say_what_the_form_does() {
        let fork = |at: &str, outputs: &str| ForkForm { at: at.to_owned(), outputs: outputs.to_owned() };
        assert_eq!(
            fork("a", "{\"b\": {\"c\": 1}}").command("x").to_string(),
            "sinew execution fork x --at a --set 'b.output={\"c\":1}'"
        );
        assert!(fork("", " ").is_empty());
        for wrong in ["[]", "1", "{", "{\"a\":"] {
            assert!(fork("a", wrong).document(true).is_err(), "{wrong}");
        }
    }
}
