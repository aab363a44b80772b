//! Errors of a script, with their position in the author's source.

use serde::{Deserialize, Serialize};
use sinew_codes as code;

/// Kind of failure; each has its own operator code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScriptErrorKind {
    /// The source is not valid Python, or not of the expected form.
    Syntax,
    /// The code raised an exception.
    Runtime,
    /// The code ran longer than its limit.
    Timeout,
    /// The code requested more memory than its limit.
    Memory,
    /// Calls nested deeper than the limit.
    Recursion,
    /// The source text is longer than the limit.
    TooLarge,
    /// An input or the result is not plain JSON data.
    Value,
    /// The interpreter itself failed: a defect of Sinew, not of the author's code.
    Internal,
    /// The code terminated its worker process.
    WorkerEnded,
    /// No worker was available; the script was not run.
    Unavailable,
}

/// Error of a script's compilation or evaluation. `line` and `column` start at 1 and refer to the
/// author's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ScriptError {
    /// Kind of failure.
    pub kind: ScriptErrorKind,
    /// Description; for Python exceptions the class and its message, `KeyError: name`.
    pub message: String,
    /// Class of the Python exception, if one was raised.
    pub exception: Option<String>,
    /// Line in the author's source.
    pub line: Option<u32>,
    /// Column in that line, in characters.
    pub column: Option<u32>,
    /// That line of the author's source, truncated.
    pub snippet: Option<String>,
}

/// Maximum length of a message or snippet, in characters: data from a run must not flood logs.
const MAX_TEXT: usize = 300;

impl ScriptError {
    pub(crate) fn new(kind: ScriptErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: shorten(&message.into()),
            exception: None,
            line: None,
            column: None,
            snippet: None,
        }
    }

    /// Returns whether the code raised an exception within its limits, which a caller may handle as
    /// such.
    pub const fn is_raised(&self) -> bool {
        !matches!(
            self.kind,
            ScriptErrorKind::Timeout
                | ScriptErrorKind::Memory
                | ScriptErrorKind::Internal
                | ScriptErrorKind::WorkerEnded
                | ScriptErrorKind::Unavailable
        )
    }

    /// Returns the operator code of this error.
    pub const fn code(&self) -> &'static str {
        match self.kind {
            ScriptErrorKind::Syntax => code::SCRIPT_NOT_VALID_PYTHON.as_str(),
            ScriptErrorKind::Runtime => code::SCRIPT_RAISED_EXCEPTION.as_str(),
            ScriptErrorKind::Timeout => code::SCRIPT_RAN_TOO_LONG.as_str(),
            ScriptErrorKind::Memory => code::SCRIPT_MEMORY_EXCEEDED.as_str(),
            ScriptErrorKind::Recursion => code::SCRIPT_CALLS_NESTED_TOO_DEEPLY.as_str(),
            ScriptErrorKind::TooLarge => code::SCRIPT_TOO_LARGE.as_str(),
            ScriptErrorKind::Value => code::VALUE_NOT_PLAIN_DATA.as_str(),
            ScriptErrorKind::Internal => code::SCRIPT_INTERPRETER_FAILED.as_str(),
            ScriptErrorKind::WorkerEnded => code::SCRIPT_ENDED_WORKER.as_str(),
            ScriptErrorKind::Unavailable => code::NO_WORKER_FREE.as_str(),
        }
    }
}

/// Truncates a string to [`MAX_TEXT`] characters.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
