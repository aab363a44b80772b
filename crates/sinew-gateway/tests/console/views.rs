//! Views of the whole mesh in a real browser: an export that is opened, events as they come, and who calls whom.

use serde_json::json;

use super::browser::Browser;
use super::world::{ConsoleWorld, HOSTILE};

#[tokio::test]
async fn an_export_is_opened_without_its_mesh() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.start("chain", "gone", &json!({ "value": HOSTILE })).await;
    world.reaches("gone", "failed").await;
    let (_, _, export) = world.page("/api/v1/executions/gone/record").await;
    // Another mesh, which has never heard of the execution.
    let other = ConsoleWorld::new().await;
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/import", other.mesh.base)).await;
    browser.script(&format!("document.querySelector('textarea[name=text]').value = {}", json!(export))).await;
    browser.click("#import button[type=submit]").await;
    browser.wait_for_text("the truck broke down").await;
    browser.wait_until("document.querySelectorAll('.drawing [data-node]').length >= 3").await;
    assert_eq!(browser.script("return document.querySelectorAll('main img, main script').length").await, 0);
    browser.save_picture("import-opened").await;
    browser.script("document.querySelector('textarea[name=text]').value = '{\"format\": 999}'").await;
    browser.click("#import button[type=submit]").await;
    browser.wait_for_text("SINEW-8013").await;
    other.end().await;
    world.end().await;
}

#[tokio::test]
async fn traffic_comes_in_as_text_and_can_be_paused() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/traffic", world.mesh.base)).await;
    browser.wait_until("document.documentElement.dataset.traffic === 'open'").await;
    world.start("single", "first", &json!({ "value": HOSTILE })).await;
    browser.wait_until("document.getElementById('traffic').rows.length >= 4").await;
    browser.wait_until("document.getElementById('traffic').innerText.includes('<img src=x')").await;
    let strangers = "return document.querySelectorAll('main img, main script, main svg').length";
    assert_eq!(browser.script(strangers).await, 0);
    assert_eq!(
        browser
            .script("return /[\\u001b\\u202e]/.test(document.getElementById('traffic').textContent)")
            .await,
        false
    );
    browser.click("#pause").await;
    world.reaches("first", "succeeded").await;
    let rows = "return document.getElementById('traffic').rows.length";
    let before = browser.script(rows).await;
    world.start("single", "second", &json!({ "value": "x" })).await;
    world.reaches("second", "succeeded").await;
    assert_eq!(browser.script(rows).await, before);
    browser.click("#pause").await;
    browser.wait_until(&format!("document.getElementById('traffic').rows.length > {before}")).await;
    browser.save_picture("traffic-live").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

/// Seconds of the live mesh under which memory is measured, unless `SINEW_LIVE_SECONDS` names more.
const LIVE_SECONDS: u64 = 6;
/// Bytes by which a page may grow meanwhile.
const MAX_GROWTH_BYTES: f64 = 8e6;

#[tokio::test]
async fn memory_stays_level_while_a_mesh_is_watched() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    let seconds = std::env::var("SINEW_LIVE_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds = std::time::Duration::from_secs(seconds.unwrap_or(LIVE_SECONDS));
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/traffic", world.mesh.base)).await;
    browser.wait_until("document.documentElement.dataset.traffic === 'open'").await;
    let busy = async |from: usize, until: tokio::time::Instant| {
        let mut count = from;
        while tokio::time::Instant::now() < until {
            let started = (0..20).map(|n| {
                let (world, id) = (&world, format!("e{}", count + n));
                async move { world.start("single", &id, &json!({ "value": "x".repeat(500) })).await }
            });
            futures_util::future::join_all(started).await;
            count += 20;
        }
        count
    };
    let begin = tokio::time::Instant::now();
    let first = busy(0, begin + seconds / 3).await;
    browser.wait_until("document.getElementById('traffic').rows.length === 200").await;
    let before = browser.heap_bytes().await;
    let last = busy(first, begin + seconds).await;
    let after = browser.heap_bytes().await;
    println!("{last} executions in {seconds:?}: {:.1} MB, then {:.1} MB", before / 1e6, after / 1e6);
    assert!(after - before < MAX_GROWTH_BYTES, "{before} to {after} bytes");
    assert_eq!(browser.script("return document.getElementById('traffic').rows.length").await, 200);
    world.end().await;
}

/// A node that runs only when another says so.
const GATED: &str = r#"
workflow:
  description: Two nodes and a gate
  input_schema: {type: object, properties: {value: {type: string}}, required: [value]}
  nodes:
    - {id: first, type: agent, agent_name: one, input: {value: "{{workflow.input.value}}"}}
    - {id: second, type: agent, agent_name: one, depends_on: [first], when: "{{first.output.value}} == 'yes'", input: {value: "{{first.output.value}}"}}
  output_mapping: {value: "{{first.output.value}}"}
"#;

#[tokio::test]
async fn a_node_tells_what_its_condition_saw_and_what_differs() {
    let world = ConsoleWorld::new().await;
    world.deploy("gated.yaml", GATED).await;
    for (id, value) in [("goes", "yes"), ("stays", "<b>no</b>")] {
        world.start("gated", id, &json!({ "value": value })).await;
        world.reaches(id, "succeeded").await;
    }
    let check = async |path: &str, wanted: &[&str]| {
        let (_, _, page) = world.page(path).await;
        for one in wanted {
            assert!(page.contains(one), "{path}: {one:?} is not in {page}");
        }
    };
    let seen = ["Runs when", "<code>first.output.value</code>", "&lt;b&gt;no&lt;/b&gt;", "skipped"];
    check("/console/executions/stays?node=second", &seen).await;
    check("/console/executions/goes?node=second", &["Runs when", "<code>yes</code>", "succeeded"]).await;
    let differs =
        ["<li class=\"is-removed\">", "sinew execution diff goes stays --node first", "first of stays"];
    check("/console/executions/goes?node=first&with=stays", &differs).await;
    check("/console/executions/goes?node=second&with=first", &["They are the same."]).await;
    // Versions: the file is deployed again with another description.
    world.deploy("gated.yaml", &GATED.replace("Two nodes and a gate", "Another text")).await;
    let (_, _, versions) = world.page("/api/v1/workflows/gated/versions").await;
    let versions: serde_json::Value = serde_json::from_str(&versions).unwrap();
    let path = format!("/console/workflows/gated?with={}", versions[1]["version"].as_str().unwrap());
    check(&path, &["Changes since", "is-removed", "Another text"]).await;
    world.end().await;
}

#[tokio::test]
async fn a_map_tells_who_calls_whom() {
    let world = ConsoleWorld::new().await;
    let (_, _, map) = world.page("/api/v1/map?format=json").await;
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let edges = map["edges"].as_array().unwrap();
    let is_drawn = |from: &str, to: &str| edges.iter().any(|edge| edge["from"] == from && edge["to"] == to);
    assert!(is_drawn("chain", "shipper") && is_drawn("single", "one"), "{map}");
    let (_, _, page) = world.page("/console/agents").await;
    assert!(page.contains("Who calls whom") && page.contains("data-node=\"shipper\""), "{page}");
    world.end().await;
}
