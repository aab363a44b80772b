//! Preview of an artifact as image, table, JSON or text, and the tasks that received it. Content is
//! never executed.

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use sinew_documents::artifact::{ArtifactRow, ArtifactUses};
use sinew_documents::words;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::markdown::markdown;
use crate::page_frame::{page_or_problem, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, size, text_block, value_line};

/// Maximum size of an artifact that is shown; larger ones can be downloaded.
const MAX_SHOWN_BYTES: u64 = 4 << 20;
/// Rows and columns of a table that are shown.
const MAX_ROWS: usize = 100;
const MAX_COLUMNS: usize = 30;
/// Uses that are listed.
const MAX_USES: usize = 50;
/// Image formats that browsers decode without executing content, by their first bytes.
const IMAGES: [(&[u8], &str); 5] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"RIFF", "image/webp"),
];

/// Address of the bytes of an artifact.
pub(crate) fn artifact_bytes(id: &str, reference: &str) -> ApiPath {
    ApiPath::of(&["executions", id, "artifact"]).with("name", reference)
}

/// Policy of images: an SVG that is opened as a page must not load or run anything.
const IMAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";
/// Maximum size of the declarations and comments before the element of an SVG.
const MAX_PROLOG_BYTES: usize = 4 << 10;

/// Media type of an image; `None` for anything else. As an image, an SVG runs and loads nothing.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    if is_svg(bytes) {
        return Some("image/svg+xml");
    }
    let (_, media_type) = IMAGES.iter().find(|(begin, _)| bytes.starts_with(begin))?;
    let is_webp = *media_type != "image/webp" || bytes.get(8..12) == Some(b"WEBP");
    is_webp.then_some(*media_type)
}

/// Returns true for a text whose first element is `svg`.
fn is_svg(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let begin = &text[..text.floor_char_boundary(MAX_PROLOG_BYTES)];
    let mut rest = begin.trim_start_matches('\u{feff}').trim_start();
    for (open, close) in [("<?xml", "?>"), ("<!--", "-->"), ("<!DOCTYPE svg", ">"), ("<!--", "-->")] {
        while let Some(skipped) = rest.strip_prefix(open) {
            let Some((_, after)) = skipped.split_once(close) else { return false };
            rest = after.trim_start();
        }
    }
    let after = rest.strip_prefix("<svg");
    after.is_some_and(|after| after.starts_with(|next: char| next.is_ascii_whitespace() || next == '>'))
}

/// An artifact with its content and its uses.
pub(crate) async fn preview(request: &PageRequest, id: &str, row: &ArtifactRow) -> Markup {
    let path = artifact_bytes(id, &row.reference());
    let uses_path = ApiPath::of(&["executions", id, "artifact", "uses"]).with("name", &row.reference());
    let (content, uses) =
        futures_util::future::join(content(request, id, row, &path), request.api.get(&uses_path)).await;
    html! {
        section {
            h2 { (shown_text::line(&row.reference(), 200)) }
            (content)
            (command_line(&CommandText::of_execution("sinew artifact get", id).word(&row.reference())))
            (used(uses))
        }
    }
}

async fn content(request: &PageRequest, id: &str, row: &ArtifactRow, path: &ApiPath) -> Markup {
    if row.meta.size > MAX_SHOWN_BYTES {
        return html! { p.notice { "The artifact is too large to show (" (size(row.meta.size)) "). " a href=(path.address()) { "Download" } } };
    }
    let bytes = match request.api.get_bytes(path).await {
        Ok(bytes) => bytes,
        Err(error) => return problem_box(&error),
    };
    if image_type(&bytes).is_some() {
        let address =
            PageAddress::of(&["executions", id, "artifact-image"]).with("artifact", &row.reference());
        return html! { img.preview-image src=(address) alt={ "Image " (shown_text::line(row.meta.name.as_str(), 100)) }; };
    }
    let text = std::str::from_utf8(&bytes).ok();
    text.map_or_else(
        || html! { p.notice { "The artifact is not text. " a href=(path.address()) { "Download" } } },
        |text| text_content(row, text, &path.address()),
    )
}

fn text_content(row: &ArtifactRow, text: &str, whole: &str) -> Markup {
    if let Some(table) = table_of(row, text) {
        return table;
    }
    let source = text_block(&pretty(text), whole);
    if !is_markdown(row) {
        return source;
    }
    html! {
        (markdown(text, whole))
        details { summary { "Source" } (source) }
    }
}

fn is_markdown(row: &ArtifactRow) -> bool {
    let name = row.meta.name.as_str().to_ascii_lowercase();
    std::path::Path::new(&name).extension().is_some_and(|end| end.eq_ignore_ascii_case("md"))
        || row.meta.media_type.starts_with("text/markdown")
}

/// JSON with indents; any other text as it is.
fn pretty(text: &str) -> String {
    let is_json = text.trim_start().starts_with(['{', '[']);
    let value = is_json.then(|| serde_json::from_str::<Value>(text).ok()).flatten();
    value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| text.to_owned())
}

/// The artifact as a table, if it is one: CSV, TSV, or a JSON list of objects.
fn table_of(row: &ArtifactRow, text: &str) -> Option<Markup> {
    let name = row.meta.name.as_str().to_ascii_lowercase();
    let is = |end: &str, media_type: &str| name.ends_with(end) || row.meta.media_type.starts_with(media_type);
    let rows = if is(".csv", "text/csv") {
        separated(text, ',')
    } else if is(".tsv", "text/tab-separated-values") {
        separated(text, '\t')
    } else {
        objects(text)?
    };
    let (head, body) = rows.split_first()?;
    Some(html! {
        div.scroll.preview-table tabindex="0" role="region" aria-label="Table" {
            table.rows {
                thead { tr { @for cell in head.iter().take(MAX_COLUMNS) { th scope="col" { (shown_text::line(cell, 80)) } } } }
                tbody {
                    @for line in body.iter().take(MAX_ROWS) {
                        tr { @for cell in line.iter().take(MAX_COLUMNS) { td { (shown_text::line(cell, 160)) } } }
                    }
                }
            }
        }
        p.quiet { (words::count(body.len(), "row")) @if body.len() > MAX_ROWS { ", first " (MAX_ROWS) " shown" } @if head.len() > MAX_COLUMNS { ", " (MAX_COLUMNS) " of " (head.len()) " columns" } "." }
    })
}

/// Rows of separated values, as RFC 4180 has them: a field in quotes may hold separators, line ends and doubled quotes.
fn separated(text: &str, separator: char) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if is_quoted || field.is_empty() => is_quoted = !is_quoted,
            '\r' if !is_quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !is_quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            c if c == separator && !is_quoted => row.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(field);
        rows.push(row);
    }
    rows
}

/// Rows of a JSON list of objects: the members of the first ones are the columns. `None` for other JSON.
fn objects(text: &str) -> Option<Vec<Vec<String>>> {
    let items: Vec<serde_json::Map<String, Value>> = serde_json::from_str(text).ok()?;
    let mut columns: Vec<String> = Vec::new();
    for name in items.iter().take(MAX_ROWS).flat_map(|item| item.keys()) {
        if !columns.contains(name) && columns.len() <= MAX_COLUMNS {
            columns.push(name.clone());
        }
    }
    if columns.is_empty() {
        return None;
    }
    let row = |item: &serde_json::Map<String, Value>| {
        columns.iter().map(|name| item.get(name).map(value_line).unwrap_or_default()).collect()
    };
    Some(std::iter::once(columns.clone()).chain(items.iter().map(row)).collect())
}

fn used(uses: Result<ArtifactUses, ConsoleError>) -> Markup {
    html! {
        h3 { "Used by" }
        @match uses {
            Err(error) => (problem_box(&error)),
            Ok(found) => {
                @if found.uses.is_empty() {
                    p.empty { "No task received its address or digest in its own and the latest other executions (" (found.searched_executions) " searched)." }
                } @else {
                    ul.uses {
                        @for one in found.uses.iter().take(MAX_USES) {
                            li {
                                @match &one.node {
                                    Some(node) => { a href=(PageAddress::execution(&one.execution).with("node", node)) { (shown_text::line(node, 60)) } @if one.attempt > 1 { " attempt " (one.attempt) } " of " },
                                    None => "input of ",
                                }
                                a.id href=(PageAddress::execution(&one.execution)) { (shown_text::line(&one.workflow, 50)) " " (shown_text::line(words::short_id(&one.execution), 30)) }
                            }
                        }
                    }
                    @if found.uses.len() > MAX_USES { p.quiet { (found.uses.len() - MAX_USES) " more" } }
                }
            }
        }
    }
}

/// Artifact that the address of a picture names.
#[derive(Clone, Debug, Default, Deserialize)]
struct PictureChoice {
    #[serde(default)]
    artifact: String,
}

/// Serves the image of an artifact; rejects anything else, regardless of its name or declared type.
pub(crate) async fn image(Path(id): Path<String>, request: PageRequest) -> Response {
    let bytes = async {
        let PictureChoice { artifact } = request.query()?;
        request.api.get_bytes(&artifact_bytes(&id, &artifact)).await
    };
    match bytes.await {
        Ok(bytes) => match image_type(&bytes) {
            Some(media_type) => {
                let headers = [
                    (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
                    (header::CONTENT_DISPOSITION, HeaderValue::from_static("inline")),
                    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(IMAGE_POLICY)),
                ];
                (headers, bytes).into_response()
            }
            None => StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response(),
        },
        Err(error) => page_or_problem(&request, Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_known_by_their_bytes() {
        let check =
            |bytes: &[u8], expected: Option<&str>| assert_eq!(image_type(bytes), expected, "{bytes:?}");
        check(b"\x89PNG\r\n\x1a\nrest", Some("image/png"));
        check(b"RIFF....WEBPVP8 ", Some("image/webp"));
        check(b"RIFF....WAVE", None);
        for svg in [
            "<svg>",
            "<svg onload=alert(1)>",
            "\u{feff} <?xml version='1.0'?>\n<!-- a --><!DOCTYPE svg>\n<svg\nxmlns=''>",
        ] {
            check(svg.as_bytes(), Some("image/svg+xml"));
        }
        for other in ["<html><svg>", "<svgx>", "<!-- <svg>", "<script>", "svg"] {
            check(other.as_bytes(), None);
        }
        check(b"", None);
    }

    #[test]
    fn separated_values_are_rows() {
        let check = |text: &str, expected: &[&[&str]]| assert_eq!(separated(text, ','), expected, "{text:?}");
        check("a,b\r\n1,2\n", &[&["a", "b"], &["1", "2"]]);
        check("\"a,\"\"x\"\"\nb\",2", &[&["a,\"x\"\nb", "2"]]);
        check("a,\n,b", &[&["a", ""], &["", "b"]]);
        check("", &[]);
        check("\"open", &[&["open"]]);
    }

    #[test]
    fn lists_of_objects_are_tables() {
        let rows = objects(r#"[{"a": 1}, {"b": "<b>", "a": null}]"#).unwrap();
        assert_eq!(rows, [vec!["a", "b"], vec!["1", ""], vec!["null", "<b>"]]);
        for other in ["[1]", "[]", "{}", "text"] {
            assert_eq!(objects(other), None, "{other}");
        }
    }
}
