//! Keys: what they open, how they end, their limits, and signing in.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use reqwest::{Method, StatusCode, header, redirect};
use serde_json::{Value, json};
use sinew_gateway::ConsoleMode;
use sinew_operations::gateway_keys::{list_keys, revoke_keys};
use sinew_protocol::access::AccessRole;

use crate::support::{GatewayWorld, PATIENCE, POLL_INTERVAL, SINGLE, now, review};

const FORM: &str = "application/x-www-form-urlencoded";

async fn closed_world(workflows: &[(&str, &str)]) -> GatewayWorld {
    GatewayWorld::with(workflows, |options| {
        options.access.is_required = true;
        options.console = Some(ConsoleMode::Full);
    })
    .await
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked() {
    let world = closed_world(&[]).await;
    let (_, key) = world.key(|new| new.name = "ann".to_owned()).await;
    let mut stream =
        world.request(Method::GET, "/api/v1/traffic").header("X-API-Key", &key).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    revoke_keys(&world.mesh, "ann", now()).await.unwrap();
    let end = async { while stream.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(PATIENCE, end).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_key_opens_until_it_is_revoked_and_its_owner_is_recorded() {
    let world = closed_world(&[("review", &review().replace("\"gateway\"", "\"ann\""))]).await;
    let (id, key) = world.key(|new| new.name = "ann".to_owned()).await;
    let api = async |method: Method, path: &str, body: Option<Value>| {
        let mut request = world.request(method, &format!("/api/v1{path}")).header("X-API-Key", &key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json::<Value>().await.unwrap())
    };
    let (status, started) =
        api(Method::POST, "/executions", Some(json!({"workflow": "review", "input": {}}))).await;
    assert_eq!(status, 201, "{started}");
    let execution = started["execution"].as_str().unwrap().to_owned();
    let asks = async {
        loop {
            let (_, open) = api(Method::GET, "/approvals", None).await;
            if open.as_array().is_some_and(|open| !open.is_empty()) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asks).await.unwrap();
    let decision = Some(json!({"decision": "approve"}));
    let (status, decided) = api(Method::POST, &format!("/executions/{execution}/decisions"), decision).await;
    assert_eq!(status, 200, "{decided}");
    let (_, record) = api(Method::GET, &format!("/executions/{execution}/record"), None).await;
    let record = record.to_string();
    assert!(record.contains("\"ann\""), "the caller is recorded: {record}");
    assert!(!record.contains(&key));
    let last_use = async || list_keys(&world.mesh, now()).await.unwrap()[0].last_used_at;
    let noted = async { while last_use().await.is_none() {} };
    tokio::time::timeout(PATIENCE, noted).await.unwrap();
    assert!(last_use().await.is_some_and(|at| at <= now()));

    let rows = list_keys(&world.mesh, now()).await.unwrap();
    let row = rows.iter().find(|row| row.id == id).unwrap();
    assert_eq!((row.name.as_str(), row.status), ("ann", "valid"));
    assert!(!serde_json::to_string(&rows).unwrap().contains(key.rsplit('_').next().unwrap()));
    assert_eq!(revoke_keys(&world.mesh, "ann", now()).await.unwrap().len(), 1);
    let refused = async {
        loop {
            let (status, problem) = api(Method::GET, "/workflows", None).await;
            if status == StatusCode::UNAUTHORIZED {
                return problem;
            }
        }
    };
    let problem = tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert_eq!((&problem["code"], &problem["detail"]), (&json!("SINEW-9015"), &json!("the key was revoked")));
    assert!(revoke_keys(&world.mesh, "nobody", now()).await.is_err());
    world.end().await;
}

#[tokio::test]
async fn short_ids_name_executions_that_the_caller_may_see() {
    let world = closed_world(&[("single", SINGLE), ("other", SINGLE)]).await;
    world.serve_echo_behind_keys().await;
    let (_, all) = world.key(|_| {}).await;
    let (_, part) = world.key(|new| new.patterns = vec!["sing*".to_owned()]).await;
    for (workflow, id) in [("other", "aa-1"), ("single", "aa-2"), ("other", "ab-1")] {
        let start = json!({"workflow": workflow, "id": id, "input": {"value": "v"}});
        let request = world.request(Method::POST, "/api/v1/executions").bearer_auth(&all).json(&start);
        assert_eq!(request.send().await.unwrap().status(), 201, "{id}");
    }
    let ask = async |key: &str, text: &str| {
        let path = format!("/api/v1/executions/{text}");
        let answer = world.request(Method::GET, &path).bearer_auth(key).send().await.unwrap();
        let (status, body) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
        assert!(key != part || !body.to_string().contains("other"), "{text}: {body}");
        (status, body["execution"].as_str().unwrap_or_default().to_owned())
    };
    let single = (200, "aa-2".to_owned());
    for text in ["aa-2", "aa", "a", "@latest"] {
        assert_eq!(ask(&part, text).await, single, "{text}");
    }
    for text in ["aa-1", "ab", "b"] {
        assert_eq!(ask(&part, text).await.0, 404, "{text}");
    }
    assert_eq!(ask(&all, "aa").await.0, 400, "it names several");
    assert_eq!(ask(&all, "ab").await.1, "ab-1");
    world.end().await;
}

#[tokio::test]
async fn callers_have_limits_of_their_own() {
    let world = closed_world(&[("single", SINGLE)]).await;
    let (_, slow) = world.key(|new| new.limits.requests_per_second = Some(1)).await;
    let (_, small) = world.key(|new| new.limits.body_bytes = Some(64)).await;
    let (_, other) = world.key(|_| {}).await;
    let read = async |key: &str| {
        world.request(Method::GET, "/api/v1/workflows").bearer_auth(key).send().await.unwrap()
    };
    let mut answers = Vec::new();
    for _ in 0..30 {
        answers.push(read(&slow).await);
    }
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status() == 429).collect();
    assert!(!refused.is_empty() && answers.iter().any(|answer| answer.status() == 200));
    assert!(refused.iter().all(|answer| answer.headers().contains_key(header::RETRY_AFTER)));
    assert_eq!(read(&other).await.status(), 200, "another caller is not slowed down");

    let post = async |key: &str, size: usize| {
        let body = json!({"workflow": "x".repeat(size)});
        let request = world.request(Method::POST, "/api/v1/executions").bearer_auth(key).json(&body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, told) = post(&small, 100).await;
    assert!(status == 413 && told.contains("exceeds the size limit of this caller"), "{told}");
    assert_eq!(post(&other, 100).await.0, 404);
    world.end().await;
}

#[tokio::test]
async fn streams_of_a_caller_are_counted() {
    let (mut world, _begun, go_on) = crate::support::held(&[("single", SINGLE)]).await;
    drop(world.take_gateway());
    let gateway = world.gateway(|options| options.access.is_required = true).await;
    world.base = gateway.base_url();
    let (_, key) = world.key(|new| new.limits.streams = Some(1)).await;
    let start = json!({"workflow": "single", "input": {"value": "v"}});
    let started = world.request(Method::POST, "/api/v1/executions").bearer_auth(&key).json(&start);
    let started: Value = started.send().await.unwrap().json().await.unwrap();
    let path = format!("/api/v1/executions/{}/events", started["execution"].as_str().unwrap());
    let open = async || {
        let request =
            world.request(Method::GET, &path).bearer_auth(&key).header("Accept", "text/event-stream");
        request.send().await.unwrap()
    };
    let first = open().await;
    assert_eq!(first.status(), 200);
    let second = open().await;
    assert_eq!(second.status(), 429);
    assert_eq!(second.json::<Value>().await.unwrap()["code"], "SINEW-9017");
    drop(first);
    let again = async { while open().await.status() != 200 {} };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    go_on.notify_one();
    gateway.drain().await;
    world.end().await;
}

#[tokio::test]
async fn people_sign_in_by_key_and_readers_change_nothing() {
    let world = closed_world(&[("single", SINGLE)]).await;
    let (_, reader) = world.key(|new| (new.name, new.role) = ("rita".to_owned(), AccessRole::Operator)).await;
    let (_, writer) = world.key(|new| new.name = "walt".to_owned()).await;
    let http = reqwest::Client::builder().redirect(redirect::Policy::none()).build().unwrap();
    let get = async |path: &str, cookie: &str| {
        http.get(format!("{}{path}", world.base)).header("Cookie", cookie).send().await.unwrap()
    };
    for (path, address) in [
        ("/", "/console/sign-in"),
        ("/console", "/console/sign-in"),
        (
            "/console/executions?status=failed",
            "/console/sign-in?next=%2Fconsole%2Fexecutions%3Fstatus%3Dfailed",
        ),
        ("/console/sign-in/openid", "/console"),
    ] {
        let answer = get(path, "").await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["location"]),
            (303, &address.parse::<header::HeaderValue>().unwrap()),
            "{path}"
        );
    }
    assert_eq!(get("/console/sign-in", "").await.status(), 200);

    let sign_in = async |key: &str| {
        let page = get("/console/sign-in", "").await;
        let cookie = page.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let token = cookie.split_once('=').unwrap().1.to_owned();
        let form = http.post(format!("{}/console/sign-in", world.base)).header("Cookie", &cookie);
        let form = form
            .header("Origin", &world.base)
            .header("Content-Type", FORM)
            .body(format!("form_token={token}&key={key}"));
        (cookie, form.send().await.unwrap())
    };
    let (_, refused) = sign_in(&format!("sinew_{}_{}", "a".repeat(12), "b".repeat(32))).await;
    assert_eq!(refused.status(), 401);
    assert!(!refused.headers().contains_key("set-cookie"));

    for (key, name, may_change) in [(&reader, "rita", false), (&writer, "walt", true)] {
        let (form_cookie, answer) = sign_in(key).await;
        assert_eq!(answer.status(), 303);
        let set = answer.headers()["set-cookie"].to_str().unwrap();
        for flag in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
            assert!(set.contains(flag), "{set}");
        }
        assert!(!set.contains(key.as_str()), "the cookie does not hold the key");
        let session = set.split(';').next().unwrap().to_owned();
        let cookie = format!("{form_cookie}; {session}");
        assert_eq!(get("/console", &cookie).await.status(), 200);
        assert!(get("/console/sign-in", &cookie).await.text().await.unwrap().contains(name));
        assert_eq!(get("/api/v1/workflows", &cookie).await.status(), 200, "live pages read the API");
        let page = get("/console/workflows/single/start", &cookie).await.text().await.unwrap();
        // Every page has the form that signs out.
        assert_eq!(page.matches("<form").count() > 1, may_change, "{name}");
        let token = form_cookie.split_once('=').unwrap().1;
        let form =
            http.post(format!("{}/console/workflows/single/start", world.base)).header("Cookie", &cookie);
        let form = form
            .header("Origin", &world.base)
            .header("Content-Type", FORM)
            .body(format!("form_token={token}&input=%7B%22value%22%3A%22v%22%7D"));
        let status = form.send().await.unwrap().status();
        assert_eq!(status == 403, !may_change, "{name}: {status}");
        // A cookie alone starts nothing: a page elsewhere could have a browser send it.
        let start = http.post(format!("{}/api/v1/executions", world.base)).header("Cookie", &cookie);
        let start = start.json(&json!({"workflow": "single", "input": {"value": "v"}})).send().await.unwrap();
        assert_eq!(start.status(), 401);
        let forged = cookie.replace(&session, &session.replace('.', ".1"));
        assert_eq!(get("/console", &forged).await.status(), 303);
        // The first page offers the way out, to readers too.
        let pulse = get("/console", &cookie).await.text().await.unwrap();
        assert!(pulse.contains("action=\"/console/sign-out\"") && pulse.contains(name), "{pulse}");
        let form = http.post(format!("{}/console/sign-out", world.base)).header("Cookie", &cookie);
        let form = form.header("Origin", &world.base).header("Content-Type", FORM);
        let answer = form.body(format!("form_token={token}")).send().await.unwrap();
        assert_eq!(answer.status(), 303, "{name}");
        assert!(answer.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0;"), "{name}");
        assert_eq!(
            get("/console", &cookie).await.status(),
            303,
            "{name}: a copy of the cookie opens nothing"
        );
    }
    revoke_keys(&world.mesh, "walt", now()).await.unwrap();
    world.end().await;
}

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
struct LogCatcher(Arc<Mutex<String>>);

struct FieldWriter<'a>(&'a mut String);

impl tracing::field::Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl tracing::Subscriber for LogCatcher {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("sinew") {
            let mut log = self.0.lock().unwrap();
            event.record(&mut FieldWriter(&mut log));
            log.push('\n');
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn refusals_are_logged_without_secrets() {
    let catcher = LogCatcher::default();
    // Where there is one subscriber alone, a thread without one that meets a place of the code first turns it off for all.
    let _second = tracing::Dispatch::new(LogCatcher::default());
    let _guard = tracing::subscriber::set_default(catcher.clone());
    let world = closed_world(&[]).await;
    let (id, key) = world.key(|new| new.role = AccessRole::Operator).await;
    let wrong = format!("sinew_{}_{}", id, "z".repeat(32));
    let ask = async |path: &str, proof: String| {
        let request = world.request(Method::POST, path).header("Authorization", proof).json(&json!({}));
        request.send().await.unwrap().status()
    };
    // A line a second for each kind, whoever is refused: other tests of this process share the
    // limit.
    let logged = |text: &str| catcher.0.lock().unwrap().lines().any(|line| line.contains(text));
    let refusals = [
        ("/api/v1/executions?secret=in-the-query", format!("Bearer {wrong}"), 401, "unknown key"),
        ("/api/v1/executions", "Basic dXNlcjpoaWRkZW4=".to_owned(), 401, "expected exactly one header"),
        ("/api/v1/executions", "Bearer eyJhbGciOiJub25lIn0.aGlkZGVu.aGlkZGVu".to_owned(), 401, "unknown key"),
        ("/api/v1/executions", format!("Bearer {key}"), 403, id.as_str()),
    ];
    let began = Instant::now();
    let mut sent = 0;
    for (path, proof, status, line) in refusals {
        while {
            sent += 1;
            ask(path, proof.clone()).await
        } == status
            && !logged(line)
        {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    let large =
        || world.request(Method::POST, "/api/v1/validations").bearer_auth(&key).body("x".repeat(2 << 20));
    while large().send().await.unwrap().status() == 413 && !logged("413") {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let log = catcher.0.lock().unwrap().clone();
    assert!(log.lines().any(|line| line.contains("/api/v1/validations") && line.contains("413")), "{log}");
    assert!(log.contains("/api/v1/executions"), "{log}");
    // A flood of refusals makes few lines, and the next line counts those that were left out.
    let before = log.lines().count();
    for _ in 0..300 {
        assert_eq!(ask("/api/v1/executions", format!("Bearer {wrong}")).await, 401);
    }
    sent += 300;
    let log = catcher.0.lock().unwrap().clone();
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    let lines = log.lines().skip(before).filter(|line| line.contains("rejected a request")).count();
    assert!(lines <= seconds, "{sent} refusals in {seconds} s made {lines} lines: {log}");
    for secret in
        [key.rsplit('_').next().unwrap(), &"z".repeat(32), "in-the-query", "dXNlcjpoaWRkZW4", "aGlkZGVu"]
    {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
    world.end().await;
}
