//! Values from the command line.

use std::path::Path;

use serde_json::{Map, Value};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file;
use sinew_protocol::code;

/// Reads the input: JSON, `@file`, `-` or single fields. The default is an empty object.
pub(crate) fn read(input: Option<&str>, params: &[String]) -> Result<Value, Failure> {
    let mut value = match input {
        None => Value::Object(Map::new()),
        Some(text) => value(text, "--input")?,
    };
    for (key, text) in pairs(params, "--param")? {
        match &mut value {
            Value::Object(members) => {
                members.insert(key, json_or_text(&text));
            }
            _ => return Err(Failure::usage("--param needs an input that is a JSON object")),
        }
    }
    Ok(value)
}

/// Reads the value of a flag: JSON, `@file` or `-`.
pub(crate) fn value(text: &str, flag: &str) -> Result<Value, Failure> {
    match (text, text.strip_prefix('@')) {
        ("-", _) => workflow_file::read_data(Path::new("-")),
        (_, Some(file)) => workflow_file::read_data(Path::new(file)),
        _ => serde_json::from_str(text).map_err(|error| bad_json(flag, &error.to_string())),
    }
}

fn bad_json(flag: &str, why: &str) -> Failure {
    Failure::new(FailureKind::Usage, code::ARGUMENT_NOT_JSON.as_str(), format!("{flag} is not JSON: {why}"))
        .hint("quote it for your shell, or name a file with @FILE")
}

/// `key=value` pairs.
pub(crate) fn pairs(texts: &[String], flag: &str) -> Result<Vec<(String, String)>, Failure> {
    texts
        .iter()
        .map(|text| match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(Failure::usage(format!("{flag} takes KEY=VALUE, not '{text}'"))),
        })
        .collect()
}

/// Parses an amount of USD above 0.
pub(crate) fn price(text: &str) -> Result<f64, String> {
    let amount = text.trim_start_matches('$').parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd > 0.0);
    amount.ok_or_else(|| "expected an amount of USD above 0, such as 0.50".to_owned())
}

/// Parses text as JSON if possible, else returns it as a string.
pub(crate) fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn input_comes_from_json_and_fields() {
        let params = ["n=3".to_owned(), "name=Ada L".to_owned(), "eq=a=b".to_owned()];
        assert_eq!(
            read(Some(r#"{"n": 1, "k": [1]}"#), &params).unwrap(),
            json!({"n": 3, "k": [1], "name": "Ada L", "eq": "a=b"})
        );
        assert_eq!(read(None, &[]).unwrap(), json!({}));
        for (input, params) in
            [(Some("{"), vec![]), (Some("[1]"), vec!["a=1".to_owned()]), (None, vec!["=1".to_owned()])]
        {
            assert_eq!(read(input, &params).unwrap_err().kind, FailureKind::Usage);
        }
    }
}
