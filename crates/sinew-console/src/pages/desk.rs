//! The author's desk: a workflow file, what is wrong with it at which place, its graph beside it, and its deployment.
//!
//! The file is the truth: the desk keeps nothing, and what it deploys is the text in the field.

use axum::Form;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_source::escape_text;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::documents::{DeployedDocument, FindingDocument, ValidationDocument};
use crate::mesh_documents::ConversionDocument;
use crate::page_frame::{
    ConsolePage, ConsoleSection, DrawingUse, code_link, drawing, live_part, may_steer, page_or_problem,
    problem_box, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, value_block};

/// Findings that are listed.
const MAX_FINDINGS: usize = 100;
/// Name of a file that has none.
const DEFAULT_NAME: &str = "workflow.yaml";
/// A file to begin with.
const SAMPLE: &str = "workflow:
  description: Greets a person
  input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
  nodes:
    - {id: greet, type: agent, agent_name: greeter, input: {name: \"{{workflow.input.name}}\"}}
  output_mapping: {text: \"{{greet.output.text}}\"}
";

/// The desk, as its form sends it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DeskForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    text: String,
    /// `check`, `deploy`, or `try`.
    #[serde(default)]
    work: String,
    /// Connection whose conversion function is tried.
    #[serde(default)]
    connection: String,
    /// Sample that the function gets: JSON, or a text.
    #[serde(default)]
    sample: String,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = async {
        if !may_steer(&request) {
            return Err(ConsoleError::ReadOnly);
        }
        let form = DeskForm { name: DEFAULT_NAME.to_owned(), text: SAMPLE.to_owned(), ..DeskForm::default() };
        let checked = check(&request, &form).await;
        Ok(desk_page(&request, &form, &checked, None, None))
    };
    let page = page.await;
    page_or_problem(&request, page)
}

/// Checks the file, or deploys it. A file that is refused stays on the desk.
pub(crate) async fn work(request: PageRequest, Form(form): Form<DeskForm>) -> Response {
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
                return desk_page(&request, &form, &checked, Some(&error), None).into_response();
            }
        }
    }
    let checked = check(&request, &form).await;
    let tried = if form.work == "try" { try_conversion(&request, &form).await } else { None };
    desk_page(&request, &form, &checked, None, tried.as_ref()).into_response()
}

/// Tries the conversion function that the form names; `None` if it names none.
async fn try_conversion(
    request: &PageRequest,
    form: &DeskForm,
) -> Option<Result<ConversionDocument, ConsoleError>> {
    let connection = form.connection.trim();
    if connection.is_empty() {
        return None;
    }
    let sample = form.sample.trim();
    let sample = serde_json::from_str(sample).unwrap_or_else(|_| Value::String(sample.to_owned()));
    let body = json!({
        "name": form.file_name(), "text": form.file_text(), "connection": connection, "sample": sample,
    });
    Some(request.api.post(&ApiPath::of(&["conversions"]), &body).await)
}

/// The form of a conversion, and what came of it: output, or the line that failed.
fn conversion_part(form: &DeskForm, tried: Option<&Result<ConversionDocument, ConsoleError>>) -> Markup {
    html! {
        details open[tried.is_some()] {
            summary { "Try a conversion of a connection (agentteam)" }
            div.filter {
                label { span { "Connection" } input type="text" name="connection" form="desk" value=(form.connection) autocomplete="off"; }
                label.wide { span { "Sample: JSON, or a text" } textarea.mono name="sample" form="desk" rows="2" spellcheck="false" { (form.sample) } }
                button type="submit" name="work" value="try" form="desk" { "Try" }
            }
            (command_line(&CommandText::new("sinew workflow convert").word(form.file_name()).flag("--try", form.connection.trim()).flag("--sample", form.sample.trim())))
            @match tried {
                None => {}
                Some(Err(error)) => (problem_box(error)),
                Some(Ok(found)) => {
                    p { b { (shown_text::line(&found.outcome.replace('_', " "), 40)) } }
                    @if let Some(error) = &found.error {
                        div.failure {
                            (shown_text::line(&error.message, 600)) " " (code_link(&error.code))
                            @if let Some(line) = error.place.line {
                                " " button.place type="button" data-line=(line) data-column=(error.place.column.unwrap_or(1)) { (line) ":" (error.place.column.unwrap_or(1)) }
                            }
                        }
                    }
                    h3 { "Output" } (value_block(&found.value, "#desk"))
                }
            }
        }
    }
}

async fn check(request: &PageRequest, form: &DeskForm) -> Result<ValidationDocument, ConsoleError> {
    let path = ApiPath::of(&["validations"]).with("name", form.file_name()).with("drawing", "true");
    request.api.post_file(&path, form.file_text()).await
}

async fn deploy(request: &PageRequest, form: &DeskForm) -> Result<Vec<DeployedDocument>, ConsoleError> {
    let path = ApiPath::of(&["workflows"]).with("name", form.file_name());
    request.api.post_file(&path, form.file_text()).await
}

impl DeskForm {
    fn file_name(&self) -> &str {
        let name = self.name.trim();
        if name.is_empty() { DEFAULT_NAME } else { name }
    }

    /// The text with the line ends that it was written with: browsers send those of forms as CR LF.
    fn file_text(&self) -> String {
        self.text.replace("\r\n", "\n")
    }
}

fn desk_page(
    request: &PageRequest,
    form: &DeskForm,
    checked: &Result<ValidationDocument, ConsoleError>,
    error: Option<&ConsoleError>,
    tried: Option<&Result<ConversionDocument, ConsoleError>>,
) -> ConsolePage {
    let text = form.file_text();
    let body = html! {
        div.head {
            h1 { "Author’s desk" }
            (command_line(&CommandText::new("sinew workflow validate").word(form.file_name())))
            (command_line(&CommandText::new("sinew workflow deploy").word(form.file_name())))
        }
        @if let Some(error) = error { (problem_box(error)) }
        div.desk {
            form #desk method="post" {
                (token_field(request))
                div.filter {
                    label { span { "File" } input type="text" name="name" value=(form.file_name()) autocomplete="off"; }
                    label #open hidden { span { "Open a file" } input type="file" accept=".yaml,.yml,.json"; }
                    button type="submit" name="work" value="check" { "Check" }
                    button.primary type="submit" name="work" value="deploy" { "Deploy" }
                    button #save type="button" hidden { "Save the file" }
                }
                label { span.quiet { "Workflow" } textarea.mono name="text" rows="28" spellcheck="false" wrap="off" { (text) } }
            }
            div {
                (live_part("findings", &findings_part(&text, checked)))
                (live_part("conversion", &conversion_part(form, tried)))
                (live_part("drawing", &drawings_part(checked)))
            }
        }
    };
    ConsolePage::new(ConsoleSection::Workflows, "Author’s desk", body)
}

fn findings_part(text: &str, checked: &Result<ValidationDocument, ConsoleError>) -> Markup {
    html! {
        section aria-live="polite" {
            @match checked {
                Ok(found) => {
                    h2 { (found.errors) " errors, " (found.warnings) " warnings" }
                    @if found.diagnostics.is_empty() { p.empty { "The file is in order." } }
                    ol.findings { @for finding in found.diagnostics.iter().take(MAX_FINDINGS) { (finding_item(text, finding)) } }
                    @if found.diagnostics.len() > MAX_FINDINGS { p.notice { (found.diagnostics.len() - MAX_FINDINGS) " more" } }
                }
                Err(error) => (problem_box(error)),
            }
        }
    }
}

/// A finding with its line; clicking its place goes there.
fn finding_item(text: &str, finding: &FindingDocument) -> Markup {
    let line = finding.line.and_then(|line| text.lines().nth((line as usize).checked_sub(1)?));
    html! {
        li class=(if finding.severity == "error" { "is-error" } else { "is-warning" }) {
            b { (shown_text::line(&finding.severity, 20)) } " "
            @if let (Some(line), Some(column)) = (finding.line, finding.column) {
                button.place type="button" data-line=(line) data-column=(column) { (line) ":" (column) } " "
            }
            (shown_text::line(&finding.message, 600)) " " (code_link(&finding.code))
            @if let Some(line) = line.filter(|line| !line.trim().is_empty()) { pre { (escape_text(&shown_text::line(line, 200))) } }
            @if let Some(hint) = &finding.hint { p.quiet { (shown_text::line(hint, 400)) } }
        }
    }
}

fn drawings_part(checked: &Result<ValidationDocument, ConsoleError>) -> Markup {
    html! {
        @if let Ok(found) = checked {
            @for (name, svg) in &found.drawings {
                section { h2 { (shown_text::line(name, 80)) } (drawing(svg.clone(), DrawingUse::Beside)) }
            }
        }
    }
}

/// Removal of a workflow: what would be removed, and the form that does it.
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
            p { "Nothing new is started of it. Its executions stay as they are" @if open > 0 { "; " (open) " of them go on" } "." }
            @if may_steer(request) {
                form.steer method="post" {
                    (token_field(request))
                    div.actions { button.danger type="submit" { "Remove" } a.button href=(PageAddress::workflow(name)) { "Back" } }
                }
            }
            (command_line(&CommandText::new("sinew workflow delete").word(name)))
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Workflows, format!("Remove {name}"), body))
}
