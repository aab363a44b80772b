//! Interpreter: compiles programs, caches them, and calls them.
//!
//! Appended lines check the result *inside* the interpreter, where its limits apply: a list that
//! contains itself twice, forty levels deep, is small inside the interpreter, but its conversion
//! would exhaust memory.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use monty::MontyRun;
use monty_types::{
    CompileOptions, ExcType, MontyException, MontyObject, PrintWriter, ResourceLimits, ResourceTracker,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::{
    error::{ScriptError, ScriptErrorKind, shorten},
    limits::Limits,
    printed_text::PrintBuffer,
    request::{EvaluationAction, EvaluationRequest, FunctionText},
    source::{first_function, is_lambda},
    value::{object_of, value_of},
};

/// Prefix of names in the lines around the author's source.
const RESERVED_PREFIX: &str = "_sinew";
/// Name of the function that receives the result; an exception raised in it is about the result.
const KEEPER_NAME: &str = "_sinew";
/// Processor time for compiling, which is linear in the limited source.
pub(crate) const COMPILE_TIMEOUT: Duration = Duration::from_secs(1);
/// Processor time of a call beyond its limit before its worker exits.
const CALL_GRACE: Duration = Duration::from_millis(100);
/// Maximum total size of cached program sources, in bytes.
const MAX_CACHE_BYTES: usize = 1 << 20;
/// Maximum number of calls of one request that exceed the wall time without using as much processor
/// time.
const MAX_STARVED_CALLS: u32 = 3;

/// Limits the processor time of the current evaluation.
pub(crate) trait CpuBudget {
    /// Allows this much processor time from now on.
    fn allow(&self, time: Duration);
}

/// Budget for a caller that cannot abort an evaluation: only the interpreter's own limits apply.
pub(crate) struct UnlimitedCpu;

impl CpuBudget for UnlimitedCpu {
    fn allow(&self, _time: Duration) {}
}

/// Compiled programs by their source.
#[derive(Default)]
pub(crate) struct Interpreter {
    programs: HashMap<FunctionText, MontyRun>,
    cached_bytes: usize,
    printed: PrintBuffer,
}

impl Interpreter {
    /// Compiles a program, and calls it if the request is a call.
    pub(crate) fn evaluate(
        &mut self,
        request: &EvaluationRequest,
        budget: &dyn CpuBudget,
    ) -> Result<Value, ScriptError> {
        self.printed.clear();
        let evaluated = catch_unwind(AssertUnwindSafe(|| self.run(request, budget)));
        evaluated.unwrap_or_else(|_| {
            // The failure may have left a program in an inconsistent state.
            *self = Self::default();
            Err(ScriptError::new(ScriptErrorKind::Internal, "the script interpreter failed"))
        })
    }

    /// Takes the text that the latest evaluation printed.
    pub(crate) fn take_printed(&mut self) -> String {
        self.printed.take()
    }

    fn run(&mut self, request: &EvaluationRequest, budget: &dyn CpuBudget) -> Result<Value, ScriptError> {
        let text = &request.function;
        if !self.programs.contains_key(text) {
            budget.allow(COMPILE_TIMEOUT);
            let program = compile_function(&text.source, &text.limits)?;
            if self.cached_bytes > MAX_CACHE_BYTES {
                self.programs.clear();
                self.cached_bytes = 0;
            }
            self.cached_bytes += text.source.len();
            self.programs.insert(FunctionText::clone(text), program);
        }
        match (&request.action, self.programs.get(text)) {
            (EvaluationAction::Call(argument), Some(program)) => {
                call_function(program, text, argument, budget, &mut self.printed)
            }
            _ => Ok(Value::Null),
        }
    }
}

/// Returns an error for source that cannot be a function, without compiling it.
pub(crate) fn check_text(source: &str, limits: &Limits) -> Result<(), ScriptError> {
    if source.len() > limits.max_source {
        let message = format!("script of {} bytes is larger than {}", source.len(), limits.max_source);
        return Err(ScriptError::new(ScriptErrorKind::TooLarge, message));
    }
    if source.contains(RESERVED_PREFIX) {
        let message = format!("names that begin with {RESERVED_PREFIX} are reserved");
        return Err(ScriptError::new(ScriptErrorKind::Syntax, message));
    }
    function_name(source).map(drop)
}

/// Returns the name of the function to call.
pub(crate) fn function_name(source: &str) -> Result<&str, ScriptError> {
    if is_lambda(source) {
        return Ok("lambda");
    }
    first_function(source)
        .ok_or_else(|| ScriptError::new(ScriptErrorKind::Syntax, "expected a lambda or a def at top level"))
}

fn compile_function(source: &str, limits: &Limits) -> Result<MontyRun, ScriptError> {
    check_text(source, limits)?;
    let keeper = format!(
        "def {KEEPER_NAME}(_f, _a):\n _r = _f(_a)\n import json\n \
         return [_r] if not json.dumps(_r, allow_nan=False)[{}:] else []\n",
        limits.max_result
    );
    let prelude = prelude(source);
    // The empty line ends a continuation by a trailing backslash.
    let code = if is_lambda(source) {
        // The source must compile in other brackets too; otherwise it is empty or closes the
        // bracket around it.
        compile_text(format!("[1 if 1 else\n{source}\n]\n"), Vec::new())
            .map_err(|error| explain(&error, source, 1))?;
        format!("{prelude}_sinew_f = (\n{source}\n)\n\n{keeper}_sinew(_sinew_f, _sinew_input)\n")
    } else {
        let name = function_name(source)?;
        format!("{prelude}{source}\n\n{keeper}_sinew({name}, _sinew_input)\n")
    };
    compile_text(code, vec!["_sinew_input".to_owned()])
        .map_err(|error| explain(&error, source, lines_before(source)))
}

/// Returns the number of lines before the author's source.
fn lines_before(source: &str) -> u32 {
    if is_lambda(source) { 2 } else { 1 }
}

/// Returns the added first line: it imports `json`, and replaces `pow` with a modulus, the only
/// operation whose time neither the clock nor the memory limit bounds.
fn prelude(source: &str) -> String {
    let json = if source.contains("json") { "import json" } else { "" };
    let pow = if source.contains("pow") || !source.is_ascii() { "pow = lambda a, b: a ** b" } else { "" };
    let between = if json.is_empty() || pow.is_empty() { "" } else { "; " };
    format!("{json}{between}{pow}\n")
}

fn compile_text(code: String, inputs: Vec<String>) -> Result<MontyRun, MontyException> {
    MontyRun::new(code, "script", inputs, CompileOptions::default())
}

/// Calls a program. The interpreter limits wall time: a call that exceeds it with less processor
/// time is repeated with twice the wall time, otherwise a workflow would fail because the machine
/// was busy.
fn call_function(
    program: &MontyRun,
    text: &FunctionText,
    argument: &Value,
    budget: &dyn CpuBudget,
    printed: &mut PrintBuffer,
) -> Result<Value, ScriptError> {
    let limits = &text.limits;
    let mut starved_calls = 0_u32;
    // Without output, the interpreter does not check the clock for a writer.
    let prints = text.source.contains("print");
    let object = loop {
        printed.clear();
        let input = object_of(argument)?;
        let resources = ResourceLimits::default()
            .max_duration(limits.max_duration * (1 << starved_calls))
            .max_memory(limits.max_memory)
            .max_recursion_depth(limits.max_recursion);
        budget.allow(limits.max_duration + CALL_GRACE);
        let before = thread_time();
        let writer = if prints { PrintWriter::Callback(&mut *printed) } else { PrintWriter::Disabled };
        let called = program.run(vec![input], ResourceTracker::new(resources), writer);
        let used = thread_time().saturating_sub(before);
        match called {
            Ok(object) => break object,
            Err(error) => {
                let error = explain(&error, &text.source, lines_before(&text.source));
                starved_calls += 1;
                let starved = error.kind == ScriptErrorKind::Timeout && used < limits.max_duration * 4 / 5;
                if !starved || starved_calls == MAX_STARVED_CALLS {
                    return Err(error);
                }
            }
        }
    };
    match object {
        MontyObject::List(mut items) => match items.pop() {
            Some(item) => value_of(item),
            None => Err(ScriptError::new(ScriptErrorKind::Value, "the result is too large")),
        },
        _ => Err(ScriptError::new(ScriptErrorKind::Internal, "the script returned no result")),
    }
}

/// Returns the processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    duration_of(clock_gettime(ClockId::ThreadCPUTime))
}

/// Returns the processor time of this process.
pub(crate) fn process_time() -> Duration {
    duration_of(clock_gettime(ClockId::ProcessCPUTime))
}

fn duration_of(time: rustix::time::Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Converts the interpreter's exception to an error with positions in the author's source.
fn explain(error: &MontyException, source: &str, lines_before: u32) -> ScriptError {
    let raised_by_keeper =
        error.traceback().last().is_some_and(|frame| frame.frame_name.as_deref() == Some(KEEPER_NAME));
    let message = error.message().unwrap_or_default();
    let kind = match error.exc_type() {
        ExcType::SyntaxError => ScriptErrorKind::Syntax,
        ExcType::TimeoutError if message.starts_with("time limit exceeded") => ScriptErrorKind::Timeout,
        ExcType::MemoryError => ScriptErrorKind::Memory,
        ExcType::TypeError | ExcType::ValueError | ExcType::RecursionError if raised_by_keeper => {
            ScriptErrorKind::Value
        }
        ExcType::RecursionError => ScriptErrorKind::Recursion,
        _ => ScriptErrorKind::Runtime,
    };
    let mut explained = ScriptError::new(kind, error.summary());
    explained.exception = Some(error.exc_type().to_string());
    let lines: Vec<&str> = source.lines().collect();
    let place = error.traceback().iter().rev().find_map(|frame| {
        let line = frame.start.line.checked_sub(lines_before + 1)?;
        Some((frame.start, lines.get(line as usize)?))
    });
    if let Some((start, text)) = place {
        explained.line = Some(start.line - lines_before);
        explained.column = Some(start.column);
        explained.snippet = Some(shorten(text.trim_end()));
    }
    explained
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct PanickingBudget;

    impl CpuBudget for PanickingBudget {
        fn allow(&self, _time: Duration) {
            std::panic::resume_unwind(Box::new("test"));
        }
    }

    #[test]
    fn a_failed_interpreter_forgets_its_programs() {
        let mut interpreter = Interpreter::default();
        let text = FunctionText { source: "lambda d: d".to_owned(), limits: Limits::function() };
        let action = EvaluationAction::Call(Value::from(1));
        let request = EvaluationRequest { function: Arc::new(text), action };
        assert_eq!(interpreter.evaluate(&request, &UnlimitedCpu), Ok(Value::from(1)));
        let error = interpreter.evaluate(&request, &PanickingBudget).unwrap_err();
        assert_eq!(error.kind, ScriptErrorKind::Internal);
        assert_eq!((interpreter.programs.len(), interpreter.cached_bytes), (0, 0));
        assert_eq!(interpreter.evaluate(&request, &UnlimitedCpu), Ok(Value::from(1)));
    }
}
