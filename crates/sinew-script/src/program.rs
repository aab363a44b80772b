//! A compiled program: the author's text between our first and last lines, and how to run it.
//!
//! Our last lines check the result *inside* the interpreter, where its limits hold: a list that contains
//! itself twice forty times over is small there and would fill the machine on its way out.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use monty::MontyRun;
use monty_types::{
    CompileOptions, ExcType, MontyException, MontyObject, PrintWriter, ResourceLimits, ResourceTracker,
};

use crate::{
    error::{ScriptError, ScriptErrorKind, shorten},
    limits::Limits,
    pool::{self, Lost},
};

/// Names that begin like this belong to the lines around the author's text.
pub(crate) const RESERVED: &str = "_sinew";
/// The name of the function that takes the result; an exception raised in it is about the result.
const KEEPER: &str = "_sinew";
/// Extra time for a worker to come back by itself before it is given up.
const GRACE: Duration = Duration::from_millis(500);
/// Longest time for compiling, which is linear in a limited text.
const COMPILE: Duration = Duration::from_secs(5);

/// The author's text with the lines around it.
pub(crate) struct Text<'a> {
    /// Our lines before the author's; ends with a line break.
    pub(crate) before: String,
    pub(crate) source: &'a str,
    /// Our lines after the author's; begins with a line break.
    pub(crate) after: String,
    /// Lines around the author's text that use other brackets: this must compile too, or the author's text is
    /// empty or closes our bracket.
    pub(crate) probe: Option<(&'static str, &'static str)>,
}

/// A compiled program with its limits; cheap to clone, usable from many threads.
#[derive(Clone)]
pub(crate) struct Program {
    /// Runs not in use; the interpreter's program can be sent but not shared, so each caller takes one.
    idle: Arc<Mutex<Vec<MontyRun>>>,
    source: Arc<str>,
    lines_before: u32,
    limits: Limits,
    in_place: bool,
}

impl Program {
    /// Compiles the text over the named inputs. `in_place` programs may run in the caller's thread.
    pub(crate) fn compile(
        text: &Text<'_>,
        inputs: Vec<String>,
        limits: Limits,
        in_place: bool,
    ) -> Result<Self, ScriptError> {
        if text.source.len() > limits.max_source {
            let message =
                format!("script of {} bytes is larger than {}", text.source.len(), limits.max_source);
            return Err(ScriptError::new(ScriptErrorKind::TooLarge, message));
        }
        if text.source.contains(RESERVED) {
            let message = format!("names that begin with {RESERVED} are reserved");
            return Err(ScriptError::new(ScriptErrorKind::Syntax, message));
        }
        let lines_before = text.before.matches('\n').count() as u32;
        let probe = text.probe.map(|(open, close)| format!("{open}\n{}\n{close}\n", text.source));
        let code = format!("{}{}{}", text.before, text.source, text.after);
        let compiled = pool::run(COMPILE, move || {
            if let Some(probe) = probe {
                compile(probe, Vec::new()).map_err(|error| (error, 1))?;
            }
            compile(code, inputs).map_err(|error| (error, lines_before))
        });
        let run = lost(compiled, COMPILE)?.map_err(|(error, before)| explain(&error, text.source, before))?;
        Ok(Self {
            idle: Arc::new(Mutex::new(vec![run])),
            source: text.source.into(),
            lines_before,
            limits,
            in_place,
        })
    }

    /// Runs the program over its inputs. `shallow` says that no input is nested deeply, so little stack is
    /// needed to compare or print it.
    pub(crate) fn run(&self, inputs: Vec<MontyObject>, shallow: bool) -> Result<MontyObject, ScriptError> {
        let result = if self.in_place && shallow {
            catch_unwind(AssertUnwindSafe(|| self.execute(inputs))).map_err(|_| Lost::Panicked)
        } else {
            let program = self.clone();
            pool::run(self.limits.max_duration + GRACE, move || program.execute(inputs))
        };
        lost(result, self.limits.max_duration)?
            .map_err(|error| explain(&error, &self.source, self.lines_before))
    }

    fn execute(&self, inputs: Vec<MontyObject>) -> Result<MontyObject, MontyException> {
        let run = self.take();
        let limits = ResourceLimits::default()
            .max_duration(self.limits.max_duration)
            .max_memory(self.limits.max_memory)
            .max_recursion_depth(self.limits.max_recursion);
        let result = run.run(inputs, ResourceTracker::new(limits), PrintWriter::Disabled);
        self.lock().push(run);
        result
    }

    /// A program to run. The last one is copied, never taken: a run that panics or is given up loses its own.
    fn take(&self) -> MontyRun {
        let mut idle = self.lock();
        match idle.len() {
            1 => idle[0].clone(),
            _ => idle.swap_remove(1),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<MontyRun>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs something again that was interrupted at its time limit, twice at most. The limit is one of the clock on the wall:
/// a process that was halted or had no processor meets it without having done anything, and a workflow must not fail of
/// that. A script that is too slow is so each time.
pub(crate) fn unless_starved<T>(run: impl Fn() -> Result<T, ScriptError>) -> Result<T, ScriptError> {
    let interrupted = |result: &Result<T, ScriptError>| {
        // One that could not be interrupted has no exception, and cost a thread.
        result
            .as_ref()
            .is_err_and(|error| error.kind == ScriptErrorKind::Timeout && error.exception.is_some())
    };
    let mut result = run();
    for _ in 0..2 {
        if !interrupted(&result) {
            break;
        }
        result = run();
    }
    result
}

/// The lines that define the keeper of results. `head` is its parameters, `result` makes `_r`, `quick`
/// may return before the check.
pub(crate) fn keeper(parameters: &str, first: &str, limits: &Limits) -> String {
    format!(
        "def {KEEPER}({parameters}):\n {first}\n import json\n \
         return [_r] if not json.dumps(_r, allow_nan=False)[{}:] else []\n",
        limits.max_result
    )
}

/// The result out of the keeper's list; an empty list says it was too large.
pub(crate) fn kept(object: MontyObject) -> Result<MontyObject, ScriptError> {
    match object {
        MontyObject::List(mut items) => {
            items.pop().ok_or_else(|| ScriptError::new(ScriptErrorKind::Value, "the result is too large"))
        }
        _ => Err(ScriptError::new(ScriptErrorKind::Internal, "the script brought no result")),
    }
}

/// Our first line: makes `json` available, and keeps `pow` with a modulus away, the one operation whose time
/// neither the clock nor the memory limit bounds.
pub(crate) fn prelude(source: &str) -> String {
    let json = if source.contains("json") { "import json" } else { "" };
    let pow = if source.contains("pow") || !source.is_ascii() { "pow = lambda a, b: a ** b" } else { "" };
    let between = if json.is_empty() || pow.is_empty() { "" } else { "; " };
    format!("{json}{between}{pow}\n")
}

fn compile(code: String, inputs: Vec<String>) -> Result<MontyRun, MontyException> {
    MontyRun::new(code, "script", inputs, CompileOptions::default())
}

fn lost<T>(result: Result<T, Lost>, limit: Duration) -> Result<T, ScriptError> {
    result.map_err(|lost| match lost {
        Lost::Late => ScriptError::new(
            ScriptErrorKind::Timeout,
            format!("script ran longer than {} ms", limit.as_millis()),
        ),
        Lost::Panicked => ScriptError::new(ScriptErrorKind::Internal, "the script interpreter failed"),
        Lost::NoThread => ScriptError::new(ScriptErrorKind::Internal, "no thread to run a script"),
    })
}

/// The interpreter's exception in terms of the author's text.
fn explain(error: &MontyException, source: &str, lines_before: u32) -> ScriptError {
    let raised_by_keeper =
        error.traceback().last().is_some_and(|frame| frame.frame_name.as_deref() == Some(KEEPER));
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
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_interrupted_run_is_tried_again() {
        let interrupted = Some("TimeoutError".to_owned());
        // Runs that are late before one is good, whether they could be interrupted, and what comes of it after how many.
        for (late, exception, want) in [
            (0, &interrupted, (true, 1)),
            (1, &interrupted, (true, 2)),
            (9, &interrupted, (false, 3)),
            (9, &None, (false, 1)),
        ] {
            let runs = Cell::new(0);
            let result = unless_starved(|| {
                runs.set(runs.get() + 1);
                if runs.get() > late {
                    return Ok(());
                }
                let mut error = ScriptError::new(ScriptErrorKind::Timeout, "time limit exceeded");
                error.exception.clone_from(exception);
                Err(error)
            });
            assert_eq!((result.is_ok(), runs.get()), want, "{late} late runs");
        }
    }
}
