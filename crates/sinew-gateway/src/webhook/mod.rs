//! `/hooks/NAME`: requests of external services that start executions.
//!
//! A request is verified before its content is read. It starts the execution that its delivery
//! names, so repeated deliveries are idempotent.

mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use sinew_mesh::log_limited;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::MeshOperator;
use sinew_operations::start::{StartKey, StartRequest, StartTarget};
use sinew_protocol::access::HOOK_CALLER_PREFIX;
use sinew_protocol::origin::{ChangeOrigin, EntryPoint};
use sinew_protocol::unique_keys::read_unique;
use sinew_protocol::webhook::WebhookTrigger;
use sinew_protocol::{Token, code};

use crate::http_error::HttpProblem;
use crate::operations::short;
use crate::request_body::{BodyError, is_json, read_body};
use crate::state::GatewayState;

/// Maximum length of a delivery in its execution's label.
const MAX_LABEL: usize = 64;

/// Answers one delivery.
pub(crate) async fn serve(state: Arc<GatewayState>, name: &str, request: Request) -> Response {
    let answer = deliver(&state, name, request).await;
    answer.unwrap_or_else(HttpProblem::into_response)
}

async fn deliver(state: &GatewayState, name: &str, request: Request) -> Result<Response, HttpProblem> {
    let trigger = match &state.webhooks {
        Some(webhooks) => webhooks.find(name).await.map_err(Failure::from)?,
        None => None,
    };
    let trigger = trigger.filter(|trigger| state.operations.offers(&trigger.workflow));
    let absent = || HttpProblem::not_found(format!("webhook trigger {:?} not found", short(name, 64)));
    let trigger = trigger.ok_or_else(absent)?;
    let (parts, body) = request.into_parts();
    let body = read_body(&state.limits, body).await.map_err(|error| {
        let (status, text) = match error {
            BodyError::TooLarge(text) => (StatusCode::PAYLOAD_TOO_LARGE, text),
            BodyError::Broken => (StatusCode::REQUEST_TIMEOUT, "the request body is incomplete"),
        };
        HttpProblem::new(status, code::GATEWAY_REQUEST_WRONG, text)
    })?;
    let now = crate::access::now_ms() / 1000;
    if let Err(refusal) = signature::verify(&trigger, &parts.headers, &body, now) {
        log_limited!(info, hook = name, %refusal, "rejected a webhook delivery");
        return Err(HttpProblem::new(StatusCode::UNAUTHORIZED, code::WEBHOOK_REFUSED, refusal.to_string()));
    }
    if signature::is_ping(&trigger, &parts.headers) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !is_json(content_type) {
        return Err(wrong("the body is not JSON; configure the service to send application/json".to_owned()));
    }
    let document: Value = read_unique(&body).map_err(|error| wrong(format!("the body: {error}")))?;
    let delivery = signature::delivery_of(&trigger, &document, &body)
        .ok_or_else(|| wrong("the body has no member id".to_owned()))?;
    start(state, &trigger, &delivery, input_of(&trigger, document)?).await
}

fn wrong(text: String) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, code::GATEWAY_REQUEST_WRONG, text)
}

/// Returns the input for a body.
fn input_of(trigger: &WebhookTrigger, document: Value) -> Result<Value, HttpProblem> {
    if trigger.input.is_empty() {
        return Ok(document);
    }
    let members = trigger.input.iter().map(|(name, pointer)| match document.pointer(pointer) {
        Some(value) => Ok((name.clone(), value.clone())),
        None => Err(wrong(format!("the body has no value at {pointer}"))),
    });
    Ok(Value::Object(members.collect::<Result<Map<_, _>, _>>()?))
}

async fn start(
    state: &GatewayState,
    trigger: &WebhookTrigger,
    delivery: &str,
    input: Value,
) -> Result<Response, HttpProblem> {
    let caller = Token::of(&format!("{HOOK_CALLER_PREFIX}{}", trigger.name));
    let origin = ChangeOrigin { via: EntryPoint::Hook, key: None, is_proven: true };
    let operator = MeshOperator::new(state.operations.client().on_behalf_of(caller).with_origin(origin));
    let target = StartTarget::Workflow { name: trigger.workflow.clone(), version: None };
    let mut request = StartRequest::new(target, input);
    request.key = StartKey::Key(delivery.to_owned());
    request.labels = BTreeMap::from([
        ("webhook".to_owned(), trigger.name.to_string()),
        ("delivery".to_owned(), short(delivery, MAX_LABEL)),
    ]);
    let prepared = operator.prepare_start(request).await?;
    let execution = prepared.execution().to_string();
    let is_new = match operator.start(prepared).await {
        // The id is derived from trigger and delivery: the service repeated the delivery with other
        // content.
        Err(other) if other.code == code::EXECUTION_ID_OF_OTHER_START.as_str() => false,
        started => started?.new,
    };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let body = json!({"execution": execution, "new": is_new}).to_string();
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}
