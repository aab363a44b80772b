//! A Python function of one argument.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    error::{ScriptError, ScriptErrorKind},
    interpreter::{check_text, function_name},
    limits::Limits,
    printed_text::PrintedText,
    request::{EvaluationAction, EvaluationRequest, FunctionText},
    value::{MAX_DEPTH, is_shallow},
    worker_pool,
};

/// Python function of one argument that compiles. Cheap to clone and usable from many threads.
///
/// The source is a lambda, or a body whose first top-level function is called. `json` is in scope.
/// Compiling and calling block until a worker is available, so do not use them on threads that must
/// not block.
#[derive(Clone, Debug)]
pub struct Function {
    text: Arc<FunctionText>,
}

impl Function {
    /// Compiles a function with the usual limits ([`Limits::function`]).
    pub fn compile(source: &str) -> Result<Self, ScriptError> {
        Self::compile_with(source, Limits::function())
    }

    /// Compiles a function with the given limits.
    pub fn compile_with(source: &str, limits: Limits) -> Result<Self, ScriptError> {
        let function = Self::unchecked(source, limits)?;
        let request =
            EvaluationRequest { function: Arc::clone(&function.text), action: EvaluationAction::Compile };
        worker_pool::evaluate(request, &PrintedText::default())?;
        Ok(function)
    }

    /// Creates a function without compiling it; the first call does. Fails if the source is too
    /// long or has no function.
    pub(crate) fn unchecked(source: &str, limits: Limits) -> Result<Self, ScriptError> {
        check_text(source, &limits)?;
        Ok(Self { text: Arc::new(FunctionText { source: source.to_owned(), limits }) })
    }

    /// Calls the function.
    pub fn call(&self, argument: &Value) -> Result<Value, ScriptError> {
        self.call_printing(argument, &PrintedText::default())
    }

    /// Calls the function; `printed` receives the text that it prints, also if it fails.
    pub fn call_printing(&self, argument: &Value, printed: &PrintedText) -> Result<Value, ScriptError> {
        worker_pool::evaluate(self.request(argument.clone())?, printed)
    }

    /// Creates the request that calls the function.
    pub(crate) fn request(&self, argument: Value) -> Result<EvaluationRequest, ScriptError> {
        if !is_shallow(&argument, MAX_DEPTH) {
            let message = format!("a value is nested deeper than {MAX_DEPTH}");
            return Err(ScriptError::new(ScriptErrorKind::Value, message));
        }
        Ok(EvaluationRequest { function: Arc::clone(&self.text), action: EvaluationAction::Call(argument) })
    }

    /// Returns the name of the called function; `lambda` for a lambda.
    pub fn name(&self) -> &str {
        function_name(&self.text.source).unwrap_or("lambda")
    }
}
