//! Hostile bytes that are kept under `fuzz/corpus/`, through the functions that the fuzzer calls. None may panic or hang.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test says what is wrong by panicking")]

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/wire.rs"]
mod targets;

use replay::replay;

#[test]
fn messages_are_read_as_they_were_written_or_refused() {
    replay("wire_message", targets::wire_message);
}

#[test]
fn requests_commands_and_answers_are_read_or_refused() {
    replay("request", targets::request);
}

#[test]
fn cards_are_read_or_refused() {
    replay("agent_card", targets::agent_card);
}
