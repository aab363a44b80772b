//! What one evaluation may use.

use std::time::Duration;

/// Limits of one evaluation.
///
/// `max_memory` bounds any single allocation (a repeated string, a huge power); growth in small steps is
/// bounded by `max_duration`. The interpreter cannot interrupt one native operation on a huge integer, so the
/// memory limit is kept low and the caller gets its error soon after `max_duration` even then.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Limits of a condition or value expression: 100 ms.
    pub const fn expression() -> Self {
        Self {
            max_duration: Duration::from_millis(100),
            max_memory: 4 << 20,
            max_recursion: 200,
            max_source: 64 << 10,
            max_result: 1 << 20,
        }
    }

    /// Limits of a function: 250 ms.
    pub const fn function() -> Self {
        Self { max_duration: Duration::from_millis(250), ..Self::expression() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::expression()
    }
}
