//! A Python function of one argument.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    error::{ScriptError, ScriptErrorKind},
    limits::Limits,
    program::{Program, Text, keeper, kept, prelude, unless_starved},
    source::{first_function, is_lambda},
    value::{object_of, value_of},
};

/// A compiled Python function of one argument; cheap to clone, usable from many threads.
///
/// The text is a lambda, or a body whose first top-level function is called. `json` is in scope.
#[derive(Clone)]
pub struct Function {
    program: Program,
    name: Arc<str>,
}

impl Function {
    /// Compiles a function with the usual limits ([`Limits::function`]).
    pub fn compile(source: &str) -> Result<Self, ScriptError> {
        Self::compile_with(source, Limits::function())
    }

    /// Compiles a function with the given limits.
    pub fn compile_with(source: &str, limits: Limits) -> Result<Self, ScriptError> {
        let lambda = is_lambda(source);
        let name = if lambda {
            "lambda"
        } else {
            first_function(source).ok_or_else(|| {
                ScriptError::new(ScriptErrorKind::Syntax, "expected a lambda or a def at top level")
            })?
        };
        let keeper = keeper("_f, _a", "_r = _f(_a)", &limits);
        let first = prelude(source);
        // The empty line ends whatever a trailing backslash would continue.
        let text = if lambda {
            Text {
                before: format!("{first}_sinew_f = (\n"),
                source,
                after: format!("\n)\n\n{keeper}_sinew(_sinew_f, _sinew_input)\n"),
                probe: Some(("[1 if 1 else", "]")),
            }
        } else {
            let after = format!("\n\n{keeper}_sinew({name}, _sinew_input)\n");
            Text { before: first, source, after, probe: None }
        };
        let program = Program::compile(&text, vec!["_sinew_input".to_owned()], limits, false)?;
        Ok(Self { program, name: name.into() })
    }

    /// Calls the function.
    pub fn call(&self, argument: &Value) -> Result<Value, ScriptError> {
        let object = unless_starved(|| self.program.run(vec![object_of(argument)?], false))?;
        value_of(kept(object)?)
    }

    /// The name of the function that is called; `lambda` for a lambda.
    pub fn name(&self) -> &str {
        &self.name
    }
}
