use proptest::prelude::*;

use super::*;
use crate::person_wait::CallingRef;

fn id() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_-]{1,12}"
}

fn verdict() -> impl Strategy<Value = Verdict> {
    (id(), 0..Operation::ALL.len(), id(), any::<bool>(), ".{0,9}").prop_map(
        |(id, op, caller, accepted, reason)| Verdict {
            id: Token::parse(&id).unwrap(),
            op: Operation::ALL[op],
            caller: Token::parse(&caller).unwrap(),
            accepted,
            reason,
        },
    )
}

fn meta(execution: ExecutionId) -> impl Strategy<Value = ExecutionMeta> {
    let parent = prop::option::of((id(), id(), ".{0,9}", ".{0,9}").prop_map(
        |(execution, task, result_subject, agent)| ParentRef {
            execution: ExecutionId::parse(&execution).unwrap(),
            task: TaskId::parse(&task).unwrap(),
            result_subject,
            agent,
        },
    ));
    let labels = prop::collection::btree_map(".{0,5}", ".{0,5}", 0..3);
    let texts = prop::collection::vec(".{0,9}", 5);
    let trace = prop::option::of(".{1,9}");
    (id(), parent, labels, any::<u64>(), texts, trace).prop_map(
        move |(caller, parent, labels, created, texts, traceparent)| ExecutionMeta {
            execution: execution.clone(),
            workflow: texts[0].clone(),
            dialect: texts[1].clone(),
            plan: texts[2].clone(),
            caller: Token::parse(&caller).unwrap(),
            user: texts[3].clone(),
            user_config: if texts[3].is_empty() { Value::Null } else { serde_json::json!({ "s": texts[3] }) },
            session: texts[4].clone(),
            labels,
            created,
            calling: parent.as_ref().map(|ParentRef { execution, task, .. }| CallingRef {
                execution: execution.clone(),
                task: task.clone(),
            }),
            conversation: parent.as_ref().map(|parent| Conversation {
                context_id: parent.agent.clone(),
                caller: caller.clone(),
                user: texts[3].clone(),
            }),
            parent,
            start_digest: traceparent.clone(),
            idempotency_key: traceparent.clone(),
            traceparent,
        },
    )
}

fn record() -> impl Strategy<Value = ExecutionRecord> {
    let rounds = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from), 0..4);
    (
        id().prop_flat_map(|id| meta(ExecutionId::parse(&id).unwrap())),
        rounds,
        prop::collection::vec(verdict(), 0..3),
        prop::option::of((".{0,5}", ".{0,5}").prop_map(|(code, reason)| ExecutionHold { code, reason })),
    )
        .prop_map(|(meta, rounds, commands, hold)| ExecutionRecord { meta, rounds, commands, hold })
}

fn entry() -> impl Strategy<Value = Entry> {
    (record(), 0..4).prop_map(|(record, kind)| {
        let checkpoint = Entry::checkpoint(record);
        match kind {
            0 => checkpoint,
            1 => Entry { kind: EntryKind::Rounds, ..checkpoint },
            2 => Entry { kind: EntryKind::Rounds, meta: None, ..checkpoint },
            _ => Entry::closed(checkpoint.execution),
        }
    })
}

proptest! {
    #[test]
    fn commits_and_records_read_back(owner in id(), entries in prop::collection::vec(entry(), 0..4), record in record(), commands: u64, results: u64, created: u64) {
        let commit = Commit {
            owner: Token::parse(&owner).unwrap(),
            positions: Positions {
                commands_created: created,
                results_created: created / 2,
                commands_stored: created / 3,
                results_stored: created / 5,
                ..Positions::at(commands, results)
            },
            entries,
        };
        let bytes = commit.encode();
        let most: usize = commit.entries.iter().map(Entry::size).sum();
        prop_assert!(bytes.len() <= most + owner.len() + 96, "sizes of entries are what a commit is split by");
        prop_assert_eq!(Commit::decode(&bytes), Ok(commit));
        prop_assert_eq!(ExecutionRecord::decode(&record.encode()), Ok(record.clone()));
        let json = serde_json::to_string(&record.meta).unwrap();
        prop_assert_eq!(serde_json::from_str::<ExecutionMeta>(&json).unwrap(), record.meta);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), record in record(), at: prop::sample::Index, with: u8) {
        drop(Commit::decode(&bytes));
        drop(ExecutionRecord::decode(&bytes));
        let mut bytes = record.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = with;
        drop(ExecutionRecord::decode(&bytes));
        drop(ExecutionRecord::decode(&bytes[..at]));
        drop(Commit::decode(&bytes));
    }
}

#[test]
fn what_the_journal_rests_on_is_checked() {
    let reason = |entry: pb::Entry| {
        let wire = pb::Commit { owner: "e".to_owned(), positions: None, entries: vec![entry] };
        Commit::decode(&wire.encode_to_vec()).unwrap_err().to_string()
    };
    let good = pb::Entry { execution_id: "x".to_owned(), kind: 1, ..pb::Entry::default() };
    assert!(reason(pb::Entry { kind: 9, ..good.clone() }).contains("kind: 9"));
    assert!(reason(pb::Entry { kind: 0, ..good.clone() }).contains("kind"));
    assert!(reason(pb::Entry { kind: 2, ..good.clone() }).contains("missing on a checkpoint"));
    assert!(reason(pb::Entry { execution_id: "a.b".to_owned(), ..good.clone() }).contains("execution_id"));
    let other = pb::ExecutionMeta {
        execution: "y".to_owned(),
        caller: "c".to_owned(),
        ..pb::ExecutionMeta::default()
    };
    assert!(reason(pb::Entry { meta: Some(other), ..good }).contains("another execution"));
    assert!(Commit::decode(b"").is_err(), "a commit without an owner");
    assert!(ExecutionRecord::decode(b"").is_err(), "a record without meta");
}
