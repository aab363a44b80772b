//! A page whose reader is signed out while it is open: it says so, and does not pass off what is old as live.

use serde_json::json;
use sinew_gateway::ConsoleMode;
use sinew_operations::gateway_keys::revoke_keys;

use super::browser::Browser;
use crate::support::{GatewayWorld, SINGLE, now, review};

/// Signs in by a key, on the page that a browser is led to.
async fn sign_in(browser: &Browser, key: &str) {
    browser.write("input[name=key]", key).await;
    browser.click("button[type=submit]").await;
}

#[tokio::test]
async fn a_page_says_that_its_reader_is_signed_out() {
    let Some(browser) = Browser::start().await else { return };
    let review = review();
    let world = GatewayWorld::with(&[("single", SINGLE), ("review", &review)], |options| {
        options.access.is_required = true;
        options.console = Some(ConsoleMode::Full);
    })
    .await;
    browser.look_as((1280, 800), "light").await;
    for (number, page) in
        ["/console/executions?status=waiting", "/console/executions/asks"].into_iter().enumerate()
    {
        let name = format!("reader{number}");
        let (_, key) = world.key(|new| new.name.clone_from(&name)).await;
        if number == 0 {
            let start = json!({"workflow": "review", "id": "asks", "input": {"amount": 5000}});
            let start =
                world.http.post(format!("{}/api/v1/executions", world.base)).bearer_auth(&key).json(&start);
            assert!(start.send().await.unwrap().status().is_success());
        }
        browser.open(&format!("{}{page}", world.base)).await;
        sign_in(&browser, &key).await;
        browser.wait_until(&format!("location.href.endsWith({})", json!(page))).await;
        browser.wait_until("document.getElementById('live').textContent === 'live'").await;
        revoke_keys(&world.mesh, &name, now()).await.unwrap();
        browser.wait_for_text("signed out, data is outdated").await;
        browser.save_picture(&format!("signed-out-{number}")).await;
        // The way back leads to the same view.
        browser.click("#live a").await;
        browser.wait_until("location.pathname === '/console/sign-in'").await;
        let (_, key) = world.key(|new| new.name = format!("again{number}")).await;
        sign_in(&browser, &key).await;
        browser.wait_until(&format!("location.href.endsWith({})", json!(page))).await;
        browser.wait_until("document.getElementById('live').textContent === 'live'").await;
        // A live page that asks without cookies would get another token for forms, behind the back of the next page.
        browser.open("about:blank").await;
        browser.devtools("Network.clearBrowserCookies", json!({})).await;
    }
    world.end().await;
}
