//! The confirmation page of a retry: nodes, version of the workflow, dry run, and the form.

use axum::Form;
use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_documents::command::RetryResult;
use sinew_documents::retry::{NewVersionPreview, RetryPreview};
use sinew_documents::words;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::confirmations::{
    buttons, confirmation, confirmation_head, names, preview_line, reason_field, to_execution, version_line,
};
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, may_steer, page_or_problem, problem_box, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::pages::read_execution;
use crate::shown_text::{self, command_line};

/// A retry: nodes, version and reason. The address of the page contains nodes and version; the form
/// repeats them.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RetryForm {
    /// Names of nodes, separated by commas; all failed nodes if empty.
    #[serde(default)]
    node: String,
    /// Present if only these nodes and their dependents run again.
    only: Option<String>,
    /// `latest` for the newest version of the workflow.
    #[serde(default)]
    version: String,
    #[serde(default)]
    reason: String,
}

impl RetryForm {
    fn nodes(&self) -> Vec<&str> {
        names(&self.node)
    }

    /// A retry with the newest version is a new execution, which accepts neither nodes nor a
    /// reason.
    fn is_latest(&self) -> bool {
        self.version == "latest"
    }

    fn document(&self, is_dry_run: bool) -> Value {
        if self.is_latest() {
            return json!({ "workflow_version": "latest", "dry_run": is_dry_run });
        }
        json!({
            "nodes": self.nodes(),
            "only": self.only.is_some(),
            "reason": self.reason.trim(),
            "dry_run": is_dry_run,
        })
    }

    fn command(&self, id: &str) -> CommandText {
        let command = CommandText::of_execution("sinew execution retry", id);
        if self.is_latest() {
            return command.with("--workflow-version latest");
        }
        let flag = if self.only.is_some() { "--only" } else { "--from" };
        self.nodes().into_iter().fold(command, |command, node| command.flag(flag, node))
    }
}

pub(crate) async fn retry(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = async { retry_page(&id, &request, &request.query()?, None).await };
    let page = page.await;
    page_or_problem(&request, page)
}

pub(crate) async fn do_retry(
    Path(id): Path<String>,
    request: PageRequest,
    Form(form): Form<RetryForm>,
) -> Response {
    let path = ApiPath::of(&["executions", &id, "retry"]);
    match request.api.post::<RetryResult>(&path, &form.document(false)).await {
        Ok(started) => to_execution(started.execution()),
        Err(error) => {
            let page = retry_page(&id, &request, &form, Some(&error)).await;
            page_or_problem(&request, page.map_err(|_| error))
        }
    }
}

async fn retry_page(
    id: &str,
    request: &PageRequest,
    form: &RetryForm,
    error: Option<&ConsoleError>,
) -> Result<ConsolePage, ConsoleError> {
    let execution = read_execution(request, id).await?;
    let id = execution.execution.as_str();
    let preview: Result<RetryPreview, ConsoleError> =
        request.api.post(&ApiPath::of(&["executions", id, "retry"]), &form.document(true)).await;
    let is_possible = preview.is_ok();
    let body = html! {
        (confirmation_head(&execution, "Retry"))
        (version_choice(id, form, preview.as_ref().ok()))
        @if !form.is_latest() {
            form.filter method="get" aria-label="Nodes" {
                label { span { "Nodes " span.quiet { "(default: all failed nodes)" } } input type="text" name="node" value=(form.node) autocomplete="off"; }
                label.check { input type="checkbox" name="only" value="1" checked[form.only.is_some()]; span { "only these and their dependents" } }
                button type="submit" { "Preview" }
            }
        }
        @if let Some(error) = error { (problem_box(error)) }
        @match &preview {
            Ok(preview) => (retry_preview(preview)),
            Err(error) => (problem_box(error)),
        }
        @if may_steer(request) && is_possible {
            form.steer method="post" {
                (token_field(request))
                input type="hidden" name="version" value=(form.version);
                input type="hidden" name="node" value=(form.node);
                @if form.only.is_some() { input type="hidden" name="only" value="1"; }
                @if !form.is_latest() { (reason_field(&form.reason)) }
                (buttons(id, "Retry", &form.command(id), false))
            }
        }
        (command_line(&form.command(id)))
    };
    Ok(confirmation("Retry", &body, error))
}

/// The choice between the version that the execution was started with and the newest one, if they
/// differ.
fn version_choice(id: &str, form: &RetryForm, preview: Option<&RetryPreview>) -> Markup {
    let latest = preview.and_then(|preview| preview.latest.as_deref());
    let page = PageAddress::of(&["executions", id, "retry"]);
    let short = |digest: &str| shown_text::line(words::short(digest), 20);
    html! {
        @if form.is_latest() || latest.is_some() {
            ul.chips aria-label="Version of the workflow" {
                li {
                    a href=(page) aria-current=[(!form.is_latest()).then_some("true")] {
                        "Same version, same execution"
                    }
                }
                li {
                    a href=(page.clone().with("version", "latest")) aria-current=[form.is_latest().then_some("true")] {
                        "Newest version" @if let Some(latest) = latest { " " code { (short(latest)) } } ", new execution"
                    }
                }
            }
        }
    }
}

fn retry_preview(preview: &RetryPreview) -> Markup {
    let rerun: Vec<String> = preview
        .rerun
        .iter()
        .map(|(node, children)| match children {
            0 => node.clone(),
            children => format!("{node} ({children} of its children)"),
        })
        .collect();
    let none = NewVersionPreview::default();
    let is_new = preview.new_execution.is_some();
    let changes = preview.new_execution.as_ref().unwrap_or(&none);
    let kept =
        if is_new { "unchanged and completed; outputs are reused" } else { "completed; outputs are reused" };
    let reset = if is_new { "recomputed, or depends on a rerun node" } else { "depends on a rerun node" };
    html! {
        dl.preview {
            (preview_line("Would keep", &preview.keep, kept))
            (preview_line("Would run again", &rerun, "failed or was cancelled"))
            (preview_line("Changed", &changes.changed, "runs with the definition of the newest version"))
            (preview_line("New", &changes.added, "only in the newest version"))
            (preview_line("Asked again", &changes.asked_again, "a person decides again"))
            (preview_line("Would reset", &preview.reset, reset))
            (preview_line("Removed", &changes.removed, "not in the newest version"))
            (preview_line("Untouched", &preview.untouched, ""))
            (version_line(&preview.version, if is_new { "the newest; the old execution is not changed" } else { "the version it was started with" }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_say_what_the_form_does() {
        let retry = |node: &str, only: Option<&str>, version: &str| RetryForm {
            node: node.to_owned(),
            only: only.map(str::to_owned),
            version: version.to_owned(),
            reason: "why".to_owned(),
        };
        let command = |form: &RetryForm| form.command("x").to_string();
        assert_eq!(command(&retry("", None, "")), "sinew execution retry x");
        assert_eq!(command(&retry("a, b c", None, "")), "sinew execution retry x --from a --from 'b c'");
        assert_eq!(retry("a", Some("1"), "").document(true)["only"], json!(true));
        // A new execution accepts neither nodes nor a reason.
        let latest = retry("a", Some("1"), "latest");
        assert_eq!(command(&latest), "sinew execution retry x --workflow-version latest");
        assert_eq!(latest.document(false), json!({"workflow_version": "latest", "dry_run": false}));
    }
}
