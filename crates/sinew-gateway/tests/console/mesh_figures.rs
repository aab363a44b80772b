//! Figures of workflows, versions and agents, and messages that were set aside.

use serde_json::{Value, json};
use sinew_mesh::HeaderMap;
use sinew_mesh::quarantine::SuspectMessage;
use sinew_protocol::ExecutionId;
use sinew_protocol::journal::ExecutionRecord;

use super::browser::Browser;
use super::world::{CHAIN, ConsoleWorld, HOSTILE};

async fn document(world: &ConsoleWorld, path: &str) -> Value {
    serde_json::from_str(&world.page(path).await.2).unwrap()
}

/// Asks until a document is as wanted: executions are archived shortly after they ended.
async fn becomes(world: &ConsoleWorld, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let found = document(world, path).await;
        if is_wanted(&found) {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn versions_tell_how_often_they_succeeded() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.start("chain", "bad", &json!({"value": "an order"})).await;
    world.reaches("bad", "failed").await;
    world.mend();
    world.deploy("chain.yaml", &CHAIN.replace("An order on its way", "Another text")).await;
    for id in ["well", "better"] {
        world.start("chain", id, &json!({"value": "an order"})).await;
        world.reaches(id, "succeeded").await;
    }
    let path = "/api/v1/workflows/chain/outcomes";
    let sum = |found: &Value, word: &str| -> u64 {
        found["versions"].as_array().unwrap().iter().filter_map(|one| one[word].as_u64()).sum()
    };
    let all_there = |found: &Value| sum(found, "succeeded") == 2 && sum(found, "failed") == 1;
    let found = becomes(&world, path, all_there).await;
    let versions = document(&world, "/api/v1/workflows/chain/versions").await;
    let of = |version: &Value| {
        let rows = found["versions"].as_array().unwrap();
        let row = rows.iter().find(|row| row["version"] == *version).unwrap_or_else(|| panic!("{found}"));
        (row["succeeded"].clone(), row["failed"].clone(), row["cancelled"].clone())
    };
    assert_eq!(of(&versions[0]["version"]), (json!(2), json!(0), json!(0)), "{found}");
    assert_eq!(of(&versions[1]["version"]), (json!(0), json!(1), json!(0)), "{found}");
    assert_eq!(found["is_whole"], true);
    // A record of an older release has no version: it counts as one of an unknown version.
    let history = world.mesh.mesh.history();
    let (mut closed, record) = history.get(&ExecutionId::parse("well").unwrap()).await.unwrap().unwrap();
    (closed.execution, closed.plan) = (ExecutionId::parse("older").unwrap(), None);
    let mut record = ExecutionRecord::decode(&record).unwrap();
    record.meta.execution = closed.execution.clone();
    history.put(&closed, record.encode()).await.unwrap();
    let found = becomes(&world, path, |found| sum(found, "succeeded") == 3).await;
    assert_eq!(
        (&found["versions"][0]["version"], &found["versions"][0]["succeeded"]),
        (&Value::Null, &json!(1))
    );
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/workflows/chain", world.mesh.base)).await;
    browser.wait_until("document.querySelector('[aria-label=Versions] tbody').rows.length === 2").await;
    let row = |number: usize| {
        format!("document.querySelector('[aria-label=Versions] tbody').rows[{number}].textContent")
    };
    browser.wait_until(&format!("{}.includes('100 % 2 of 2')", row(0))).await;
    browser.wait_until(&format!("{}.includes('0 % 0 of 1')", row(1))).await;
    browser.wait_for_text("Executions with unknown version: 100 % 1 of 1").await;
    browser.save_picture("workflow-versions").await;
    // The list of workflows has lines of the last hour.
    let figures = document(&world, "/api/v1/workflow-figures").await;
    let series =
        figures["workflows"].as_array().unwrap().iter().find(|one| one["workflow"] == "chain").unwrap();
    let total = |key: &str| -> u64 { series[key].as_array().unwrap().iter().filter_map(Value::as_u64).sum() };
    assert_eq!((total("ended"), total("failed")), (4, 1), "{figures}");
    assert!(series["p95_of_all_ms"].is_u64(), "{figures}");
    browser.open(&format!("{}/console/workflows", world.mesh.base)).await;
    let line = "[...document.querySelectorAll('.spark polyline')].map((one) => one.closest('svg'))";
    browser
        .wait_until(&format!(
            "{line}.some((one) => one.getAttribute('aria-label') === '4 ended in the last hour, 1 failed')"
        ))
        .await;
    browser.wait_until(&format!("{line}.filter((one) => one.getBoundingClientRect().width > 20 && one.getAttribute('aria-label').startsWith('p95')).length === 1")).await;
    browser.save_picture("workflows-lines").await;
    let (status, ..) = world.page("/api/v1/workflow-figures?minutes=x").await;
    assert_eq!(status, 400);
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn agents_have_lines_and_dead_letters_name_their_commands() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/agents", world.mesh.base)).await;
    world.start("single", "good", &json!({"value": "x"})).await;
    world.reaches("good", "succeeded").await;
    // The page follows what the running processes report.
    browser.wait_for_text("0 of 1").await;
    browser.save_picture("agents-lines").await;

    let (_, _, page) = world.page("/console/traffic").await;
    assert!(page.contains("No quarantined messages."), "{page}");
    for seq in [117, 118] {
        let letter = SuspectMessage {
            stream: "RESULTS",
            seq,
            time: 1_000,
            name: format!("test.v1.result.0.{seq}"),
            headers: HeaderMap::new(),
            body: "no result".into(),
        };
        world.mesh.mesh.quarantine().put(letter, &format!("{seq} {HOSTILE}")).await.unwrap();
    }
    let listed = document(&world, "/api/v1/quarantine?limit=1").await;
    assert_eq!(listed["messages"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["messages"][0]["message"], "RESULTS.118", "{listed}");
    let (_, _, page) = world.page("/console/traffic").await;
    assert!(!page.contains("<img src=x"), "{page}");
    browser.open(&format!("{}/console/traffic", world.mesh.base)).await;
    let letters = "document.querySelector('[aria-labelledby=dead-letters] tbody')";
    browser.wait_until(&format!("{letters}.rows.length === 2")).await;
    browser
        .wait_until(&format!(
            "{letters}.rows[0].textContent.includes('sinew mesh quarantine replay RESULTS.118 --dry-run')"
        ))
        .await;
    browser
        .wait_until(&format!(
            "{letters}.rows[1].textContent.includes('sinew mesh quarantine show RESULTS.117')"
        ))
        .await;
    browser.save_picture("traffic-dead-letters").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}
