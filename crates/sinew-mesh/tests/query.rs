//! Questions to a shard's owner: small and large answers, nobody, silence, and answers that are none.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::json;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::query::{Answer, ExecutionStatus, Query, QueryError, Summary};
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::{ExecutionId, Subject, Token, header};

use crate::started;

fn summary(n: usize) -> Summary {
    Summary {
        execution: ExecutionId::of("test", "cli", &n.to_string()),
        workflow: "order intake".to_owned(),
        status: ExecutionStatus::Waiting,
        caller: Token::of("cli"),
        started: n as u64,
        ended: None,
        waiting: Some("approval".to_owned()),
        agents: Vec::new(),
        questions: None,
        waits_for: vec!["person".to_owned()],
        attributes: ExecutionAttributes {
            labels: BTreeMap::from([("team".to_owned(), "ä".to_owned())]),
            idempotency_key: Some("order-17".to_owned()),
            ..ExecutionAttributes::default()
        },
        plan: Some("0f".repeat(32)),
        usage: sinew_protocol::usage::ModelTotals::default(),
    }
}

#[tokio::test]
async fn questions_are_answered_whatever_the_size() {
    let (server, mesh) = started::mesh().await;
    let mut queries = mesh.services().serve_queries(3).await.unwrap();
    let execution = summary(0).execution;
    let record = |size: usize| Bytes::from((0..size).map(|n| (n / 1000) as u8).collect::<Vec<_>>());
    let many: Vec<_> = (0..20_000).map(summary).collect();
    let get = || Query::Get(execution.clone());
    let cases = vec![
        (Query::List {}, Answer::Executions(Vec::new())),
        (Query::List {}, Answer::Executions(many)),
        (Query::Status {}, Answer::Status(json!({"shard": 3, "executions": 7}))),
        (get(), Answer::Record(Bytes::new())),
        (get(), Answer::Record(record(1000))),
        (get(), Answer::Record(record(512 << 10))),
        (get(), Answer::Record(record((512 << 10) + 1))),
        (get(), Answer::Record(record(9_000_000))),
        (get(), Answer::Error(QueryError::NotFound)),
        (Query::List {}, Answer::Error(QueryError::NotOwner)),
    ];
    let answers = cases.clone();
    let owner = tokio::spawn(async move {
        for (query, answer) in answers {
            let asked = queries.next().await.unwrap();
            assert_eq!(asked.query, query);
            asked.answer(answer).await.unwrap();
        }
        queries
    });
    let other = started::connect(&server.url(), "other").await;
    for (query, answer) in cases {
        let told = other.services().ask_shard(3, &query).await.unwrap();
        assert!(told == answer, "{query:?} got another answer");
    }
    let queries = owner.await.unwrap();
    // Another shard has no owner, and neither has this one once its owner is gone.
    let error = other.services().ask_shard(4, &Query::List {}).await.unwrap_err();
    assert!(error.is_no_responders() && error.code() == "SINEW-7054", "{error}");
    drop(queries);
    mesh.client().flush().await.unwrap();
    let error = other.services().ask_shard(3, &Query::List {}).await.unwrap_err();
    assert!(error.is_no_responders(), "{error}");
}

#[tokio::test]
async fn questions_that_cannot_be_read_are_refused() {
    let (_server, mesh) = started::mesh().await;
    let mut queries = mesh.services().serve_queries(0).await.unwrap();
    let owner = tokio::spawn(async move { queries.next().await.unwrap().query });
    let subject = mesh.subject(&Subject::Query { shard: 0 });
    for question in ["", "{", "{}", r#"{"get":"a.b"}"#, r#"{"drop":{}}"#, &" ".repeat(10_000)] {
        let told = mesh.client().request(subject.clone(), question.to_owned().into()).await.unwrap();
        assert_eq!(told.payload, r#"{"error":"bad_query"}"#, "{question}");
    }
    // Only the question that can be read came through.
    mesh.client().publish_with_reply(subject, "nowhere", r#"{"status":{}}"#.into()).await.unwrap();
    assert_eq!(owner.await.unwrap(), Query::Status {});
}

/// Asks an owner that answers with these messages, as `Sinew-Part` and body.
async fn told(mesh: &Mesh, query: Query, messages: Vec<(Option<&'static str>, Vec<u8>)>) -> MeshError {
    let mut questions = mesh.client().subscribe(mesh.subject(&Subject::Query { shard: 9 })).await.unwrap();
    mesh.client().flush().await.unwrap();
    let client = mesh.client();
    let liar = tokio::spawn(async move {
        let reply = questions.next().await.unwrap().reply.unwrap();
        for (part, body) in messages {
            let mut headers = HeaderMap::new();
            headers.insert("X", "y");
            if let Some(part) = part {
                headers.insert(header::PART, part);
            }
            client.publish_with_headers(reply.clone(), headers, body.into()).await.unwrap();
        }
    });
    let error = mesh.services().ask_shard_within(9, &query, Duration::from_millis(300)).await.unwrap_err();
    liar.await.unwrap();
    error
}

#[tokio::test]
async fn answers_that_are_none_are_errors() {
    let (_server, mesh) = started::mesh().await;
    let body = |text: &str| text.as_bytes().to_vec();
    let get = Query::Get(summary(0).execution);
    let cases: Vec<(&str, Query, Vec<_>, &str)> = vec![
        ("silence", Query::List {}, vec![], "SINEW-7055"),
        ("half an answer", Query::List {}, vec![(Some("1/2"), body("{"))], "SINEW-7055"),
        ("no JSON", Query::List {}, vec![(None, body("{"))], "SINEW-7056"),
        ("another answer", Query::List {}, vec![(None, body(r#"{"status":{}}"#))], "SINEW-7056"),
        ("no record", get, vec![(None, body(r#"{"executions":[]}"#))], "SINEW-7056"),
        (
            "a part missing",
            Query::List {},
            vec![(Some("1/3"), body("{")), (Some("3/3"), body("}"))],
            "SINEW-7056",
        ),
        (
            "a part twice",
            Query::List {},
            vec![(Some("1/3"), body("{")), (Some("2/3"), body("{")), (Some("2/3"), body("}"))],
            "SINEW-7056",
        ),
        (
            "parts of two answers",
            Query::List {},
            vec![(Some("1/2"), body("{")), (Some("2/3"), body("}"))],
            "SINEW-7056",
        ),
        ("no place", Query::List {}, vec![(Some("x"), body("{}"))], "SINEW-7056"),
        ("without end", Query::List {}, vec![(Some("1/4000000000"), body("{"))], "SINEW-7056"),
    ];
    for (what, query, messages, code) in cases {
        let error = told(&mesh, query, messages).await;
        assert_eq!(error.code(), code, "{what}: {error}");
    }
}
