//! Hostile bytes that are kept under `fuzz/corpus/`, through the function that the fuzzer calls.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/events.rs"]
mod targets;

use replay::replay;

#[test]
fn a_stream_gives_the_same_events_however_it_is_cut() {
    replay("events", targets::events);
}
