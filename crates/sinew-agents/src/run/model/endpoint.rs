//! Calls a model over HTTP, or from a script.
//!
//! As for HTTP agents: no redirects, no proxies, only public addresses unless the file allows others,
//! and a size limit for answers.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sinew_model::codec::{
    AnswerReader, ModelRequest, ServerQuirks, encode_request, key_header, refusal_of_status,
};
use sinew_model::script::ModelScript;
use sinew_model::{ModelRefusal, ModelSpec, ModelTurn, Prompt, RefusalKind, TurnDelta};
use tokio::time::{Instant, timeout_at};

use crate::clean::{ResolvedSecrets, clean};
use crate::run::http::{check_literal_address, http_client, retry_after};
use crate::template::{Environment, Template, UnfilledTemplate};

/// Maximum requests that differ in what the server rejected, for one call.
const MAX_VARIANTS: usize = 4;
/// Header of servers that request a delay in milliseconds.
const RETRY_AFTER_MS: &str = "retry-after-ms";
/// Maximum bytes of an error response that are read.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// A model of an agent file, ready to call.
#[derive(Debug)]
pub(crate) struct ModelEndpoint {
    pub(crate) spec: ModelSpec,
    /// Address of the server, without a trailing slash.
    pub(crate) url: String,
    pub(crate) key: Option<Template>,
    pub(crate) headers: Vec<(HeaderName, Template)>,
    pub(crate) allow_private: bool,
    /// Timeout until the first byte of the answer.
    pub(crate) first: Duration,
    /// Timeout between two chunks of the answer.
    pub(crate) idle: Duration,
    /// Timeout of the whole answer.
    pub(crate) total: Duration,
    /// Answers of a scripted model.
    pub(crate) script: Option<ModelScript>,
    /// Created on the first call, because loading the system's certificates is slow.
    pub(crate) client: OnceLock<reqwest::Client>,
    /// What the server does not accept, learned from its refusals.
    pub(crate) quirks: Mutex<ServerQuirks>,
}

/// Reason why an exchange brought no turn.
struct FailedExchange {
    refusal: ModelRefusal,
    /// Status and start of the response, if it is a refusal.
    response: Option<(u16, Vec<u8>)>,
}

impl From<ModelRefusal> for FailedExchange {
    fn from(refusal: ModelRefusal) -> Self {
        Self { refusal, response: None }
    }
}

/// Headers of a model's requests, or the reason why they cannot be rendered.
pub(crate) type FilledHeaders = Result<HeaderMap, String>;

impl ModelEndpoint {
    /// Renders the headers from the environment. Adds their values to the secrets.
    pub(crate) fn fill_headers(
        &self,
        environment: &Environment,
        secrets: &mut ResolvedSecrets,
    ) -> FilledHeaders {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut fill = |template: &Template, prefix: &str| -> Result<HeaderValue, String> {
            let scope = crate::template::Scope {
                input: &serde_json::Value::Null,
                instruction: None,
                context: &serde_json::Value::Null,
            };
            let filled = template
                .fill(
                    &scope,
                    |_, _| Err("no value is allowed here".to_owned()),
                    |name| secrets.read(environment, name),
                )
                .map_err(|unfilled| match unfilled {
                    UnfilledTemplate::Unset(name) => format!(
                        "model '{}' needs the environment variable '{name}', which is not set",
                        self.spec.alias
                    ),
                    UnfilledTemplate::Value(reason) => reason,
                })?;
            let mut value = HeaderValue::from_str(&format!("{prefix}{filled}"))
                .map_err(|_| "a header value contains a character that is not allowed".to_owned())?;
            value.set_sensitive(true);
            Ok(value)
        };
        if let Some(key) = &self.key {
            let (name, prefix) = key_header(self.spec.provider);
            headers.insert(HeaderName::from_static(name), fill(key, prefix)?);
        }
        for (name, template) in &self.headers {
            headers.insert(name.clone(), fill(template, "")?);
        }
        Ok(headers)
    }

    /// Calls the model once within the remaining time, with the settings of `model`. `asked` counts
    /// earlier answers, for scripts.
    pub(crate) async fn ask(
        &self,
        (prompt, model): (&Prompt, &ModelSpec),
        (asked, left): (usize, Duration),
        headers: &FilledHeaders,
        secrets: &ResolvedSecrets,
        deltas: &mut (dyn FnMut(TurnDelta) + Send),
    ) -> Result<ModelTurn, ModelRefusal> {
        if let Some(script) = &self.script {
            let turn = script.answer(asked, prompt)?;
            deltas(TurnDelta::Text(turn.text.clone()));
            return Ok(turn);
        }
        let headers =
            headers.as_ref().map_err(|reason| ModelRefusal::new(RefusalKind::Denied, reason.clone()))?;
        let end = Instant::now() + self.total.min(left);
        let mut turn = self.adapted_exchange((prompt, model), headers, end, deltas).await;
        if let Err(refusal) = &mut turn {
            refusal.message =
                format!("model '{}': {}", self.spec.alias, clean(refusal.message.as_bytes(), secrets));
        }
        turn
    }

    /// Calls the model. Repeats the request without a member that the server rejects.
    async fn adapted_exchange(
        &self,
        (prompt, model): (&Prompt, &ModelSpec),
        headers: &HeaderMap,
        end: Instant,
        deltas: &mut (dyn FnMut(TurnDelta) + Send),
    ) -> Result<ModelTurn, ModelRefusal> {
        let known = self.quirks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut quirks = known.clone();
        let mut variant = 1;
        loop {
            let request = encode_request(prompt, model, &quirks);
            let body = request.body.clone();
            let failed = match self.exchange(request, headers.clone(), end, deltas).await {
                Ok(turn) => {
                    // Only a request that succeeds proves the reason of a refusal.
                    if quirks != known {
                        *self.quirks.lock().unwrap_or_else(PoisonError::into_inner) = quirks;
                    }
                    return Ok(turn);
                }
                Err(failed) => failed,
            };
            let response = failed.response.filter(|_| variant < MAX_VARIANTS);
            let learned = response.and_then(|(status, refusal)| {
                quirks.learned_from(self.spec.provider, &body, (status, refusal.as_slice()))
            });
            let Some(learned) = learned else { return Err(failed.refusal) };
            tracing::debug!(model = self.spec.alias, "adapting a request to what the server accepts");
            quirks = learned;
            variant += 1;
        }
    }

    async fn exchange(
        &self,
        request: ModelRequest,
        mut headers: HeaderMap,
        end: Instant,
        deltas: &mut (dyn FnMut(TurnDelta) + Send),
    ) -> Result<ModelTurn, FailedExchange> {
        let denied = |reason: String| ModelRefusal::new(RefusalKind::Denied, reason);
        let url = Url::parse(&format!("{}{}", self.url, request.path))
            .map_err(|error| denied(error.to_string()))?;
        check_literal_address(&url, self.allow_private).map_err(|error| denied(error.to_string()))?;
        for (name, value) in request.headers {
            headers.entry(*name).or_insert(HeaderValue::from_static(value));
        }
        let client = self.client().map_err(|error| denied(error.to_string()))?;
        let send = client.post(url).headers(headers).body(request.body).send();
        let first = (Instant::now() + self.first).min(end);
        let response = timeout_at(first, send)
            .await
            .map_err(|_| late_refusal("the answer did not start", self.first))?
            .map_err(transport_refusal)?;
        let status = response.status();
        if !status.is_success() {
            let wait = retry_after_ms(response.headers());
            let body = self.beginning(response, end).await;
            let refusal = refusal_of_status(status.as_u16(), wait, &body);
            return Err(FailedExchange { refusal, response: Some((status.as_u16(), body)) });
        }
        Ok(self.read(response, end, deltas).await?)
    }

    async fn read(
        &self,
        mut response: reqwest::Response,
        end: Instant,
        deltas: &mut (dyn FnMut(TurnDelta) + Send),
    ) -> Result<ModelTurn, ModelRefusal> {
        let mut reader = AnswerReader::new(self.spec.provider);
        // Servers without streaming send nothing before the whole answer.
        let patience = if self.spec.abilities.stream { self.idle } else { self.total };
        while !reader.is_broken() {
            let idle = (Instant::now() + patience).min(end);
            let chunk = timeout_at(idle, response.chunk()).await;
            let silent = || {
                if idle == end {
                    late_refusal("the answer did not end", self.total)
                } else {
                    late_refusal("the answer stopped arriving", patience)
                }
            };
            match chunk.map_err(|_| silent())? {
                Ok(Some(bytes)) => reader.feed(&bytes).into_iter().for_each(&mut *deltas),
                Ok(None) => break,
                Err(error) => return Err(transport_refusal(error)),
            }
        }
        reader.close().into_iter().for_each(&mut *deltas);
        reader.end()
    }

    async fn beginning(&self, mut response: reqwest::Response, end: Instant) -> Vec<u8> {
        let mut body = Vec::new();
        let until = (Instant::now() + self.idle).min(end);
        while body.len() < MAX_REFUSAL_BYTES {
            match timeout_at(until, response.chunk()).await {
                Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
                _ => break,
            }
        }
        body.truncate(MAX_REFUSAL_BYTES);
        body
    }

    fn client(&self) -> Result<&reqwest::Client, crate::AgentError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = http_client(self.allow_private)?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// Returns the delay that a response requests: in milliseconds, else in seconds or as a date.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let exact = text(RETRY_AFTER_MS).and_then(|value| value.trim().parse::<f64>().ok());
    if let Some(exact) = exact.filter(|exact| (0.0..1e12).contains(exact)) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        return Some(exact.ceil() as u64);
    }
    let wait = retry_after(text(RETRY_AFTER.as_str())?, SystemTime::now())?;
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

fn late_refusal(what: &str, time: Duration) -> ModelRefusal {
    ModelRefusal::new(RefusalKind::Unavailable, format!("{what} within {} s", time.as_secs_f64()))
}

/// Converts a transport error. All errors but an address that is not public are transient.
fn transport_refusal(error: reqwest::Error) -> ModelRefusal {
    let error = error.without_url();
    let first: &(dyn std::error::Error + 'static) = &error;
    let causes: Vec<_> = std::iter::successors(Some(first), |cause| (*cause).source()).collect();
    if let Some(refused) = causes.iter().find_map(|cause| cause.downcast_ref::<crate::AgentError>()) {
        return ModelRefusal::new(RefusalKind::Denied, refused.to_string());
    }
    let reason = causes.iter().map(ToString::to_string).collect::<Vec<_>>().join(": ");
    ModelRefusal::new(RefusalKind::Unavailable, reason)
}
