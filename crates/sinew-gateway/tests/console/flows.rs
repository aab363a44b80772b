//! Flows of people in a real browser: from a failure to its end, and a decision on a phone.

use std::net::SocketAddr;
use std::time::Instant;

use serde_json::json;
use sinew_gateway::ConsoleMode;

use super::browser::Browser;
use super::world::{CHAIN, ConsoleWorld};

const DESK: (u32, u32) = (1280, 800);
const PHONE: (u32, u32) = (390, 844);

#[tokio::test]
async fn a_failed_execution_is_found_understood_and_retried() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.fill().await;
    browser.look_as(DESK, "light").await;
    browser.open(&format!("{}/console", world.mesh.base)).await;
    browser.press(&["g", "e"]).await;
    browser.wait_until("location.pathname === '/console/executions'").await;
    browser.click(".chips a[href*='failed']").await;
    browser
        .wait_until(
            "location.search.includes('failed') && document.querySelectorAll('[data-row]').length === 1",
        )
        .await;
    browser.press(&["j"]).await;
    browser.wait_until("document.activeElement.textContent === 'bad'").await;
    browser.press(&["\u{e007}"]).await;
    browser.wait_until("location.pathname.endsWith('/executions/bad')").await;
    browser.wait_for_text("the truck broke down").await;

    // A node of the drawing opens beside it.
    browser.click(".drawing [data-node='ship']").await;
    browser.wait_until("location.search === '?node=ship' && document.querySelector('.inspector')").await;
    world.mend();
    browser.click(".inspector [data-action]").await;
    browser.wait_for_text("Would run again").await;
    browser.write("form.steer input[name=reason]", "mended").await;
    browser.click("form.steer button[type=submit]").await;
    browser.wait_until("location.pathname.endsWith('/executions/bad')").await;
    // No reload: the page follows the execution to its end.
    browser.wait_until("document.querySelector('h1 .status').textContent.includes('succeeded')").await;
    browser.wait_until("document.querySelectorAll('.drawing .node.succeeded').length >= 3").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn a_question_is_answered_on_a_phone() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.fill().await;
    browser.look_as(PHONE, "dark").await;
    browser.open(&format!("{}/console/approvals", world.mesh.base)).await;
    browser.click(".questions a").await;
    browser.wait_for_text("5000").await;
    browser.write("textarea[name=comment]", "looks right").await;
    browser.click("button[value=approve]").await;
    browser.wait_until("location.pathname.endsWith('/executions/asks')").await;
    browser.wait_until("document.querySelector('h1 .status').textContent.includes('succeeded')").await;
    browser.wait_for_text("looks right").await;
    let decided = world.reaches("asks", "succeeded").await;
    assert_eq!(decided["decisions"][0]["comment"], "looks right");

    // In the list, each decision is one tap, and the next question follows on the same page.
    for id in ["first", "second", "third"] {
        world.start("review", id, &json!({"amount": 5})).await;
        world.reaches(id, "waiting").await;
    }
    browser.open(&format!("{}/console/approvals", world.mesh.base)).await;
    browser.wait_until("document.title.startsWith('(3) ')").await;
    browser.wait_until("document.querySelector('nav .badge').textContent === '3'").await;
    browser.click(".questions button[value=reject]").await;
    browser.wait_until("document.activeElement.name === 'comment'").await;
    for left in [2, 1, 0] {
        browser.click(".questions button[value=approve]").await;
        browser.wait_until(&format!("document.querySelectorAll('.questions li').length === {left}")).await;
    }
    browser.wait_until("location.pathname.endsWith('/approvals')").await;
    for id in ["first", "second", "third"] {
        world.reaches(id, "succeeded").await;
    }
    world.end().await;
}

#[tokio::test]
async fn a_live_view_outlives_its_gateway() {
    let Some(browser) = Browser::start().await else { return };
    let mut world = ConsoleWorld::new().await;
    world.start("review", "asks", &json!({"amount": 1})).await;
    world.reaches("asks", "waiting").await;
    let base = world.mesh.base.clone();
    let address: SocketAddr = base.trim_start_matches("http://").parse().unwrap();
    browser.look_as(DESK, "light").await;
    browser.open(&format!("{base}/console/executions/asks")).await;
    browser.wait_until("document.getElementById('live').textContent === 'live'").await;
    world.mesh.take_gateway().drain().await;
    browser.wait_until("document.getElementById('live').textContent.startsWith('connection lost')").await;
    let options = |options: &mut sinew_gateway::GatewayOptions| {
        options.listen = address;
        options.console = Some(ConsoleMode::Full);
    };
    let _gateway = world.mesh.gateway(options).await;
    browser.wait_until("document.getElementById('live').textContent === 'live'").await;
    let decision = json!({"decision": "approve", "node": "h"});
    let answer = world
        .mesh
        .http
        .post(format!("{base}/api/v1/executions/asks/decisions"))
        .json(&decision)
        .send()
        .await
        .unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    browser.wait_until("document.querySelector('h1 .status').textContent.includes('succeeded')").await;
    browser.wait_until("document.getElementById('live').textContent === 'ended'").await;
    world.end().await;
}

/// Of each kind of live page: the start page, a list of executions, one of agents, and an
/// execution.
#[tokio::test]
async fn live_pages_say_that_the_broker_does_not_answer() {
    /// Longer than a page may call old figures live: the time between two looks, and some grace.
    const MAX_OLD_MS: u64 = 12_000;
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.start("review", "asks", &json!({"amount": 1})).await;
    world.reaches("asks", "waiting").await;
    let base = &world.mesh.base;
    browser.look_as(DESK, "light").await;
    for page in ["", "/executions", "/agents", "/executions/asks"] {
        browser.open(&format!("{base}/console{page}")).await;
        browser.wait_until("document.getElementById('live').textContent === 'live'").await;
        browser
            .wait_until("/^as of \\d\\d:\\d\\d:\\d\\d$/.test(document.getElementById('as-of').textContent)")
            .await;
        world.mesh.pause_broker().await;
        let paused = Instant::now();
        browser.wait_until("document.getElementById('live').className === 'off'").await;
        let shown = u64::try_from(paused.elapsed().as_millis()).unwrap();
        let text = browser.script("return document.getElementById('live').textContent").await;
        assert!(shown < MAX_OLD_MS, "{page}: live for {shown} ms without a broker: {text}");
        assert!(text.as_str().unwrap().ends_with("retrying"), "{page}: {text}");
        // The age of the figures is that of the last answer.
        let age = "return Date.now() - Date.parse(document.getElementById('as-of').dateTime)";
        assert!(browser.script(age).await.as_u64().unwrap() >= 1_000, "{page}");
        world.mesh.resume_broker();
        browser.wait_until("document.getElementById('live').textContent === 'live'").await;
    }
    world.end().await;
}

/// Script that tells a page that its tab is left, or seen again.
fn visibility(is_hidden: bool) -> String {
    format!(
        "Object.defineProperty(document, 'hidden', {{value: {is_hidden}, configurable: true}});
        document.dispatchEvent(new Event('visibilitychange'));"
    )
}

#[tokio::test]
async fn a_page_that_nobody_sees_holds_no_stream_and_is_true_again_when_seen() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.start("review", "asks", &json!({"amount": 1})).await;
    world.reaches("asks", "waiting").await;
    let base = &world.mesh.base;
    browser.look_as(DESK, "light").await;
    browser.open("about:blank").await;
    browser.open(&format!("{base}/console/executions/asks")).await;
    browser.wait_until("document.getElementById('live').textContent === 'live'").await;
    browser.script(&visibility(true)).await;
    let decision = json!({"decision": "approve", "node": "h"});
    let decide = world.mesh.http.post(format!("{base}/api/v1/executions/asks/decisions")).json(&decision);
    assert!(decide.send().await.unwrap().status().is_success());
    world.reaches("asks", "succeeded").await;
    let status = "return document.querySelector('h1 .status').textContent";
    assert!(browser.script(status).await.as_str().unwrap().contains("waiting"));
    browser.script(&visibility(false)).await;
    browser.wait_until("document.querySelector('h1 .status').textContent.includes('succeeded')").await;
    world.end().await;
}

#[tokio::test]
async fn keys_open_help_and_can_be_switched_off() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    browser.look_as(DESK, "light").await;
    browser.open(&format!("{}/console/executions", world.mesh.base)).await;
    browser.press(&["/"]).await;
    browser.wait_until("document.activeElement.name === 'find'").await;
    browser.press(&["\u{e00c}"]).await;
    browser.wait_until("document.activeElement === document.body").await;
    browser.press(&["?"]).await;
    browser.wait_until("document.querySelector('dialog[open]')").await;
    browser.click("dialog input[type=checkbox]").await;
    browser.click("dialog button").await;
    browser.wait_until("!document.querySelector('dialog')").await;
    browser.press(&["g", "w"]).await;
    assert_eq!(browser.script("return location.pathname").await, "/console/executions");
    browser.open(&format!("{}/console/help", world.mesh.base)).await;
    browser.click("#keys").await;
    browser.click("dialog input[type=checkbox]").await;
    browser.click("dialog button").await;
    browser.press(&["g", "w"]).await;
    browser
        .wait_until("location.pathname === '/console/workflows' && document.documentElement.dataset.keys")
        .await;
    // Rows, and the actions of a page.
    let chosen = "return [...document.querySelectorAll('[data-row]')].findIndex((row) => row.classList.contains('chosen'))";
    browser.press(&["j", "j", "j"]).await;
    assert_eq!(browser.script(chosen).await, 2);
    // A workflow that is deployed meanwhile stands before it: the list is read anew, and the row stays chosen, with the focus or
    // without it.
    let before = browser.script("return document.activeElement.getAttribute('href')").await;
    world.deploy("amendment", CHAIN).await;
    browser.wait_until("document.querySelectorAll('[data-row]').length === 4").await;
    assert_eq!(browser.script(chosen).await, 3);
    assert_eq!(browser.script("return document.activeElement.getAttribute('href')").await, before);
    browser.script("document.activeElement.blur()").await;
    world.deploy("bill", CHAIN).await;
    browser.wait_until("document.querySelectorAll('[data-row]').length === 5").await;
    assert_eq!(browser.script(chosen).await, 4);
    browser.press(&["k"]).await;
    assert_eq!(browser.script(chosen).await, 3);
    browser.press(&["."]).await;
    browser.wait_until("document.activeElement.matches('[data-action]')").await;
    // The button in focus tells the command that does the same.
    let told = "return getComputedStyle(document.activeElement, '::after').content";
    assert_eq!(browser.script(told).await, "\"$ sinew workflow deploy FILE\"");
    world.end().await;
}

#[tokio::test]
async fn lists_executions_and_graphs_read_without_a_script() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.fill().await;
    browser.look_as(DESK, "light").await;
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    browser.open(&format!("{}/console/executions", world.mesh.base)).await;
    // No module has run: what a script would have to show stays hidden.
    assert_eq!(browser.script("return document.documentElement.dataset.keys ?? null").await, json!(null));
    browser.click(".chips a[href*='failed']").await;
    browser.wait_until("document.querySelectorAll('[data-row]').length === 1").await;
    browser.click("[data-row] a").await;
    browser.wait_for_text("the truck broke down").await;
    assert_eq!(
        browser.script("return document.querySelectorAll('.drawing svg [data-node]').length >= 3").await,
        true
    );
    assert_eq!(
        browser
            .script("return document.querySelector('.drawing svg').getBoundingClientRect().height > 100")
            .await,
        true
    );
    browser.click("a[data-node-link='ship']").await;
    browser.wait_until("document.querySelector('.inspector')?.textContent.includes('ship')").await;
    // Forms work without it, too.
    browser.open(&format!("{}/console/approvals", world.mesh.base)).await;
    browser.click(".questions a").await;
    browser.click("button[value=approve]").await;
    browser.wait_until("location.pathname.endsWith('/executions/asks')").await;
    world.reaches("asks", "succeeded").await;
    browser.save_picture("without-scripts").await;
    world.end().await;
}
