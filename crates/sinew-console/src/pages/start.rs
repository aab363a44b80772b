//! The start form of a workflow, generated from its input schema.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sinew_documents::command::StartedExecution;
use sinew_documents::words;
use sinew_documents::workflow::WorkflowDescription;

use super::read_execution;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    ConsolePage, ConsoleSection, page_or_problem, problem_box, read_only_reason, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::schema_form::{read_input, schema_fields, schema_of, written_input};
use crate::shown_text::{self, command_line};

/// Form field of the labels.
const LABELS_FIELD: &str = "labels";
/// Form field of the idempotency key: a form that is submitted twice starts one execution.
const KEY_FIELD: &str = "key";
/// Form field of a dry run.
const DRY_RUN_FIELD: &str = "dry_run";
/// Form field of the version.
const VERSION_FIELD: &str = "version";

/// Form fields by name; input fields depend on the schema.
type WrittenFields = BTreeMap<String, String>;

/// Label with the execution whose input is reused; `sinew execution rerun` sets the same.
const RERUN_LABEL: &str = "rerun_of";
/// Maximum size of an input that the form is filled with.
const MAX_WRITTEN_BYTES: usize = 16 << 10;

/// Version in the address, or the execution whose input the form is filled with.
#[derive(Clone, Debug, Default, Deserialize)]
struct StartChoice {
    version: Option<String>,
    execution: Option<String>,
}

pub(crate) async fn show(Path(name): Path<String>, request: PageRequest) -> Response {
    let page = async {
        let StartChoice { version, execution } = request.query()?;
        let workflow = read_workflow(&name, &request, version.as_deref()).await?;
        let key = uuid::Uuid::new_v4().simple().to_string();
        let mut written = WrittenFields::from([(KEY_FIELD.to_owned(), key)]);
        if let Some(id) = execution.filter(|id| !id.is_empty()) {
            written.extend(fields_of_execution(&workflow, &request, &id).await?);
        }
        written.extend(version.map(|version| (VERSION_FIELD.to_owned(), version)));
        Ok(start_page(&workflow, &request, &written, None))
    };
    let page = page.await;
    page_or_problem(&request, page)
}

pub(crate) async fn start(
    Path(name): Path<String>,
    request: PageRequest,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    let written: WrittenFields = fields.into_iter().collect();
    let version = written.get(VERSION_FIELD).map(String::as_str);
    let workflow = match read_workflow(&name, &request, version).await {
        Ok(workflow) => workflow,
        Err(error) => return page_or_problem(&request, Err(error)),
    };
    match send_start(&workflow, &request, &written).await {
        Ok(started) => Redirect::to(&PageAddress::execution(&started.execution).to_string()).into_response(),
        Err(error) => start_page(&workflow, &request, &written, Some(&error)).into_response(),
    }
}

async fn read_workflow(
    name: &str,
    request: &PageRequest,
    version: Option<&str>,
) -> Result<WorkflowDescription, ConsoleError> {
    request.api.get(&ApiPath::of(&["workflows", name]).with_some("version", version).with("nodes", "0")).await
}

/// Form fields with the input and labels of an execution.
async fn fields_of_execution(
    workflow: &WorkflowDescription,
    request: &PageRequest,
    id: &str,
) -> Result<WrittenFields, ConsoleError> {
    let old = read_execution(request, id).await?;
    let command = CommandText::of_execution("sinew execution rerun", &old.execution).with("--latest");
    let input = Some(&old.input).filter(|input| input.to_string().len() <= MAX_WRITTEN_BYTES);
    let input = input.and_then(|input| written_input(schema_of(workflow.input_schema.as_ref()), input));
    let mut written = input.ok_or_else(|| {
        ConsoleError::Input(format!(
            "the form cannot represent the input of this execution; run it again with `{command}`"
        ))
    })?;
    let labels = old.about.labels.iter().filter(|(key, _)| *key != RERUN_LABEL);
    let labels = labels.map(|(key, value)| format!("{key}={value}"));
    let labels: Vec<String> = labels.chain([format!("{RERUN_LABEL}={}", old.execution)]).collect();
    written.insert(LABELS_FIELD.to_owned(), labels.join(", "));
    Ok(written)
}

async fn send_start(
    workflow: &WorkflowDescription,
    request: &PageRequest,
    written: &WrittenFields,
) -> Result<StartedExecution, ConsoleError> {
    let mut body = Map::from_iter([
        ("workflow".to_owned(), json!(workflow.name)),
        ("input".to_owned(), read_input(schema_of(workflow.input_schema.as_ref()), written)?),
        ("labels".to_owned(), labels(written)?),
    ]);
    let text = |field: &str| written.get(field).filter(|text| !text.is_empty()).map(|text| json!(text));
    body.extend(text(KEY_FIELD).map(|key| ("idempotency_key".to_owned(), key)));
    if written.contains_key(DRY_RUN_FIELD) {
        body.insert("dry_run".to_owned(), json!(true));
    }
    body.extend(text(VERSION_FIELD).map(|version| ("version".to_owned(), version)));
    request.api.post(&ApiPath::of(&["executions"]), &Value::Object(body)).await
}

fn labels(written: &WrittenFields) -> Result<Value, ConsoleError> {
    let text = written.get(LABELS_FIELD).map_or("", String::as_str);
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            ConsoleError::Input("labels: expected KEY=VALUE, separated by commas".to_owned())
        })?;
        Ok((key.trim().to_owned(), json!(value.trim())))
    });
    pairs.collect::<Result<Map<String, Value>, ConsoleError>>().map(Value::Object)
}

fn start_page(
    workflow: &WorkflowDescription,
    request: &PageRequest,
    written: &WrittenFields,
    error: Option<&ConsoleError>,
) -> ConsolePage {
    let body = html! {
        div.narrow {
            p.quiet { a href=(PageAddress::workflow(&workflow.name)) { (shown_text::line(&workflow.name, 80)) } }
            h1 { "Start " (shown_text::line(&workflow.name, 80)) }
            @if !workflow.description.is_empty() { p { (shown_text::line(&workflow.description, 600)) } }
            @if let Some(error) = error { (problem_box(error)) }
            @if let Some(reason) = read_only_reason(request) { p.notice { (reason) } }
            @else { (start_form(workflow, request, written)) }
            (command_line(&start_command(workflow, written)))
        }
    };
    let status = error.map_or(StatusCode::OK, ConsoleError::status);
    ConsolePage::new(ConsoleSection::Workflows, format!("Start {}", workflow.name), body).with_status(status)
}

/// The equivalent command.
fn start_command(workflow: &WorkflowDescription, written: &WrittenFields) -> CommandText {
    let named = match written.get(VERSION_FIELD).map_or("", String::as_str) {
        "" => workflow.name.clone(),
        version => format!("{}@{}", workflow.name, words::short(version)),
    };
    CommandText::new("sinew run --mesh").word(&named).flag("-i", &input_text(workflow, written))
}

/// The input as a command line argument; `…` if the form is not valid.
fn input_text(workflow: &WorkflowDescription, written: &WrittenFields) -> String {
    match read_input(schema_of(workflow.input_schema.as_ref()), written) {
        Ok(Value::Null) => "{}".to_owned(),
        Ok(input) => shown_text::value_line(&input),
        Err(_) => "…".to_owned(),
    }
}

fn start_form(workflow: &WorkflowDescription, request: &PageRequest, written: &WrittenFields) -> Markup {
    let field = |name: &str| written.get(name).map_or("", String::as_str);
    html! {
        form.steer method="post" {
            (token_field(request))
            input type="hidden" name=(KEY_FIELD) value=(field(KEY_FIELD));
            input type="hidden" name=(VERSION_FIELD) value=(field(VERSION_FIELD));
            (schema_fields(schema_of(workflow.input_schema.as_ref()), written))
            label.field { span { "Labels " span.quiet { "(team=a, stage=test)" } } input type="text" name=(LABELS_FIELD) value=(field(LABELS_FIELD)) autocomplete="off"; }
            label.check { input type="checkbox" name=(DRY_RUN_FIELD) value="yes" checked[written.contains_key(DRY_RUN_FIELD)]; " Dry run: no agents are called, all outputs are null" }
            div.actions {
                button.primary type="submit" data-command=(shown_text::name(&start_command(workflow, written).to_string())) { "Start" }
                a.button href=(PageAddress::workflow(&workflow.name)) { "Back" }
            }
        }
    }
}
