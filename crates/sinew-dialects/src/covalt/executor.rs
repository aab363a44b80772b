//! Executors of plugins: `executor.py` with `execute` (flow), `build` (structure), or both.
//!
//! The functions are top-level functions of the file or methods of its object `executor`. They are
//! data: a script worker runs them, without files, network, clock or imports outside the sandbox.
//! `execute(data, inputs, context)` returns outputs by port, `build(data, context)` returns the
//! value of the node for the parent agent.

use serde_json::{Map, Value, json};
use sinew_script::{CallBatch, CallOutcome, Function, FunctionCall, ScriptError};

use super::catalogue::NodeMode;
use super::coerce::DATA;
use super::scope::typed;

/// The file in a plugin's folder.
pub(super) const EXECUTOR_FILE: &str = "executor.py";

/// Types that executors of the specification use; its modules do not exist in the sandbox.
const PRELUDE: &str = "\
class DataValue:
 def __init__(self, type='data', value=None):
  self.type = type
  self.value = value
class NodeEvent:
 def __init__(self, node_id=None, node_type=None, event_type='progress', run_id=None, data=None, timestamp=None):
  self.event_type = event_type
  self.data = data
class ExecutionResult:
 def __init__(self, outputs=None, events=None):
  self.outputs = outputs if outputs is not None else {}
  self.events = events if events is not None else []
class StructuralResult:
 def __init__(self, value=None, **members):
  self.value = members if value is None else value
class NodeContext:
 def __init__(self, members):
  self.members = members
  self.node_id = members.get('node_id')
  self.node_type = members.get('node_type')
  self.run_id = members.get('run_id')
  self.trigger = members.get('trigger')
 def get(self, name, default=None):
  return self.members.get(name, default)
";

/// Returns which functions an executor has: `execute`, `build`.
fn functions(code: &str) -> (bool, bool) {
    let has = |name: &str| {
        code.lines().any(|line| {
            let line = line.trim_start();
            let line = line.strip_prefix("async ").unwrap_or(line);
            let rest =
                line.strip_prefix("def ").map(str::trim_start).and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.trim_start().starts_with('('))
        })
    };
    (has("execute"), has("build"))
}

/// Returns the mode that follows from the functions of an executor.
pub(super) fn mode_of(code: &str) -> Result<NodeMode, String> {
    match functions(code) {
        (true, true) => Ok(NodeMode::Hybrid),
        (true, false) => Ok(NodeMode::Flow),
        (false, true) => Ok(NodeMode::Structural),
        (false, false) => Err("executor.py has neither execute() nor build()".to_owned()),
    }
}

/// Returns the `node_type` that an executor declares.
pub(super) fn node_type(code: &str) -> Option<String> {
    let declared = code.lines().filter_map(|line| line.trim().strip_prefix("node_type"));
    let mut values = declared.filter_map(|rest| rest.trim_start().strip_prefix('='));
    let name = values.next()?.trim().trim_matches(['\'', '"']);
    (!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
        .then(|| name.to_owned())
}

/// Compiles the functions that the mode of an executor requires. Waits for a worker.
#[expect(clippy::disallowed_methods, reason = "for files that are checked, not for the engine's decisions")]
pub(super) fn check(code: &str, mode: NodeMode) -> Result<(), String> {
    let (executes, builds) = functions(code);
    if let Some(line) = code.lines().position(|line| is_yield(line.trim_start())) {
        return Err(format!(
            "executor.py line {}: `yield` is not supported; return an ExecutionResult with its `events`",
            line + 1
        ));
    }
    let needed = [
        ("execute", executes, mode != NodeMode::Structural),
        ("build", builds, mode == NodeMode::Structural),
    ];
    for (name, there, needed) in needed {
        if needed && !there {
            return Err(format!("executor.py has no {name}()"));
        }
        if there {
            Function::compile(&source(code, name)).map_err(|error| explain(code, name, &error))?;
        }
    }
    Ok(())
}

/// Returns whether a statement yields a value or assigns a yielded one.
fn is_yield(statement: &str) -> bool {
    let value = statement.split_once(" = ").map_or(statement, |(_, value)| value);
    value
        .strip_prefix("yield")
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Returns the source of the function that calls one function of an executor.
fn source(code: &str, function: &str) -> String {
    let is_object = code
        .lines()
        .any(|line| line.strip_prefix("executor").is_some_and(|rest| rest.trim_start().starts_with('=')));
    let callee = if is_object { format!("executor.{function}") } else { function.to_owned() };
    let arguments = if function == "build" {
        "d, c"
    } else {
        "d, {k: DataValue(v.get('type'), v.get('value')) for k, v in i.items()}, c"
    };
    let is_async = code.contains(&format!("async def {function}"));
    let call = format!("{callee}({arguments})");
    let call = if is_async { format!("asyncio.run({call})") } else { call };
    let import = if is_async { " import asyncio\n" } else { "" };
    let code: String = code
        .lines()
        .map(|line| if is_document_import(line) { "pass\n".to_owned() } else { format!("{line}\n") })
        .collect();
    format!(
        "def run_plugin(a):\n{import} d = a['data']\n i = a.get('inputs', {{}})\n c = NodeContext(a['context'])\n \
         r = {call}\n if isinstance(r, StructuralResult):\n  return {{'built': r.value}}\n \
         if isinstance(r, ExecutionResult):\n  return {{'outputs': {{k: _plugin_value(v) for k, v in r.outputs.items()}}, \
         'events': [{{'event_type': e.event_type, 'data': e.data}} for e in r.events]}}\n \
         return {{'plain': r}}\n\
         def _plugin_value(v):\n if isinstance(v, DataValue):\n  return {{'type': v.type, 'value': v.value}}\n return {{'value': v}}\n\
         {PRELUDE}{code}"
    )
}

/// Returns whether a line imports a module of the specification's node system, whose names are
/// predefined.
fn is_document_import(line: &str) -> bool {
    ["from nodes", "from ._", "from .._", "from _types", "from __future__", "import nodes"]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Returns the number of lines before the executor's own source.
fn lines_before(function: &str, code: &str) -> u32 {
    let whole = source(code, function);
    let own = code.lines().count();
    (whole.lines().count() - own) as u32
}

fn explain(code: &str, function: &str, error: &ScriptError) -> String {
    match error.line.and_then(|line| line.checked_sub(lines_before(function, code))) {
        Some(line) if line > 0 => format!("executor.py line {line}: {error}"),
        _ => format!("executor.py: {error}"),
    }
}

/// Returns the call of one function of an executor.
pub(super) fn call(code: &str, function: &str, argument: Value) -> (Value, FunctionCall) {
    (argument, FunctionCall { source: source(code, function), value: 0, members: Vec::new() })
}

/// Returns the batch that executes a flow node.
pub(super) fn execute_call(code: &str, argument: Value) -> CallBatch {
    let (value, call) = call(code, "execute", argument);
    CallBatch { values: vec![value], calls: vec![call] }
}

/// Returns typed outputs by port, and events, of an executed node.
pub(super) fn executed(code: &str, reply: &Value) -> Result<Map<String, Value>, String> {
    let value =
        outcome(code, "execute", CallOutcome::read_all(reply).map_err(|error| error.to_string())?.pop())?;
    let ports = match (value.get("outputs"), value.get("plain")) {
        (Some(Value::Object(ports)), _) => ports.clone(),
        (_, Some(Value::Object(plain)))
            if plain.len() == 1 && plain.get("outputs").is_some_and(Value::is_object) =>
        {
            let ports = plain["outputs"].as_object().cloned().unwrap_or_default();
            ports.into_iter().map(|(port, value)| (port, json!({ "value": value }))).collect()
        }
        (_, Some(plain)) => Map::from_iter([("output".to_owned(), json!({ "value": plain }))]),
        _ => Map::new(),
    };
    let with_type = |value: &Value| {
        typed(value["type"].as_str().unwrap_or(DATA), value.get("value").cloned().unwrap_or_default())
    };
    Ok(ports.iter().map(|(port, value)| (port.clone(), with_type(value))).collect())
}

/// Returns the events that an executor reported, in order.
pub(super) fn events(reply: &Value) -> Vec<Value> {
    let outcome = CallOutcome::read_all(reply).ok().and_then(|mut outcomes| outcomes.pop());
    match outcome {
        Some(CallOutcome::Value(value)) => value["events"].as_array().cloned().unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Returns the result of building a structural node.
pub(super) fn built(code: &str, outcome_of_call: Option<CallOutcome>) -> Result<Value, String> {
    let mut value = outcome(code, "build", outcome_of_call)?;
    let key = if value.get("built").is_some() { "built" } else { "plain" };
    Ok(value[key].take())
}

fn outcome(code: &str, function: &str, outcome: Option<CallOutcome>) -> Result<Value, String> {
    match outcome {
        Some(CallOutcome::Value(value)) => Ok(value),
        Some(CallOutcome::Error(error)) => Err(explain(code, function, &error)),
        None => Err("the result of the executor is missing".to_owned()),
    }
}
