use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::a2a::Artifact;
use crate::artifact::{ArtifactName, ArtifactUri, StoredAt};

fn task() -> TaskId {
    TaskId::parse("t1").unwrap()
}

fn artifact(name: &str, version: u32, media_type: &str, bytes: &[u8]) -> ResultArtifact {
    let bytes = Bytes::copy_from_slice(bytes);
    ResultArtifact::inline(ArtifactName::parse(name).unwrap(), version, media_type, &bytes).unwrap()
}

fn stored() -> ResultArtifact {
    let meta = crate::ArtifactMeta::of("big.json".parse().unwrap(), 0, "application/json", b"{}");
    let uri = ArtifactUri {
        app: "a".to_owned(),
        user: "u".to_owned(),
        session: "e1".to_owned(),
        artifact: meta.reference(),
    };
    let at = StoredAt {
        uri,
        execution: crate::ExecutionId::parse("e1").unwrap(),
        task: task(),
        sha256: meta.sha256.clone(),
        key: crate::artifact::ObjectKey::derived(&[0; 32], "e1"),
    };
    ResultArtifact::stored(meta, &at)
}

fn read(draft: Draft<'_>) -> NodeResult {
    let bytes = serde_json::to_vec(&result_task(draft)).unwrap();
    read_result_bytes(&bytes).unwrap()
}

#[test]
fn results_read_back_in_both_vocabularies() {
    let artifacts = [
        artifact("out.json", 0, "application/json", br#"{"a":1}"#),
        artifact("out.json", 1, "application/json", br#"{ "a": 2 }"#),
        artifact("note.txt", 0, "text/plain", "schön".as_bytes()),
        artifact("pic.png", 0, "image/png", &[0x89, b'P', 0]),
        stored(),
    ];
    for vocabulary in [Vocabulary::Current, Vocabulary::Spec] {
        for (wanted, output) in [
            ("out.json:0", NodeOutput::Value(json!({"a": 1}))),
            ("out.json:1", NodeOutput::Value(json!({"a": 2}))),
            ("out.json", NodeOutput::Value(json!({"a": 2}))),
            ("note.txt:0", NodeOutput::Value(json!("schön"))),
            ("pic.png:0", NodeOutput::Value(serde_json::to_value(&artifacts[3].meta).unwrap())),
            (
                "big.json:0",
                match &artifacts[4].content {
                    Content::Url(address) => NodeOutput::Address(address.clone()),
                    other => panic!("{other:?}"),
                },
            ),
        ] {
            let (name, version) = wanted.split_once(':').unwrap_or((wanted, ""));
            let reference = ArtifactRef { name: name.parse().unwrap(), version: version.parse().ok() };
            let result = read(Draft {
                artifacts: &artifacts,
                usage: json!({"tokens": 3}),
                events: vec![json!("called")],
                logs: vec![LogLine { at: 5, text: "reading".to_owned() }],
                retries: 2,
                text: "all good",
                vocabulary,
                ..Draft::new(&task(), Ok(reference))
            });
            assert_eq!(result.output, output, "{wanted}");
            assert_eq!(result.artifacts, artifacts);
            assert_eq!((result.fault, result.retries, result.text.as_str()), (None, 2, "all good"));
            assert_eq!((result.usage, result.events), (json!({"tokens": 3}), vec![json!("called")]));
            assert_eq!(result.logs, [LogLine { at: 5, text: "reading".to_owned() }]);
            assert_eq!(result.task, "t1");
        }
    }
    for one in &artifacts {
        for output in [None, Some(&json!({"other": 1})), one.value().as_ref()] {
            let kept = one.to_value(output);
            let read = ResultArtifact::from_value(&kept, output.unwrap_or(&Value::Null));
            assert_eq!(read.as_ref(), Some(one), "{kept}");
            let repeats = matches!(&one.content, Content::Data(data) if output != Some(data));
            assert_eq!(kept.get("data").is_some(), repeats, "{kept}");
        }
        assert_eq!(
            one.content.bytes().map(|bytes| one.meta.verify(&bytes)),
            one.content.bytes().map(|_| Ok(()))
        );
    }
    assert!(matches!(artifacts[0].content, Content::Data(_)));
    assert!(
        matches!(artifacts[1].content, Content::Text(_)),
        "JSON that is spaced differently keeps its bytes"
    );
}

#[test]
fn faults_keep_what_a_retry_policy_asks_for() {
    let faults = [
        Fault::error("SINEW-5031", "no route").with_retry_after_ms(5),
        Fault::failure("MY-1", "no"),
        Fault::invalid("SINEW-5103", "broken").with_details(["/a: missing"]),
        Fault::timeout("SINEW-5104", "late"),
        Fault::cancelled("SINEW-5105", "given up"),
    ];
    for fault in faults {
        for vocabulary in [Vocabulary::Current, Vocabulary::Spec] {
            let result = read(Draft { vocabulary, ..Draft::new(&task(), Err(fault.clone())) });
            assert_eq!(result.fault, Some(fault.clone()));
            assert_eq!(result.output, NodeOutput::None);
        }
    }
    let wild = Fault::failure("a code\nwith lines", "\u{1b}[31mred").with_details(vec!["x"; 200]);
    let fault = read(Draft::new(&task(), Err(wild))).fault.unwrap();
    assert_eq!(
        (fault.code.as_ref(), fault.message.as_str(), fault.details.len()),
        (FAILED, "[31mred", MAX_DETAILS)
    );
}

#[test]
fn agents_that_do_not_know_sinew_are_read() {
    let result = |json: Value| read_result_bytes(json.to_string().as_bytes());
    let ended = |state: &str, parts: Value, artifacts: Value| {
        let message = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": parts});
        json!({"id": "x", "contextId": "c", "status": {"state": state, "message": message}, "artifacts": artifacts})
    };
    let done = |parts: Value, artifacts: Value| {
        result(ended("TASK_STATE_COMPLETED", parts, artifacts)).unwrap().output
    };
    assert_eq!(done(json!([{"text": "hi"}]), json!([])), NodeOutput::Value(json!({"text": "hi"})));
    assert_eq!(done(json!([{"text": "hi"}, {"data": [1]}]), json!([])), NodeOutput::Value(json!([1])));
    assert_eq!(done(json!([]), json!([])), NodeOutput::None);
    let artifacts = json!([
        {"artifactId": "1", "parts": [{"text": "first"}]},
        {"artifactId": "2", "parts": [{"raw": "eyJhIjogMX0", "mediaType": "application/json"}]},
    ]);
    assert_eq!(done(json!([{"text": "hi"}]), artifacts), NodeOutput::Value(json!({"a": 1})));

    let fault = |state: &str, parts: Value| {
        let fault = result(ended(state, parts, json!([]))).unwrap().fault.unwrap();
        (fault.code.into_owned(), fault.kind, fault.retryable, fault.message)
    };
    let failed = |message: &str| (FAILED.to_owned(), FaultKind::Failure, true, message.to_owned());
    assert_eq!(fault("TASK_STATE_FAILED", json!([{"text": "broken"}])), failed("broken"));
    assert_eq!(fault("failed", json!([])), failed("the agent failed without a reason"));
    let said = json!([{"text": "x"}, {"data": {"type": "workflow_node_result", "status": "failure", "error_message": "why"}}]);
    assert_eq!(
        fault("TASK_STATE_COMPLETED", said),
        failed("why"),
        "the structured result is the word that counts"
    );
    let (code, _, retryable, _) = fault("TASK_STATE_REJECTED", json!([]));
    assert_eq!((code.as_str(), retryable), (REJECTED, false));
    assert_eq!(fault("TASK_STATE_CANCELED", json!([])).1, FaultKind::Cancelled);
    let invalid = json!([{"data": {"type": "structured_invocation_result", "status": "error", "validation_errors": ["/a"]}}]);
    assert_eq!(fault("TASK_STATE_FAILED", invalid).1, FaultKind::Invalid);
    for code in [FAILED, CANCELLED, REJECTED] {
        assert!(crate::code::page(code).is_some(), "{code}");
    }
}

#[test]
fn what_a_result_may_not_be() {
    let good = || {
        let out = artifact("out.json", 0, "application/json", b"1");
        let reference = out.reference();
        result_task(Draft { artifacts: &[out], ..Draft::new(&task(), Ok(reference)) })
    };
    assert!(read_result(&good()).is_ok());
    let broken = |change: &dyn Fn(&mut Task)| {
        let mut task = good();
        change(&mut task);
        read_result(&task).unwrap_err().to_string()
    };
    let first =
        |task: &mut Task, change: &dyn Fn(&mut Artifact)| change(&mut task.artifacts.as_mut().unwrap()[0]);
    assert!(broken(&|task| task.status.state = TaskState::Working).contains("has not ended"));
    assert!(broken(&|task| task.artifacts = None).contains("not among the artifacts"));
    assert!(broken(&|task| first(task, &|one| one.parts.clear())).contains("no part"));
    assert!(
        broken(&|task| first(task, &|one| one.name = Some("../x".to_owned()))).contains("invalid character")
    );
    assert!(
        broken(&|task| first(task, &|one| one.metadata = Some(json!({"version": -1})))).contains("version")
    );
    assert!(broken(&|task| first(task, &|one| one.parts = vec![Part::raw("%%")])).contains("base64"));
    assert!(broken(&|task| task.metadata = Some(json!({"sinew": {"fault": 1}}))).contains("metadata.sinew"));
    let events = json!({"sinew": {"events": vec![0; MAX_EVENTS + 1]}});
    assert!(broken(&|task| task.metadata = Some(events.clone())).contains("events"));
    assert!(
        broken(&|task| {
            let one = task.artifacts.as_ref().unwrap()[0].clone();
            task.artifacts = Some(vec![one; MAX_ARTIFACTS + 1]);
        })
        .contains("more than")
    );
    let event = MeshMessage::from(crate::message::WorkflowExecutionStartData::default());
    assert!(
        broken(&|task| {
            task.status.message.as_mut().unwrap().parts = vec![event.to_part(Vocabulary::Current)];
        })
        .contains("is not a result")
    );
    assert!(read_result_bytes(&vec![b' '; MAX_RESULT + 1]).is_err());
}

/// A result with one artifact, its metadata and part as given, and the code of the rejection.
#[test]
fn inline_artifacts_are_what_their_result_says() {
    let hash = crate::artifact::sha256(br#"{"a":1}"#);
    let other = "0".repeat(64);
    let data = json!({"data": {"a": 1}});
    let text = |text: &str| json!({"text": text, "mediaType": "application/json"});
    let raw = json!({"raw": "eyJhIjoxfQ==", "mediaType": "application/json"});
    let url = json!({"url": "artifact://a/u/e/out.json?version=0"});
    let cases = [
        (json!({"sha256": hash, "size": 7}), data.clone(), None),
        (json!({"sha256": hash.to_uppercase(), "size": 7}), raw.clone(), None),
        (json!({"sha256": hash}), text(r#"{"a":1}"#), None),
        (json!({"size": null}), data.clone(), None),
        (json!({}), data.clone(), None),
        // The bytes at an address are compared when they are fetched.
        (json!({"sha256": other, "size": 1}), url, None),
        (json!({"sha256": other}), data.clone(), Some(BadMessage::OTHER_CONTENT)),
        (json!({"sha256": "abc"}), data.clone(), Some(BadMessage::OTHER_CONTENT)),
        (json!({"sha256": 7}), data.clone(), Some(BadMessage::OTHER_CONTENT)),
        (json!({"size": 8}), data.clone(), Some(BadMessage::OTHER_CONTENT)),
        (json!({"size": "7"}), data, Some(BadMessage::OTHER_CONTENT)),
        (json!({"sha256": hash}), text(r#"{"a": 1}"#), Some(BadMessage::OTHER_CONTENT)),
        (json!({"sha256": hash, "size": 70}), raw, Some(BadMessage::OTHER_CONTENT)),
    ];
    for (metadata, part, code) in cases {
        let artifact = json!({"artifactId": "1", "name": "out.json", "metadata": metadata, "parts": [part]});
        let task = json!({"id": "x", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [artifact]});
        let read = read_result_bytes(task.to_string().as_bytes());
        assert_eq!(read.as_ref().err().map(BadMessage::code), code, "{task}: {read:?}");
        assert!(code.is_none_or(|code| crate::code::page(code).is_some()));
    }
}

#[test]
fn a_key_stands_once_in_a_result() {
    let task = |data: &str, media_type: &str, text: &str| {
        let part = json!({"text": text, "mediaType": media_type});
        format!(
            r#"{{"id": "x", "contextId": "c", "status": {{"state": "TASK_STATE_COMPLETED", "message":
            {{"messageId": "m", "role": "ROLE_AGENT", "parts": [{{"data": {data}}}]}}}},
            "artifacts": [{{"artifactId": "1", "parts": [{part}]}}]}}"#
        )
    };
    let twice = r#"{"total": 1, "total": 2}"#;
    let cases = [
        (task("1", "application/json", "{}"), None),
        (task("1", "text/plain", twice), None),
        (task("1", "application/json", twice), Some("key 'total' is duplicated in the object at ''")),
        (
            task(&format!(r#"{{"deep": [0, {twice}]}}"#), "text/plain", ""),
            Some("key 'total' is duplicated in the object at '/status/message/parts/0/data/deep/1'"),
        ),
    ];
    for (task, refusal) in cases {
        let read = read_result_bytes(task.as_bytes());
        assert_eq!(read.as_ref().err().map(ToString::to_string).as_deref(), refusal, "{task}");
        assert!(read.err().is_none_or(|bad| bad.code() == crate::unique_keys::BadJson::DUPLICATE_KEY));
    }
}

#[test]
fn what_sinew_adds_to_a_request_stays_apart() {
    let extra = TaskExtra {
        input: Some(Value::Null),
        instruction: None,
        context: Value::Null,
        tag: "work".to_owned(),
        activation: ActivationKey::parse("k").unwrap(),
        attempt: 1,
        deadline: Some(9),
        result_subject: "s".to_owned(),
    };
    let request = |metadata| SendMessageRequest {
        tenant: None,
        message: Message::user("m", vec![Part::text("do")]),
        configuration: None,
        metadata,
    };
    let mut full = request(Some(json!({"workflow_name": "w"})));
    extra.put(&mut full);
    assert_eq!(full.metadata.as_ref().unwrap()["workflow_name"], "w");
    assert_eq!(TaskExtra::find(full.metadata.as_ref()), Some(Ok(extra.clone())), "null is an input");
    let mut none = request(None);
    let absent = TaskExtra { input: None, ..extra };
    absent.put(&mut none);
    assert_eq!(TaskExtra::find(none.metadata.as_ref()), Some(Ok(absent)));
    for address in ["artifact://a/u/e/first", "artifact://a/u/e/second"] {
        point_to(&mut none, address);
        let parts: Vec<Value> = none.message.parts.iter().map(|part| json!(part)).collect();
        let url = json!({"url": address, "mediaType": "application/json"});
        assert_eq!(parts, [json!({"text": "do"}), url]);
    }
    assert_eq!(TaskExtra::find(None), None);
    assert!(TaskExtra::find(Some(&json!({"sinew": {"attempt": 1}}))).unwrap().is_err());
}

proptest! {
    #[test]
    fn inline_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..40), text in ".{0,20}", json in "[\\[\\]{}0-9.,e: \"a-]{0,16}", kind in 0..4_usize) {
        let media_type = ["application/json", "text/plain", "image/png", "application/x+json; charset=utf-8"][kind];
        for bytes in [Bytes::from(bytes), text.into(), json.into()] {
            let one = ResultArtifact::inline("a.b".parse().unwrap(), 7, media_type, &bytes).unwrap();
            prop_assert_eq!(one.content.bytes(), Some(bytes));
            let wire = serde_json::to_vec(&one.to_a2a()).unwrap();
            let read = ResultArtifact::read(&serde_json::from_slice::<Artifact>(&wire).unwrap(), 0).unwrap();
            prop_assert_eq!(&read, &one);
            prop_assert!(read.value().is_some());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), at: prop::sample::Index, with: u8) {
        let out = artifact("out.json", 0, "application/json", b"{}");
        let reference = out.reference();
        let good = result_task(Draft { artifacts: &[out], ..Draft::new(&task(), Ok(reference)) });
        let mut good = serde_json::to_vec(&good).unwrap();
        let at = at.index(good.len());
        good[at] = with;
        for body in [bytes.as_slice(), &good, &good[..at]] {
            drop(read_result_bytes(body));
        }
    }
}

#[test]
fn large_bytes_do_not_travel_inside() {
    let bytes = Bytes::from(vec![b'x'; crate::stream::INLINE_LIMIT + 1]);
    assert_eq!(Content::inline("text/plain", &bytes), None);
    assert!(Content::inline("text/plain", &bytes.slice(1..)).is_some());
}

#[test]
fn violations_of_schemas_are_reported_in_both_forms() {
    let reported = |fault: &Fault| {
        let result = result_task(Draft::new(&task(), Err(fault.clone())));
        let parts = result.status.message.unwrap().parts;
        let of_task = crate::a2a::part_data(&parts[1]).unwrap()["validation_errors"].clone();
        let short = WorkflowNodeResult::of_end(&task(), &Err(fault.clone()), &[]).to_bytes();
        let of_node: serde_json::Value = serde_json::from_slice(&short).unwrap();
        assert_eq!(of_task, of_node["validation_errors"]);
        of_task
    };
    let drift = Fault::failure("SINEW-5103", "the output breaks its schema").with_details(["/a: missing"]);
    assert_eq!(reported(&drift), json!(["/a: missing"]));
    assert_eq!(drift.reason(), "the output breaks its schema: /a: missing");
    // Details of other faults are no violations.
    let other = Fault::failure("SINEW-3002", "raised").with_details(["line 1"]);
    assert_eq!((reported(&other), other.reason()), (serde_json::Value::Null, "raised".to_owned()));
    let foreign = json!({"type": "workflow_node_result", "status": "failure", "sub_task_id": "t1",
        "error_message": "bad", "validation_errors": ["/b: not a number"]});
    let answer = read_node_answer(foreign.to_string().as_bytes(), &task()).unwrap();
    let NodeAnswer::Ended(ended) = answer else { panic!("{answer:?}") };
    assert_eq!(ended.fault.unwrap().violations(), ["/b: not a number"]);
}

#[test]
fn a_small_input_replaces_its_address() {
    let mut request = SendMessageRequest {
        tenant: None,
        message: Message::user("m", vec![Part::url("artifact://a/u/s/in.json").with_filename("in.json")]),
        configuration: None,
        metadata: None,
    };
    write_inline(&mut request, &json!({"n": 1}));
    let part = &request.message.parts[0];
    assert_eq!(crate::a2a::part_data(part), Some(&json!({"n": 1})));
    assert_eq!(part.filename.as_deref(), Some("in.json"));
    // A message without an address is unchanged.
    request.message.parts = vec![Part::text("hi")];
    write_inline(&mut request, &json!({"n": 1}));
    assert_eq!(request.message.parts[0].text_content(), Some("hi"));
}
