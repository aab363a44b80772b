//! Chats in a real browser: said, answered, asked back, and still there on another day and another gateway.

use std::net::SocketAddr;

use sinew_gateway::ConsoleMode;

use super::browser::Browser;
use super::scripted_model::serve_clerk;
use super::world::{ConsoleWorld, HOSTILE, PICTURE};

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
    browser.wait_until("document.querySelector('.theirs .markdown')?.textContent === 'good morning'").await;
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
    let said = "return [...document.querySelectorAll('.bubble :is(.text, .markdown)')].map((one) => one.textContent).join('|')";
    let before = browser.script(said).await;
    let address: SocketAddr = base.trim_start_matches("http://").parse().unwrap();
    world.mesh.take_gateway().drain().await;
    let options = |options: &mut sinew_gateway::GatewayOptions| {
        options.listen = address;
        options.console = Some(ConsoleMode::Full);
    };
    let _gateway = world.mesh.gateway(options).await;
    browser.reload().await;
    // Between the two gateways the page may have tried to connect.
    browser.messages().await;
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

/// First piece of an answer: long enough to be told before the rest is there.
fn first_piece() -> String {
    format!("The sum is known, {HOSTILE} and {}", "and ".repeat(80))
}

#[tokio::test]
async fn words_of_a_model_appear_as_they_come_and_files_go_both_ways() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    let model = serve_clerk(&world, &first_piece(), "it is six.").await;
    world.serve_printer().await;
    let base = world.mesh.base.clone();
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{base}/console/chat/clerk")).await;
    browser.write("textarea[name=text]", "How much is it?").await;
    browser.click("#write button[type=submit]").await;
    browser.wait_until("document.querySelector('[data-progress]')?.dataset.state === 'open'").await;
    // The call of the tool, then one piece of the answer: it is there while the model still speaks.
    model.let_go(4);
    browser.wait_until("document.querySelector('.coming')?.textContent.includes('The sum is known')").await;
    assert_eq!(browser.script("return document.querySelectorAll('.theirs .is-succeeded').length").await, 0);
    assert_eq!(
        browser
            .script("return document.querySelectorAll('main .coming img, main .coming script').length")
            .await,
        0
    );
    assert_eq!(
        browser.script("return /[\\u001b\\u202e]/.test(document.querySelector('.coming').textContent)").await,
        false
    );
    browser.save_picture("chat-streaming").await;
    model.let_go(100);
    browser.wait_until("document.querySelector('.theirs .is-succeeded')").await;
    browser
        .wait_until("document.querySelector('.theirs .markdown')?.textContent.trim().endsWith('it is six.')")
        .await;
    browser.wait_until("!document.querySelector('.coming')").await;
    // Calls of tools are folded.
    browser
        .wait_until(
            "document.querySelector('.theirs .log summary')?.textContent.includes('about tools: total')",
        )
        .await;
    // Tokens, price, prompt and calls of tools stand beside the node: 150 tokens in at 1 dollar a thousand, 15 out at 2.
    let path = browser
        .script("return document.querySelector('.theirs a[href*=\"/executions/\"]').getAttribute('href')")
        .await;
    browser.open(&format!("{base}{}?node=call", path.as_str().unwrap())).await;
    for told in
        ["Input tokens150", "Output tokens15", "Tool calls1", "Turns2", "Price$0.1800", "How much is it?"]
    {
        browser
            .wait_until(&format!(
                "document.querySelector('.inspector').textContent.includes({})",
                serde_json::json!(told)
            ))
            .await;
    }
    browser
        .wait_until("[...document.querySelectorAll('.inspector details .log')].some((log) => log.textContent.includes('total'))")
        .await;
    browser.open(&format!("{base}{}/agents", path.as_str().unwrap())).await;
    browser.wait_until("document.querySelector('[data-part=agents]').textContent.includes('$0.1800')").await;

    // A binary file goes in with a message; files that an agent leaves come out, a picture as a picture.
    browser.open(&format!("{base}/console/chat/printer")).await;
    let attach = format!(
        "const field = document.querySelector('[data-attach]'); const data = new DataTransfer();
        data.items.add(new File([new Uint8Array({PICTURE:?})], 'point.png', {{type: 'image/png'}}));
        data.items.add(new File(['a short note'], 'note.txt', {{type: 'text/plain'}}));
        field.files = data.files; field.dispatchEvent(new Event('change', {{bubbles: true}}));"
    );
    browser.script(&attach).await;
    browser.wait_for_text("1 as text, 1 as files").await;
    browser.write("textarea[name=text]", "look").await;
    browser.click("#write button[type=submit]").await;
    browser.wait_until("document.querySelector('.theirs .is-succeeded')").await;
    let sent = "document.querySelector('.mine').textContent";
    browser
        .wait_until(&format!(
            "{sent}.includes('point.png') && {sent}.includes('a short note') && {sent}.includes('sha256')"
        ))
        .await;
    browser.wait_until("document.querySelector('.files .preview-image')?.naturalWidth === 1").await;
    browser.wait_until("[...document.querySelectorAll('.files a[download]')].some((link) => link.textContent.startsWith('report.md'))").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}
