//! A retry with the version that an execution was started with, or with the newest.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::Browser;
use super::world::{CHAIN, ConsoleWorld};

async fn retry(world: &ConsoleWorld, body: Value) -> (StatusCode, Value) {
    let address = format!("{}/api/v1/executions/bad/retry", world.mesh.base);
    let answer = world.mesh.http.post(address).json(&body).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

#[tokio::test]
async fn a_retry_may_take_the_newest_version() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let (_, same) = retry(&world, json!({"dry_run": true})).await;
    assert_eq!((&same["latest"], &same["new_execution"]), (&Value::Null, &Value::Null), "{same}");
    let (_, _, page) = world.page("/console/executions/bad/retry").await;
    assert!(!page.contains("Newest version"), "{page}");
    // The version that it was started with is the newest one: the same execution would go on.
    let (_, latest) = retry(&world, json!({"dry_run": true, "workflow_version": "latest"})).await;
    assert_eq!(latest, same);

    // Another agent ships, and one more node is asked.
    let mended = CHAIN.replace("agent_name: shipper", "agent_name: one").replace(
        "  output_mapping",
        "    - {id: thank, type: agent, agent_name: one, depends_on: [invoice], input: {value: \"thanks\"}}\n  output_mapping",
    );
    world.deploy("chain", &mended).await;
    let (_, same) = retry(&world, json!({"dry_run": true})).await;
    let newest = same["latest"].as_str().unwrap().to_owned();
    assert_ne!(same["version"], newest);
    let (status, latest) = retry(&world, json!({"dry_run": true, "workflow_version": "latest"})).await;
    assert_eq!(status, StatusCode::OK);
    for (member, expected) in [
        ("version", json!(newest)),
        ("started_with", same["version"].clone()),
        ("keep", json!(["check"])),
        ("rerun", json!({})),
        ("changed", json!(["ship"])),
        ("added", json!(["thank"])),
        ("removed", json!([])),
        ("reset", json!(["invoice"])),
    ] {
        assert_eq!(latest[member], expected, "{member}: {latest}");
    }
    // A new execution has no place for these.
    for (member, value) in [("nodes", json!(["ship"])), ("input", json!({})), ("reason", json!("why"))] {
        let (status, refused) = retry(&world, json!({"workflow_version": "latest", member: value})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{member}: {refused}");
    }

    let Some(browser) = Browser::start().await else { return };
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/executions/bad/retry", world.mesh.base)).await;
    browser.click(".chips a[href$='version=latest']").await;
    browser.wait_until("document.querySelector('.preview')?.innerText.includes('thank')").await;
    browser.save_picture("retry-latest").await;
    browser.wait_for_text("sinew execution retry bad --workflow-version latest").await;
    browser.click(".steer button.primary").await;
    browser.wait_until("/executions\\/(?!bad)[^/]+$/.test(location.pathname)").await;
    browser.wait_until("document.querySelector('h1 .status').textContent.includes('succeeded')").await;
    // The new execution leads back to the old one, which stays as it was.
    browser.click(".facts a[href='/console/executions/bad']").await;
    browser.wait_until("document.querySelector('h1 .status').textContent.includes('failed')").await;
    let list = format!("{}/api/v1/executions?label=retry_of%3Dbad", world.mesh.base);
    let list: Value = world.mesh.http.get(list).send().await.unwrap().json().await.unwrap();
    let new = list["executions"][0]["execution"].as_str().unwrap();
    let (_, _, tree) = world.page(&format!("/api/v1/executions/{new}/tree")).await;
    let tree: Value = serde_json::from_str(&tree).unwrap();
    assert_eq!(
        (&tree[0]["node"], &tree[0]["message"]),
        (&json!("check"), &json!("output provided, not run"))
    );
    assert_eq!((&tree[3]["node"], &tree[3]["status"]), (&json!("thank"), &json!("succeeded")), "{tree}");
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}
