//! Chats in a real browser: said, answered, asked back, and still there on another day and another gateway.

use std::net::SocketAddr;

use sinew_gateway::ConsoleMode;

use super::browser::Browser;
use super::world::{ConsoleWorld, HOSTILE};

const ENTER: &str = "\u{e007}";

#[tokio::test]
async fn chats_survive_reloads_and_gateways() {
    let Some(browser) = Browser::start().await else { return };
    let mut world = ConsoleWorld::new().await;
    let base = world.mesh.base.clone();
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{base}/console/agents/one")).await;
    browser.click("a[href='/console/chat/one']").await;
    browser.wait_until("document.activeElement.name === 'text'").await;
    browser.write("textarea[name=text]", "{\"value\": \"good morning\"}").await;
    browser.press(&[ENTER]).await;
    browser.wait_until("location.search.startsWith('?chat=')").await;
    browser.wait_until("document.querySelector('.theirs .text')?.textContent === 'good morning'").await;
    // A second message, by the form of the input, with text that must stay text.
    browser
        .script(&format!(
            "document.querySelector('textarea[name=text]').value = JSON.stringify({{value: {}}})",
            serde_json::json!(HOSTILE)
        ))
        .await;
    browser.click("#write button[type=submit]").await;
    browser.wait_until("document.querySelectorAll('.theirs .is-succeeded').length === 2").await;
    assert_eq!(browser.script("return document.querySelectorAll('main img, main script').length").await, 0);
    let said =
        "return [...document.querySelectorAll('.bubble .text')].map((one) => one.textContent).join('|')";
    let before = browser.script(said).await;
    let address: SocketAddr = base.trim_start_matches("http://").parse().unwrap();
    world.mesh.take_gateway().drain().await;
    let options = |options: &mut sinew_gateway::GatewayOptions| {
        options.listen = address;
        options.console = Some(ConsoleMode::Full);
    };
    let _gateway = world.mesh.gateway(options).await;
    browser.script("location.reload()").await;
    browser.wait_until("document.querySelectorAll('.theirs .is-succeeded').length === 2").await;
    assert_eq!(browser.script(said).await, before);
    browser.save_picture("chat").await;

    // A workflow asks back, and is answered where it asks.
    browser.open(&format!("{base}/console/chat/review")).await;
    browser.write("textarea[name=text]", "may I?").await;
    browser.click("#write button[type=submit]").await;
    browser.wait_until("document.querySelector('.waits button[value=approve]')").await;
    browser.write(".waits textarea[name=comment]", "go on").await;
    browser.click(".waits button[value=approve]").await;
    browser.wait_until("location.pathname === '/console/chat/review'").await;
    browser.wait_until("document.querySelector('.theirs .is-succeeded')").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}
