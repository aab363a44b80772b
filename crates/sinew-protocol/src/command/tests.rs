use proptest::prelude::*;
use serde_json::json;

use super::*;

fn id(text: &str) -> ExecutionId {
    ExecutionId::parse(text).unwrap()
}

fn full_start() -> StartCommand {
    StartCommand {
        version: Some("0f".repeat(32)),
        mode: json!({"dry_run": true}),
        depth: 2,
        chain: vec!["outer".to_owned(), "inner".to_owned()],
        parent: Some(ParentRef {
            execution: id("p"),
            task: crate::TaskId::parse("t").unwrap(),
            result_subject: "ns.v1.result.0.a.p.t.k".to_owned(),
            agent: "order intake".to_owned(),
        }),
        user: "u".to_owned(),
        user_config: json!({ "language": "de" }),
        session: "s".to_owned(),
        labels: BTreeMap::from([("team".to_owned(), "billing".to_owned())]),
        idempotency_key: Some("order-17".to_owned()),
        ..StartCommand::new(id("e1"), "order intake", json!({"n": 1}))
    }
}

fn all() -> Vec<Command> {
    let execution = id("e1");
    let from_artifact = StartCommand {
        input_artifact: Some("artifact://a/u/e1/in.json?version=0".to_owned()),
        ..StartCommand::new(execution.clone(), "w", Value::Null)
    };
    vec![
        full_start().into(),
        StartCommand::new(execution.clone(), "w", json!("x")).into(),
        from_artifact.into(),
        CancelCommand { execution: execution.clone(), reason: "enough".to_owned() }.into(),
        PauseCommand { execution: execution.clone(), reason: String::new() }.into(),
        ResumeCommand { execution: execution.clone() }.into(),
        ApproveCommand {
            execution: execution.clone(),
            node: Some("ask".to_owned()),
            activation: Some(3),
            data: json!({"ok": true}),
            comment: Some("fine".to_owned()),
            reject: true,
            member: None,
        }
        .into(),
        RetryCommand {
            execution,
            nodes: vec!["a".to_owned()],
            only: true,
            input: Some(Value::Null),
            reason: "again".to_owned(),
        }
        .into(),
    ]
}

#[test]
fn commands_read_back() {
    for command in all() {
        let json = command.to_json();
        let read = Command::read(command.operation(), &Token::of("e1"), json.as_bytes());
        assert_eq!(read, Ok(command), "{json}");
    }
}

#[test]
fn what_a_command_may_not_be() {
    let long = |n: usize| "x".repeat(n);
    let labels: BTreeMap<String, String> = (0..=MAX_LABELS).map(|n| (n.to_string(), String::new())).collect();
    let chain = vec![String::new(); MAX_NAMES + 1];
    let parent = json!({"execution": "p", "task": "t", "result_subject": "s", "agent": long(MAX_NAME + 1)});
    // Operation, fields added to {"execution": "e1"}, field named in the error.
    let cases = [
        (Operation::Start, json!({}), "workflow"),
        (Operation::Start, json!({"workflow": ""}), "`workflow` is empty"),
        (Operation::Start, json!({"workflow": long(MAX_NAME + 1)}), "`workflow`"),
        (Operation::Start, json!({"workflow": "w", "execution": "other"}), "not the id in the subject"),
        (Operation::Start, json!({"workflow": "w", "execution": "a.b"}), "is not an id"),
        (Operation::Start, json!({"workflow": "w", "caller": "root"}), "unknown field `caller`"),
        (Operation::Start, json!({"workflow": "w", "version": "latest"}), "`version`"),
        (Operation::Start, json!({"workflow": "w", "labels": labels}), "`labels`"),
        (Operation::Start, json!({"workflow": "w", "labels": {"a": long(MAX_NAME + 1)}}), "`labels`"),
        (Operation::Start, json!({"workflow": "w", "chain": chain}), "`chain`"),
        (Operation::Start, json!({"workflow": "w", "user": long(MAX_NAME + 1)}), "`user`"),
        (Operation::Start, json!({"workflow": "w", "user_config": []}), "`user_config` is not an object"),
        (Operation::Start, json!({"workflow": "w", "user_config": {"a": long(20_000)}}), "`user_config`"),
        (Operation::Start, json!({"workflow": "w", "parent": parent}), "`parent`"),
        (Operation::Start, json!({"workflow": "w", "depth": -1}), "command start"),
        (
            Operation::Start,
            json!({"workflow": "w", "input_artifact": "file:///etc/passwd"}),
            "`input_artifact`",
        ),
        (
            Operation::Start,
            json!({"workflow": "w", "input": 1, "input_artifact": "artifact://a/u/s/n"}),
            "beside an input",
        ),
        (Operation::Cancel, json!({"reason": long(MAX_TEXT + 1)}), "`reason`"),
        (Operation::Cancel, json!({"workflow": "w"}), "unknown field"),
        (Operation::Pause, json!({"reason": 1}), "command pause"),
        (Operation::Resume, json!({"reason": "x"}), "unknown field"),
        (Operation::Approve, json!({"comment": long(MAX_TEXT + 1)}), "`comment`"),
        (Operation::Approve, json!({"reject": true}), "`comment` is empty"),
        (Operation::Approve, json!({"reject": true, "comment": " "}), "`comment` is empty"),
        (Operation::Start, json!({"workflow": "w", "idempotency_key": ""}), "`idempotency_key` is empty"),
        (Operation::Approve, json!({"activation": 1.5}), "command approve"),
        (Operation::Retry, json!({"nodes": "a"}), "command retry"),
        (Operation::Retry, json!({"only": true}), "`only` names no node"),
        (Operation::Retry, json!({"nodes": [long(MAX_TEXT + 1)]}), "`nodes`"),
    ];
    for (operation, added, want) in cases {
        let mut body = json!({"execution": "e1"});
        body.as_object_mut().unwrap().extend(added.as_object().unwrap().clone());
        let text = body.to_string();
        let error = Command::read(operation, &Token::of("e1"), text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(want), "{error} does not say {want}");
        assert!(error.to_string().len() < 500, "{error}");
    }
    let huge = vec![b' '; MAX_BODY + 1];
    assert_eq!(Command::read(Operation::Start, &Token::of("e1"), &huge), Err(BadCommand::Size(MAX_BODY + 1)));
    assert!(crate::code::page(BadCommand::CODE).is_some());
}

#[test]
fn an_idempotency_key_makes_the_id() {
    let caller = Token::of("billing");
    let mut start = full_start();
    assert!(!start.id_follows("prod", &caller));
    start.execution = ExecutionId::of("prod", "billing", "order-17");
    assert!(start.id_follows("prod", &caller));
    assert!(!start.id_follows("test", &caller));
    assert!(!start.id_follows("prod", &Token::of("other")));
    start.idempotency_key = None;
    assert!(start.id_follows("test", &caller));
}

proptest! {
    #[test]
    fn no_body_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), at: prop::sample::Index, with: u8) {
        for command in all() {
            let mut body = command.to_json().into_bytes();
            let at = at.index(body.len());
            body[at] = with;
            for body in [bytes.as_slice(), &body, &body[..at]] {
                drop(Command::read(command.operation(), &Token::of("e1"), body));
            }
        }
    }
}
