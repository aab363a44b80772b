//! The clock of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use sinew_engine::Time;

/// Returns the milliseconds since the Unix epoch.
pub fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as Time)
}
