//! Help: keys, a page for each operator code, the glossary, and the findings of the doctor.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::mesh::{CheckState, DoctorCheck};
use sinew_documents::node_status::NodeStatus;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::glossary::GLOSSARY;
use crate::page_frame::{ConsolePage, ConsoleSection, code_link, page_or_problem, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line};
use crate::status_mark::{mark_like, warning_mark};

/// Maximum number of listed codes.
const MAX_ROWS: usize = 50;

/// Keys of the console.
const KEYS: [(&str, &str); 7] = [
    ("/", "focus the filter"),
    (
        "g, then a letter",
        "p, e, a, w, n, f, c, r, t, h: go to Pulse, Executions, Approvals, Workflows, Agents, Catalogue, Chat, Artifacts, Traffic, Help",
    ),
    ("j, k", "next and previous row"),
    ("Enter", "open the row"),
    (".", "focus the actions"),
    ("?", "show these keys"),
    ("Escape", "leave a field, close a panel"),
];

/// Search of the codes.
#[derive(Clone, Debug, Default, Deserialize)]
struct CodeSearch {
    #[serde(default)]
    text: String,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = help_page(&request).await;
    page_or_problem(&request, page)
}

async fn help_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let CodeSearch { text } = request.query()?;
    let checks = request.api.get::<Vec<DoctorCheck>>(&ApiPath::of(&["doctor"])).await;
    let wanted = text.trim().to_lowercase();
    let all = sinew_codes::all();
    let found: Vec<&(&str, &str)> = all
        .iter()
        .filter(|(code, page)| code.to_lowercase().contains(&wanted) || page.to_lowercase().contains(&wanted))
        .collect();
    let body = html! {
        h1 { "Help" }
        form.filter method="get" role="search" aria-label="Search codes and glossary" {
            label.wide { span { "Code or text" } input type="text" name="text" value=(text) data-filter autocomplete="off"; }
            button type="submit" { "Search" }
        }
        // Search results come first.
        @if wanted.is_empty() {
            (doctor(&checks))
            (keys())
            (glossary(&wanted))
            (codes(&found, all.len()))
        } @else {
            (codes(&found, all.len()))
            (glossary(&wanted))
            (doctor(&checks))
            (keys())
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Help, "Help", body))
}

fn keys() -> Markup {
    html! {
        section {
            div.head { h2 { "Keys" } button #keys type="button" hidden { "Turn keys on or off" } }
            dl.keys { @for (key, effect) in KEYS { div { dt { kbd { (key) } } dd { (effect) } } } }
        }
    }
}

fn codes(found: &[&(&str, &str)], all: usize) -> Markup {
    html! {
        section {
            div.head {
                h2 { "Error codes " span.quiet { (found.len()) " of " (all) } }
                (command_line(&CommandText::new("sinew explain CODE")))
            }
            @if found.is_empty() { p.empty { "No matching codes." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Codes" {
                    table.rows {
                        thead { tr { th scope="col" { "Code" } th.wide scope="col" { "Meaning" } } }
                        tbody {
                            @for (code, _) in found.iter().take(MAX_ROWS) {
                                tr data-row { td { a href=(PageAddress::of(&["help", code])) { (code) } } td.wide { (sinew_codes::title(code).unwrap_or_default()) } }
                            }
                        }
                    }
                }
                @if found.len() > MAX_ROWS { p.notice { (found.len() - MAX_ROWS) " more; narrow the search." } }
            }
        }
    }
}

/// The glossary, filtered by the same search.
fn glossary(wanted: &str) -> Markup {
    let found =
        || GLOSSARY.iter().filter(|(word, meaning)| word.contains(wanted) || meaning.contains(wanted));
    html! {
        section {
            h2 #glossary { "Glossary" }
            @if found().next().is_none() { p.empty { "No matching terms." } } @else {
                dl.words { @for (word, meaning) in found() { div { dt { (word) } dd { (meaning) } } } }
            }
        }
    }
}

/// Health checks of the mesh, each with a hint.
fn doctor(checks: &Result<Vec<DoctorCheck>, ConsoleError>) -> Markup {
    html! {
        section {
            div.head { h2 #doctor { "Health checks" } (command_line(&CommandText::new("sinew doctor"))) }
            @match checks {
                Err(error) => (problem_box(error)),
                Ok(checks) => div.scroll tabindex="0" role="region" aria-labelledby="doctor" {
                    table.rows {
                        thead { tr { th scope="col" { "Check" } th scope="col" { "Result" } th.wide scope="col" { "Finding" } th scope="col" { "Code" } } }
                        tbody {
                            @for check in checks {
                                tr {
                                    td { (shown_text::line(&check.what, 40)) }
                                    td { (match check.state { CheckState::Ok => mark_like(NodeStatus::Succeeded, "ok"), CheckState::Warn => warning_mark(), CheckState::Fail => mark_like(NodeStatus::Failed, "failed") }) }
                                    td.wide { (shown_text::line(&check.message, 600)) @if let Some(hint) = &check.hint { p.quiet { (shown_text::sentence(hint, 300)) } } }
                                    td { @if let Some(code) = &check.code { (code_link(code)) } }
                                }
                            }
                        }
                    }
                },
            }
        }
    }
}

pub(crate) async fn code(Path(code): Path<String>, request: PageRequest) -> Response {
    let page = match sinew_codes::page(&code) {
        Some(text) => {
            let title = sinew_codes::title(&code).unwrap_or_default();
            let body = html! {
                div.narrow {
                    p.quiet { a href=(PageAddress::of(&["help"])) { "Help" } " / " (code) }
                    h1 { (title) }
                    (paragraphs(text))
                    (command_line(&CommandText::new("sinew explain").word(&code)))
                }
            };
            Ok(ConsolePage::new(ConsoleSection::Help, code.clone(), body))
        }
        None => Err(ConsoleError::NoPage(shown_text::line(&code, 60))),
    };
    page_or_problem(&request, page)
}

/// The text of a page after its title: paragraphs, `- ` lists, and code blocks with four spaces
/// before each line.
fn paragraphs(text: &str) -> Markup {
    let body = text.split_once('\n').map_or("", |(_, body)| body);
    let blocks = body.split("\n\n").map(|block| block.trim_matches('\n')).filter(|block| !block.is_empty());
    html! {
        @for block in blocks {
            @if block.lines().all(|line| line.starts_with("    ")) {
                pre.value tabindex="0" { (without_indent(block)) }
            } @else {
                (text_and_list(block))
            }
        }
    }
}

fn without_indent(block: &str) -> String {
    block.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// A paragraph, and a list from the first line that starts with `- `.
fn text_and_list(block: &str) -> Markup {
    let lines: Vec<&str> = block.lines().collect();
    let start = lines.iter().position(|line| line.starts_with("- ")).unwrap_or(lines.len());
    let (text, list) = lines.split_at(start);
    let mut items: Vec<String> = Vec::new();
    for line in list {
        if let Some(item) = line.strip_prefix("- ") {
            items.push(item.to_owned());
        } else if let Some(item) = items.last_mut() {
            item.push(' ');
            item.push_str(line.trim());
        }
    }
    html! {
        @if !text.is_empty() { p { (with_code(&text.join("\n"))) } }
        @if !items.is_empty() { ul { @for item in &items { li { (with_code(item)) } } } }
    }
}

/// Text in which backticks mark code.
fn with_code(text: &str) -> Markup {
    html! { @for (number, part) in text.split('`').enumerate() { @if number % 2 == 1 { code { (part) } } @else { (part) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_paragraphs_lists_and_code() {
        let page =
            "# Title\n\nUse `a`\nhere:\n- one\n  more `b`\n- <two>\n\n    key:\n      inner: 2\n\nEnd.\n";
        let expected = "<p>Use <code>a</code>\nhere:</p>\
            <ul><li>one more <code>b</code></li><li>&lt;two&gt;</li></ul>\
            <pre class=\"value\" tabindex=\"0\">key:\n  inner: 2</pre><p>End.</p>";
        assert_eq!(paragraphs(page).into_string(), expected);
    }
}
