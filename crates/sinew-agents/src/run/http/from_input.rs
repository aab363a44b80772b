//! Builds a request from the input. All its parts, including the host, are untrusted and validated.

use std::str::FromStr;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Map, Value, json};

use super::request::{OURS, Request};
use crate::error::AgentError;

/// Maximum headers of a request.
const MAX_HEADERS: usize = 64;

/// Parses a request from an input: `{url, method?, query?, headers?, body?}`, or these in `params`.
pub(super) fn request_of(input: &Value) -> Result<Request, AgentError> {
    let wrong = |problem: String| AgentError::Input(vec![problem]);
    let members = input.get("params").and_then(Value::as_object).or_else(|| input.as_object());
    let members = members.ok_or_else(|| wrong("the input must be an object with a url".to_owned()))?;
    let text =
        |key: &str| members.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let mut url =
        url_of(text("url").ok_or_else(|| wrong("the member 'url' is missing".to_owned()))?).map_err(wrong)?;
    add_query(&mut url, members.get("query")).map_err(wrong)?;
    let method = text("method").unwrap_or("GET").to_ascii_uppercase();
    let method =
        Method::from_str(&method).map_err(|_| wrong(format!("'{method}' is not a valid HTTP method")))?;
    let mut headers = headers_of(members.get("headers")).map_err(wrong)?;
    let body = match members.get("body").filter(|body| !body.is_null()) {
        None => None,
        Some(Value::String(text)) if text.is_empty() => None,
        Some(Value::String(text)) => Some((text.clone(), "text/plain; charset=utf-8")),
        Some(value) => Some((value.to_string(), "application/json")),
    };
    if let Some((_, media_type)) = body
        && !headers.contains_key(CONTENT_TYPE)
    {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    }
    if !headers.contains_key(ACCEPT) {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/*;q=0.5, */*;q=0.1"));
    }
    Ok(Request { method, url, headers, body: body.map(|(text, _)| text) })
}

fn url_of(text: &str) -> Result<Url, String> {
    if text.chars().any(char::is_control) {
        return Err("the url contains a control character".to_owned());
    }
    let url = Url::parse(text).map_err(|error| format!("the url is not valid: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the url must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the url must not contain credentials".to_owned());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("the url has no host".to_owned());
    }
    Ok(url)
}

fn add_query(url: &mut Url, query: Option<&Value>) -> Result<(), String> {
    let Some(query) = query.filter(|query| !query.is_null()) else { return Ok(()) };
    let members = query.as_object().ok_or("the member 'query' must be an object")?;
    let mut pairs = url.query_pairs_mut();
    for (name, value) in members {
        match value {
            Value::Null => {}
            Value::String(text) => drop(pairs.append_pair(name, text)),
            Value::Array(items) => {
                for item in items {
                    pairs.append_pair(name, &plain(item));
                }
            }
            other => drop(pairs.append_pair(name, &plain(other))),
        }
    }
    Ok(())
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn headers_of(headers: Option<&Value>) -> Result<HeaderMap, String> {
    let mut all = HeaderMap::new();
    let Some(headers) = headers.filter(|headers| !headers.is_null()) else { return Ok(all) };
    let members: &Map<String, Value> = headers.as_object().ok_or("the member 'headers' must be an object")?;
    if members.len() > MAX_HEADERS {
        return Err(format!("a request has at most {MAX_HEADERS} headers"));
    }
    for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        let shown = name.escape_debug();
        let header =
            HeaderName::from_str(name).map_err(|_| format!("'{shown}' is not a valid header name"))?;
        if OURS.contains(&header.as_str()) {
            return Err(format!("header '{header}' is set by the client"));
        }
        let value = HeaderValue::from_str(&plain(value))
            .map_err(|_| format!("header '{header}' contains a character that is not allowed"))?;
        all.insert(header, value);
    }
    Ok(all)
}

/// Returns the response as `{response: {status, headers, body}}`, whatever its status.
pub(super) fn answer(status: u16, headers: &HeaderMap, body: &Value) -> Value {
    let mut told = Map::new();
    for (name, value) in headers {
        if let Ok(text) = value.to_str() {
            told.insert(name.as_str().to_owned(), json!(text));
        }
    }
    json!({ "response": { "status": status, "headers": told, "body": body } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_inputs() {
        let request = request_of(&json!({ "params": {
            "url": "https://api.example.com/a?x=1", "method": "post", "query": { "q": "a&b", "n": [1, 2] },
            "headers": { "X-Key": "k", "none": null }, "body": { "a": 1 },
        } }))
        .unwrap();
        assert_eq!(request.url.as_str(), "https://api.example.com/a?x=1&q=a%26b&n=1&n=2");
        assert_eq!((request.method.as_str(), request.body.as_deref()), ("POST", Some(r#"{"a":1}"#)));
        assert_eq!(
            (&request.headers["x-key"], &request.headers["content-type"]),
            (&"k".parse::<HeaderValue>().unwrap(), &"application/json".parse().unwrap())
        );
        assert_eq!(request_of(&json!({ "url": "http://h/" })).unwrap().method, Method::GET);
    }

    #[test]
    fn no_input_asks_for_more_than_a_request() {
        for (input, problem) in [
            (json!("http://h"), "must be an object"),
            (json!({}), "'url' is missing"),
            (json!({ "url": "file:///etc/passwd" }), "must begin with http"),
            (json!({ "url": "http://u:p@h/" }), "credentials"),
            (json!({ "url": "http://h/\n" , "headers": { "a b": "x" } }), "not a valid header name"),
            (json!({ "url": "http://h/", "headers": { "Host": "other" } }), "set by the client"),
            (
                json!({ "url": "http://h/", "headers": { "x": "a\r\nb: c" } }),
                "contains a character that is not allowed",
            ),
            (json!({ "url": "http://h/", "method": "GET /" }), "not a valid HTTP method"),
            (json!({ "url": "http://h/", "query": 1 }), "'query' must be an object"),
        ] {
            let Err(AgentError::Input(told)) = request_of(&input) else { panic!("{input}") };
            let error = told.join("; ");
            assert!(error.contains(problem), "{input}: {error}");
        }
    }
}
