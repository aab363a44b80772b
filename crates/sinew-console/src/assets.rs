//! Embedded files of the pages: a style sheet, JavaScript modules, an icon, and the code editor.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::page_file::{JAVASCRIPT, PageFile, with_addresses};
use crate::vendored_editor::editor_files;

/// The style sheet; the colours of drawings come from `sinew-diagram`.
pub(crate) static STYLE: LazyLock<PageFile> = LazyLock::new(|| {
    let rules = sinew_diagram::dark_rules(".drawing");
    let content = format!(
        "{}\n@media (prefers-color-scheme: dark) {{\n{rules}}}\n",
        include_str!("assets/console.css")
    );
    PageFile::of("console.css", "text/css; charset=utf-8", content)
});

/// JavaScript modules that others import, each after those that it imports.
static LIBRARIES: LazyLock<Vec<PageFile>> = LazyLock::new(|| {
    let mut files = Vec::new();
    for (name, content) in [
        ("times.js", include_str!("assets/times.js")),
        ("graph-view.js", include_str!("assets/graph-view.js")),
        ("large-graph.js", include_str!("assets/large-graph.js")),
    ] {
        files.push(PageFile::of(name, JAVASCRIPT, with_addresses(content, &addresses_of(&files))));
    }
    files
});

/// JavaScript modules of every page. Each enhances pages that also work without it.
pub(crate) static MODULES: LazyLock<[PageFile; 11]> = LazyLock::new(|| {
    let addresses = addresses_of(&LIBRARIES);
    [
        ("live.js", include_str!("assets/live.js")),
        ("graph.js", include_str!("assets/graph.js")),
        ("keys.js", include_str!("assets/keys.js")),
        ("helpers.js", include_str!("assets/helpers.js")),
        ("timeline.js", include_str!("assets/timeline.js")),
        ("import.js", include_str!("assets/import.js")),
        ("traffic.js", include_str!("assets/traffic.js")),
        ("chat.js", include_str!("assets/chat.js")),
        ("desk.js", include_str!("assets/desk.js")),
        ("views.js", include_str!("assets/views.js")),
        ("badge.js", include_str!("assets/badge.js")),
    ]
    .map(|(name, content)| PageFile::of(name, JAVASCRIPT, with_addresses(content, &addresses)))
});

/// The names by which modules import these files, with their addresses.
fn addresses_of(files: &[PageFile]) -> Vec<(&'static str, String)> {
    files.iter().map(|file| (file.name, file.address.clone())).collect()
}

/// The code editor: its module, then the packages that it imports. Only pages that need it load it.
pub(crate) static EDITOR: LazyLock<Vec<PageFile>> = LazyLock::new(editor_files);

/// The icon.
pub(crate) static ICON: LazyLock<PageFile> =
    LazyLock::new(|| PageFile::of("icon.svg", "image/svg+xml", include_str!("assets/icon.svg").to_owned()));

/// Serves a file. Its address contains a digest of its content, so browsers may cache it forever.
pub(crate) async fn serve_file(Path(name): Path<String>, request: HeaderMap) -> Response {
    let files = std::iter::once(&*STYLE)
        .chain(LIBRARIES.iter())
        .chain(MODULES.iter())
        .chain([&*ICON])
        .chain(EDITOR.iter());
    let Some(file) = files.into_iter().find(|file| file.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, file.media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::VARY, "accept-encoding"),
    ];
    match file.packed().filter(|_| takes_gzip(&request)) {
        Some(packed) => {
            let mut response = (headers, packed).into_response();
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
        None => (headers, file.content.as_str()).into_response(),
    }
}

/// Returns true if a client accepts gzip: it names gzip, with a weight other than zero.
fn takes_gzip(request: &HeaderMap) -> bool {
    let encodings = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    encodings.flat_map(|list| list.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let weight = weight.trim().trim_start_matches("q=").trim_matches(['0', '.']);
        let is_refused = one.contains(';') && weight.is_empty();
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_whether_they_take_gzip() {
        let check = |header: Option<&'static str>, expected: bool| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(header));
            }
            assert_eq!(takes_gzip(&headers), expected, "{header:?}");
        };
        check(Some("gzip, deflate, br"), true);
        check(Some("br, GZIP;q=0.5"), true);
        check(Some("gzip;q=0, br"), false);
        check(Some("gzip;q=0.0"), false);
        check(Some("identity"), false);
        check(None, false);
    }
}
