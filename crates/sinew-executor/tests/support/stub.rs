//! What a stubbed agent answers, in the words of `tests/cases/sam.json`; `pass` gives the input back.

use serde_json::{Value, json};

/// Milliseconds until the answer to a call that came after so many others.
pub(crate) fn delay(stub: &Value, earlier: usize) -> u64 {
    nth(&stub["delay_ms"], earlier).as_u64().unwrap_or_default()
}

/// The answer to a call that came after so many others; none if it is silent.
pub(crate) fn answer(stub: &Value, input: &Value, earlier: usize) -> Option<Result<Value, String>> {
    let fails = |text: &str| Some(Err(text.to_owned()));
    let is_set = |key: &str| stub.get(key).is_some_and(|value| *value != json!(false));
    if is_set("silent") {
        return None;
    }
    if let Some(error) = stub["error"].as_str()
        && stub["fail_times"].as_u64().is_none_or(|times| (earlier as u64) < times)
    {
        return fails(error);
    }
    let hit =
        |on: &Value| input == on || input.as_object().is_some_and(|input| input.values().any(|v| v == on));
    if stub.get("fail_on").is_some_and(hit) {
        return fails("failed on purpose");
    }
    if let Some(text) = stub["plain_task_failed"].as_str() {
        return fails(text);
    }
    if is_set("plain_task_completed") {
        return fails("the agent answered without a structured result");
    }
    Some(Ok(match () {
        () if is_set("echo") => json!({ "echo": input }),
        () if is_set("pass") => input.clone(),
        () if is_set("double") => {
            json!({ "value": input[stub["double"].as_str().unwrap()].as_i64().unwrap() * 2 })
        }
        () if is_set("outputs") => nth(&stub["outputs"], earlier),
        () => stub.get("output").cloned().unwrap_or_else(|| json!({ "ok": true })),
    }))
}

fn nth(value: &Value, earlier: usize) -> Value {
    match value {
        Value::Array(list) => list.get(earlier).or(list.last()).cloned().unwrap_or_default(),
        one => one.clone(),
    }
}
