//! Hostile bytes that are kept under `fuzz/corpus/`, through the functions that the fuzzer calls. None may panic or hang.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/conversations.rs"]
mod targets;

/// Feeds a target everything that is kept for it, and each of it cut at many places.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "{} holds next to nothing", folder.display());
    let mut wrong = Vec::new();
    for path in paths {
        let bytes = fs::read(&path).unwrap();
        let places = (0..=bytes.len()).step_by(bytes.len() / 100 + 1).chain([bytes.len()]);
        for end in places {
            if std::panic::catch_unwind(|| check(&bytes[..end])).is_err() {
                wrong.push(format!("the first {end} bytes of {} broke it", path.display()));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn answers_of_providers_are_turns_or_refusals_however_they_are_cut() {
    replay("model_answer", targets::model_answer);
}

#[test]
fn conversations_go_on_from_any_log() {
    replay("conversation_log", targets::conversation_log);
}
