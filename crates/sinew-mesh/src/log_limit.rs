//! Rate-limited log lines for events that clients and peers can trigger: a few per second and kind,
//! with the number of suppressed lines.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(1);

/// Limit of the log lines of one kind.
#[derive(Debug)]
pub struct LogLimit {
    lines_per_second: u32,
    window: Mutex<LogWindow>,
}

#[derive(Debug)]
struct LogWindow {
    started: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Creates a limit of lines per second.
    pub const fn new(lines_per_second: u32) -> Self {
        let window = LogWindow { started: None, lines: 0, suppressed: 0 };
        Self { lines_per_second, window: Mutex::new(window) }
    }

    /// Counts an event. If it may be logged, returns the number of suppressed events before it.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.started.is_none_or(|started| now.saturating_duration_since(started) >= WINDOW) {
            (window.started, window.lines) = (Some(now), 0);
        }
        if window.lines >= self.lines_per_second {
            window.suppressed += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

/// Writes a log line unless its call site has already written one in this second. The field
/// `suppressed` of the next line has the number of suppressed lines. A number before the level
/// allows more lines per second.
#[macro_export]
macro_rules! log_limited {
    ($lines:literal, $level:ident, $($line:tt)+) => {{
        static LIMIT: $crate::log_limit::LogLimit = $crate::log_limit::LogLimit::new($lines);
        if let Some(suppressed) = LIMIT.admit(::std::time::Instant::now()) {
            let suppressed = (suppressed > 0).then_some(suppressed);
            ::tracing::$level!(suppressed, $($line)+);
        }
    }};
    ($level:ident, $($line:tt)+) => { $crate::log_limited!(1, $level, $($line)+) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_and_those_left_out_are_counted() {
        let check = |lines: u32, events: &[(u64, Option<u64>)]| {
            let (limit, began) = (LogLimit::new(lines), Instant::now());
            for (at, expected) in events {
                let admitted = limit.admit(began + Duration::from_millis(*at));
                assert_eq!(admitted, *expected, "{lines} lines, at {at} ms");
            }
        };
        check(1, &[(0, Some(0)), (1_000, Some(0)), (2_500, Some(0))]);
        check(1, &[(0, Some(0)), (1, None), (999, None), (1_000, Some(2)), (1_001, None), (9_000, Some(1))]);
        check(2, &[(0, Some(0)), (1, Some(0)), (2, None), (1_000, Some(1)), (1_001, Some(0)), (1_002, None)]);
    }

    #[test]
    fn a_flood_of_a_minute_makes_a_line_a_second() {
        let (limit, began) = (LogLimit::new(1), Instant::now());
        let admitted = (0..60_000).filter_map(|at| limit.admit(began + Duration::from_millis(at)));
        let (lines, suppressed) = admitted.fold((0, 0), |(lines, all), some| (lines + 1, all + some));
        assert_eq!((lines, lines + suppressed), (60, 59_001), "each event is a line or counted");
    }
}
