//! Files of the pages, compiled in: one style sheet, a few modules of JavaScript, one icon.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use crate::api_client::join_segments;
use crate::page_request::BASE;

/// A file with the address that changes when its content does.
#[derive(Debug)]
pub(crate) struct PageFile {
    name: &'static str,
    media_type: &'static str,
    content: String,
    /// Address with the first characters of the content's digest.
    pub(crate) address: String,
}

impl PageFile {
    fn of(name: &'static str, media_type: &'static str, content: String) -> Self {
        let digest = Sha256::digest(content.as_bytes());
        let version = hex::encode(&digest[..6]);
        let address = format!("{}?v={version}", join_segments(BASE, &["assets", name]));
        Self { name, media_type, content, address }
    }
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The style sheet; colours of drawings come from the crate that draws them.
pub(crate) static STYLE: LazyLock<PageFile> = LazyLock::new(|| {
    let rules = sinew_diagram::dark_rules(".drawing");
    let content = format!(
        "{}\n@media (prefers-color-scheme: dark) {{\n{rules}}}\n",
        include_str!("assets/console.css")
    );
    PageFile::of("console.css", "text/css; charset=utf-8", content)
});

/// The modules of JavaScript. Each enhances pages that work without it, and none imports another.
pub(crate) static MODULES: LazyLock<[PageFile; 6]> = LazyLock::new(|| {
    [
        ("live.js", include_str!("assets/live.js")),
        ("graph.js", include_str!("assets/graph.js")),
        ("keys.js", include_str!("assets/keys.js")),
        ("helpers.js", include_str!("assets/helpers.js")),
        ("traffic.js", include_str!("assets/traffic.js")),
        ("desk.js", include_str!("assets/desk.js")),
    ]
    .map(|(name, content)| PageFile::of(name, JAVASCRIPT, content.to_owned()))
});

/// The icon.
pub(crate) static ICON: LazyLock<PageFile> =
    LazyLock::new(|| PageFile::of("icon.svg", "image/svg+xml", include_str!("assets/icon.svg").to_owned()));

/// Serves a file. Its address names its content, so a browser need not ask twice.
pub(crate) async fn serve_file(Path(name): Path<String>) -> Response {
    let files = std::iter::once(&*STYLE).chain(MODULES.iter()).chain([&*ICON]);
    match files.into_iter().find(|file| file.name == name) {
        Some(file) => {
            let headers = [
                (header::CONTENT_TYPE, file.media_type),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, file.content.as_str()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
