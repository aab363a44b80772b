//! Rules of SAM that need no run: what is a workflow, a duration, a violation.

use serde_json::{Map, Value, json};
use sinew_dialects::sam::{self, duration, probe};

use crate::cases::Verdict;
use crate::cases::sam::{load, same, wanted};

/// What must come instead replaces what came: a value for an error, or an error for a value.
fn one_end(mut wanted: Map<String, Value>, case: &Value) -> Map<String, Value> {
    let ends = ["value", "value_not", "error_contains"];
    if let Some(want) = case.get("want")
        && ends.iter().any(|key| want.get(key).is_some())
    {
        wanted.retain(|key, _| !ends.contains(&key.as_str()) || want.get(key).is_some());
    }
    wanted
}

/// Judges a case by the dialect's public functions.
pub(crate) fn judge(kind: &str, case: &Value) -> Verdict {
    let Some(wanted) = wanted(case) else {
        return Verdict::LeftOut("what sam refuses and ours may allow, or older releases do");
    };
    let wanted = one_end(wanted, case);
    let mut wrong = Vec::new();
    let mut must = |right: bool, seen: String| {
        if !right {
            wrong.push(format!("wanted {}, seen {seen}", json!(wanted)));
        }
    };
    let part = wanted.get("error_contains").and_then(Value::as_str);
    match kind {
        // What the fields of a valid definition mean is looked at in sinew-dialects.
        "definition" => match (load(case), part) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => must(false, "it is accepted".to_owned()),
            (Err(found), part) => must(part.is_some_and(|part| found.contains(part)), found),
        },
        "initial_nodes" => match load(case) {
            Ok(library) => {
                let plan = library.get("WF").unwrap().graph.plan();
                let entry: Value = plan.entry.iter().map(|ix| plan.node(*ix).id.clone()).collect();
                must(entry == wanted["nodes"], entry.to_string());
            }
            Err(found) => must(false, found),
        },
        "validate_dag" => {
            let found = load(case).err().unwrap_or_default();
            let parts = wanted["errors"].as_array().unwrap();
            must(parts.iter().all(|part| found.contains(part.as_str().unwrap())), found);
        }
        "duration" => match (duration::seconds(&case["duration"]), part) {
            (Ok(seconds), None) => must(same(&json!(seconds), &wanted["seconds"]), seconds.to_string()),
            (Ok(seconds), Some(_)) => must(false, seconds.to_string()),
            (Err(found), part) => must(part.is_some_and(|part| found.contains(part)), found),
        },
        "validate" => {
            let schema = sinew_source::Schema::compile(&case["schema"]).unwrap();
            let found = json!(sam::violations(&schema, &case["schema"], &case["data"]));
            must(found == wanted["errors"], found.to_string());
        }
        "condition" | "resolve_value" => {
            let seen = match kind {
                "condition" => {
                    probe::condition(case["condition"].as_str().unwrap(), &case["state"]).map(Value::Bool)
                }
                _ => probe::resolve(&case["value"], &case["state"]),
            };
            let right = match (&seen, part) {
                (Err(found), part) => part.is_some_and(|part| found.contains(part)),
                (Ok(_), Some(_)) => false,
                (Ok(value), None) => {
                    wanted.get("value").is_none_or(|expected| same(value, expected))
                        && wanted.get("value_not").is_none_or(|other| other != value)
                }
            };
            must(right, format!("{seen:?}"));
        }
        "sam_own_test" => return Verdict::LeftOut("facts about agents of other projects"),
        other => must(false, format!("nothing knows the kind {other}")),
    }
    Verdict::Judged(wrong)
}
