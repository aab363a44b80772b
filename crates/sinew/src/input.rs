//! Values from the command line.

use sinew_protocol::code;
use std::path::Path;

use serde_json::{Map, Value};
use sinew_engine::{EngineInput, ExecutionMode};
use sinew_protocol::ExecutionId;
use sinew_runtime::{Execution, Program, local};

use crate::exit::{Exit, Failure, known};
use crate::load;
use sinew_inspection::words;

/// The input: JSON, `@file`, `-` or single fields. Nothing given = an empty object.
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
            _ => return Err(Failure::usage("--param needs an input that is an object")),
        }
    }
    Ok(value)
}

/// Checks an input by the rules of a workflow, as the start of an execution would, and keeps nothing.
pub(crate) fn check(program: &Program, input: &Value, mode: &ExecutionMode) -> Result<(), Failure> {
    let mut trial = Execution::new(ExecutionId::of("local", "input-check", program.name()), program.clone());
    let start = EngineInput::Start { input: input.clone(), mode: mode.clone(), depth: 0, chain: Vec::new() };
    let started = trial.input(local::now(), start);
    let refused = match (&started, trial.state().start.as_ref()) {
        (Err(refused), _) => return Err(Failure::usage(refused.to_string())),
        (Ok(_), Some(start)) => start.refused.as_ref(),
        (Ok(_), None) => None,
    };
    let Some(fault) = refused else { return Ok(()) };
    let is_news = |detail: &&String| !fault.message.contains(detail.as_str());
    let details = fault.details.iter().filter(is_news).map(|detail| format!("\n  {detail}"));
    let message = std::iter::once(fault.message.clone()).chain(details).collect::<String>();
    let name = words::shell(program.name());
    Err(Failure::new(
        Exit::Usage,
        known(&fault.code),
        format!("the input was not taken, and nothing was stored: {message}"),
    )
    .hint(format!("`sinew workflow describe {name}` shows the schema of the input")))
}

/// Reads the value of a flag: JSON, `@file` or `-`.
pub(crate) fn value(text: &str, flag: &str) -> Result<Value, Failure> {
    match (text, text.strip_prefix('@')) {
        ("-", _) => load::read_data(Path::new("-")),
        (_, Some(file)) => load::read_data(Path::new(file)),
        _ => serde_json::from_str(text).map_err(|error| bad_json(flag, &error.to_string())),
    }
}

fn bad_json(flag: &str, why: &str) -> Failure {
    Failure::new(Exit::Usage, code::ARGUMENT_NOT_JSON.as_str(), format!("{flag} is not JSON: {why}"))
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

/// JSON if it reads as JSON, else text.
pub(crate) fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// `250ms`, `30s`, `5m`, `1h30m`, or a bare number of seconds; in milliseconds.
pub(crate) fn duration(text: &str) -> Result<u64, Failure> {
    let wrong =
        || Failure::usage(format!("'{text}' is not a duration")).hint("write 250ms, 30s, 5m or 1h30m");
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000).ok_or_else(wrong);
    }
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    u64::try_from(span.as_millis()).map_err(|_| wrong())
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
            assert_eq!(read(input, &params).unwrap_err().exit, Exit::Usage);
        }
    }

    #[test]
    fn durations_are_milliseconds() {
        for (text, want) in
            [("250ms", 250), ("30", 30_000), ("30s", 30_000), ("5m", 300_000), ("1h30m", 5_400_000)]
        {
            assert_eq!(duration(text).unwrap(), want, "{text}");
        }
        for text in ["", "soon", "-5s", "99999999999999999999"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
