//! Conversion functions on connections.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use sinew_script::{CallOutcome, Function, FunctionCall, ScriptError};

/// Builtins of Python that are not in the scope of a conversion function.
const OUT_OF_SCOPE: &[&str] = &[
    "ArithmeticError",
    "AssertionError",
    "AttributeError",
    "BaseException",
    "Exception",
    "FileNotFoundError",
    "ImportError",
    "IndexError",
    "KeyError",
    "LookupError",
    "NameError",
    "NotImplementedError",
    "OSError",
    "OverflowError",
    "RecursionError",
    "RuntimeError",
    "StopIteration",
    "SyntaxError",
    "SystemExit",
    "TimeoutError",
    "TypeError",
    "UnicodeDecodeError",
    "ValueError",
    "ZeroDivisionError",
    "bin",
    "bytes",
    "callable",
    "chr",
    "classmethod",
    "compile",
    "complex",
    "delattr",
    "dir",
    "divmod",
    "eval",
    "exec",
    "filter",
    "format",
    "frozenset",
    "getattr",
    "globals",
    "hasattr",
    "hash",
    "hex",
    "id",
    "input",
    "issubclass",
    "iter",
    "locals",
    "map",
    "next",
    "object",
    "oct",
    "open",
    "ord",
    "pow",
    "print",
    "property",
    "repr",
    "reversed",
    "set",
    "setattr",
    "slice",
    "staticmethod",
    "super",
    "tuple",
    "vars",
];
/// Marks such a name, so that the interpreter does not know it either.
const MARK: &str = "__not_in_scope";

/// Masked texts by source: plans hold sources, and the same few are called over and over.
static MASKED: LazyLock<moka::sync::Cache<String, Arc<str>>> =
    LazyLock::new(|| moka::sync::Cache::new(1_000));
/// Where the argument of a conversion function holds the payload.
const MEMBERS: [&str; 3] = ["value", "output", "data.result"];

/// What became of a value on its edge.
pub(super) enum Converted {
    /// The function's result.
    Value(Value),
    /// The function raised: the original value travels on.
    Raised(ScriptError),
}

/// Compiles a conversion function. Waits for a worker, so it is not for the engine's decisions.
#[expect(clippy::disallowed_methods, reason = "for files that are checked, not for the engine's decisions")]
pub(super) fn compile(source: &str) -> Result<Function, ScriptError> {
    Function::compile(&masked(source)).map_err(unmask)
}

fn masked(source: &str) -> Arc<str> {
    MASKED.get_with_by_ref(source, || mask(source.trim_end()).into())
}

/// What a conversion function is called with.
pub(super) fn wrapper(raw: &Value) -> Value {
    json!({ "value": raw, "output": raw, "data": { "result": raw } })
}

/// The call of a conversion function over the raw payload of a port, as data; `value` is its place among the payloads.
pub(super) fn call(source: &str, value: usize) -> FunctionCall {
    let members = MEMBERS.map(str::to_owned).to_vec();
    FunctionCall { source: masked(source).to_string(), value, members }
}

/// Calls a conversion function over a payload and waits for a worker.
#[expect(clippy::disallowed_methods, reason = "for functions on trial, not for the engine's decisions")]
pub(super) fn convert(source: &str, raw: &Value) -> Result<Converted, ScriptError> {
    let called = compile(source).and_then(|function| function.call(&wrapper(raw)));
    convert_outcome(called.map_or_else(CallOutcome::Error, CallOutcome::Value))
}

/// Result of a call over the payload.
///
/// An exception is [`Converted::Raised`]; what is no exception of the function (time, memory) is an error.
pub(super) fn convert_outcome(outcome: CallOutcome) -> Result<Converted, ScriptError> {
    match outcome {
        CallOutcome::Value(result @ Value::Object(_)) => Ok(Converted::Value(result)),
        CallOutcome::Value(result) => Ok(Converted::Value(json!({ "converted_data": result }))),
        CallOutcome::Error(error) if error.is_raised() => Ok(Converted::Raised(unmask(error))),
        CallOutcome::Error(error) => Err(unmask(error)),
    }
}

/// Whether the function reads members of the wrapper that the wrapper never has.
pub(super) fn misses_wrapper(source: &str) -> Option<String> {
    let parameter = parameter(source)?;
    let pattern = format!(r#"\b{}\s*(?:\.get\(\s*|\[\s*)['"](\w+)['"]"#, regex::escape(parameter));
    let pattern = regex::Regex::new(&pattern).ok()?;
    let mut keys = pattern.captures_iter(source).map(|found| found[1].to_owned());
    keys.find(|key| !matches!(key.as_str(), "value" | "output" | "data"))
}

/// The name of the function's parameter.
pub(super) fn parameter(source: &str) -> Option<&str> {
    let source = source.trim_start();
    let after = match source.strip_prefix("lambda") {
        Some(rest) => rest,
        None => source.split_once("def ")?.1.split_once('(')?.1,
    };
    let after = after.trim_start();
    let end = after.find(|c: char| c != '_' && !c.is_alphanumeric())?;
    (end > 0).then(|| &after[..end])
}

/// Marks every use of a name that is not in scope, and takes `async` and `await` away: there is nothing to wait for in
/// the sandbox, so a coroutine that is awaited is a function that is called. What has to wait is an agent's work.
fn mask(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    // Whether the author defines a name is asked once for each, however often it is used.
    let mut defined = BTreeMap::new();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => string_length(rest),
            '.' => {
                // An attribute is no name: `d.format(…)`.
                let blank = rest[1..].len() - rest[1..].trim_start_matches([' ', '\t']).len();
                1 + blank + word_length(&rest[1 + blank..])
            }
            c if c == '_' || c.is_alphabetic() => {
                let length = word_length(rest);
                let word = &rest[..length];
                let next = rest[length..].trim_start();
                let blank = rest[length..].len() - rest[length..].trim_start_matches([' ', '\t']).len();
                let defines_coroutine = word == "async" && next.starts_with("def") && word_length(next) == 3;
                if blank > 0 && (word == "await" || defines_coroutine) {
                    rest = &rest[length + blank..];
                    continue;
                }
                let assigned = next.starts_with('=') && !next.starts_with("==");
                if OUT_OF_SCOPE.contains(&word)
                    && !assigned
                    && !is_prefix(rest, length)
                    && !*defined.entry(word).or_insert_with(|| defines(source, word))
                {
                    out.push_str(word);
                    out.push_str(MARK);
                    rest = &rest[length..];
                    continue;
                }
                length
            }
            c => c.len_utf8(),
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

/// Whether the word is the prefix of a string.
fn is_prefix(rest: &str, length: usize) -> bool {
    rest[length..].starts_with(['"', '\''])
}

/// Whether the author gives the name a meaning of their own.
fn defines(source: &str, word: &str) -> bool {
    let names = |pattern: String| regex::Regex::new(&pattern).is_ok_and(|pattern| pattern.is_match(source));
    names(format!(r"(?m)(?:^|;)\s*{word}\s*=[^=]"))
        || names(format!(r"\b(?:for|def|as|lambda)\s+(?:[\w\s,]*,\s*)?{word}\b"))
        || names(format!(r"def\s+\w+\([^)]*\b{word}\b"))
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())
}

/// Bytes of the string literal the text begins with.
fn string_length(text: &str) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let (open, close) = if text.starts_with(&triple) { (3, triple.as_str()) } else { (1, quote) };
    let mut at = open;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(close) {
            return at + close.len();
        }
        if open == 1 && rest.starts_with('\n') {
            return at;
        }
        let escaped = usize::from(rest.starts_with('\\'));
        at += escaped + rest[escaped..].chars().next().map_or(0, char::len_utf8);
    }
    text.len()
}

fn unmask(mut error: ScriptError) -> ScriptError {
    error.message = error.message.replace(MARK, "");
    error.snippet = error.snippet.map(|snippet| snippet.replace(MARK, ""));
    error
}
