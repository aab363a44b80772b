//! Answers of the API against their schemas in the OpenAPI document.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../openapi.json")).unwrap());

/// Compiled schemas, by their place in the document.
static SCHEMAS: LazyLock<Mutex<HashMap<String, Validator>>> = LazyLock::new(Mutex::default);

/// Fails unless an answer of the API is one that the document describes. Paths are those of requests, with or without their
/// query; whatever lies outside the API is passed over.
pub(crate) fn check_answer(method: &Method, path: &str, status: StatusCode, media_type: &str, body: &str) {
    let media_type = media_type.split(';').next().unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    if !path.starts_with("/api/v1/") || !media_type.ends_with("json") {
        return;
    }
    let Some(template) = template_of(path) else {
        assert_eq!(status, StatusCode::NOT_FOUND, "{path} is not in the document");
        return;
    };
    let method = method.as_str().to_ascii_lowercase();
    let kind = if status.is_success() { "2XX" } else { "default" };
    let operation = &DOCUMENT["paths"][template][&method];
    let content = &operation["responses"][kind]["content"];
    // Drawings are pictures unless JSON is asked for.
    let Some(answer) = content.get(media_type) else {
        assert!(
            operation.is_null() || content.get("image/svg+xml").is_some(),
            "{method} {path}: {media_type}"
        );
        return;
    };
    let place = format!("{template} {method} {kind}");
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = schemas.entry(place.clone()).or_insert_with(|| {
        // References are read from the root of the document.
        let schema = json!({"allOf": [answer["schema"]], "components": DOCUMENT["components"]});
        jsonschema::draft202012::new(&schema).unwrap_or_else(|error| panic!("{place}: {error}"))
    });
    let document: Value = serde_json::from_str(body).unwrap();
    let errors: Vec<String> =
        schema.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{place}: {}\n{document:#}", errors.join("\n"));
}

/// The path of the document that a path of a request is of: names that stand there come before names in braces.
fn template_of(path: &str) -> Option<&'static str> {
    let wanted: Vec<&str> = path.split('/').collect();
    let fits = |template: &&String| {
        let parts: Vec<&str> = template.split('/').collect();
        parts.len() == wanted.len()
            && parts.iter().zip(&wanted).all(|(part, wanted)| part.starts_with('{') || part == wanted)
    };
    let found = DOCUMENT["paths"].as_object().unwrap().keys().filter(fits);
    found.min_by_key(|template| template.matches('{').count()).map(String::as_str)
}
