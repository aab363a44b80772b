//! Replaces the parts that differ from one time to the next: times, ids, digests, addresses.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// In this order: what comes first is not seen by what comes after.
const RULES: &[(&str, &str)] = &[
    (r"127\.0\.0\.1:\d+", "[HOST]"),
    (r"nats-server \d+\.\d+\.\d+", "nats-server [VERSION]"),
    (r"process \d+", "process [PID]"),
    // The default caller is named by user and machine.
    (r"\bada-[A-Za-z0-9_.-]*[A-Za-z0-9]", "ada-[MACHINE]"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "[TIME]"),
    (r"\b\d\d:\d\d:\d\d\.\d{3}Z", "[TIME]"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "[UUID]"),
    (r"\b[0-9a-f]{64}\b", "[SHA256]"),
    (r"\bkey=[A-Za-z0-9_-]{43}", "key=[KEY]"),
    (r"\b[0-9a-f]{32}\b", "[UUID]"),
    (r"\b[a-z2-7]{32}\b", "[ID]"),
    (r"@[0-9a-f]{12}\b", "@[DIGEST]"),
    (r"([ (])[0-9a-f]{12}([ )\n])", "$1[DIGEST]$2"),
    (r#"("\w+_ms": )[\d.]+"#, "$1[MS]"),
    (r"\b\d+(\.\d+)?(ms|s)\b", "[TIME]"),
    (r"\b\d+(m\d+s|h\d+m|d\d+h)\b", "[TIME]"),
];

static COMPILED: LazyLock<Vec<(Regex, &str)>> =
    LazyLock::new(|| RULES.iter().map(|(rule, word)| (Regex::new(rule).expect("a rule"), *word)).collect());
/// Columns are as wide as their widest cell, so their gaps differ when times do.
static GAPS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\S) {2,}").expect("a rule"));
/// Percentiles of an agent's times in JSON, which has none before its first task.
static PERCENTILES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"("(?:work|queue)_ms": )(null|\{[^}]*\})"#).expect("a rule"));
/// Figures that change while somebody looks.
static FIGURES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b\d+(\.\d+)*( [KMGT]?i?B)?\b").expect("a rule"));

/// The text without what differs.
pub(crate) fn text(text: &str, folder: &str, figures: bool) -> String {
    let mut text = text.replace(folder, "[HERE]").replace('\u{1b}', "\\e");
    for (rule, word) in &*COMPILED {
        text = rule.replace_all(&text, *word).into_owned();
    }
    if figures {
        text = PERCENTILES.replace_all(&text, "$1[MS]").replace("[TIME]/[TIME]", "-");
        text = FIGURES.replace_all(&text, "[N]").into_owned();
    }
    GAPS.replace_all(&text, "$1  ").into_owned()
}

/// The same for data: two answers to one question are equal but for it.
pub(crate) fn value(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| {
                // An agent works for other executions between two commands.
                let is_work = key == "work" && field.get("replicas").is_some();
                let figure = is_work || key.ends_with("_ms") && field.is_number();
                (key.clone(), if figure { Value::Null } else { self::value(field) })
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(self::value).collect(),
        Value::String(word) => text(word, "\0", false).into(),
        other => other.clone(),
    }
}
