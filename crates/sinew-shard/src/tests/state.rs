//! Tests of the interface of a shard's state, and of compaction.

use std::sync::Arc;

use serde_json::json;
use sinew_engine::TaskReply;
use sinew_protocol::command::{Command, StartCommand};
use sinew_protocol::journal::{Commit, Positions};
use sinew_protocol::person_wait::CallingRef;
use sinew_protocol::start::new_key;
use sinew_protocol::subject::Operation;
use sinew_protocol::task::{NodeOutput, NodeResult};
use sinew_protocol::{ExecutionId, Subject, Token};

use super::kit::{FactCounter, NoSchemas, config, execution, program, read_inbox};
use super::script::{Story, check_with};
use crate::in_flight::ShardReport;
use crate::intake::{InboxMessage, InputStream, Lookup, PendingInput, ShardInput};
use crate::outgoing::Outgoing;
use crate::state::ShardConfig;
use crate::takeover_note::{TakeoverNote, WorkItem};

fn story() -> Story {
    Story::new(config("me", 0, 1))
}

/// A start as stored in the stream.
fn start(id: &str) -> (Subject, String) {
    let command = Command::Start(Box::new(StartCommand::new(execution(id), "one", json!({}))));
    let subject = Subject::Command {
        shard: 0,
        operation: Operation::Start,
        caller: Token::of("ada"),
        id: Token::of(id),
    };
    (subject, command.to_json())
}

/// A shard that compacts its journal early.
pub(super) fn small() -> ShardConfig {
    ShardConfig { compaction_threshold_bytes: 800, ..config("me", 0, 1) }
}

/// Scripts of a shard with a small journal that is compacted and purged.
pub(super) const COMPACTIONS: &[&str] = &[
    "
        start x one | began x, task x.a#1
        start y one | began y, task y.a#1
        y.a ok | finish y success
        archive y | purged 1
        start z one | began z, task z.a#1
        z.a ok | finish z success
        archive z | -
        pause x | yes
        takeover | task x.a#1, purged 1
        resume x | yes
        x.a ok | finish x success
    ",
    "
        start x one | began x, task x.a#1
        x.a ok | finish x success
        archive x | -
        start y one | began y, task y.a#1
        y.a ok | finish y success, purged 2
        archive y | -
        takeover | -
    ",
    "
        all cancel x id c; start x one | began x, task x.a#1, no the execution is not open
        start y one | began y, task y.a#1
        y.a ok | finish y success
        archive y | purged 1
        start z one | began z, task z.a#1
        z.a ok | finish z success
        archive z | -
        takeover | task x.a#1, purged 1
        cancel x id c | -
    ",
    "
        all start x one; start y nap | began x, began y, task x.a#1
        hold x | held x
        evict | -
        start z one | began z, task z.a#1
        z.a ok | finish z success
        archive z | purged 1
        start w one | began w, task w.a#1
        w.a ok | finish w success
        archive w | -
        takeover | purged 1
        resume x | task x.a#1, yes
        at 700 | task y.a#1
    ",
];

#[test]
fn a_state_without_inputs_stores_nothing() {
    let mut story = story();
    assert!(story.state.poll_commit().is_none());
    story.state.handle_position(InputStream::Commands, 3, 30);
    assert!(story.state.poll_commit().is_none(), "positions alone are not worth a commit");
    assert_eq!(story.state.positions().commands, 3);
}

#[test]
fn positions_never_go_back() {
    let mut story = story();
    for (stream, seq) in [(InputStream::Commands, 5), (InputStream::Commands, 2), (InputStream::Results, 7)] {
        story.state.handle_position(stream, seq, 10 * seq);
    }
    let expected = Positions { commands_stored: 50, results_stored: 70, ..Positions::at(5, 7) };
    assert_eq!(story.state.positions(), expected);
}

#[test]
fn a_commit_has_positions_owner_and_place() {
    let mut story = story();
    let position = story.state.journal_position();
    let (subject, body) = start("x");
    let message = InboxMessage {
        stream: InputStream::Commands,
        seq: 4,
        subject: Some(&subject),
        body: body.as_bytes(),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    };
    let mut pending = story.state.decode(&message);
    assert_eq!(pending.lookup(), Some(Lookup::Record(execution("x"))));
    pending.supply(crate::intake::Found::Record(Ok(None)));
    pending.supply(crate::intake::Found::Program(Ok(program("one"))));
    assert_eq!(pending.lookup(), None);
    story.state.handle_position(InputStream::Commands, 4, 0);
    story.state.handle_input(50, pending.finish(), &NoSchemas);
    assert_eq!(story.state.poll_outgoing().map(|_| ()), None, "nothing leaves before the commit is stored");
    let commit = story.state.poll_commit().unwrap();
    assert_eq!((commit.after, commit.entries), (position, 1));
    let stored = Commit::decode(&commit.body).unwrap();
    assert_eq!((stored.owner.as_str(), stored.positions), ("me", Positions::at(4, 0)));
    let meta = stored.entries[0].meta.as_ref().unwrap();
    assert_eq!((meta.created, meta.caller.as_str(), meta.traceparent.is_some()), (50, "ada", true));
    assert!(story.state.poll_outgoing().is_none(), "nor while it is being stored");
    story.state.handle_stored(position + 9);
    assert_eq!(story.state.journal_position(), position + 9);
    assert!(matches!(story.state.poll_outgoing(), Some(Outgoing::Task { .. })));
    let mut counter = FactCounter::default();
    let reports = story.state.take_reports(&mut counter);
    assert!(counter.0 > 0);
    let is_event = |report: &ShardReport| matches!(report, ShardReport::Event { place: (1, _), at: 50, .. });
    assert!(!reports.is_empty() && reports.iter().all(is_event));
    assert!(story.state.take_reports(&mut counter).is_empty(), "once");
}

#[test]
fn a_lost_state_is_empty() {
    let mut story = story();
    story.tell("start x one");
    story.tell("lose");
    assert_eq!(story.tell("x.a ok"), ["lost"]);
    assert!(story.state.is_lost() && story.state.poll_commit().is_none());
    assert_eq!((story.state.open_count(), story.state.next_timeout()), (0, None));
}

#[test]
fn answers_about_executions() {
    let mut story = story();
    story.tell("all start x one; start y nap; start z one");
    story.tell("pause x");
    story.tell("evict");
    story.tell("hold z");
    let mut rows: Vec<_> = story
        .state
        .summaries()
        .into_iter()
        .map(|row| (row.execution.to_string(), row.status, row.waiting.unwrap_or_default()))
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let told: Vec<String> =
        rows.into_iter().map(|(id, status, why)| format!("{id} {status:?} {why}")).collect();
    assert_eq!(
        told,
        [
            "x Paused resume (by ada) and 1 more",
            "y Running a delay",
            "z Waiting an operator: 3 executors crashed while they processed the execution",
        ]
    );
    assert_eq!((story.state.open_count(), story.state.held().count()), (2, 1));
    assert_eq!(story.state.verdicts_of(&execution("x")).len(), 1);
    assert!(story.state.shown(&execution("z")).unwrap().hold.is_some());
    assert!(story.state.shown(&execution("x")).unwrap().hold.is_none());
    assert!(story.state.shown(&execution("w")).is_none());
}

#[test]
fn a_task_has_failed_with_its_activation() {
    let mut story = story();
    let calling = |story: &mut Story, id: &str| {
        story.tell(&format!("start {id} line"));
        let (task, _) = story.state.table.get(&execution(id)).unwrap().asked().remove(0);
        CallingRef { execution: execution(id), task }
    };
    let [well, badly, cancelled] = ["x", "y", "z"].map(|id| calling(&mut story, id));
    let mut failed_after = |input: &str, calling: &CallingRef| {
        story.tell(input);
        story.state.has_task_failed(calling)
    };
    assert_eq!(failed_after("evict", &well), Some(false));
    assert_eq!(failed_after("x.a fail", &well), Some(false), "the next attempt may need it");
    assert_eq!(failed_after("at 400", &well), Some(false));
    assert_eq!(failed_after("x.a ok try 2", &well), Some(false), "the agent was content");
    assert_eq!(failed_after("cancel x", &well), Some(false), "another node was cancelled");
    assert_eq!(failed_after("y.a hard", &badly), Some(true));
    assert_eq!(failed_after("archive y", &badly), None);
    assert_eq!(failed_after("cancel z", &cancelled), Some(true));
    let unknown = CallingRef { task: well.task.clone(), ..cancelled };
    assert_eq!(failed_after("evict", &unknown), Some(false), "no task of this execution");
    story.tell("start w one");
    let held = CallingRef { execution: execution("w"), task: well.task };
    story.tell("hold w");
    assert_eq!(story.state.has_task_failed(&held), Some(false), "it may continue one day");
}

#[test]
fn tasks_without_answer_are_found_by_their_age() {
    let mut story = story();
    story.tell("start x line");
    story.tell("start y ask");
    story.tell("at 100");
    story.tell("start z one");
    let mut old = story.state.created_before(1_100);
    old.sort();
    assert_eq!(old, [execution("x"), execution("y")]);
    let mut tasks = |before| story.state.tasks_sent_before(&execution("x"), before).len();
    assert_eq!((tasks(1_000), tasks(1_001)), (0, 1));
    assert!(story.state.tasks_sent_before(&execution("y"), 9_999).is_empty(), "a person is asked");
    story.tell("at 200");
    story.tell("x.a ok");
    assert!(
        story.state.tasks_sent_before(&execution("x"), 1_200).is_empty(),
        "the next node's task is newer"
    );
    assert!(story.state.tasks_sent_before(&execution("w"), 9_999).is_empty());
}

#[test]
fn eviction_keeps_recent_executions() {
    let mut story = story();
    story.tell("all start x one; start y one; start z one");
    assert_eq!((story.state.open_count(), story.state.active_count()), (3, 3));
    story.tell("evict");
    assert_eq!((story.state.open_count(), story.state.active_count()), (3, 0));
    story.state.table.memory_limit_bytes = 40 * 1024;
    assert_eq!(story.tell("x.a ok"), ["loaded 1", "finish x success"]);
    assert_eq!((story.state.open_count(), story.state.active_count()), (3, 1));
}

#[test]
fn deadlines_that_have_passed_are_told_in_order() {
    let mut story = story();
    story.tell("start x nap");
    story.tell("at 100");
    story.tell("start y nap");
    assert_eq!(story.state.next_timeout(), Some(1_700));
    assert!(story.state.due_executions(&read_inbox(1_699), 9).is_empty());
    assert_eq!(story.state.due_executions(&read_inbox(9_999), 9), [execution("x"), execution("y")]);
    assert_eq!(story.state.due_executions(&read_inbox(9_999), 1), [execution("x")]);
    story.state.handle_timeout_of(&read_inbox(1_750), &[execution("x"), execution("y")]);
    assert_eq!(story.state.next_timeout(), Some(1_800), "only the one that is due");
}

#[test]
fn a_result_with_an_output_elsewhere_is_looked_up() {
    let mut story = story();
    story.tell("start x one");
    let result = NodeResult {
        task: "t".to_owned(),
        output: NodeOutput::Address("artifact://a".to_owned()),
        artifacts: Vec::new(),
        fault: None,
        worked_ms: Some(7),
        usage: json!(null),
        events: Vec::new(),
        logs: Vec::new(),
        text: String::new(),
        retries: 0,
    };
    let task = sinew_protocol::TaskId::parse("t").unwrap();
    let pending = PendingInput::of_result(execution("x"), task.clone(), Token::of("a"), result);
    assert_eq!(pending.lookup(), Some(Lookup::Value("artifact://a".to_owned())));
    assert!(matches!(pending.finish(), ShardInput::Nothing), "it is not complete");
    let input = ShardInput::task_result(execution("x"), task, Token::of("a"), Ok(TaskReply::default()));
    assert_eq!(input.execution(), Some(&execution("x")));
}

#[test]
fn a_message_of_another_shard_is_set_aside() {
    let config = Arc::new(config("me", 0, 64));
    let elsewhere = (0..99).map(|nth| format!("e{nth}")).find(|id| !config.holds(&execution(id))).unwrap();
    let mut story = Story::new(ShardConfig::clone(&config));
    let (subject, body) = start(&elsewhere);
    let message = InboxMessage {
        stream: InputStream::Commands,
        seq: 1,
        subject: Some(&subject),
        body: body.as_bytes(),
        traceparent: None,
    };
    let mut pending = story.state.decode(&message);
    assert!(pending.take_quarantine().unwrap().text.contains("another shard"));
    assert!(pending.take_quarantine().is_none(), "once");
    story.state.handle_input(1, pending.finish(), &NoSchemas);
    assert!(story.state.poll_commit().is_none());
}

#[test]
fn condemned_messages_are_refused_unread() {
    let mut story = story();
    let (subject, body) = start("x");
    for (subject, body, entries) in [
        (Some(&subject), body.as_bytes(), 1),
        (Some(&subject), b"garbage".as_slice(), 0),
        (Some(&Subject::Query { shard: 0 }), b"", 0),
        (None, b"", 0),
    ] {
        let message =
            InboxMessage { stream: InputStream::Commands, seq: 1, subject, body, traceparent: None };
        let mut pending = story.state.refuse_condemned(&message);
        assert_eq!(pending.take_quarantine().unwrap().code, code());
        assert_eq!(pending.lookup(), None, "nothing that it names is touched");
        story.state.handle_input(1, pending.finish(), &NoSchemas);
        assert_eq!(story.state.poll_commit().map_or(0, |commit| commit.entries), entries);
        story.state.handle_stored(100);
        while story.state.poll_outgoing().is_some() {}
    }
}

#[test]
fn an_execution_that_was_opened_after_its_condemnation_gets_its_results() {
    let mut story = story();
    let item = WorkItem::Execution(execution("x"));
    let note = TakeoverNote::decode(json!({ "condemned": [item] }).to_string().as_bytes());
    assert!(story.state.refuses(&note, &item));
    story.tell("start x one");
    assert!(!story.state.refuses(&note, &item), "its results count");
}

/// The code of condemned messages.
fn code() -> &'static str {
    sinew_protocol::code::MESSAGE_QUARANTINED.as_str()
}

#[test]
pub(super) fn a_compacted_journal_keeps_verdicts() {
    let mut story = Story::new(small());
    story.tell("start x one");
    assert_eq!(story.tell("pause x id c"), ["yes"]);
    for nth in 0..9 {
        story.tell(&format!("start y{nth} one"));
        story.tell(&format!("y{nth}.a ok"));
        story.tell(&format!("archive y{nth}"));
    }
    story.tell("takeover");
    assert!(story.tell("pause x id c").is_empty(), "it was decided");
}

#[test]
fn a_worn_journal_is_compacted_and_purged() {
    check_with(small(), COMPACTIONS[0]);
}

#[test]
fn a_journal_without_open_executions_shrinks_to_its_end() {
    check_with(small(), COMPACTIONS[1]);
}

#[test]
fn evicted_and_held_executions_are_compacted_too() {
    check_with(small(), COMPACTIONS[2]);
}

#[test]
fn a_start_with_a_new_key_needs_no_look_into_the_history() {
    let mut story = story();
    let made = |key: &str| {
        let id = ExecutionId::of("ns", "ada", key);
        let start =
            StartCommand { idempotency_key: Some(key.to_owned()), ..StartCommand::new(id, "one", json!({})) };
        let body = Command::Start(Box::new(start.clone())).to_json();
        (Token::parse(start.execution.as_str()).unwrap(), start.execution, body)
    };
    let lookup = |story: &Story, caller: &str, key: &str| {
        let (id, _, body) = made(key);
        let pending =
            story.state.decode_start_request(&Token::of(caller), &id, body.as_bytes(), None, "r".into());
        pending.and_then(|pending| pending.lookup())
    };
    let (new, old) = (new_key(1_000_000, 1), new_key(1_000, 2));
    let looks_back = |found: Option<Lookup>| matches!(found, Some(Lookup::Record(_)));
    assert!(looks_back(lookup(&story, "ada", &new)), "an owner that does not know the time yet");
    story.tell("at 0");
    assert!(matches!(lookup(&story, "ada", &new), Some(Lookup::Program { .. })));
    for key in [old.as_str(), "order-17"] {
        assert!(looks_back(lookup(&story, "ada", key)), "{key}");
    }
    // The id of another caller's key is rejected without a lookup.
    assert_eq!(lookup(&story, "eve", &new), None);
}
