//! Executions that have ended, as cases: they run again in the workflow editor.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::Browser;
use super::pages::DeskClient;
use super::world::{CHAIN, ConsoleWorld};
use crate::support::review;

async fn case_of(world: &ConsoleWorld, query: &str) -> Value {
    let (status, _, text) = world.page(&format!("/api/v1/executions/{query}")).await;
    assert_eq!(status, StatusCode::OK, "{query}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Runs the test file of an execution beside the file of its workflow, and says how that went.
async fn replay(world: &ConsoleWorld, source: &str, case: &Value) -> Value {
    let body = json!({
        "name": case["workflow"], "text": source, "cases_name": "recorded.test.json", "cases": case.to_string(),
    });
    let request = world.mesh.http.post(format!("{}/api/v1/tests", world.mesh.base)).json(&body);
    request.send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn what_an_execution_saw_happens_again_as_a_case() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let failed = case_of(&world, "bad/case").await;
    assert_eq!(failed["cases"][0]["expect"]["status"], "failed", "{failed}");
    let told = replay(&world, CHAIN, &failed).await;
    assert_eq!((&told["passed"], &told["failed"]), (&json!(1), &json!(0)), "{told}\n{failed}");
    // A case that passes whatever happens would prove nothing.
    let mut other = failed.clone();
    other["cases"][0]["nodes"]["ship"] = json!({ "output": { "value": "gone" } });
    assert_eq!(replay(&world, CHAIN, &other).await["failed"], 1);

    // One node alone, and an execution that an operator retried.
    let node = case_of(&world, "bad/case?node=check").await;
    assert_eq!(
        node["cases"][0]["expect"]["nodes"]["check"]["output"],
        json!({"value": "an order"}),
        "{node}"
    );
    assert_eq!(replay(&world, CHAIN, &node).await["passed"], 1);
    let (status, ..) = world.page("/api/v1/executions/bad/case?node=nowhere").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    world.mend();
    let retry =
        world.mesh.http.post(format!("{}/api/v1/executions/bad/retry", world.mesh.base)).json(&json!({}));
    assert!(retry.send().await.unwrap().status().is_success());
    world.reaches("bad", "succeeded").await;
    let retried = case_of(&world, "bad/case").await;
    assert_eq!(retried["cases"][0]["signals"][0]["retry"], json!(["ship"]), "{retried}");
    let told = replay(&world, CHAIN, &retried).await;
    assert_eq!(told["passed"], 1, "{told}\n{retried}");

    // An execution that goes on is not a case; one that a person decided is.
    let (status, ..) = world.page("/api/v1/executions/asks/case").await;
    assert_eq!(status, StatusCode::CONFLICT);
    let decision = json!({"decision": "approve", "comment": "well"});
    let decide =
        world.mesh.http.post(format!("{}/api/v1/executions/asks/decisions", world.mesh.base)).json(&decision);
    let answer = decide.send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    world.reaches("asks", "succeeded").await;
    let decided = case_of(&world, "asks/case").await;
    assert_eq!(decided["cases"][0]["signals"].as_array().unwrap().len(), 1, "{decided}");
    let told = replay(&world, &review(), &decided).await;
    assert_eq!(told["passed"], 1, "{told}\n{decided}");
    world.end().await;
}

#[tokio::test]
async fn a_case_goes_from_a_node_to_the_desk_and_times_to_a_spreadsheet() {
    let world = ConsoleWorld::new().await;
    world.deploy("chain-again.yaml", CHAIN).await;
    world.start("chain-again", "broken", &json!({"value": "<b>x</b>"})).await;
    world.reaches("broken", "failed").await;
    let (_, _, page) = world.page("/console/executions/broken/case?node=ship").await;
    for one in [
        "sinew execution export broken --case --node ship",
        "&lt;b&gt;x&lt;/b&gt;",
        "data-copy",
        "chain-again.yaml",
    ] {
        assert!(page.contains(one), "{one:?} is not in {page}");
    }
    let (_, _, page) = world.page("/console/executions/broken/data").await;
    assert!(page.contains("href=\"/console/executions/broken/case\""), "{page}");
    // The editor opens with the file of the workflow and the case, and both fit.
    let (_, _, page) = world.page("/console/desk?execution=broken").await;
    assert!(page.contains("value=\"chain-again.yaml\"") && page.contains("as in broken"), "{page}");
    let case = case_of(&world, "broken/case").await.to_string();
    let desk = DeskClient::open(&world).await;
    let told =
        desk.send(&[("name", "chain-again.yaml"), ("text", CHAIN), ("work", "test"), ("cases", &case)]).await;
    assert!(told.contains("1 passed, 0 failed"), "{told}");

    let (status, headers, csv) = world.page("/api/v1/executions/broken/timeline?format=csv").await;
    assert_eq!(
        (status, headers["content-type"].to_str().unwrap()),
        (StatusCode::OK, "text/csv; charset=utf-8")
    );
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "node,status,critical,kind,attempt,from_ms,to_ms");
    assert!(lines.iter().any(|line| line.starts_with("\"ship\",failed,true,agent")), "{csv}");
    let (_, _, page) = world.page("/console/executions/broken/timeline").await;
    assert!(page.contains("format=csv") && page.contains("sinew execution timeline broken --csv"), "{page}");

    let Some(browser) = Browser::start().await else { return world.end().await };
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/executions/broken?node=ship", world.mesh.base)).await;
    browser.click("[data-part=node] a[href*='/case?node=ship']").await;
    browser.wait_until("location.pathname.endsWith('/case')").await;
    browser.wait_until("!document.querySelector('[data-copy]').hidden").await;
    browser.click("a[href*='/console/desk?execution=broken']").await;
    browser.wait_until("document.documentElement.dataset.editor === 'ready'").await;
    browser.click("button[value=test]").await;
    browser.wait_for_text("1 passed, 0 failed").await;
    browser.save_picture("desk-recorded-case").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}
