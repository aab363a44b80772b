//! Files of workflows with their findings in place.

use maud::{Markup, html};
use sinew_documents::finding::{Finding, FindingSeverity};
use sinew_documents::words;
use sinew_documents::workflow::{SourceFile, WorkflowSource};

use crate::page_frame::code_link;
use crate::shown_text;

/// Maximum shown lines per file.
const MAX_LINES: usize = 400;
/// Maximum shown bytes of all files.
const MAX_BYTES: usize = 40 << 10;
/// Maximum shown characters per line.
const MAX_LINE_CHARS: usize = 400;

/// Files with their findings; `whole` links to the full files.
pub(crate) fn source_files(source: &WorkflowSource, whole: &str) -> Markup {
    let mut left = MAX_BYTES;
    html! {
        @for (place, file) in source.files.iter().enumerate() {
            @let found = findings_of(source, file, place == 0);
            @let shown = file.text.floor_char_boundary(left);
            @if { left -= shown.min(left); true } {
                h3 { code { (shown_text::line(&file.name, 200)) } @if !found.is_empty() { " " span.quiet { (words::count(found.len(), "finding")) } } }
                (lines_of(&file.text[..shown], &found, &file.name))
                @if shown < file.text.len() || file.text.lines().count() > MAX_LINES { p.more { "The file is truncated. " a href=(whole) { "Show all" } } }
            }
        }
    }
}

/// Findings of a file. Findings without a file belong to the first.
fn findings_of<'s>(source: &'s WorkflowSource, file: &SourceFile, is_first: bool) -> Vec<&'s Finding> {
    let is_of = |finding: &&Finding| match finding.file.as_deref() {
        Some(name) => name == file.name,
        None => is_first,
    };
    source.diagnostics.iter().filter(is_of).collect()
}

fn lines_of(text: &str, findings: &[&Finding], name: &str) -> Markup {
    html! {
        div.source tabindex="0" role="region" aria-label={ "Source of " (shown_text::line(name, 80)) } {
            ol.source-lines {
                @for (number, line) in (1u32..).zip(text.lines().take(MAX_LINES)) {
                    @let here: Vec<&&Finding> = findings.iter().filter(|finding| finding.line == Some(number)).collect();
                    li id=[(!here.is_empty()).then(|| format!("line-{number}"))] {
                        code { (marked(line, &here)) }
                        @for finding in here { (note(finding)) }
                    }
                }
            }
        }
    }
}

/// A line with its first finding marked.
fn marked(line: &str, here: &[&&Finding]) -> Markup {
    let Some(finding) = here.first() else { return html! { (shown_text::line(line, MAX_LINE_CHARS)) } };
    // Columns count characters from 1; a finding that ends on another line is marked to the end of
    // this one.
    let chars = line.chars().count();
    let begin = finding.column.map_or(0, |column| (column as usize).saturating_sub(1)).min(chars);
    let is_here = finding.end_line == finding.line;
    let end =
        finding.end_column.filter(|_| is_here).map_or(chars, |column| (column as usize).saturating_sub(1));
    let end = end.clamp((begin + 1).min(chars), chars);
    let byte = |at: usize| line.char_indices().nth(at).map_or(line.len(), |(byte, _)| byte);
    let (before, rest) = line.split_at(byte(begin));
    let (inside, behind) = rest.split_at(byte(end) - byte(begin));
    let class = if finding.severity == FindingSeverity::Error { "is-error" } else { "is-warning" };
    html! {
        (shown_text::line(before, MAX_LINE_CHARS))
        mark class=(class) title=(shown_text::line(&finding.message, 300)) { (shown_text::line(inside, MAX_LINE_CHARS)) }
        (shown_text::line(behind, MAX_LINE_CHARS))
    }
}

fn note(finding: &Finding) -> Markup {
    html! {
        p class=(if finding.severity == FindingSeverity::Error { "found is-error" } else { "found is-warning" }) {
            b { (finding.severity.as_str()) } " " (shown_text::line(&finding.message, 600)) " " (code_link(&finding.code))
            @if let Some(hint) = &finding.hint { " " span.quiet { (shown_text::sentence(hint, 400)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(line: u32, column: u32, end_column: u32) -> Finding {
        serde_json::from_value(serde_json::json!({
            "severity": "warning", "code": "SINEW-2001", "message": "<b>odd</b>",
            "line": line, "column": column, "end_line": line, "end_column": end_column,
        }))
        .unwrap()
    }

    #[test]
    fn findings_stand_at_their_place() {
        let check = |text: &str, column: u32, end_column: u32, expected: &str| {
            let source = WorkflowSource {
                name: "a".to_owned(),
                version: "0".to_owned(),
                dialect: "sam".to_owned(),
                files: vec![SourceFile { name: "a.yaml".to_owned(), text: text.to_owned() }],
                diagnostics: vec![finding(1, column, end_column)],
            };
            let shown = source_files(&source, "/").into_string();
            assert!(shown.contains(expected), "{expected} is not in {shown}");
            assert!(shown.contains("&lt;b&gt;odd&lt;/b&gt;") && !shown.contains("<b>odd"), "{shown}");
        };
        check(
            "id: é<x>",
            5,
            8,
            "id: <mark class=\"is-warning\" title=\"&lt;b&gt;odd&lt;/b&gt;\">é&lt;x</mark>&gt;",
        );
        check("ab", 9, 9, "ab<mark");
        check("ab", 1, 1, "<mark class=\"is-warning\" title=\"&lt;b&gt;odd&lt;/b&gt;\">a</mark>b");
    }
}
