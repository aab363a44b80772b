//! The OpenAPI 3.1 document, generated from the table of operations.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::api_call::ApiCall;
use super::route::{ApiBody, ApiRoute, DEFINITIONS, answer_schema, get};
use super::{API_ROUTES, BASE};
use crate::http_error::{HttpProblem, ProblemBody};

/// Media type of problem details.
const PROBLEM: &str = "application/problem+json";

/// The document in its served form.
static DOCUMENT: LazyLock<String> =
    LazyLock::new(|| serde_json::to_string_pretty(&document()).unwrap_or_default() + "\n");

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get("/openapi.json", "Document", "OpenAPI document of this API", respond)
            .returns::<Map<String, Value>>(),
    ]
}

async fn respond(_: ApiCall) -> Result<Response, HttpProblem> {
    Ok(([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response())
}

/// Generates the document.
pub(crate) fn document() -> Value {
    // Sorted, so that the module of a route does not matter.
    let mut paths = BTreeMap::new();
    for route in API_ROUTES.iter() {
        let path = paths.entry(format!("{BASE}{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    let paths = Value::Object(paths.into_iter().collect());
    let mut schemas = Map::new();
    hoisted(answer_schema::<ProblemBody<'_>>(), &mut schemas);
    let paths = hoisted(paths, &mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sinew",
            "description": "REST API of an agent mesh. Responses have the format of `sinew … -o json`.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "security": [{}, { "bearer": [] }, { "key": [] }],
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "Key from `sinew gateway key create`, or token of the OpenID provider." },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
    })
}

fn operation(route: &ApiRoute) -> Value {
    let content = route.answer.as_ref().map_or_else(|| json!({}), |schema| json!({ "schema": schema }));
    let mut contents = Map::from_iter([(route.media_type.to_owned(), content)]);
    contents.extend(route.other_media_types.iter().map(|media_type| ((*media_type).to_owned(), json!({}))));
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "x-sinew-role": route.role.as_str(),
        "parameters": parameters(route),
        "responses": {
            "2XX": { "description": "Done", "content": contents },
            "default": {
                "description": "Refused or failed",
                "content": { PROBLEM: { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
    });
    match &route.body {
        Some(ApiBody::Json { schema, is_required }) => {
            operation["requestBody"] =
                json!({ "required": is_required, "content": { "application/json": { "schema": schema } } });
        }
        Some(ApiBody::File) => {
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/yaml": { "schema": { "type": "string" } }, "application/json": {} },
            });
        }
        None => {}
    }
    operation
}

/// Returns the parameters of the path, then those of the query.
fn parameters(route: &ApiRoute) -> Vec<Value> {
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let schema = route.query.clone().unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let definitions = &schema[DEFINITIONS];
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let mut member = member.clone();
        let description = member.as_object_mut().and_then(|member| member.remove("description"));
        all.push(json!({
            "name": name,
            "in": "query",
            "required": required.iter().any(|one| one == name),
            "description": description,
            "schema": inlined(&member, definitions),
        }));
    }
    all
}

/// Inlines a parameter's schema references, because parameters have no `$defs`.
fn inlined(schema: &Value, definitions: &Value) -> Value {
    match schema {
        Value::Object(members) => match members.get("$ref").and_then(Value::as_str) {
            Some(address) => definitions[address.rsplit('/').next().unwrap_or_default()].clone(),
            None => {
                members.iter().map(|(name, member)| (name.clone(), inlined(member, definitions))).collect()
            }
        },
        Value::Array(items) => items.iter().map(|item| inlined(item, definitions)).collect(),
        other => other.clone(),
    }
}

/// Moves a value's definitions to the schemas of the document, because references are resolved from
/// its root.
fn hoisted(value: Value, schemas: &mut Map<String, Value>) -> Value {
    match value {
        Value::Object(mut members) => {
            if let Some(Value::Object(definitions)) = members.remove(DEFINITIONS) {
                for (name, definition) in definitions {
                    let definition = hoisted(definition, schemas);
                    schemas.insert(name, definition);
                }
            }
            let moved = members.into_iter().map(|(name, member)| {
                let address = member.as_str().and_then(|text| text.strip_prefix("#/$defs/"));
                let member = match address.filter(|_| name == "$ref") {
                    Some(definition) => format!("#/components/schemas/{definition}").into(),
                    None => hoisted(member, schemas),
                };
                (name, member)
            });
            Value::Object(moved.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| hoisted(item, schemas)).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_the_one_that_is_checked_in() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, DOCUMENT.as_str()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), *DOCUMENT, "UPDATE=1 writes it");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn check(value: &Value, document: &Value) -> usize {
            match value {
                Value::Object(members) => {
                    assert!(!members.contains_key(DEFINITIONS), "definitions beside their schema: {value}");
                    let address = members.get("$ref").and_then(Value::as_str);
                    let pointer = address.map(|text| text.strip_prefix('#').unwrap_or_default());
                    let found = pointer.map(|pointer| document.pointer(pointer));
                    assert!(found.is_none_or(|found| found.is_some()), "{address:?} leads nowhere");
                    usize::from(address.is_some())
                        + members.values().map(|one| check(one, document)).sum::<usize>()
                }
                Value::Array(items) => items.iter().map(|one| check(one, document)).sum(),
                _ => 0,
            }
        }
        let document = document();
        assert!(
            check(&document, &document) > API_ROUTES.len(),
            "each operation refers to the schema of problems"
        );
    }

    #[test]
    fn answers_of_json_have_a_schema_and_others_none() {
        for route in API_ROUTES.iter() {
            let is_json = route.media_type == "application/json";
            assert_eq!(route.answer.is_some(), is_json, "{route:?}");
        }
    }

    #[test]
    fn bodies_and_forms_of_answers_are_described() {
        let document = document();
        let of = |path: &str, method: &str| document["paths"][format!("{BASE}{path}")][method].clone();
        let answers = |path: &str| {
            let told = of(path, "get")["responses"]["2XX"]["content"].clone();
            let mut media_types: Vec<String> = told.as_object().unwrap().keys().cloned().collect();
            media_types.sort();
            media_types.join(" ")
        };
        for path in ["/map", "/workflows/{name}/drawing", "/executions/{id}/drawing"] {
            assert_eq!(answers(path), "application/json image/svg+xml text/vnd.mermaid", "{path}");
        }
        assert_eq!(answers("/executions/{id}/timeline"), "application/json text/csv");
        assert_eq!(answers("/executions/{id}/events"), "application/json text/event-stream");
        for path in ["/executions", "/executions/{id}/fork", "/executions/{id}/decisions", "/inspections"] {
            assert_eq!(of(path, "post")["requestBody"]["required"], true, "{path}");
        }
        for path in ["/executions/{id}/cancel", "/executions/{id}/retry"] {
            assert_eq!(of(path, "post")["requestBody"]["required"], false, "{path}");
        }
        for path in ["/inspections", "/validations", "/workflows"] {
            let content = &of(path, "post")["requestBody"]["content"];
            assert!(content["application/json"].is_object(), "{path}: {content}");
        }
        let listed = of("/executions", "get");
        let limit = listed["parameters"].as_array().unwrap().iter().find(|one| one["name"] == "limit");
        assert_eq!(limit.unwrap()["schema"]["minimum"], 1);
    }

    #[test]
    fn one_name_is_one_schema() {
        fn collect(value: &Value, found: &mut Map<String, Value>) {
            match value {
                Value::Object(members) => {
                    for (name, schema) in
                        members.get(DEFINITIONS).and_then(Value::as_object).into_iter().flatten()
                    {
                        let other = found.insert(name.clone(), schema.clone());
                        assert!(other.is_none_or(|other| other == *schema), "two schemas are named {name}");
                    }
                    members.values().for_each(|one| collect(one, found));
                }
                Value::Array(items) => items.iter().for_each(|one| collect(one, found)),
                _ => {}
            }
        }
        let mut found = Map::new();
        for route in API_ROUTES.iter() {
            collect(&operation(route), &mut found);
        }
        assert!(found.len() > 40, "{:?}", found.keys().collect::<Vec<_>>());
    }

    #[test]
    fn operations_have_one_route_each() {
        let mut names: Vec<&str> = API_ROUTES.iter().map(|route| route.id).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), API_ROUTES.len());
    }
}
