//! Builds a request from templates and a call.
//!
//! Data never changes the structure of a request: it is percent-encoded within its segment of the
//! URL, JSON in the body, and without line breaks in headers.

use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;
use sinew_source::VariableReference;

use crate::call::Call;
use crate::clean::ResolvedSecrets;
use crate::error::AgentError;
use crate::run::RunnerSurroundings;
use crate::template::{Environment, Scope, Template, TemplatePiece, UnfilledTemplate, no_env, plain, scalar};

/// All characters except the unreserved ones of RFC 3986.
const DATA: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Headers that belong to the connection.
pub(super) const OURS: [&str; 6] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te"];

/// The request of an agent file, with parsed templates.
#[derive(Debug)]
pub(crate) struct RequestTemplate {
    method: Method,
    url: Template,
    headers: Vec<(HeaderName, Template)>,
    body: RequestBody,
}

/// Body of a request.
#[derive(Debug)]
enum RequestBody {
    Nothing,
    Input,
    Text(Template),
    Json(RequestShape),
}

/// A JSON value whose strings can be templates.
#[derive(Debug)]
enum RequestShape {
    Constant(Value),
    Text(Template),
    Array(Vec<RequestShape>),
    Object(Vec<(String, RequestShape)>),
}

/// A request ready to be sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<String>,
}

impl Request {
    /// Creates a GET request without headers.
    pub(crate) fn get(url: Url) -> Self {
        Self { method: Method::GET, url, headers: HeaderMap::new(), body: None }
    }
}

impl RequestTemplate {
    /// Creates an empty GET request.
    pub(crate) fn get() -> Self {
        Self {
            method: Method::GET,
            url: Template::default(),
            headers: Vec::new(),
            body: RequestBody::Nothing,
        }
    }

    /// Parses the parts. An error contains the field and its defect.
    pub(crate) fn parse<'a>(
        method: &str,
        url: &str,
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
        body: Option<&Value>,
    ) -> Result<Self, (String, String)> {
        let at = |field: &str| {
            let field = field.to_owned();
            move |problem: String| (field, problem)
        };
        let method = Method::from_str(method)
            .map_err(|_| at("method")(format!("'{method}' is not an HTTP method")))?;
        let url = parse_url(url).map_err(at("url"))?;
        let headers = headers
            .into_iter()
            .map(|(name, value)| parse_header(name, value).map_err(at(&format!("headers/{name}"))))
            .collect::<Result<_, _>>()?;
        let body = match body {
            None if [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS].contains(&method) => {
                RequestBody::Nothing
            }
            None => RequestBody::Input,
            Some(Value::String(text)) => RequestBody::Text(without_env(text).map_err(at("body"))?),
            Some(value) => RequestBody::Json(RequestShape::parse(value).map_err(at("body"))?),
        };
        Ok(Self { method, url, headers, body })
    }

    /// Renders the request for a call. Also returns the secrets in the request.
    pub(crate) fn fill(
        &self,
        call: &Call,
        around: &RunnerSurroundings,
    ) -> Result<(Request, ResolvedSecrets), AgentError> {
        let instruction = call.instruction_value();
        let scope = call.scope(instruction.as_ref());
        let mut secrets = ResolvedSecrets::default();
        let url = fill_url(&self.url, &scope).map_err(|error| error.at("url"))?;
        let body = self.body.fill(&scope).map_err(|error| error.at("body"))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/*;q=0.5, */*;q=0.1"));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, template) in &self.headers {
            headers.insert(
                name.clone(),
                fill_header(name, template, &scope, around.environment.as_ref(), &mut secrets)?,
            );
        }
        Ok((Request { method: self.method.clone(), url, headers, body }, secrets))
    }
}

fn without_env(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    if template.has_env() {
        return Err("a secret from the environment may only be used in a header".to_owned());
    }
    Ok(template)
}

/// Parses a URL. Scheme, host and port must be literal, so that data cannot select the server.
fn parse_url(text: &str) -> Result<Template, String> {
    let template = without_env(text)?;
    let Some(TemplatePiece::Text(start)) = template.pieces().first() else {
        return Err("it must begin with http:// or https:// and a host".to_owned());
    };
    let rest = start
        .strip_prefix("https://")
        .or_else(|| start.strip_prefix("http://"))
        .ok_or("it must begin with http:// or https://")?;
    if template.pieces().len() > 1 && !rest.contains(['/', '?']) {
        return Err("scheme, host and port cannot come from data".to_owned());
    }
    let url = Url::parse(start).map_err(|error| error.to_string())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it must not contain credentials; use a header with ${env:NAME}".to_owned());
    }
    if text.match_indices("${").any(|(at, _)| VariableReference::parse(&text[at..]).is_some()) {
        return Err("an environment variable may only be used in a header".to_owned());
    }
    if text.contains('#') || text.contains('\\') || text.chars().any(char::is_control) {
        return Err("it must not contain '#', '\\' or control characters".to_owned());
    }
    Ok(template)
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, Template), String> {
    let header =
        HeaderName::from_str(name).map_err(|_| format!("'{}' is not a header name", name.escape_debug()))?;
    if OURS.contains(&header.as_str()) {
        return Err(format!("header '{header}' is set by the client"));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("header '{header}' contains a control character"));
    }
    Ok((header, Template::parse_with_variables(value)?))
}

fn fill_url(template: &Template, scope: &Scope<'_>) -> Result<Url, UnfilledTemplate> {
    let text = template.fill(
        scope,
        |value, url| {
            let text = scalar(value)?;
            if text.is_empty() && !url.contains('?') {
                return Err("an empty value cannot be part of a path".to_owned());
            }
            url.extend(utf8_percent_encode(&text, DATA));
            Ok(())
        },
        no_env,
    )?;
    let path = text.split('?').next().unwrap_or_default();
    if path
        .split('/')
        .skip(3)
        .any(|segment| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | ".."))
    {
        return Err("'.' and '..' cannot be a part of a path".to_owned().into());
    }
    Url::parse(&text).map_err(|error| error.to_string().into())
}

fn fill_header(
    name: &HeaderName,
    template: &Template,
    scope: &Scope<'_>,
    environment: &Environment,
    secrets: &mut ResolvedSecrets,
) -> Result<HeaderValue, AgentError> {
    let place = || format!("header '{name}'");
    let text = template
        .fill(
            scope,
            |value, header| {
                let text = scalar(value)?;
                if text.chars().any(char::is_control) {
                    return Err("a value contains a control character".to_owned());
                }
                header.push_str(&text);
                Ok(())
            },
            |variable| secrets.read(environment, variable),
        )
        .map_err(|error| error.at(place()))?;
    let mut value =
        HeaderValue::from_str(&text).or_else(|_| HeaderValue::from_bytes(text.as_bytes())).map_err(|_| {
            UnfilledTemplate::Value("its value contains a character that is not allowed".to_owned())
                .at(place())
        })?;
    value.set_sensitive(template.has_env());
    Ok(value)
}

impl RequestBody {
    fn fill(&self, scope: &Scope<'_>) -> Result<Option<String>, UnfilledTemplate> {
        match self {
            Self::Nothing => Ok(None),
            Self::Input => Ok(Some(scope.input.to_string())),
            Self::Text(template) => {
                let as_json = |value: &Value, body: &mut String| {
                    body.push_str(&value.to_string());
                    Ok(())
                };
                template.fill(scope, as_json, no_env).map(Some)
            }
            Self::Json(shape) => shape.fill(scope).map(|value| Some(value.to_string())),
        }
    }
}

impl RequestShape {
    fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(without_env(text)?),
            Value::Array(items) => Self::Array(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(fields) => Self::Object(
                fields.iter().map(|(name, value)| Ok((name.clone(), Self::parse(value)?))).collect::<Result<
                    _,
                    String,
                >>(
                )?,
            ),
            constant => Self::Constant(constant.clone()),
        })
    }

    /// Renders the value. A string with nothing but one `{{…}}` becomes the typed value itself.
    fn fill(&self, scope: &Scope<'_>) -> Result<Value, UnfilledTemplate> {
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Text(template) => match template.single() {
                Some(path) => scope.find(path)?.clone(),
                None => Value::String(template.fill(scope, plain, no_env)?),
            },
            Self::Array(items) => {
                Value::Array(items.iter().map(|item| item.fill(scope)).collect::<Result<_, _>>()?)
            }
            Self::Object(fields) => {
                let fields = fields.iter().map(|(name, shape)| Ok((name.clone(), shape.fill(scope)?)));
                Value::Object(fields.collect::<Result<_, UnfilledTemplate>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn no_value_changes_the_shape_of_a_url(value in "(\\PC|[./\\\\?#%&=@:{}$\r\n\0]){0,12}") {
            let template = parse_url("http://host:81/a/{{input}}/b?q={{input}}&r=1").unwrap();
            let (input, context) = (json!(value), Value::Null);
            let url = fill_url(&template, &Scope { input: &input, instruction: None, context: &context });
            if matches!(value.as_str(), "" | "." | "..") {
                prop_assert!(url.is_err());
                return Ok(());
            }
            let url = url.unwrap();
            prop_assert_eq!((url.host_str(), url.port(), url.fragment()), (Some("host"), Some(81), None));
            let segments: Vec<_> = url
                .path_segments()
                .unwrap()
                .map(|segment| percent_encoding::percent_decode_str(segment).decode_utf8().unwrap().into_owned())
                .collect();
            prop_assert_eq!(segments, ["a", value.as_str(), "b"]);
            let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(pairs, [("q".to_owned(), value), ("r".to_owned(), "1".to_owned())]);
        }

        #[test]
        fn a_text_body_stays_json(value in "\\PC{0,12}") {
            let body = RequestBody::Text(without_env(r#"{"a": {{input}}, "b": [{{input}}]}"#).unwrap());
            let (input, context) = (json!(value), Value::Null);
            let text = body.fill(&Scope { input: &input, instruction: None, context: &context }).unwrap().unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({"a": value, "b": [value]}));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "(\\PC|[{}$.]|env:|input){0,20}") {
            let _either = (Template::parse(&text), parse_url(&text), parse_header("x", &text));
        }
    }
}
