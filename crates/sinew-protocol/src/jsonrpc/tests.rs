use proptest::prelude::*;

use super::*;
use crate::a2a::TaskQueryParams;

#[test]
fn every_operation_has_one_name() {
    let names: Vec<&str> = Method::all().map(Method::as_str).collect();
    assert_eq!(names.len(), 12);
    for method in Method::all() {
        assert_eq!(Method::parse(method.as_str()), Some(method));
        assert!(crate::id::is_token(method.as_str()), "it is a token of a subject");
    }
    assert_eq!(Method::parse("message/send"), None);
}

#[test]
fn calls_read_back() {
    for id in [json!("a"), json!(7), Value::Null] {
        let call = Request::new(id, Method::GetAgentCard, &json!({"id": "t"}));
        let read = Request::read(&call.to_bytes()).unwrap();
        assert_eq!((&read.id, read.method, read.to_bytes()), (&call.id, call.method, call.to_bytes()));
        assert_eq!(call.params::<TaskQueryParams>().unwrap().id, "t");
    }
    let bare = Request::read(br#"{"jsonrpc":"2.0","method":"GetTask"}"#).unwrap();
    assert_eq!((&bare.id, bare.params::<Value>().unwrap()), (&Value::Null, json!({})));
    assert_eq!(bare.params::<TaskQueryParams>().unwrap_err().code, ErrorCode::InvalidParams);
}

#[test]
fn calls_that_are_none_are_answered_as_json_rpc_demands() {
    for (body, code, id) in [
        ("{", -32700, Value::Null),
        ("[]", -32600, Value::Null),
        (r#"{"id":1,"method":"GetTask"}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":"a","method":"tasks/get"}"#, -32601, json!("a")),
        (r#"{"jsonrpc":"2.0","id":"a","method":"GetTask","params":{"id":"x","id":"y"}}"#, -32600, json!("a")),
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"GetTask","params":{"id":"x"},"more":[{"k":1,"k":1}]}"#,
            -32600,
            json!("a"),
        ),
        (r#"{"jsonrpc":"2.0","id":"a","id":"a","method":"GetTask","params":{"id":"x"}}"#, -32600, json!("a")),
        (r#"{"jsonrpc":"2.0","id":"a","method":"GetTask","params":[1]}"#, -32602, json!("a")),
    ] {
        let refused = Request::read(body.as_bytes()).unwrap_err();
        assert_eq!((refused.error.code.as_i32(), &refused.id), (code, &id), "{body}");
        let wire: Value =
            serde_json::from_slice(&Response::error(refused.id, &refused.error).to_bytes()).unwrap();
        assert_eq!(
            (&wire["error"]["code"], &wire["id"], wire.get("result")),
            (&json!(code), &id, None),
            "{body}"
        );
    }
}

#[test]
fn errors_carry_their_reason() {
    let wire = Response::error(json!(1), &A2aError::task_not_found("t1")).to_bytes();
    let json: Value = serde_json::from_slice(&wire).unwrap();
    assert_eq!(json["error"]["data"][0]["reason"], "TASK_NOT_FOUND");
    assert_eq!(json["error"]["data"][0]["domain"], A2A_ERROR_DOMAIN);
    let error = Response::read(&wire).unwrap().into_result().unwrap_err();
    assert_eq!(error.code, ErrorCode::TaskNotFound);
    let fault = fault_of(&error);
    assert_eq!((fault.code.as_ref(), fault.retryable), (REFUSED, false));
    assert!(fault.message.contains("TASK_NOT_FOUND"), "{fault}");
    assert!(crate::code::page(REFUSED).is_some());
    let unknown = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"odd\u001b[0m"}}"#;
    let error = Response::read(unknown).unwrap().into_result().unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::InternalError, "error -1: odd[0m"));
    let both = br#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}"#;
    assert!(Response::read(both).is_err());
    assert_eq!(Response::ok(json!(1), json!({"a": 1})).into_result().unwrap(), json!({"a": 1}));
}

#[test]
fn a_temporary_error_says_when_to_retry() {
    let error = temporary_error("SINEW-7010", "no response within 5 s");
    let wire = Response::error(Value::Null, &error).to_bytes();
    let read = Response::read(&wire).unwrap().into_result().unwrap_err();
    assert_eq!(read.retry_after(), Some(std::time::Duration::from_secs(1)));
    let fault = fault_of(&read);
    assert_eq!(
        (fault.code.as_ref(), fault.retryable, fault.retry_after_ms),
        ("SINEW-7010", true, Some(1_000))
    );
}

#[test]
fn faults_survive_being_errors() {
    for fault in [
        Fault::error("SINEW-7010", "away").with_retry_after_ms(3_000),
        Fault::error("SINEW-5113", "full").with_retryable(false),
        Fault::invalid("SINEW-5102", "broken"),
        Fault::timeout("SINEW-5104", "late"),
    ] {
        let wire = Response::error(Value::Null, &error_of(&fault)).to_bytes();
        let back = fault_of(&Response::read(&wire).unwrap().into_result().unwrap_err());
        let known = crate::code::page(&fault.code).is_some();
        let code = if known { fault.code.clone() } else { REFUSED.into() };
        assert_eq!(back, Fault { code, ..fault });
    }
}

#[test]
fn headers_say_what_is_spoken() {
    let code = |version, media| check_headers(version, media).map_err(|error| error.code.as_i32());
    assert_eq!(code(Some("1.0"), None), Ok(()));
    assert_eq!(code(Some(" 1.0 "), Some("application/a2a+json; charset=utf-8")), Ok(()));
    for version in [None, Some(""), Some("0.3"), Some("1.1"), Some("2.0")] {
        assert_eq!(code(version, None), Err(-32009), "{version:?}");
    }
    assert_eq!(code(Some("1.0"), Some("text/plain")), Err(-32005));
}

/// The binding document lists every operation, error, header and subject that a third party needs.
#[test]
fn the_binding_is_written_down() {
    let text = include_str!("../../../../proto/a2a-nats-binding.md");
    let codes = (-32_009..=-32_001).chain([-32_700]).chain(-32_603..=-32_600);
    let errors = codes.flat_map(|code| {
        let code = ErrorCode::try_from(code).unwrap();
        [Some(format!("| {} |", code.as_i32())), code.a2a_reason().map(|reason| format!("| `{reason}` |"))]
    });
    let methods = Method::all().map(|method| format!("`{}`", method.as_str()));
    let headers =
        [header::A2A_VERSION, header::A2A_EXTENSIONS, header::CONTENT_TYPE, header::A2A_SEQ, header::A2A_END];
    let headers =
        headers.into_iter().chain([header::TRACE_PARENT, header::CALL_DEPTH, header::RESULT_SUBJECT]);
    let uris = [crate::card::NATS_BINDING, crate::card::DELIVERY, DOMAIN, A2A_JSON].map(str::to_owned);
    let subjects = [
        "progress.{execution}.{task}",
        "control.{agent}.{task}",
        "card.{agent}",
        "task.{agent}.{execution}.{task}",
    ];
    let subjects = subjects.into_iter().chain(["result.{shard}.{agent}.{execution}.{task}.{token}"]);
    for subject in subjects.clone() {
        assert!(crate::subject::TABLE.iter().any(|(pattern, _)| *pattern == subject), "{subject}");
    }
    let named = headers.chain(subjects).map(|name| format!("`{name}`"));
    for word in errors.flatten().chain(methods).chain(named).chain(uris) {
        assert!(text.contains(&word), "the binding does not name {word}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), at: prop::sample::Index, with: u8) {
        let call = Request::new("a", Method::GetAgentCard, &json!({"id": "t"})).to_bytes();
        let answer = Response::error(json!(1), &A2aError::task_not_found("t1")).to_bytes();
        for good in [call, answer] {
            let mut bad = good.to_vec();
            let at = at.index(bad.len());
            bad[at] = with;
            for body in [bytes.as_slice(), &bad, &bad[..at]] {
                drop(Request::read(body));
                if let Ok(response) = Response::read(body) {
                    drop(response.into_result().map_err(|error| fault_of(&error)));
                }
            }
        }
    }
}
