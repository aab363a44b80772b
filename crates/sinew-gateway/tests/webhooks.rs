//! Webhook triggers: verified deliveries start executions, once each; all others start nothing.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use reqwest::Method;
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde_json::{Value, json};
use sinew_operations::gateway_hooks::{deploy_hook, list_hooks, remove_hook};
use sinew_protocol::Token;
use sinew_protocol::webhook::{WebhookScheme, WebhookTrigger};

use crate::support::{GatewayWorld, PATIENCE, SINGLE, now};

pub(crate) const SECRET: &str = "a secret of this test";

pub(crate) fn trigger(name: &str, scheme: WebhookScheme, input: &[(&str, &str)]) -> WebhookTrigger {
    let input = input.iter().map(|(member, pointer)| ((*member).to_owned(), (*pointer).to_owned()));
    WebhookTrigger {
        name: Token::of(name),
        workflow: "single".to_owned(),
        scheme,
        secret: SECRET.to_owned(),
        input: input.collect::<BTreeMap<_, _>>(),
        created_at: now(),
        created_by: "tester".to_owned(),
    }
}

fn tag(secret: &str, told: &str) -> String {
    HEXLOWER.encode(sign(&Key::new(HMAC_SHA256, secret.as_bytes()), told.as_bytes()).as_ref())
}

pub(crate) fn github(secret: &str, body: &str) -> (&'static str, String) {
    ("X-Hub-Signature-256", format!("sha256={}", tag(secret, body)))
}

fn stripe(at: u64, body: &str) -> (&'static str, String) {
    ("Stripe-Signature", format!("t={at},v1={}", tag(SECRET, &format!("{at}.{body}"))))
}

async fn deliver(
    world: &GatewayWorld,
    name: &str,
    body: &str,
    headers: &[(&'static str, String)],
) -> (u16, Value) {
    let mut request = world.request(Method::POST, &format!("/hooks/{name}")).body(body.to_owned());
    request = request.header("Content-Type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Headers of a delivery.
type SentHeaders = Vec<(&'static str, String)>;

/// A gateway that asks for keys, with both triggers.
async fn hooked_world() -> GatewayWorld {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        options.access.is_required = true;
        options.limits.body_bytes = 10_000;
    })
    .await;
    deploy_hook(&world.mesh, trigger("pushes", WebhookScheme::Github, &[])).await.unwrap();
    deploy_hook(&world.mesh, trigger("payments", WebhookScheme::Stripe, &[("value", "/data/id")]))
        .await
        .unwrap();
    for name in ["pushes", "payments"] {
        let known = async { while deliver(&world, name, "{}", &[]).await.0 == 404 {} };
        tokio::time::timeout(PATIENCE, known).await.unwrap();
    }
    world
}

#[tokio::test]
async fn a_delivery_starts_one_execution_however_often_it_comes() {
    let world = hooked_world().await;
    let body = r#"{"value": "a"}"#;
    let (status, first) = deliver(&world, "pushes", body, &[github(SECRET, body)]).await;
    assert_eq!((status, &first["new"]), (201, &json!(true)), "{first}");
    // The id of a delivery is not signed, so another one changes nothing.
    let repeated = [github(SECRET, body), ("X-GitHub-Delivery", "another".to_owned())];
    let (status, again) = deliver(&world, "pushes", body, &repeated).await;
    assert_eq!((status, &again["execution"], &again["new"]), (200, &first["execution"], &json!(false)));
    let other = r#"{"value": "b"}"#;
    let (status, second) = deliver(&world, "pushes", other, &[github(SECRET, other)]).await;
    assert!(status == 201 && second["execution"] != first["execution"], "{second}");

    let event = r#"{"id": "evt_1", "data": {"id": "order-7"}}"#;
    let seconds = now() / 1000;
    let (status, third) = deliver(&world, "payments", event, &[stripe(seconds, event)]).await;
    assert_eq!(status, 201, "{third}");
    let (status, again) = deliver(&world, "payments", event, &[stripe(seconds - 9, event)]).await;
    assert_eq!((status, &again["execution"]), (200, &third["execution"]), "sent again later, signed anew");

    // A service words an event anew: what surrounds its id may have changed.
    let reworded = r#"{"id": "evt_1", "data": {"id": "order-8"}}"#;
    let (status, again) = deliver(&world, "payments", reworded, &[stripe(seconds, reworded)]).await;
    assert_eq!((status, &again["execution"], &again["new"]), (200, &third["execution"], &json!(false)));

    // A ping tells that the webhook was made, and has nothing to start with.
    let ping = r#"{"zen": "Keep it simple."}"#;
    let sent = world.request(Method::POST, "/hooks/pushes").header("Content-Type", "application/json");
    let (name, signed) = github(SECRET, ping);
    let sent = sent.header(name, signed).header("X-GitHub-Event", "ping").body(ping);
    assert_eq!(sent.send().await.unwrap().status(), 204);
    let (status, _) =
        deliver(&world, "pushes", ping, &[github("guessed", ping), ("X-GitHub-Event", "ping".to_owned())])
            .await;
    assert_eq!(status, 401, "it has to be signed too");

    let (_, key) = world.key(|_| {}).await;
    let path = format!("/api/v1/executions/{}/record", third["execution"].as_str().unwrap());
    let record =
        world.request(Method::GET, &path).bearer_auth(&key).send().await.unwrap().text().await.unwrap();
    for told in ["order-7", "hook-payments", "\"webhook\""] {
        assert!(record.contains(told), "{told}: {record}");
    }
    assert!(!record.contains(SECRET));
    assert_eq!(world.executions().await, 3);
    world.end().await;
}

#[tokio::test]
async fn deliveries_that_prove_nothing_start_nothing() {
    let world = hooked_world().await;
    let body = r#"{"value": "a"}"#;
    let good = github(SECRET, body);
    let event = r#"{"id": "evt_1", "data": {"id": "order-7"}}"#;
    let seconds = now() / 1000;
    let moved = stripe(seconds - 400, event).1.replace(&(seconds - 400).to_string(), &seconds.to_string());
    let refused: Vec<(&str, &str, SentHeaders)> = vec![
        ("pushes", body, vec![]),
        ("pushes", body, vec![github("another secret of all", body)]),
        ("pushes", r#"{"value": "b"}"#, vec![good.clone()]),
        ("pushes", body, vec![good.clone(), good.clone()]),
        ("pushes", body, vec![("X-Hub-Signature-256", good.1.to_uppercase())]),
        ("pushes", body, vec![("X-Hub-Signature", good.1.clone())]),
        ("pushes", body, vec![stripe(seconds, body)]),
        ("payments", event, vec![github(SECRET, event)]),
        ("payments", event, vec![stripe(seconds - 400, event)]),
        ("payments", event, vec![stripe(seconds + 400, event)]),
        ("payments", event, vec![("Stripe-Signature", moved)]),
    ];
    for (name, body, headers) in &refused {
        let (status, problem) = deliver(&world, name, body, headers).await;
        assert_eq!((status, &problem["code"]), (401, &json!("SINEW-9019")), "{name} {headers:?}");
        assert!(!problem.to_string().contains(SECRET));
    }
    let twice = r#"{"value": "a", "value": "b"}"#;
    let wide = format!("{{\"value\": \"{}\"}}", "x".repeat(20_000));
    let unnamed = r#"{"data": {"id": "order-7"}}"#;
    let empty = r#"{"id": "evt_2"}"#;
    let wrong: Vec<(&str, &str, (&'static str, String), u16)> = vec![
        ("pushes", "not JSON", github(SECRET, "not JSON"), 400),
        ("pushes", twice, github(SECRET, twice), 400),
        ("pushes", &wide, github(SECRET, &wide), 413),
        ("pushes", r#"{"other": 1}"#, github(SECRET, r#"{"other": 1}"#), 422),
        ("payments", unnamed, stripe(seconds, unnamed), 400),
        ("payments", empty, stripe(seconds, empty), 400),
        ("nothing", body, github(SECRET, body), 404),
        ("..%2Fkey", body, github(SECRET, body), 404),
    ];
    for (name, body, header, expected) in wrong {
        let (status, problem) = deliver(&world, name, body, &[header]).await;
        let is_refused = status == expected || (expected == 422 && (400..500).contains(&status));
        assert!(is_refused && problem["code"].is_string(), "{name} {status}: {problem}");
    }
    assert_eq!(world.request(Method::GET, "/hooks/pushes").send().await.unwrap().status(), 405);
    assert_eq!(world.executions().await, 0);

    let rows = list_hooks(&world.mesh).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert!(!serde_json::to_string(&rows).unwrap().contains(SECRET));
    remove_hook(&world.mesh, "pushes").await.unwrap();
    let gone = async { while deliver(&world, "pushes", body, std::slice::from_ref(&good)).await.0 != 404 {} };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    let unknown = WebhookTrigger { workflow: "none".to_owned(), ..trigger("a", WebhookScheme::Github, &[]) };
    assert_eq!(deploy_hook(&world.mesh, unknown).await.unwrap_err().code, "SINEW-9020");
    let short = WebhookTrigger { secret: "short".to_owned(), ..trigger("a", WebhookScheme::Github, &[]) };
    assert!(deploy_hook(&world.mesh, short).await.is_err());
    world.end().await;
}
