//! A Python expression over named variables.

use monty_types::MontyObject;
use serde_json::Value;

use crate::{
    error::{ScriptError, ScriptErrorKind},
    limits::Limits,
    program::{Program, RESERVED, Text, keeper, kept, prelude, unless_starved},
    source::is_harmless,
    value::{is_shallow, object_of, value_of},
};

/// Levels of nesting that need no large stack.
const SHALLOW: usize = 16;

/// A compiled Python expression over named variables; cheap to clone, usable from many threads.
///
/// Short expressions that cannot loop, over values that are not nested deeply, run in the caller's thread; all
/// others on a worker with a large stack.
#[derive(Clone)]
pub struct Expression {
    program: Program,
    variables: usize,
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expression").field("variables", &self.variables).finish_non_exhaustive()
    }
}

impl Expression {
    /// Compiles an expression with the usual limits ([`Limits::expression`]).
    pub fn compile(source: &str, variables: &[&str]) -> Result<Self, ScriptError> {
        Self::compile_with(source, variables, Limits::expression())
    }

    /// Compiles an expression with the given limits.
    pub fn compile_with(source: &str, variables: &[&str], limits: Limits) -> Result<Self, ScriptError> {
        for (index, name) in variables.iter().enumerate() {
            if name.starts_with(RESERVED) || variables[..index].contains(name) {
                let message = format!("variable {name} is reserved or given twice");
                return Err(ScriptError::new(ScriptErrorKind::Syntax, message));
            }
        }
        let text = Text {
            before: format!(
                "{}{}_sinew(_sinew_test, (\n",
                prelude(source),
                keeper("_t, _r", "if _t: return not not _r", &limits)
            ),
            source,
            after: "\n))\n".to_owned(),
            probe: Some(("[1 if 1 else", "]")),
        };
        let inputs =
            std::iter::once("_sinew_test").chain(variables.iter().copied()).map(str::to_owned).collect();
        let program = Program::compile(&text, inputs, limits, is_harmless(source))?;
        Ok(Self { program, variables: variables.len() })
    }

    /// The value of the expression; `values` in the order of the variables.
    pub fn eval(&self, values: &[Value]) -> Result<Value, ScriptError> {
        value_of(kept(self.run(false, values)?)?)
    }

    /// The truth of the expression as Python sees it; its value need not be JSON.
    pub fn test(&self, values: &[Value]) -> Result<bool, ScriptError> {
        match self.run(true, values)? {
            MontyObject::Bool(truth) => Ok(truth),
            _ => Err(ScriptError::new(ScriptErrorKind::Internal, "the condition brought no truth value")),
        }
    }

    fn run(&self, test: bool, values: &[Value]) -> Result<MontyObject, ScriptError> {
        if values.len() != self.variables {
            let message = format!("{} values for {} variables", values.len(), self.variables);
            return Err(ScriptError::new(ScriptErrorKind::Value, message));
        }
        let shallow = values.iter().all(|value| is_shallow(value, SHALLOW));
        unless_starved(|| {
            let inputs = std::iter::once(Ok(MontyObject::Bool(test))).chain(values.iter().map(object_of));
            self.program.run(inputs.collect::<Result<_, _>>()?, shallow)
        })
    }
}
