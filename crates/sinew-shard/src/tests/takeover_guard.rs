//! Tests of the takeover guard, and of the rejection of condemned messages.

use serde_json::{Value, json};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Subject, Token};

use super::kit::execution;
use crate::intake::ShardInput;
use crate::takeover_guard::{MAX_CAREFUL_BATCH, TakeoverGuard, own_note_cleared};
use crate::takeover_note::WorkItem;

fn item(id: &str) -> WorkItem {
    WorkItem::Execution(execution(id))
}

fn note(process: &str, in_hand: &[&str], condemned: &[&str]) -> Vec<u8> {
    let items = |ids: &[&str]| ids.iter().map(|id| json!({ "execution": id })).collect::<Vec<Value>>();
    let note = json!({ "process": process, "in_hand": items(in_hand), "condemned": items(condemned) });
    serde_json::to_vec(&note).unwrap()
}

fn archived(id: &str) -> ShardInput {
    ShardInput::Archived { execution: execution(id), end_number: 0 }
}

fn ids(all: &[&str]) -> Vec<ExecutionId> {
    all.iter().map(|id| execution(id)).collect()
}

#[test]
fn a_note_of_a_dead_process_makes_suspects() {
    for (stored, process, died, suspicious) in [
        (note("before", &["x"], &[]), "me", false, true),
        (note("before", &[], &[]), "me", false, false),
        (note("me", &["x"], &[]), "me", false, false),
        (note("me", &["x"], &[]), "me", true, true),
        (b"garbage".to_vec(), "me", false, false),
        (Vec::new(), "me", false, false),
    ] {
        let guard = TakeoverGuard::new(&stored, process, died);
        assert_eq!(guard.note().is_suspicious(), suspicious, "{}", String::from_utf8_lossy(&stored));
    }
}

#[test]
fn a_stale_note_is_cleared_by_a_stored_one() {
    let mut guard = TakeoverGuard::new(&note("before", &["x"], &[]), "me", false);
    assert!(guard.is_stale());
    guard.hold(&[item("x")]);
    guard.handle_stored();
    assert!(guard.is_stale());
    guard.release();
    guard.handle_stored();
    assert!(guard.is_stale(), "a suspect stays one");
    assert!(guard.check_end(false));
    guard.release();
    guard.handle_stored();
    assert!(!guard.is_stale());
}

#[test]
fn care_ends_with_the_messages_that_waited() {
    let mut guard = TakeoverGuard::new(&note("before", &["x"], &[]), "me", false);
    guard.expect(3);
    assert!(!guard.check_end(false), "three messages wait");
    assert!(guard.is_needed(std::iter::empty()));
    guard.took(2);
    assert!(!guard.check_end(false), "one message waits");
    guard.took(5);
    assert!(!guard.check_end(true), "a deadline has passed");
    assert!(guard.check_end(false), "the note has to be released");
    assert!(!guard.is_needed(std::iter::empty()));
    assert!(!guard.check_end(false), "once");
}

#[test]
fn care_without_suspects_ends_without_a_write() {
    let mut guard = TakeoverGuard::new(b"", "me", false);
    assert!(!guard.check_end(false));
    assert!(!guard.is_needed(std::iter::empty()));
}

#[test]
fn a_careful_turn_is_short() {
    let mut guard = TakeoverGuard::new(b"", "me", false);
    assert_eq!(guard.batch(512), MAX_CAREFUL_BATCH);
    guard.check_end(false);
    assert_eq!(guard.batch(512), 512);
}

#[test]
fn a_watched_execution_is_noted_once_more() {
    let mut guard = TakeoverGuard::new(&note("before", &["x"], &[]), "me", false);
    guard.watch(execution("x"));
    assert!(!guard.check_end(false), "the watched one stays suspect");
    assert!(guard.note().is_suspicious());
    let others = ids(&["y"]);
    assert!(!guard.is_needed(others.iter()));
    let watched = ids(&["y", "x"]);
    assert!(guard.is_needed(watched.iter()));
    assert!(!guard.is_needed(watched.iter()), "its first answer only");
    assert!(guard.check_end(false), "now it is forgotten");
    assert!(!guard.note().is_suspicious());
}

#[test]
fn a_turn_is_split_into_deadlines_inputs_and_messages() {
    let guard = TakeoverGuard::new(b"", "me", false);
    let groups =
        guard.split_turn(ids(&["a", "b"]), vec![archived("c"), ShardInput::Nothing], vec!["d", "e"], |id| {
            item(id)
        });
    let told: Vec<_> = groups
        .iter()
        .map(|group| (group.items.len(), group.due.len(), group.inputs.len(), group.messages.len()))
        .collect();
    assert_eq!(told, [(2, 2, 0, 0), (1, 0, 1, 0), (2, 0, 0, 2)]);
}

#[test]
fn a_suspect_is_in_hand_without_others() {
    let guard = TakeoverGuard::new(&note("before", &["b"], &[]), "me", false);
    let groups = guard.split_turn(ids(&["a", "b", "c"]), Vec::new(), vec!["b", "d"], |id| item(id));
    let told: Vec<Vec<WorkItem>> = groups.into_iter().map(|group| group.items).collect();
    assert_eq!(told, [vec![item("a")], vec![item("b")], vec![item("c")], vec![item("b")], vec![item("d")]]);
}

#[test]
fn large_turns_are_split() {
    let guard = TakeoverGuard::new(b"", "me", false);
    let messages: Vec<usize> = (0..150).collect();
    let groups = guard.split_turn(Vec::new(), Vec::new(), messages, |nth| item(&format!("e{nth}")));
    let sizes: Vec<usize> = groups.iter().map(|group| group.messages.len()).collect();
    assert_eq!(sizes, [64, 64, 22]);
}

#[test]
pub(super) fn an_item_is_condemned_at_its_third_death() {
    let mut stored = Vec::new();
    for begun in 1..=4 {
        let mut guard = TakeoverGuard::new(&stored, &format!("p{begun}"), false);
        assert_eq!(guard.note().is_condemned(&item("x")), begun > 3, "process {begun}");
        stored = guard.hold(&[item("x")]).to_vec();
    }
}

#[test]
fn only_the_own_note_is_cleared() {
    for (stored, cleared) in [
        (note("me", &["x"], &[]), true),
        (note("other", &["x"], &[]), false),
        (note("me", &[], &[]), false),
        (Vec::new(), false),
    ] {
        let note = own_note_cleared(&stored, "me");
        assert_eq!(note.is_some(), cleared);
        let left = TakeoverGuard::new(&note.unwrap_or_default(), "next", false);
        assert!(!left.note().is_suspicious());
    }
}

#[test]
fn a_condemned_item_that_is_settled_is_forgotten() {
    let mut guard = TakeoverGuard::new(&note("before", &[], &["x", "y"]), "me", false);
    assert!(guard.note().is_condemned(&item("x")));
    guard.settle(&item("x"));
    assert!(!guard.note().is_condemned(&item("x")) && guard.note().is_condemned(&item("y")));
}

#[test]
fn a_message_is_about_the_execution_in_its_subject() {
    let command = |operation, id: &str| Subject::Command {
        shard: 0,
        operation,
        caller: Token::of("ada"),
        id: Token::of(id),
    };
    let place = WorkItem::Message { stream: "COMMANDS".to_owned(), seq: 9 };
    for (subject, expected) in [
        (Some(command(Operation::Start, "x")), item("x")),
        (Some(command(Operation::Cancel, "x")), place.clone()),
        (Some(Subject::Query { shard: 0 }), place.clone()),
        (None, place),
    ] {
        assert_eq!(WorkItem::of_message(subject.as_ref(), "COMMANDS", 9), expected);
    }
}
