//! Plans, deployed workflows and the archive.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde_json::json;
use sinew_mesh::history::{ClosedExecution, HistoryFilter, LARGEST_MESSAGE};
use sinew_mesh::history_index::{HistoryCursor, HistoryIndex};
use sinew_mesh::workflow::{MOST_VERSIONS, PlanFile, PlanTexts, StoredPlan, Workflows};
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::deployment::{Deployment, MAX_DEPLOYMENT};
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{ExecutionId, Subject, Token, header};

use crate::started;

const SOON: Duration = Duration::from_secs(20);

fn plan(n: u32) -> StoredPlan {
    StoredPlan {
        dialect: "sam".to_owned(),
        plan: json!({"name": "orders", "nodes": [{"z": 1.5, "a": "ä\u{1}\"", "n": n}], "limits": {}}),
        source: Some("orders.yaml".to_owned()),
        texts: Some(PlanTexts {
            files: vec![PlanFile { name: "orders.yaml".to_owned(), text: "workflow: orders".to_owned() }],
            diagnostics: Vec::new(),
        }),
    }
}

#[tokio::test]
async fn plans_are_found_by_what_they_are() {
    let (_server, mesh) = started::mesh().await;
    let digest = mesh.workflows().put_plan(&plan(1)).await.unwrap();
    // Members in another order are the same plan; a null is the only sign that says what a digest covers.
    let mut shuffled = plan(1);
    shuffled.plan = json!({"nodes": [{"n": 1, "a": "ä\u{1}\"", "z": 1.5}], "limits": {}, "name": "orders"});
    assert_eq!(shuffled.digest(), digest);
    let canonical = r#"{"limits":{},"name":"orders","nodes":[{"a":"ä\u0001\"","n":1,"z":1.5}]}"#;
    assert_eq!(digest, sinew_protocol::artifact::sha256(canonical.as_bytes()));
    assert_eq!(mesh.workflows().get_plan(&digest).await.unwrap(), plan(1));
    assert_eq!(mesh.workflows().put_plan(&plan(1)).await.unwrap(), digest);
    assert_ne!(mesh.workflows().put_plan(&plan(2)).await.unwrap(), digest);

    let mut large = plan(3);
    large.source = Some("#".repeat(2 << 20));
    let digest = mesh.workflows().put_plan(&large).await.unwrap();
    assert_eq!(mesh.workflows().get_plan(&digest).await.unwrap(), large);
    for unknown in [plan(4).digest(), String::new(), "a.b".to_owned(), ">".to_owned(), "A".repeat(64)] {
        assert_eq!(mesh.workflows().get_plan(&unknown).await.unwrap_err().code(), "SINEW-7051", "{unknown}");
    }
}

#[tokio::test]
async fn a_plan_under_the_digest_of_another_is_refused() {
    let (_server, mesh) = started::mesh().await;
    let (digest, other) = (plan(1).digest(), mesh.workflows().put_plan(&plan(2)).await.unwrap());
    let stream = mesh.admin().jetstream().get_stream("OBJ_test_PLANS").await.unwrap();
    let described = stream.get_last_raw_message_by_subject("$O.test_PLANS.M.>").await.unwrap();
    let forged = String::from_utf8(described.payload.to_vec()).unwrap().replace(&other, &digest);
    let subject = format!("$O.test_PLANS.M.{}", data_encoding::BASE64URL.encode(digest.as_bytes()));
    mesh.admin().jetstream().publish(subject, forged.into()).await.unwrap().await.unwrap();
    assert!(matches!(mesh.workflows().get_plan(&digest).await, Err(MeshError::Damaged { .. })));
    // Deploying again mends it.
    mesh.workflows().put_plan(&plan(1)).await.unwrap();
    assert_eq!(mesh.workflows().get_plan(&digest).await.unwrap(), plan(1));
}

fn deployment(name: &str, n: u32) -> Deployment {
    Deployment {
        name: name.to_owned(),
        digest: plan(n).digest(),
        dialect: "sam".to_owned(),
        description: format!("version {n}"),
        card: json!({"name": name}),
        mermaid: "graph TD".to_owned(),
        at: u64::from(n),
        by: "ops".to_owned(),
        author_version: None,
        pause: None,
    }
}

async fn until(workflows: &mut Workflows, is: impl Fn(&Workflows) -> bool) {
    let wait = async {
        while !is(workflows) {
            workflows.changed().await;
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap();
}

async fn raw(mesh: &Mesh, name: &str, body: Vec<u8>) {
    let subject = mesh.subject(&Subject::Workflow { name: Token::of(name) });
    mesh.admin().jetstream().publish(subject, body.into()).await.unwrap().await.unwrap();
}

/// An entry that a view does not contain may exist while the server does not answer.
#[tokio::test]
async fn a_view_of_a_halted_server_proves_no_absence() {
    let (server, mesh) = started::mesh().await;
    let workflows = mesh.workflows().follow();
    workflows.current().await.unwrap();
    assert!(workflows.get("billing").is_none());
    server.pause().await.unwrap();
    // Callers at once share an answer, and none waits for that of another.
    let asked = futures_util::future::join_all((0..20).map(|_| workflows.current()));
    let answers = tokio::time::timeout(SOON, asked).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Err(MeshError::Unreachable { .. }))), "{answers:?}");
    server.resume().unwrap();
    tokio::time::timeout(SOON, async { while workflows.current().await.is_err() {} }).await.unwrap();
    // From then on the view has at once what was deployed before it is asked.
    for n in 0..20 {
        let name = format!("billing {n}");
        mesh.workflows().deploy(&deployment(&name, 1)).await.unwrap();
        workflows.current().await.unwrap();
        assert!(workflows.get(&name).is_some(), "{name} was deployed before the view was asked");
    }
}

#[tokio::test]
async fn workflows_have_names_and_versions() {
    let (mut server, mesh) = started::mesh().await;
    mesh.workflows().deploy(&deployment("order intake", 1)).await.unwrap();
    let mut workflows = mesh.workflows().follow();
    workflows.ready().await;
    assert_eq!(workflows.get("order intake").unwrap().deployment, deployment("order intake", 1));
    assert!(workflows.get("other").is_none());
    assert!(mesh.workflows().latest("other").await.unwrap().is_none());

    let seq = mesh.workflows().deploy(&deployment("order intake", 2)).await.unwrap();
    mesh.workflows().deploy(&deployment("billing", 1)).await.unwrap();
    until(&mut workflows, |workflows| workflows.list().len() == 2).await;
    let latest = workflows.get("order intake").unwrap();
    assert_eq!((latest.seq, latest.deployment.at), (seq, 2));
    assert_eq!(mesh.workflows().latest("order intake").await.unwrap().as_ref(), Some(&*latest));
    let names: Vec<_> = workflows.list().iter().map(|version| version.deployment.name.clone()).collect();
    assert_eq!(names, ["billing", "order intake"]);

    // An unreadable deployment changes nothing.
    for body in [
        b"{".to_vec(),
        deployment("billing", 9).to_json().into_bytes(),
        deployment("order intake", 9).to_json().replace(&plan(9).digest(), "../x").into_bytes(),
    ] {
        raw(&mesh, "order intake", body).await;
    }
    mesh.workflows().undeploy("billing").await.unwrap();
    until(&mut workflows, |workflows| workflows.get("billing").is_none()).await;
    assert_eq!(workflows.get("order intake").unwrap().deployment.at, 2);
    assert_eq!(workflows.versions("billing").len(), 1);
    assert!(mesh.workflows().latest("billing").await.unwrap().is_none());

    // After the server's death the view goes on, and shows the same.
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let other = started::connect(&server.url(), "other").await;
    for n in 3..30 {
        other.workflows().deploy(&deployment("order intake", n)).await.unwrap();
    }
    until(&mut workflows, |workflows| {
        workflows.get("order intake").is_some_and(|version| version.deployment.at == 29)
    })
    .await;
    let versions = workflows.versions("order intake");
    assert_eq!(versions.len(), MOST_VERSIONS);
    assert!(versions.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert!(workflows.get("billing").is_none());
}

#[tokio::test]
async fn deployments_that_mean_nothing_are_refused() {
    let (_server, mesh) = started::mesh().await;
    let good = deployment("orders", 1);
    let bad = [
        (Deployment { name: String::new(), ..good.clone() }, "SINEW-7056"),
        (Deployment { name: "a\u{1b}".to_owned(), ..good.clone() }, "SINEW-7056"),
        (Deployment { digest: "A".repeat(64), ..good.clone() }, "SINEW-7056"),
        (Deployment { mermaid: "x".repeat(MAX_DEPLOYMENT), ..good }, "SINEW-7053"),
    ];
    for (deployment, code) in bad {
        assert_eq!(
            mesh.workflows().deploy(&deployment).await.unwrap_err().code(),
            code,
            "{}",
            deployment.name
        );
    }
}

fn usage(turns: u64) -> ModelTotals {
    ModelTotals { turns, input_tokens: u64::MAX, cost_usd: Some(0.25), ..ModelTotals::default() }
}

fn closed(n: usize) -> ClosedExecution {
    ClosedExecution {
        execution: ExecutionId::of("test", "caller", &n.to_string()),
        workflow: if n.is_multiple_of(3) { "order intake\r\n% ä".to_owned() } else { "billing".to_owned() },
        status: if n.is_multiple_of(2) { "success" } else { "failure" }.to_owned(),
        started: 1_000 + n as u64,
        ended: 2_000 + n as u64,
        caller: "cli".to_owned(),
        entries: 3,
        usage: if n.is_multiple_of(2) { usage(n as u64) } else { ModelTotals::default() },
        fault_code: (!n.is_multiple_of(2)).then(|| "SINEW-5001 ä\r\n".to_owned()),
        plan: (!n.is_multiple_of(3)).then(|| format!("{n}b%\n")),
        is_dry_run: n.is_multiple_of(3),
        route: Some(format!("route-{n}")),
        attributes: ExecutionAttributes {
            labels: [("töam".to_owned(), "\"a\",\n".to_owned())].into(),
            idempotency_key: Some(format!("order-{n}")),
            called: vec!["Clerk".to_owned()],
            ..ExecutionAttributes::default()
        },
    }
}

#[tokio::test]
async fn records_are_archived_whole() {
    let (_server, mesh) = started::mesh().await;
    assert!(mesh.history().get(&closed(1).execution).await.unwrap().is_none());
    assert!(mesh.history().list(&HistoryFilter::default(), 10).await.unwrap().is_empty());
    let large = Bytes::from(vec![7; LARGEST_MESSAGE + 1]);
    for (n, record) in [(1, Bytes::from_static(b"record")), (3, large.clone()), (4, Bytes::new())] {
        mesh.history().put(&closed(n), record.clone()).await.unwrap();
        mesh.history().put(&closed(n), record.clone()).await.unwrap();
        assert_eq!(mesh.history().get(&closed(n).execution).await.unwrap(), Some((closed(n), record)));
    }
    // A retried execution is archived again.
    let again = ClosedExecution { status: "success".to_owned(), ended: 9_000, entries: 5, ..closed(3) };
    mesh.history().put(&again, Bytes::from_static(b"longer")).await.unwrap();
    assert_eq!(mesh.history().get(&again.execution).await.unwrap().unwrap().0, again);
    // An owner that lost its shard archives what it knew: less than what is there.
    mesh.history().put(&closed(3), large.clone()).await.unwrap();
    assert_eq!(
        mesh.history().get(&again.execution).await.unwrap(),
        Some((again.clone(), Bytes::from_static(b"longer")))
    );
    let all = mesh.history().list(&HistoryFilter::default(), 10).await.unwrap();
    assert_eq!(all, [again, closed(4), closed(1)]);

    // A message that names an object of another execution does not get its bytes.
    mesh.history().put(&closed(5), large.clone()).await.unwrap();
    let thief = closed(6);
    let stream = mesh.admin().jetstream().get_stream("test_HISTORY").await.unwrap();
    let subject = mesh.subject(&Subject::History { execution: closed(5).execution });
    let message = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
    let subject = mesh.subject(&Subject::History { execution: thief.execution.clone() });
    let stored =
        mesh.admin().jetstream().publish_with_headers(subject, message.headers, Bytes::new()).await.unwrap();
    stored.await.unwrap();
    assert_eq!(mesh.history().get(&thief.execution).await.unwrap_err().code(), "SINEW-7052");
}

#[tokio::test]
async fn records_are_listed_whatever_they_tell_of_models() {
    let (_server, mesh) = started::mesh().await;
    mesh.history().put(&closed(2), Bytes::from_static(b"record")).await.unwrap();
    let stream = mesh.admin().jetstream().get_stream("test_HISTORY").await.unwrap();
    let subject = |n| mesh.subject(&Subject::History { execution: closed(n).execution });
    let told = stream.get_last_raw_message_by_subject(&subject(2)).await.unwrap().headers;
    let long = format!("{{\"turns\": 1{}}}", " ".repeat(4_000));
    let odd =
        [None, Some(""), Some("{"), Some("[1]"), Some(r#"{"turns": "many", "cost_usd": -1}"#), Some(&long)];
    for (n, usage) in (4..).step_by(2).zip(odd) {
        let mut headers: HeaderMap = told
            .iter()
            .filter(|(name, _)| name.to_string() != header::USAGE)
            .map(|(name, values)| (name.clone(), values[0].clone()))
            .collect();
        if let Some(usage) = usage {
            headers.insert(header::USAGE, usage);
        }
        mesh.admin()
            .jetstream()
            .publish_with_headers(subject(n), headers, "record".into())
            .await
            .unwrap()
            .await
            .unwrap();
    }
    let all = mesh.history().list(&HistoryFilter::default(), 100).await.unwrap();
    let used: Vec<_> = all.iter().map(|one| one.usage).collect();
    let none = ModelTotals::default();
    assert_eq!(used, [none, none, none, none, none, none, usage(2)]);
}

#[tokio::test]
async fn the_archive_is_listed_newest_first_by_headers() {
    let (_server, mesh) = started::mesh().await;
    for n in 0..2_000 {
        mesh.history().put(&closed(n), vec![1; 500].into()).await.unwrap();
    }
    let list = async |filter: HistoryFilter, limit| mesh.history().list(&filter, limit).await.unwrap();
    let began = std::time::Instant::now();
    let newest = list(HistoryFilter::default(), 20).await;
    println!("20 of 2000 listed in {:?}", began.elapsed());
    assert_eq!(newest, (1_980..2_000).rev().map(closed).collect::<Vec<_>>());
    assert_eq!(list(HistoryFilter::default(), usize::MAX).await.len(), 2_000);
    assert!(list(HistoryFilter::default(), 0).await.is_empty());
    let text = |text: &str| Some(text.to_owned());
    let odd = HistoryFilter {
        workflow: Some(closed(0).workflow),
        status: text("failure"),
        ..HistoryFilter::default()
    };
    let want: Vec<_> = (0..2_000)
        .rev()
        .map(closed)
        .filter(|c| c.workflow != "billing" && c.status == "failure")
        .take(5)
        .collect();
    assert_eq!(list(odd, 5).await, want);
    let early = HistoryFilter { since: Some(2_003), until: Some(2_006), ..HistoryFilter::default() };
    assert_eq!(list(early, 100).await, [closed(5), closed(4), closed(3)]);
    let nobody = HistoryFilter { caller: text("nobody"), ..HistoryFilter::default() };
    assert!(list(nobody, 100).await.is_empty());
}

/// Checks pages of an index against a sorted list of all executions: of all, of one status, and from places between.
async fn check_pages(mesh: &Mesh, index: &HistoryIndex, all: &[ClosedExecution]) {
    let mut sorted = all.to_vec();
    sorted.sort_by(|a, b| {
        b.started.cmp(&a.started).then_with(|| a.execution.as_str().cmp(b.execution.as_str()))
    });
    for status in [None, Some("failure"), Some("cancelled"), Some("nothing")] {
        let wants = |one: &ClosedExecution| status.is_none_or(|status| one.status == status);
        let deep = sorted.len().checked_sub(4);
        for (behind, limit) in [(None, 7), (None, 2_000), (deep.and(Some(3)), 7), (deep, 7)] {
            let place = behind.map(|at: usize| HistoryCursor {
                started: sorted[at].started,
                execution: sorted[at].execution.to_string(),
            });
            let wanted = sorted.iter().skip(behind.map_or(0, |at| at + 1)).filter(|one| wants(one));
            let wanted: Vec<_> = wanted.take(limit).cloned().collect();
            let found = index.page(mesh, &wants, place.as_ref(), limit).await.unwrap();
            assert_eq!(found, wanted, "{status:?} behind {behind:?}, {limit}");
        }
    }
}

#[tokio::test]
async fn pages_by_start_are_those_of_a_sorted_list() {
    let (_server, mesh) = started::mesh().await;
    // One that keeps all, one that keeps nothing, and one that forgets from time to time.
    let indexes = [HistoryIndex::default(), HistoryIndex::keeping(0), HistoryIndex::keeping(9_000)];
    for index in &indexes {
        check_pages(&mesh, index, &[]).await;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    // Some took a moment, some an hour: the order of ends is not that of starts.
    let of = |n: usize| {
        let started = now - ((n * 7_919) % 1_000) as u64 * if n.is_multiple_of(5) { 3_600 } else { 1 };
        ClosedExecution { started, ended: now, ..closed(n) }
    };
    let mut all = Vec::new();
    for n in 0..700 {
        let one = of(n);
        mesh.history().put(&one, vec![1; 20].into()).await.unwrap();
        all.push(one);
        // An index that is asked again and again catches up; one that is asked late reads all of it.
        if [10, 400].contains(&n) {
            check_pages(&mesh, &indexes[0], &all).await;
            check_pages(&mesh, &indexes[1], &all).await;
        }
    }
    for index in &indexes {
        check_pages(&mesh, index, &all).await;
    }
    // An old one is archived again, and ended otherwise.
    let again = ClosedExecution { status: "cancelled".to_owned(), entries: 9, ..all[3].clone() };
    mesh.history().put(&again, Bytes::from_static(b"again")).await.unwrap();
    all[3] = again;
    for index in &indexes {
        check_pages(&mesh, index, &all).await;
    }
}
