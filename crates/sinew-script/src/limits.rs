//! Limits of one evaluation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one evaluation.
///
/// `max_memory` bounds any single allocation that the interpreter accounts for (a repeated string, a huge power).
/// A worker process bounds the rest: the sum of all allocations, and work that the interpreter cannot interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Longest running time.
    pub max_duration: Duration,
    /// Largest single allocation, in bytes.
    pub max_memory: usize,
    /// Deepest nesting of calls and of values while working on them.
    pub max_recursion: usize,
    /// Longest source text, in bytes.
    pub max_source: usize,
    /// Largest result, in bytes of its JSON text.
    pub max_result: usize,
}

impl Limits {
    /// Limits of a function: 250 ms.
    pub const fn function() -> Self {
        Self {
            max_duration: Duration::from_millis(250),
            max_memory: 4 << 20,
            max_recursion: 200,
            max_source: 64 << 10,
            max_result: 1 << 20,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::function()
    }
}
