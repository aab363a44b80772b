//! Pages that tell of agents, artifacts, traffic and the mesh itself, over plain HTTP.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::world::{ConsoleWorld, ODD_NAME, PICTURE, PRINTING};

/// A loop that goes round three times.
const LOOPING: &str = r#"
workflow:
  description: Goes round
  input_schema: {type: object}
  nodes:
    - {id: again, type: loop, node: body, condition: "{{body.output.value}} == 'on'", max_iterations: 3}
    - {id: body, type: agent, agent_name: one, input: {value: "on"}}
  output_mapping: {value: "done"}
"#;

async fn check(world: &ConsoleWorld, path: &str, wanted: &[&str]) -> String {
    let (status, _, page) = world.page(path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {page}");
    for one in wanted {
        assert!(page.contains(one), "{path}: {one:?} is not in {page}");
    }
    page
}

async fn document(world: &ConsoleWorld, path: &str) -> Value {
    serde_json::from_str(&world.page(path).await.2).unwrap()
}

#[tokio::test]
async fn agents_traffic_and_the_mesh_tell_their_figures() {
    let world = ConsoleWorld::new().await;
    // The first look begins to gather.
    let first = document(&world, "/api/v1/traffic/figures").await;
    assert_eq!(first["latencies"], json!([]));
    world.fill().await;
    check(
        &world,
        "/console/executions/bad/agents",
        &["Agents of the execution", ">shipper</a>", "the truck broke down", "Last error of", "online"],
    )
    .await;
    let work = document(&world, "/api/v1/executions/bad/agents").await;
    let row = work.as_array().unwrap().iter().find(|row| row["agent"] == "shipper").unwrap();
    assert_eq!(
        (&row["nodes"], &row["failed"], &row["open"]),
        (&json!(["ship"]), &row["tasks"], &json!(0)),
        "{work}"
    );
    check(
        &world,
        "/console/agents/shipper",
        &["Processes", "<td>tasks</td>", "Last errors", "the truck broke down", ">bad</a>"],
    )
    .await;
    let processes = document(&world, "/api/v1/agents/shipper/processes").await;
    assert_eq!(processes[0]["tasks"]["errors"], row["failed"], "{processes}");
    assert!(processes[0]["tasks"]["last_error"].as_str().unwrap().starts_with("SINEW-"), "{processes}");
    check(
        &world,
        "/console/help?text=shard",
        &["id=\"glossary\"", "a fixed partition of the executions", "id=\"doctor\"", "nats-server"],
    )
    .await;
    check(&world, "/console/help", &["<td>streams</td>", "sinew doctor", "critical path"]).await;
    let checks = document(&world, "/api/v1/doctor").await;
    let states: Vec<&Value> = checks.as_array().unwrap().iter().map(|check| &check["check"]).collect();
    assert!(states.contains(&&json!("server")) && states.contains(&&json!("executors")), "{checks}");
    check(
        &world,
        "/console/traffic",
        &["Messages per second", "Node duration", "p95", "event.workflow_node_execution_start", ">one</td>"],
    )
    .await;
    let report = document(&world, "/api/v1/traffic/figures").await;
    let all = &report["latencies"][0];
    assert!(
        all["group"] == "all"
            && all["count"].as_u64().unwrap() >= 2
            && all["p99_ms"].as_u64() >= all["p50_ms"].as_u64(),
        "{report}"
    );
    world.deploy("looping.yaml", LOOPING).await;
    world.start("looping", "round", &json!({})).await;
    world.reaches("round", "succeeded").await;
    check(&world, "/console/executions/round", &["iteration 3"]).await;
    // A list is filtered by the server.
    let listed = check(&world, "/console/agents?text=SHIP", &[">shipper</a>", "value=\"SHIP\""]).await;
    assert!(!listed.contains("data-row><td><a href=\"/console/agents/one\""), "{listed}");
    let listed = check(&world, "/console/workflows?text=HAIN", &[">chain</a>"]).await;
    assert!(!listed.contains(">single</a>"), "{listed}");
    // A retry is an attempt more, beside the one before.
    world.mend();
    let retry =
        world.mesh.http.post(format!("{}/api/v1/executions/bad/retry", world.mesh.base)).json(&json!({}));
    assert!(retry.send().await.unwrap().status().is_success());
    world.reaches("bad", "succeeded").await;
    check(
        &world,
        "/console/executions/bad?node=ship",
        &["<h3>Attempts</h3>", "Same input as the previous attempt.", "succeeded"],
    )
    .await;
    world.end().await;
}

#[tokio::test]
async fn artifacts_are_shown_compared_and_traced() {
    let world = ConsoleWorld::new().await;
    world.serve_printer().await;
    world.deploy("printing.yaml", PRINTING).await;
    for (id, value) in [("first", "<b>one</b>"), ("second", "two")] {
        world.start("printing", id, &json!({ "value": value })).await;
        world.reaches(id, "succeeded").await;
    }
    let artifact = |id: &str, name: &str| format!("/console/executions/{id}/artifacts?artifact={name}");
    let text = check(
        &world,
        &artifact("first", "print%2Freport.md%3Av0"),
        &["&lt;b&gt;one&lt;/b&gt;", "Used by", "node=read", "sinew artifact get first"],
    )
    .await;
    assert!(!text.contains("<b>one"), "{text}");
    check(
        &world,
        &artifact("first", "print%2Ftable.csv%3Av0"),
        &["preview-table", "<th scope=\"col\">amount</th>", "<td>&lt;b&gt;one&lt;/b&gt;</td>", "1 row"],
    )
    .await;
    check(
        &world,
        &artifact("first", "print%2Fpicture.png%3Av0"),
        &["<img class=\"preview-image\"", "artifact-image?artifact="],
    )
    .await;
    // A picture is known by its bytes, not by its type; all else is not drawn.
    let (status, headers, _) =
        world.page("/console/executions/first/artifact-image?artifact=print%2Fpicture.png%3Av0").await;
    assert_eq!(
        (status, &headers["content-type"], &headers["x-content-type-options"]),
        (StatusCode::OK, &"image/png".parse().unwrap(), &"nosniff".parse().unwrap())
    );
    let (status, ..) =
        world.page("/console/executions/first/artifact-image?artifact=print%2Freport.md%3Av0").await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let uses = document(&world, "/api/v1/executions/first/artifact/uses?name=report.md").await;
    assert_eq!(
        uses["uses"],
        json!([{"execution": "first", "workflow": "printing", "node": "read", "attempt": 1}])
    );
    assert_eq!(uses["searched_executions"], 2);
    // Two of one name, side by side: the list is the server's, the difference one of lines.
    let all = check(&world, "/console/artifacts?name=report", &["report.md", "printing"]).await;
    assert!(!all.contains("table.csv"), "{all}");
    check(
        &world,
        "/console/artifacts?execution=first&artifact=print%2Freport.md%3Av0&with_execution=second&with=print%2Freport.md%3Av0",
        &["<h2>Changes</h2>", "is-removed", "two", "is-added", "&lt;b&gt;one&lt;/b&gt;", "Compare with:"],
    )
    .await;
    let odd =
        check(&world, "/console/executions/first/artifacts", &["&lt;img src=x onerror=alert(7)&gt;.txt"])
            .await;
    assert!(!odd.contains(ODD_NAME), "{odd}");

    // Files that come with a start are stored, and listed in the input; they are found where they are used.
    let body = json!({
        "workflow": "printing", "id": "given", "input": {"value": "x"},
        "files": [{"name": "point.png", "media_type": "image/png", "base64": data_encoding::BASE64URL_NOPAD.encode(PICTURE)}],
    });
    let start = world.mesh.http.post(format!("{}/api/v1/executions", world.mesh.base)).json(&body);
    let answer = start.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED, "{}", answer.text().await.unwrap());
    let ended = world.reaches("given", "succeeded").await;
    let file = &ended["input"]["files"][0];
    assert_eq!((&file["name"], &file["size"]), (&json!("point.png"), &json!(PICTURE.len())), "{ended}");
    assert_eq!(file["sha256"], sinew_protocol::artifact::sha256(PICTURE));
    let stored = world.mesh.mesh.artifacts().fetch(file["url"].as_str().unwrap()).await.unwrap();
    assert_eq!(&stored[..], PICTURE);
    for (files, input) in [
        (json!([{"name": "a/b", "base64": ""}]), json!({"value": "x"})),
        (json!([{"name": "a", "base64": "%"}]), json!({"value": "x"})),
        (json!([{"name": "a", "base64": ""}]), json!([1])),
    ] {
        let body = json!({"workflow": "printing", "input": input, "files": files});
        let start = world.mesh.http.post(format!("{}/api/v1/executions", world.mesh.base)).json(&body);
        assert_eq!(start.send().await.unwrap().status(), StatusCode::BAD_REQUEST, "{files}");
    }
    world.end().await;
}
