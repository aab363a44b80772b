//! Conversion functions on connections.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use sinew_script::{CallOutcome, Function, FunctionCall, ScriptError, ScriptErrorKind};

use super::argument::{ArgumentReads, ConversionArgument};

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
/// `asyncio` for functions that never wait: coroutines are plain calls, and a sleep returns at
/// once.
const ASYNCIO: &str = "\n\nclass asyncio:\n def sleep(_seconds, result=None):\n  return result\n \
def gather(*results, return_exceptions=False):\n  return list(results)\n \
def wait_for(result, timeout=None):\n  return result\n def create_task(result):\n  return result\n \
def run(result):\n  return result\n";
/// The statement at the start of such functions.
const IMPORT_ASYNCIO: &str = "import asyncio";

/// Marks names that are not in scope, so that the interpreter does not resolve them.
const MARK: &str = "__not_in_scope";

/// A conversion function for the sandbox.
struct PreparedFunction {
    /// The source with marked names that are not in scope.
    text: String,
    reads: ArgumentReads,
}

/// Prepared functions by source: plans contain sources, and the same few are called repeatedly.
static PREPARED: LazyLock<moka::sync::Cache<String, Arc<PreparedFunction>>> =
    LazyLock::new(|| moka::sync::Cache::new(1_000));
/// Outcome of a conversion.
pub(super) enum ConversionResult {
    /// The function's result.
    Value(Value),
    /// The function raised: the original value is passed on.
    Raised(ScriptError),
}

/// Compiles a conversion function. Waits for a worker, so the engine must not call it while it
/// decides.
#[expect(clippy::disallowed_methods, reason = "for files that are checked, not for the engine's decisions")]
pub(super) fn compile(source: &str) -> Result<Function, ScriptError> {
    Function::compile(&prepared(source).text).map_err(unmask)
}

fn prepared(source: &str) -> Arc<PreparedFunction> {
    PREPARED.get_with_by_ref(source, || {
        let mut text = mask(source.trim_end());
        if source.contains("asyncio") && !source.trim_start().starts_with("lambda") {
            text.push_str(ASYNCIO);
        }
        Arc::new(PreparedFunction { text, reads: ArgumentReads::of(source) })
    })
}

/// Returns the call of a conversion function with the raw payload of a port; `place` is the index
/// of that payload among the values of the batch.
pub(super) fn call(
    source: &str,
    argument: ConversionArgument,
    payload: &Value,
    place: usize,
) -> FunctionCall {
    let function = prepared(source);
    let members = argument.members(&function.reads, payload);
    FunctionCall { source: function.text.clone(), value: place, members }
}

/// Returns the argument of a conversion function.
pub(super) fn argument_of(source: &str, argument: ConversionArgument, payload: &Value) -> Value {
    let call = call(source, argument, payload, 0);
    call.argument(std::slice::from_ref(payload)).unwrap_or_default()
}

/// Calls a conversion function with a payload and waits for a worker.
#[expect(clippy::disallowed_methods, reason = "for functions on trial, not for the engine's decisions")]
pub(super) fn convert_with(
    source: &str,
    argument: ConversionArgument,
    payload: &Value,
) -> Result<ConversionResult, ScriptError> {
    let called = compile(source).and_then(|function| function.call(&argument_of(source, argument, payload)));
    convert_outcome(called.map_or_else(CallOutcome::Error, CallOutcome::Value))
}

/// Calls a conversion function with the usual argument.
#[cfg(test)]
pub(super) fn convert(source: &str, payload: &Value) -> Result<ConversionResult, ScriptError> {
    convert_with(source, ConversionArgument::default(), payload)
}

/// Returns the result of a call with the payload.
///
/// An exception, and a function that exceeds its time, is [`ConversionResult::Raised`]: the original
/// value is kept. A function that exhausts the memory of its worker, or another failure of the sandbox,
/// is an error.
pub(super) fn convert_outcome(outcome: CallOutcome) -> Result<ConversionResult, ScriptError> {
    match outcome {
        CallOutcome::Value(result @ Value::Object(_)) => Ok(ConversionResult::Value(result)),
        CallOutcome::Value(result) => Ok(ConversionResult::Value(json!({ "converted_data": result }))),
        CallOutcome::Error(error) if is_of_function(&error) => Ok(ConversionResult::Raised(unmask(error))),
        CallOutcome::Error(error) => Err(unmask(error)),
    }
}

/// Returns whether the function itself is the reason of a failure.
fn is_of_function(error: &ScriptError) -> bool {
    error.is_raised() || error.kind == ScriptErrorKind::Timeout
}

/// Returns the name of the function's parameter.
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

/// Marks every use of a name that is not in scope, and removes `async` and `await`: the sandbox has
/// nothing to wait for, so an awaited coroutine becomes a function call. Work that waits belongs to
/// an agent.
fn mask(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    // Looks up once per name whether the author defines it, however often it is used.
    let mut defined = BTreeMap::new();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => string_length(rest),
            '.' => {
                // An attribute is not a name: `d.format(…)`.
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
                if word == "import" && is_asyncio_import(rest) {
                    out.push_str("pass");
                    rest = &rest[IMPORT_ASYNCIO.len()..];
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

/// Returns whether the source starts with a statement that imports only `asyncio`.
fn is_asyncio_import(text: &str) -> bool {
    let after = text.strip_prefix(IMPORT_ASYNCIO).map(|rest| rest.trim_start_matches([' ', '\t']));
    after.is_some_and(|rest| rest.is_empty() || rest.starts_with(['\n', '\r', ';', '#']))
}

/// Returns whether the word is the prefix of a string literal.
fn is_prefix(rest: &str, length: usize) -> bool {
    rest[length..].starts_with(['"', '\''])
}

/// Returns whether the author redefines the name.
fn defines(source: &str, word: &str) -> bool {
    let names = |pattern: String| regex::Regex::new(&pattern).is_ok_and(|pattern| pattern.is_match(source));
    names(format!(r"(?m)(?:^|;)\s*{word}\s*=[^=]"))
        || names(format!(r"\b(?:for|def|as|lambda)\s+(?:[\w\s,]*,\s*)?{word}\b"))
        || names(format!(r"def\s+\w+\([^)]*\b{word}\b"))
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())
}

/// Returns the length of the string literal at the start of the source, in bytes.
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

pub(super) fn unmask(mut error: ScriptError) -> ScriptError {
    error.message = error.message.replace(MARK, "");
    error.snippet = error.snippet.map(|snippet| snippet.replace(MARK, ""));
    error
}
