//! Trials in the workflow editor: conversions of a sample, test cases, dry runs, and the sockets of
//! covalt.

use maud::{Markup, html};
use serde_json::{Value, json};
use sinew_documents::finding::{Finding, NodeSockets, Socket};
use sinew_documents::node_status::NodeStatus;
use sinew_documents::trial::{CaseResult, CaseResults, ConversionReport, DryRun};
use sinew_documents::words;

use super::editor_form::EditorForm;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{code_link, problem_box};
use crate::page_request::PageRequest;
use crate::shown_text::{self, command_line, duration, value_block, value_line};
use crate::status_mark::status_mark;

/// Cases, tasks and nodes that are listed.
const MAX_ROWS: usize = 200;
/// Results of the trials that a form requested.
#[derive(Default)]
pub(super) struct EditorTrials {
    conversion: Option<Result<ConversionReport, ConsoleError>>,
    cases: Option<Result<CaseResults, ConsoleError>>,
    dry_run: Option<Result<DryRun, ConsoleError>>,
}

/// The text of a form as JSON, or as a string if it is not valid JSON.
fn json_or_text(text: &str) -> Value {
    let text = text.trim();
    serde_json::from_str(text).unwrap_or_else(|_| if text.is_empty() { Value::Null } else { json!(text) })
}

impl EditorTrials {
    /// Whether cases were run.
    pub(super) const fn has_cases(&self) -> bool {
        self.cases.is_some()
    }

    /// Performs the action of the form's button.
    pub(super) async fn of(request: &PageRequest, form: &EditorForm) -> Self {
        let mut trials = Self::default();
        let file = json!({ "name": form.file_name(), "text": form.file_text() });
        let with = |members: Value| {
            let mut body = file.clone();
            if let (Some(body), Value::Object(members)) = (body.as_object_mut(), members) {
                body.extend(members);
            }
            body
        };
        match form.work.as_str() {
            "try" if !form.connection.trim().is_empty() => {
                let body = with(
                    json!({ "connection": form.connection.trim(), "sample": json_or_text(&form.sample) }),
                );
                trials.conversion = Some(request.api.post(&ApiPath::of(&["conversions"]), &body).await);
            }
            "test" => {
                let body = with(json!({ "cases": form.cases_text(), "cases_name": form.cases_name() }));
                trials.cases = Some(request.api.post(&ApiPath::of(&["tests"]), &body).await);
            }
            "dry" => {
                let body = with(json!({ "input": json_or_text(&form.input) }));
                trials.dry_run = Some(request.api.post(&ApiPath::of(&["dry-runs"]), &body).await);
            }
            _ => {}
        }
        trials
    }
}

/// The form of a conversion, and its result: the output, or the line that failed.
pub(super) fn conversion_part(form: &EditorForm, trials: &EditorTrials) -> Markup {
    html! {
        details open[trials.conversion.is_some()] {
            summary { "Test the conversion of a connection (agentteam)" }
            div.filter {
                label { span { "Connection" } input type="text" name="connection" form="desk" value=(form.connection) autocomplete="off"; }
                label.wide { span { "Sample (JSON or text)" } textarea.mono name="sample" form="desk" rows="2" spellcheck="false" { (form.sample) } }
                button type="submit" name="work" value="try" form="desk" data-command="sinew workflow convert" { "Test" }
            }
            (command_line(&CommandText::new("sinew workflow convert").word(form.file_name()).flag("--try", form.connection.trim()).flag("--sample", form.sample.trim())))
            @match &trials.conversion {
                None => {}
                Some(Err(error)) => (problem_box(error)),
                Some(Ok(found)) => (conversion_outcome(found)),
            }
        }
    }
}

fn conversion_outcome(found: &ConversionReport) -> Markup {
    html! {
        p { b { (found.outcome.as_str().replace('_', " ")) } }
        @if let Some(error) = &found.error {
            div.failure {
                (shown_text::line(&error.message, 600)) " " (code_link(&error.code))
                " " (place_button(error.place.line, error.place.column))
            }
        }
        h3 { "Output" } (value_block(found.value.as_ref().unwrap_or(&Value::Null), "#desk"))
    }
}

/// A position in the workflow file; the editor's script jumps to it.
fn place_button(line: u32, column: u32) -> Markup {
    html! { button.place type="button" data-line=(line) data-column=(column) { (line) ":" (column) } }
}

/// Cases of a test file and their results.
pub(super) fn cases_part(form: &EditorForm, trials: &EditorTrials) -> Markup {
    html! {
        div.head {
            h2 { "Test cases" }
            button type="submit" name="work" value="test" form="desk" data-command={ "sinew test " (shown_text::name(&form.cases_name())) } { "Test" }
            (command_line(&CommandText::new("sinew test").word(&form.cases_name())))
        }
        @match &trials.cases {
            None => p.quiet { "Cases run offline in virtual time. Agents are stubs, and models return the answers given in the cases." },
            Some(Err(error)) => (problem_box(error)),
            Some(Ok(report)) => (cases_outcome(report)),
        }
    }
}

fn cases_outcome(report: &CaseResults) -> Markup {
    html! {
        p role="status" { b { (report.passed) " passed, " (report.failed) " failed" } }
        @if let Some(problems) = report.problems.as_ref().filter(|problems| !problems.is_empty()) {
            ol.findings { @for problem in problems.iter().take(MAX_ROWS) { (problem_item(problem)) } }
        }
        ul.cases-told { @for case in report.cases.iter().take(MAX_ROWS) { (case_item(case)) } }
    }
}

fn problem_item(problem: &Finding) -> Markup {
    html! {
        li.is-error {
            @if let (Some(line), Some(column)) = (problem.line, problem.column) { span.quiet { "cases " (line) ":" (column) } " " }
            (shown_text::line(&problem.message, 600)) " " (code_link(&problem.code))
            @if let Some(hint) = &problem.hint { p.quiet { (shown_text::line(hint, 400)) } }
        }
    }
}

fn case_item(case: &CaseResult) -> Markup {
    html! {
        li {
            (status_mark(if case.passed { NodeStatus::Succeeded } else { NodeStatus::Failed })) " " (shown_text::line(&case.name, 200))
            @if case.elapsed_ms > 0 { " " span.quiet { (duration(Some(case.elapsed_ms))) } }
            @for failure in case.failures.iter().take(MAX_ROWS) {
                div.failure {
                    b { (shown_text::line(&failure.expectation, 300)) } " " span.quiet { (shown_text::line(&failure.at, 100)) }
                    @if !failure.differences.is_empty() {
                        pre { @for line in failure.differences.iter().take(50) { (shown_text::line(line, 300)) "\n" } }
                    }
                }
            }
        }
    }
}

/// The input of a dry run, and the tasks that it would send.
pub(super) fn dry_run_part(form: &EditorForm, trials: &EditorTrials) -> Markup {
    html! {
        details open[trials.dry_run.is_some()] {
            summary { "Dry run: list the calls that agents would receive" }
            div.filter {
                label.wide { span { "Input (JSON or text)" } textarea.mono name="input" form="desk" rows="2" spellcheck="false" { (form.input) } }
                button type="submit" name="work" value="dry" form="desk" data-command={ "sinew run " (shown_text::name(form.file_name())) " --dry-run" } { "Dry run" }
            }
            (command_line(&CommandText::new("sinew run").word(form.file_name()).flag("-i", form.input.trim()).with("--dry-run")))
            @match &trials.dry_run {
                None => {}
                Some(Err(error)) => (problem_box(error)),
                Some(Ok(run)) => (dry_run_outcome(run)),
            }
        }
    }
}

fn dry_run_outcome(run: &DryRun) -> Markup {
    html! {
        p role="status" { (status_mark(run.status)) " " (shown_text::line(&run.workflow, 80)) ": " (words::count(run.would_ask.len(), "task")) ". No agents were called and all outputs are null, so a real execution may take other branches." }
        @if let Some(error) = &run.error { div.failure { (shown_text::line(&error.message, 600)) " " (code_link(&error.code)) } }
        @if !run.would_ask.is_empty() {
            div.scroll tabindex="0" role="region" aria-label="Tasks of the dry run" {
                table.rows {
                    thead { tr { th scope="col" { "Node" } th scope="col" { "Would call" } th.wide scope="col" { "Input" } } }
                    tbody {
                        @for ask in run.would_ask.iter().take(MAX_ROWS) {
                            tr {
                                td { (shown_text::line(&ask.node, 80)) }
                                td { (value_line(&ask.agent)) }
                                td.wide { code { (value_line(&ask.input)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Sockets of the nodes of a covalt file.
pub(super) fn sockets_part(nodes: &[NodeSockets]) -> Markup {
    html! {
        @if !nodes.is_empty() {
            section {
                h2 { "Sockets" }
                div.scroll tabindex="0" role="region" aria-label="Sockets" {
                    table.rows {
                        thead { tr { th scope="col" { "Node" } th scope="col" { "Kind" } th scope="col" { "Inputs" } th scope="col" { "Outputs" } } }
                        tbody {
                            @for node in nodes.iter().take(MAX_ROWS) {
                                tr {
                                    td { (outline(&node.shape, &node.color)) " " (shown_text::line(&node.node, 60)) }
                                    td { (shown_text::line(&node.kind, 40)) }
                                    td { @for socket in &node.inputs { (socket_mark(socket)) " " } }
                                    td { @for socket in &node.outputs { (socket_mark(socket)) " " } }
                                }
                            }
                        }
                    }
                }
                p.quiet { (command_line(&CommandText::new("sinew workflow nodes"))) }
            }
        }
    }
}

fn socket_mark(socket: &Socket) -> Markup {
    html! {
        span.socket title=(shown_text::line(&socket.kind, 40)) {
            (outline(&socket.shape, &socket.color)) " " (shown_text::line(&socket.name, 40)) " " span.quiet { (shown_text::line(&socket.kind, 20)) }
        }
    }
}

/// A socket shape in its colour. Only six-digit colours are accepted.
fn outline(shape: &str, color: &str) -> Markup {
    let is_color = color
        .strip_prefix('#')
        .is_some_and(|digits| digits.len() == 6 && digits.bytes().all(|one| one.is_ascii_hexdigit()));
    let fill = if is_color { color } else { "#71717a" };
    html! {
        svg.socket-mark width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" data-shape=(shown_text::line(shape, 20)) {
            @match shape {
                "square" | "rectangle" => rect x="1.5" y="1.5" width="9" height="9" fill=(fill) {},
                "diamond" => path d="M6 .5 11.5 6 6 11.5.5 6z" fill=(fill) {},
                _ => circle cx="6" cy="6" r="4.7" fill=(fill) {},
            }
        }
    }
}
