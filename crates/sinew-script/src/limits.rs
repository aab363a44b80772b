//! Limits of one evaluation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one evaluation.
///
/// `max_memory` limits any single allocation that the interpreter accounts for (a repeated string,
/// a huge power). A worker process limits everything else: the sum of all allocations, and
/// operations that the interpreter cannot interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum running time.
    pub max_duration: Duration,
    /// Maximum size of a single allocation, in bytes.
    pub max_memory: usize,
    /// Maximum nesting of calls and of values.
    pub max_recursion: usize,
    /// Maximum size of the source, in bytes.
    pub max_source: usize,
    /// Maximum size of the result, in bytes of JSON.
    pub max_result: usize,
}

impl Limits {
    /// Returns the limits of a function: 250 ms.
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
