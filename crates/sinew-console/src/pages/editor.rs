//! The workflow editor: a file with its findings in place, its graph, and its deployment. It also
//! checks the files of model agents and runs their cases.
//!
//! The editor is stateless: it deploys the text in the field.

use axum::Form;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use sinew_documents::finding::{Finding, FindingSeverity, ValidationReport};
use sinew_documents::words;
use sinew_documents::workflow::{Deployed, WorkflowSource};
use sinew_source::escape_text;

use super::editor_form::{DEFAULT_NAME, EditorForm};
use super::editor_samples::{AGENT_CASES, AGENT_FILE, AGENT_NAME, WORKFLOW_CASES, WORKFLOW_FILE};
use super::editor_trials::{EditorTrials, cases_part, conversion_part, dry_run_part, sockets_part};
use super::read_execution;
use super::recorded_case::read_case;
use crate::api_client::ApiPath;
use crate::assets::EDITOR;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::drawing_view::{DrawingUse, drawing};
use crate::page_frame::{
    ConsolePage, ConsoleSection, code_link, live_part, may_steer, page_or_problem, problem_box, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line};

/// Findings that are listed.
const MAX_FINDINGS: usize = 100;
pub(crate) async fn show(request: PageRequest) -> Response {
    let page = async {
        if !may_steer(&request) {
            return Err(ConsoleError::ReadOnly);
        }
        let form = first_form(&request).await?;
        let checked = check(&request, &form).await;
        Ok(desk_page(&request, &form, &checked, None, &EditorTrials::default()))
    };
    let page = page.await;
    page_or_problem(&request, page)
}

/// The initial form: the file of the workflow that the address names, otherwise a sample.
async fn first_form(request: &PageRequest) -> Result<EditorForm, ConsoleError> {
    let EditorChoice { workflow, version, kind, execution, node } = request.query()?;
    let (name, text, cases) = match kind.as_deref() {
        Some("agent") => (AGENT_NAME, AGENT_FILE, AGENT_CASES),
        _ => (DEFAULT_NAME, WORKFLOW_FILE, WORKFLOW_CASES),
    };
    let sample = EditorForm {
        name: name.to_owned(),
        text: text.to_owned(),
        cases: cases.to_owned(),
        ..EditorForm::default()
    };
    if let Some(id) = execution.filter(|id| !id.is_empty()) {
        let execution = read_execution(request, &id).await?;
        let cases = read_case(request, &id, node.as_deref().filter(|node| !node.is_empty())).await?;
        let form = deployed_form(request, &execution.workflow, Some(&execution.version)).await?;
        return Ok(EditorForm { cases, ..form });
    }
    let Some(workflow) = workflow.filter(|name| !name.is_empty()) else { return Ok(sample) };
    deployed_form(request, &workflow, version.as_deref()).await
}

/// The form with the file of a deployed workflow.
async fn deployed_form(
    request: &PageRequest,
    workflow: &str,
    version: Option<&str>,
) -> Result<EditorForm, ConsoleError> {
    let path = ApiPath::of(&["workflows", workflow, "source"]).with_some("version", version);
    let source: WorkflowSource = request.api.get(&path).await?;
    let first = source.files.into_iter().next();
    let Some(file) = first else {
        return Err(ConsoleError::Input(format!("the mesh does not store the file of {workflow}")));
    };
    // Only the file name, without the directories of the person who deployed it.
    let name = file.name.rsplit(['/', '\\']).next().unwrap_or(DEFAULT_NAME).to_owned();
    Ok(EditorForm { name, text: file.text, ..EditorForm::default() })
}

/// File that the address opens.
#[derive(Clone, Debug, Default, Deserialize)]
struct EditorChoice {
    /// Workflow whose file is opened.
    workflow: Option<String>,
    version: Option<String>,
    /// Kind of the sample file: `agent`; a workflow if absent.
    kind: Option<String>,
    /// Execution that is converted to a case and opened together with the file of its workflow.
    execution: Option<String>,
    /// Node whose end the case expects.
    node: Option<String>,
}

/// Checks or deploys the file. A rejected file stays in the editor.
pub(crate) async fn work(request: PageRequest, Form(form): Form<EditorForm>) -> Response {
    if form.work == "deploy" {
        match deploy(&request, &form).await {
            Ok(deployed) => {
                let first = deployed
                    .first()
                    .map_or(PageAddress::of(&["workflows"]), |one| PageAddress::workflow(&one.name));
                return Redirect::to(&first.to_string()).into_response();
            }
            Err(error) => {
                let checked = check(&request, &form).await;
                return desk_page(&request, &form, &checked, Some(&error), &EditorTrials::default())
                    .into_response();
            }
        }
    }
    let (checked, trials) =
        futures_util::future::join(check(&request, &form), EditorTrials::of(&request, &form)).await;
    desk_page(&request, &form, &checked, None, &trials).into_response()
}

async fn check(request: &PageRequest, form: &EditorForm) -> Result<ValidationReport, ConsoleError> {
    let path = ApiPath::of(&["validations"]).with("name", form.file_name()).with("drawing", "true");
    request.api.post_file(&path, form.file_text()).await
}

async fn deploy(request: &PageRequest, form: &EditorForm) -> Result<Vec<Deployed>, ConsoleError> {
    let path = ApiPath::of(&["workflows"]).with("name", form.file_name());
    request.api.post_file(&path, form.file_text()).await
}

fn desk_page(
    request: &PageRequest,
    form: &EditorForm,
    checked: &Result<ValidationReport, ConsoleError>,
    error: Option<&ConsoleError>,
    trials: &EditorTrials,
) -> ConsolePage {
    let text = form.file_text();
    let body = html! {
        div.head {
            h1 { "Workflow editor" }
            (command_line(&form.check_command()))
            @if form.is_agent() { (command_line(&CommandText::new("sinew serve agent").word(form.file_name()))) }
            @else { (command_line(&CommandText::new("sinew workflow deploy").word(form.file_name()))) }
            a.button href=(PageAddress::of(&["desk"]).with("kind", "agent")) { "Edit a model agent…" }
        }
        @if let Some(error) = error { (problem_box(error)) }
        div.desk {
            form #desk method="post" {
                (token_field(request))
                div.filter {
                    label { span { "File" } input type="text" name="name" value=(form.file_name()) autocomplete="off"; }
                    label.button.file #open hidden { "Open file…" input.unseen type="file" accept=".yaml,.yml,.json"; }
                    button #save type="button" hidden { "Save file" }
                    button type="submit" name="work" value="check" data-command=(shown_text::name(&form.check_command().to_string())) { "Check" }
                    // Agents are not deployed: processes serve them from their own files.
                    @if !form.is_agent() { button.primary type="submit" name="work" value="deploy" data-command={ "sinew workflow deploy " (shown_text::name(form.file_name())) } { "Deploy" } }
                }
                label { span.quiet { (if form.is_agent() { "Agent" } else { "Workflow" }) } textarea.mono name="text" rows="28" spellcheck="false" wrap="off" data-editor=(EDITOR[0].address) { (text) } }
                details open[trials.has_cases() || !form.cases.is_empty()] {
                    summary { "Test file " code { (shown_text::line(&form.cases_name(), 80)) } }
                    label { span.unseen { "Test cases" } textarea.mono name="cases" rows="12" spellcheck="false" wrap="off" { (form.cases_text()) } }
                }
            }
            div {
                (live_part("findings", &findings_part(&text, checked)))
                (live_part("cases", &cases_part(form, trials)))
                @if !form.is_agent() {
                    (live_part("dry-run", &dry_run_part(form, trials)))
                    (live_part("conversion", &conversion_part(form, trials)))
                }
                (live_part("drawing", &drawings_part(checked)))
                (live_part("sockets", &html! { @if let Ok(found) = checked { (sockets_part(found.sockets.as_deref().unwrap_or_default())) } }))
            }
        }
    };
    ConsolePage::new(ConsoleSection::Workflows, "Workflow editor", body)
}

fn findings_part(text: &str, checked: &Result<ValidationReport, ConsoleError>) -> Markup {
    html! {
        section aria-live="polite" {
            @match checked {
                Ok(found) => {
                    h2 { (words::count(found.errors, "error")) ", " (words::count(found.warnings, "warning")) }
                    @if found.diagnostics.is_empty() { p.empty { "No findings." } }
                    ol.findings { @for finding in found.diagnostics.iter().take(MAX_FINDINGS) { (finding_item(text, finding)) } }
                    @if found.diagnostics.len() > MAX_FINDINGS { p.notice { (found.diagnostics.len() - MAX_FINDINGS) " more" } }
                }
                Err(error) => (problem_box(error)),
            }
        }
    }
}

/// A finding with its position, which is a link into the editor.
fn finding_item(text: &str, finding: &Finding) -> Markup {
    let line = finding.line.and_then(|line| text.lines().nth((line as usize).checked_sub(1)?));
    html! {
        li class=(if finding.severity == FindingSeverity::Error { "is-error" } else { "is-warning" })
            data-from=[finding.line] data-from-column=[finding.column] data-to=[finding.end_line] data-to-column=[finding.end_column]
            data-severity=(finding.severity.as_str()) data-message=(shown_text::line(&finding.message, 400)) {
            b { (finding.severity.as_str()) } " "
            @if let (Some(line), Some(column)) = (finding.line, finding.column) {
                button.place type="button" data-line=(line) data-column=(column) { (line) ":" (column) } " "
            }
            (shown_text::line(&finding.message, 600)) " " (code_link(&finding.code))
            @if let Some(line) = line.filter(|line| !line.trim().is_empty()) { pre { (escape_text(&shown_text::line(line, 200))) } }
            @if let Some(hint) = &finding.hint { p.quiet { (shown_text::sentence(hint, 400)) } }
        }
    }
}

fn drawings_part(checked: &Result<ValidationReport, ConsoleError>) -> Markup {
    html! {
        @if let Ok(found) = checked {
            @for (name, svg) in found.drawings.iter().flatten() {
                section { h2 { (shown_text::line(name, 80)) } (drawing(svg.clone(), DrawingUse::Beside)) }
            }
        }
    }
}

/// The confirmation page for removing a workflow.
pub(crate) async fn removal(Path(name): Path<String>, request: PageRequest) -> Response {
    let page = removal_page(&name, &request, None).await;
    page_or_problem(&request, page)
}

pub(crate) async fn remove(Path(name): Path<String>, request: PageRequest) -> Response {
    match request.api.delete::<Value>(&ApiPath::of(&["workflows", &name])).await {
        Ok(_) => Redirect::to(&PageAddress::of(&["workflows"]).to_string()).into_response(),
        Err(error) => {
            let page = removal_page(&name, &request, Some(&error)).await;
            page_or_problem(&request, page.map_err(|_| error))
        }
    }
}

async fn removal_page(
    name: &str,
    request: &PageRequest,
    error: Option<&ConsoleError>,
) -> Result<ConsolePage, ConsoleError> {
    let path = ApiPath::of(&["workflows", name]).with("dry_run", "true");
    let preview: Value = request.api.delete(&path).await?;
    let open = preview["open_executions"].as_u64().unwrap_or_default();
    let body = html! {
        div.narrow {
            p.quiet { a href=(PageAddress::workflow(name)) { (shown_text::line(name, 80)) } }
            h1 { "Remove " (shown_text::line(name, 80)) }
            @if let Some(error) = error { (problem_box(error)) }
            p { "The workflow can no longer be started. Its executions are kept" @if open > 0 { ", and open ones (" (open) ") continue" } "." }
            @if may_steer(request) {
                form.steer method="post" {
                    (token_field(request))
                    div.actions { button.danger type="submit" data-command=(shown_text::name(&CommandText::new("sinew workflow delete").word(name).to_string())) { "Remove" } a.button href=(PageAddress::workflow(name)) { "Back" } }
                }
            }
            (command_line(&CommandText::new("sinew workflow delete").word(name)))
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Workflows, format!("Remove {name}"), body))
}
