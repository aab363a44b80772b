//! The REST API: what a client reads, what it starts and steers, and what is refused.

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use sinew_agent::{Agent, Failure};

use crate::api_answers::check_answer;
use crate::support::{GatewayWorld, PATIENCE, SINGLE, above_review, review};

/// A request with a JSON body; gives status and document.
async fn ask(world: &GatewayWorld, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
    let request = world.http.request(method.clone(), format!("{}/api/v1{path}", world.base));
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    let method_and_path = (method, format!("/api/v1{path}"));
    document(&method_and_path, request.send().await.unwrap()).await
}

/// Status and document of an answer, which is one that the OpenAPI document describes.
async fn document((method, path): &(Method, String), answer: Response) -> (StatusCode, Value) {
    let status = answer.status();
    let media_type =
        answer.headers().get("content-type").map_or("", |value| value.to_str().unwrap()).to_owned();
    let text = answer.text().await.unwrap();
    check_answer(method, path, status, &media_type, &text);
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{status} {error}: {text}")))
}

async fn get(world: &GatewayWorld, path: &str) -> Value {
    let (status, document) = ask(world, Method::GET, path, None).await;
    assert_eq!(status, StatusCode::OK, "{path}: {document}");
    document
}

async fn post(world: &GatewayWorld, path: &str, body: Value) -> Value {
    let (status, document) = ask(world, Method::POST, path, Some(body)).await;
    assert!(status.is_success(), "{path}: {status} {document}");
    document
}

/// Server-sent events of an execution behind a place, until it has ended: their ids and data.
async fn stream(world: &GatewayWorld, id: &str, last: Option<&str>) -> Vec<(String, Value)> {
    let request = world.http.get(format!("{}/api/v1/executions/{id}/events", world.base));
    let request = request.header("accept", "text/event-stream");
    let request = match last {
        Some(last) => request.header("last-event-id", last),
        None => request,
    };
    let text = request.send().await.unwrap().text().await.unwrap();
    assert!(text.contains("event: end\ndata: {}\n\n"), "{text}");
    let block = |block: &str| {
        let id = block.lines().find_map(|line| line.strip_prefix("id: "))?;
        let data = block.lines().find_map(|line| line.strip_prefix("data: "))?;
        Some((id.to_owned(), serde_json::from_str(data).unwrap()))
    };
    text.split("\n\n").filter_map(block).collect()
}

#[tokio::test]
async fn an_execution_is_started_followed_and_read() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let body =
        json!({"workflow": "single", "input": {"value": "hello"}, "id": "first", "labels": {"team": "a"}});
    let (status, started) = ask(&world, Method::POST, "/executions", Some(body.clone())).await;
    assert_eq!((status, &started["execution"]), (StatusCode::CREATED, &json!("first")), "{started}");

    let all = stream(&world, "first", None).await;
    assert_eq!(all.first().unwrap().1["type"], "workflow_execution_start", "{all:?}");
    assert_eq!(all.last().unwrap().1["type"], "workflow_execution_result", "{all:?}");
    // From every place the rest comes, without gap or repeat.
    for at in 0..all.len() {
        let rest = stream(&world, "first", Some(&all[at].0)).await;
        assert_eq!(rest, all[at + 1..], "behind {}", all[at].0);
    }
    let page = get(&world, "/executions/first/events?limit=2").await;
    assert_eq!((page["events"].as_array().unwrap().len(), &page["next"]), (2, &json!(all[1].0)), "{page}");
    let rest = get(&world, &format!("/executions/first/events?after={}", all[1].0)).await;
    assert_eq!((rest["events"].as_array().unwrap().len(), &rest["next"]), (all.len() - 2, &Value::Null));

    let (status, again) = ask(&world, Method::POST, "/executions", Some(body)).await;
    assert_eq!((status, &again["new"]), (StatusCode::OK, &json!(false)), "{again}");
    // Another start under a known id, and an id that only a key may make.
    for (id, code) in [("first", "SINEW-6041"), (&*"d".repeat(32), "SINEW-6063")] {
        let other = json!({"workflow": "single", "input": {"value": "other"}, "id": id});
        let (status, problem) = ask(&world, Method::POST, "/executions", Some(other)).await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        assert!(problem.to_string().contains(code), "{problem}");
    }
    let result = get(&world, "/executions/first/result").await;
    assert_eq!(
        (&result["status"], &result["output"]),
        (&json!("succeeded"), &json!({"value": "hello"})),
        "{result}"
    );
    let described = get(&world, "/executions/@latest").await;
    assert_eq!(described["execution"], "first", "{described}");
    assert_eq!(get(&world, "/executions/first/tree").await[0]["label"], "a");
    let node = get(&world, "/executions/first/node?name=a").await;
    assert_eq!(node["input"], json!({"value": "hello"}), "{node}");
    assert!(get(&world, "/executions/first/record").await.to_string().contains("hello"));
    assert!(!get(&world, "/executions/first/record?redact=true").await.to_string().contains("hello"));
    assert!(get(&world, "/executions/first/artifacts").await.is_array());
    world.end().await;
}

#[tokio::test]
async fn a_start_that_no_executor_has_begun_is_stored_and_begun_later() {
    let mut world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    world.end_executor().await;
    let body = json!({"workflow": "single", "input": {"value": "hello"}, "id": "early"});
    let (status, started) = ask(&world, Method::POST, "/executions", Some(body.clone())).await;
    assert_eq!(
        (status, &started["execution"], &started["new"]),
        (StatusCode::ACCEPTED, &json!("early"), &json!(true)),
        "{started}"
    );
    world.begin_executor().await;
    let begun = async {
        loop {
            let (status, again) = ask(&world, Method::POST, "/executions", Some(body.clone())).await;
            assert_eq!(again["new"], false, "{again}");
            if status == StatusCode::OK {
                return;
            }
            assert_eq!(status, StatusCode::ACCEPTED, "{again}");
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.unwrap();
    stream(&world, "early", None).await;
    assert_eq!(get(&world, "/executions/early/result").await["status"], "succeeded");
    world.end().await;
}

#[tokio::test]
async fn model_calls_of_results_and_failures_are_told() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let agent = Agent::dynamic("one", None, None, |input: Value, context| async move {
        let usage =
            json!({"turns": 2, "input_tokens": 40, "output_tokens": 7, "cost_usd": 0.25, "cumulative": true});
        context.usage(usage);
        if input["value"] == "bad" { Err(Failure::new("spent").for_good()) } else { Ok(input) }
    });
    world.serve(agent).await;
    for (id, value) in [("good", "hello"), ("failed", "bad")] {
        post(&world, "/executions", json!({"workflow": "single", "input": {"value": value}, "id": id})).await;
        stream(&world, id, None).await;
        let described = get(&world, &format!("/executions/{id}")).await;
        let model = &described["models"][0];
        assert_eq!((&model["node"], &model["turns"]), (&json!("a"), &json!(2)), "{described}");
        assert_eq!((&model["input_tokens"], &model["cost_usd"]), (&json!(40), &json!(0.25)), "{described}");
    }
    let listed = get(&world, "/executions").await;
    for row in listed["executions"].as_array().unwrap() {
        let used = &row["usage"];
        let told = ["turns", "input_tokens", "output_tokens", "cost_usd"].map(|key| used[key].clone());
        assert_eq!(told, [json!(2), json!(40), json!(7), json!(0.25)], "{listed}");
    }
    assert_eq!(listed["executions"].as_array().unwrap().len(), 2, "{listed}");
    world.end().await;
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    for n in 0..5 {
        let body = json!({"workflow": "single", "input": {"value": "x"}, "id": format!("e{n}"), "labels": {"n": n.to_string()}});
        post(&world, "/executions", body).await;
        stream(&world, &format!("e{n}"), None).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        let rows = page["executions"].as_array().unwrap();
        rows.iter().map(|row| row["execution"].as_str().unwrap().to_owned()).collect()
    };
    let mut seen = Vec::new();
    let mut path = "/executions?limit=2".to_owned();
    loop {
        let page = get(&world, &path).await;
        seen.extend(ids(&page));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/executions?limit=2&cursor={next}");
    }
    assert_eq!(seen, ["e4", "e3", "e2", "e1", "e0"]);
    assert_eq!(ids(&get(&world, "/executions?label=n=3").await), ["e3"]);
    assert_eq!(ids(&get(&world, "/executions?status=failed,running").await), [""; 0]);
    assert_eq!(ids(&get(&world, "/executions?status=succeeded&workflow=single&limit=1").await), ["e4"]);
    world.end().await;
}

#[tokio::test]
async fn what_failed_is_retried_after_a_preview() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let is_first = std::sync::Arc::new(is_first);
    world
        .serve(Agent::dynamic("one", None, None, move |input, _| {
            let fails = is_first.swap(false, std::sync::atomic::Ordering::SeqCst);
            async move { if fails { Err(Failure::new("no").for_good()) } else { Ok(input) } }
        }))
        .await;
    post(&world, "/executions", json!({"workflow": "single", "input": {"value": "x"}, "id": "one"})).await;
    stream(&world, "one", None).await;
    let result = get(&world, "/executions/one/result").await;
    assert_eq!(
        (&result["status"], result["error"]["message"].is_string()),
        (&json!("failed"), true),
        "{result}"
    );
    let preview = post(&world, "/executions/one/retry", json!({"dry_run": true})).await;
    assert_eq!(preview["rerun"], json!({"a": 0}), "{preview}");
    assert_eq!(get(&world, "/executions/one/result").await["status"], "failed", "a preview changes nothing");
    let retried = post(&world, "/executions/one/retry", json!({"reason": "again"})).await;
    assert_eq!(retried["execution"], "one");
    stream(&world, "one", None).await;
    assert_eq!(get(&world, "/executions/one/result").await["output"], json!({"value": "x"}));
    let forked = post(&world, "/executions/one/fork", json!({"outputs": {"a": {"value": "other"}}})).await;
    assert_eq!(forked["fork_of"], "one", "{forked}");
    let fork = forked["execution"].as_str().unwrap();
    stream(&world, fork, None).await;
    assert_eq!(get(&world, &format!("/executions/{fork}/result")).await["output"], json!({"value": "other"}));
    world.end().await;
}

#[tokio::test]
async fn a_person_decides_and_an_operator_steers() {
    let review = review();
    let world = GatewayWorld::new(&[("review", &review)]).await;
    for id in ["yes", "no", "over"] {
        post(&world, "/executions", json!({"workflow": "review", "input": {"amount": 7}, "id": id})).await;
    }
    let waiting = async {
        loop {
            let all = get(&world, "/approvals?workflow=review").await;
            if all.as_array().unwrap().len() == 3 {
                break all;
            }
        }
    };
    let waiting = waiting.await;
    assert_eq!(waiting[0]["question"]["prompt"], "Is this right?", "{waiting}");
    // Oldest first, each with the data to judge it by; counted without reading them.
    let since: Vec<_> =
        waiting.as_array().unwrap().iter().map(|row| row["since"].as_str().unwrap()).collect();
    assert!(since.is_sorted(), "{waiting}");
    assert_eq!(waiting[0]["review"]["amount"], 7, "{waiting}");
    assert_eq!(get(&world, "/approval-count").await, json!({"open": 3}));
    for (condition, count) in
        [("amount%3C10", 3), ("amount%3E%3D10", 0), ("amount%3D7%20and%20execution%3Dno", 1)]
    {
        let rows = get(&world, &format!("/approvals?where={condition}")).await;
        assert_eq!(rows.as_array().unwrap().len(), count, "{condition}: {rows}");
    }
    let (status, refused) = ask(&world, Method::GET, "/approvals?where=amount", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert_eq!(get(&world, "/executions/yes/approval").await["decisions"], json!([]));
    let (status, refused) =
        ask(&world, Method::POST, "/executions/no/decisions", Some(json!({"decision": "reject"}))).await;
    assert_eq!((status, &refused["code"]), (StatusCode::BAD_REQUEST, &json!("SINEW-9011")), "{refused}");
    let decided =
        post(&world, "/executions/yes/decisions", json!({"decision": "approve", "comment": "fine"})).await;
    assert_eq!((&decided["status"], &decided["by"]), (&json!("approved"), &json!("gateway")), "{decided}");
    let decided =
        post(&world, "/executions/no/decisions", json!({"decision": "reject", "comment": "wrong"})).await;
    assert_eq!(decided["status"], "rejected");
    let again =
        ask(&world, Method::POST, "/executions/yes/decisions", Some(json!({"decision": "approve"}))).await;
    assert_eq!(again.0, StatusCode::CONFLICT, "{}", again.1);
    let said = again.1["detail"].as_str().unwrap();
    assert!(said.contains("approved by gateway at 20") && said.ends_with("(fine)"), "{said}");
    for (verb, status) in [("pause", "paused"), ("resume", "resumed"), ("cancel", "cancelled")] {
        let body = if verb == "resume" { json!({}) } else { json!({"reason": "lunch"}) };
        let told = post(&world, &format!("/executions/over/{verb}"), body).await;
        assert_eq!(told, json!({"execution": "over", "status": status}));
    }
    stream(&world, "over", None).await;
    let (status, refused) = ask(&world, Method::POST, "/executions/over/cancel", None).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    world.end().await;
}

#[tokio::test]
async fn a_question_below_is_shown_and_answered_above() {
    let (review, above) = (review(), above_review());
    let world = GatewayWorld::new(&[("review", &review), ("above", &above)]).await;
    post(&world, "/executions", json!({"workflow": "above", "input": {}, "id": "top"})).await;
    let shown = async {
        loop {
            let shown = get(&world, "/executions/top").await;
            if shown["status"] == "waiting" {
                break shown;
            }
        }
    };
    let shown = shown.await;
    let wait = &shown["waiting"][0];
    assert_eq!((&wait["for"], &wait["node"]), (&json!("person"), &json!("k")), "{shown}");
    assert_eq!(wait["question"]["prompt"], "Is this right?", "{shown}");
    assert_eq!(wait["asked_in"]["workflow"], "review", "{shown}");
    let leaf = wait["asked_in"]["execution"].as_str().unwrap().to_owned();
    let rows = get(&world, "/executions?status=waiting").await;
    let waiting: Vec<_> = rows["executions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["workflow"].as_str().unwrap(), row["waiting"].as_str().unwrap().to_owned()))
        .collect();
    let place = format!("a person: Is this right? (in review {})", &leaf[..10]);
    assert!(waiting.contains(&("above", place)), "{rows}");
    // The question is listed once, where it is asked, with its path.
    let all = get(&world, "/approvals").await;
    assert_eq!(all.as_array().unwrap().len(), 1, "{all}");
    assert_eq!((&all[0]["execution"], &all[0]["path"]), (&json!(leaf), &json!(["above"])), "{all}");
    assert_eq!(get(&world, "/executions/top/approval").await["execution"], json!(leaf));
    let decided = post(&world, "/executions/top/decisions", json!({"decision": "approve"})).await;
    assert_eq!((&decided["execution"], &decided["status"]), (&json!(leaf), &json!("approved")), "{decided}");
    stream(&world, "top", None).await;
    assert_eq!(get(&world, "/executions/top").await["status"], "succeeded");
    let again =
        ask(&world, Method::POST, "/executions/top/decisions", Some(json!({"decision": "approve"}))).await;
    assert_eq!(again.0, StatusCode::CONFLICT, "{}", again.1);
    assert!(again.1["detail"].as_str().unwrap().contains("approved by gateway at 20"), "{}", again.1);
    world.end().await;
}

#[tokio::test]
async fn workflows_are_checked_deployed_drawn_and_removed() {
    let world = GatewayWorld::new(&[]).await;
    let send = async |path: &str, text: &str| {
        let path = format!("/api/v1{path}");
        let request = world.http.post(format!("{}{path}", world.base)).body(text.to_owned());
        document(&(Method::POST, path), request.send().await.unwrap()).await
    };
    let (status, found) =
        send("/validations?name=w.yaml", &SINGLE.replace("type: agent", "type: agnet")).await;
    assert_eq!((status, &found["errors"]), (StatusCode::OK, &json!(1)), "{found}");
    assert_eq!(found["diagnostics"][0]["file"], "w.yaml", "{found}");
    let (status, refused) = send("/workflows?name=w.yaml", "workflow: 1").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    assert!(refused["findings"].is_array(), "{refused}");
    // Files of the gateway's machine are not for its clients.
    for text in ["!include /etc/hostname\n", "workflow: !include ../../Cargo.toml\n"] {
        let (_, found) = send("/validations", text).await;
        assert!(found["errors"].as_u64() >= Some(1), "{text}: {found}");
    }
    let (status, deployed) = send("/workflows?name=single.yaml", SINGLE).await;
    assert_eq!((status, &deployed[0]["name"]), (StatusCode::CREATED, &json!("single")), "{deployed}");
    let (status, again) = send("/workflows?name=single.yaml", SINGLE).await;
    assert_eq!((status, &again[0]["new"]), (StatusCode::OK, &json!(false)), "{again}");
    let listed = async {
        loop {
            let all = get(&world, "/workflows").await;
            if let Some(row) = all.get(0) {
                break row.clone();
            }
        }
    };
    assert_eq!(listed.await["name"], "single");
    assert_eq!(get(&world, "/workflows/single").await["nodes"][0]["id"], "a");
    assert_eq!(get(&world, "/workflows/single/versions").await[0]["version"], deployed[0]["version"]);
    assert_eq!(get(&world, "/tools").await[0]["workflow"], "single");
    for (query, media_type, begin) in
        [("", "image/svg+xml", "<svg"), ("?format=mermaid", "text/vnd.mermaid; charset=utf-8", "graph TD")]
    {
        let url = format!("{}/api/v1/workflows/single/drawing{query}", world.base);
        let answer = world.http.get(url).send().await.unwrap();
        assert_eq!(
            (answer.status(), answer.headers()["content-type"].to_str().unwrap()),
            (StatusCode::OK, media_type)
        );
        let text = answer.text().await.unwrap();
        assert!(text.contains(begin), "{text}");
    }
    let (_, removed) = ask(&world, Method::DELETE, "/workflows/single?dry_run=true", None).await;
    assert_eq!(removed["status"], "would delete", "{removed}");
    let (_, removed) = ask(&world, Method::DELETE, "/workflows/single", None).await;
    assert_eq!(removed["status"], "deleted", "{removed}");
    world.end().await;
}

#[tokio::test]
async fn the_mesh_and_its_agents_are_shown() {
    let world = GatewayWorld::new(&[]).await;
    world.serve_echo().await;
    let agents = get(&world, "/agents").await;
    assert_eq!((&agents[0]["name"], &agents[0]["kind"]), (&json!("one"), &json!("agent")), "{agents}");
    assert_eq!(get(&world, "/agents/one").await["name"], "one");
    let pulse = get(&world, "/pulse").await;
    assert_eq!((&pulse["shards"], &pulse["owned"]), (&json!(2), &json!(2)), "{pulse}");
    assert_eq!(get(&world, "/openapi.json").await["openapi"], "3.1.0");
    world.end().await;
}

#[tokio::test]
async fn a_gateway_that_offers_a_part_of_the_mesh_has_no_api() {
    let world =
        GatewayWorld::with(&[("single", SINGLE)], |options| options.expose = vec!["single".to_owned()]).await;
    for (method, path) in
        [(Method::GET, "/executions"), (Method::POST, "/executions"), (Method::GET, "/openapi.json")]
    {
        let (status, problem) = ask(&world, method, path, None).await;
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::NOT_FOUND, &json!("SINEW-9003")),
            "{path}: {problem}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn wrong_requests_are_refused_and_nothing_is_stored() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let json_type = "application/json";
    let cases: &[(&str, &str, &str, &str, u16, &str)] = &[
        ("GET", "/executions/unknown", "", "", 404, "SINEW-8020"),
        ("GET", "/executions?state=failed", "", "", 400, "SINEW-9011"),
        ("GET", "/executions?status=broken", "", "", 400, "SINEW-9011"),
        ("GET", "/executions?limit=many", "", "", 400, "SINEW-9011"),
        ("GET", "/executions?limit=0", "", "", 400, "SINEW-9011"),
        ("GET", "/executions?cursor=x", "", "", 400, "SINEW-9011"),
        ("GET", "/workflows/unknown", "", "", 404, ""),
        ("GET", "/agents/unknown", "", "", 404, ""),
        ("GET", "/nothing", "", "", 404, "SINEW-9003"),
        ("PUT", "/executions", json_type, "{}", 405, "SINEW-9003"),
        ("GET", "/executions/%FF", "", "", 404, "SINEW-9003"),
        ("POST", "/executions", "text/plain", "{}", 415, "SINEW-9011"),
        ("POST", "/executions", json_type, "{", 400, "SINEW-9011"),
        ("POST", "/executions", json_type, "[]", 400, "SINEW-9011"),
        ("POST", "/executions", json_type, r#"{"workflow":"single","workflow":"other"}"#, 400, "SINEW-9011"),
        ("POST", "/executions", json_type, r#"{"workflow":"single","unknown":1}"#, 400, "SINEW-9011"),
        ("POST", "/executions", json_type, r#"{"workflow":"unknown"}"#, 404, ""),
        ("POST", "/executions", json_type, r#"{"workflow":"single","input":{"value":1}}"#, 400, ""),
        (
            "POST",
            "/executions",
            json_type,
            r#"{"workflow":"single","input":{"value":"x"},"id":"../x"}"#,
            400,
            "SINEW-9011",
        ),
        (
            "POST",
            "/executions",
            json_type,
            r#"{"workflow":"single","input":{"value":"x"},"id":"a","idempotency_key":"b"}"#,
            400,
            "SINEW-9011",
        ),
        (
            "POST",
            "/executions",
            json_type,
            r#"{"workflow":"single","input":{"value":"x"},"idempotency_key":""}"#,
            400,
            "SINEW-9011",
        ),
        (
            "POST",
            "/executions",
            json_type,
            r#"{"workflow":"single","input":{"value":"x"},"id":""}"#,
            400,
            "SINEW-9011",
        ),
        ("POST", "/executions/unknown/cancel", json_type, "{}", 404, ""),
        ("POST", "/validations?name=../x", "text/plain", "a: 1", 400, "SINEW-9011"),
        // Without a name in the file or beside it, every such file would be a version of one workflow.
        ("POST", "/workflows", "text/plain", SINGLE, 400, "SINEW-9011"),
        ("POST", "/workflows?dialect=klingon", "text/plain", "workflow: {}", 400, ""),
    ];
    for (method, path, media_type, body, status, code) in cases {
        let url = format!("{}/api/v1{path}", world.base);
        let method_and_path = (method.parse::<Method>().unwrap(), format!("/api/v1{path}"));
        let mut request = world.http.request(method_and_path.0.clone(), url).body((*body).to_owned());
        if !media_type.is_empty() {
            request = request.header("content-type", *media_type);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{method} {path} {body}");
        let (found, problem) = document(&method_and_path, answer).await;
        assert_eq!(found.as_u16(), *status, "{method} {path} {body}: {problem}");
        assert!(code.is_empty() || problem["code"] == *code, "{method} {path} {body}: {problem}");
        assert!(problem["code"].as_str().unwrap().starts_with("SINEW-"), "{problem}");
    }
    let huge = "x".repeat(40 << 20);
    let request = world.http.post(format!("{}/api/v1/validations", world.base)).body(huge);
    if let Ok(answer) = request.send().await {
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert_eq!(world.executions().await, 0);
    world.end().await;
}
