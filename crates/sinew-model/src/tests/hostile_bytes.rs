//! Passes `fuzz/corpus/` to the functions of the fuzzer, which must not panic or hang.

#[path = "../../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../../fuzz/src/conversations.rs"]
mod targets;

use replay::replay;

#[test]
fn answers_of_providers_are_turns_or_refusals_however_they_are_cut() {
    replay("model_answer", targets::model_answer);
}

#[test]
fn conversations_go_on_from_any_log() {
    replay("conversation_log", targets::conversation_log);
}
