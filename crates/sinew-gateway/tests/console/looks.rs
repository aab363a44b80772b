//! Every page in light, dark and phone width: accessible, without messages in the console, and kept as a picture.

use serde_json::Value;

use super::browser::Browser;
use super::pages::PAGES;
use super::world::{CHAIN, ConsoleWorld, HOSTILE, PRINTING};
use crate::support::SINGLE;

const AXE: &str = include_str!("../vendor/axe-core-4.14.1/axe.min.js");
/// Sizes and colour schemes that pages are looked at in.
const LOOKS: [(&str, (u32, u32), &str); 3] =
    [("light", (1280, 800), "light"), ("dark", (1280, 800), "dark"), ("phone", (390, 844), "light")];
/// At a zoom of 125 % a window of 1280 px has 1024 of them.
const ZOOMED: (u32, u32) = (1024, 640);

/// Rules of WCAG 2.2, levels A and AA, and axe's own.
const ALL_RULES: &str = "{}";
/// The one rule whose outcome depends on the colour scheme.
const CONTRAST: &str = "{runOnly: ['color-contrast']}";
/// Runs axe with the options before it.
const RUN_AXE: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ['violations'], ...options}).then(
        (found) => done(found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html + ' ' + node.failureSummary).join(' | ')}`)),
        (error) => done([String(error)]));";

/// Whether the page that is open is wider than its window.
const WIDER: &str = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";

/// Answers over 256 KiB behind the page that is open, itself included.
const LARGE: &str = "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter((one) => one.encodedBodySize > 256 * 1024).map((one) => `${one.name}: ${one.encodedBodySize} bytes`)";

/// Boxes that are ticked and do not stand beside their words.
const BROKEN_CHECKS: &str =
    "return [...document.querySelectorAll('label input[type=checkbox]')].filter((box) => {
    const [one, all] = [box.getBoundingClientRect(), box.closest('label').getBoundingClientRect()];
    return one.width > 0 && one.left - all.left > 40; }).map((box) => box.outerHTML)";

/// Buttons that change the mesh, or lead to what does, and do not tell the command that does the same.
const WITHOUT_COMMAND: &str = "const own = ['/console/sign-in', '/console/sign-out'];
    const forms = [...document.querySelectorAll('main form')].filter((form) => form.method === 'post' && !own.includes(new URL(form.action).pathname));
    const buttons = [...forms.flatMap((form) => [...form.elements]), ...document.querySelectorAll('main a[data-action]')]
        .filter((one) => one.matches('a, button[type=submit]'));
    return buttons.filter((one) => !one.dataset.command).map((one) => one.outerHTML.slice(0, 160))";

/// Violations in the page that is open.
pub(super) async fn violations(browser: &Browser) -> Vec<String> {
    browser.script(AXE).await;
    run_axe(browser, ALL_RULES).await
}

/// Violations in a page that axe is loaded in.
async fn run_axe(browser: &Browser, options: &str) -> Vec<String> {
    let found = browser.script_until_called(&format!("const options = {options};{RUN_AXE}")).await;
    found.as_array().unwrap().iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A file name for a page.
fn picture_name(path: &str, look: &str) -> String {
    let name: String = path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{}-{look}", name.trim_matches('-'))
}

#[tokio::test]
async fn every_page_is_accessible_and_quiet() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let mut wrong = Vec::new();
    for (look, size, scheme) in LOOKS {
        for path in PAGES {
            browser.look_as(size, scheme).await;
            browser.open(&format!("{}{path}", world.mesh.base)).await;
            if path.starts_with("/console/desk") {
                browser.wait_until("document.documentElement.dataset.editor === 'ready'").await;
            }
            browser.script(AXE).await;
            let mut found = run_axe(&browser, if look == "dark" { CONTRAST } else { ALL_RULES }).await;
            if browser.script(WIDER).await == true {
                found.push("is wider than its window".to_owned());
            }
            for (what, script) in [
                ("loads", LARGE),
                ("tears", BROKEN_CHECKS),
                ("has a button without a command:", WITHOUT_COMMAND),
            ] {
                let all = browser.script(script).await;
                found.extend(all.as_array().unwrap().iter().map(|one| format!("{what} {one}")));
            }
            browser.save_picture(&picture_name(path, look)).await;
            if look == "light" {
                browser.look_as(ZOOMED, scheme).await;
                if browser.script(WIDER).await == true {
                    found.push("is wider than its window at 125 %".to_owned());
                }
            }
            found.extend(browser.messages().await.into_iter().map(|one| format!("says {one}")));
            wrong.extend(found.into_iter().map(|one| format!("{path} ({look}) {one}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn hostile_text_runs_nothing_and_breaks_no_page() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.start("chain", "hostile", &serde_json::json!({ "value": HOSTILE, HOSTILE: HOSTILE })).await;
    world.start("review", "asked", &serde_json::json!({ HOSTILE: [HOSTILE, "x".repeat(200_000)] })).await;
    let named = CHAIN
        .replace("description: An order on its way", &format!("description: {}", serde_json::json!(HOSTILE)));
    world.deploy("hostile.yaml", &named).await;
    // Cards, skills, artifacts, labels, progress, and lines of a mebibyte.
    world.serve_printer().await;
    world.serve_mill().await;
    world.deploy("printing.yaml", PRINTING).await;
    world.deploy("milling.yaml", &SINGLE.replace("agent_name: one", "agent_name: mill")).await;
    let odd = serde_json::json!({
        "workflow": "printing", "id": "printed", "input": { "value": HOSTILE }, "labels": { "team": HOSTILE },
    });
    let start =
        world.mesh.http.post(format!("{}/api/v1/executions", world.mesh.base)).json(&odd).send().await;
    assert_eq!(start.unwrap().status(), 201);
    for (id, value, wanted) in [("milled", "fill", "succeeded"), ("broken", "break", "failed")] {
        world.start("milling", id, &serde_json::json!({ "value": value })).await;
        world.reaches(id, wanted).await;
    }
    world.reaches("printed", "succeeded").await;
    world.reaches("hostile", "failed").await;
    world.reaches("asked", "waiting").await;
    for (look, size, scheme) in LOOKS {
        browser.look_as(size, scheme).await;
        for path in [
            "/console/executions",
            "/console/executions/hostile?node=check",
            "/console/executions/hostile/events",
            "/console/executions/hostile/data",
            "/console/executions/asked/approval",
            "/console/executions/hostile?node=check&with=%3Cimg%20src%3Dx%3E",
            "/console/workflows/hostile",
            "/console/agents",
            "/console/catalogue",
            "/console/catalogue?q=print",
            "/console/catalogue/printer",
            "/console/chat/hostile",
            "/console/artifacts?name=%3Cimg%20src%3Dx%3E",
            "/console/traffic?workflow=%3Cscript%3E",
            "/console/agents/printer",
            "/console/executions/printed?node=print",
            "/console/executions/printed/artifacts",
            "/console/executions/printed/agents",
            "/console/artifacts",
            "/console/executions/milled?node=a",
            "/console/executions/milled/data",
            "/console/executions/milled/events",
            "/console/executions/milled/compare?with=printed",
            "/console/executions/broken?node=a",
            "/console/agents/mill",
            "/console/desk?workflow=hostile",
            "/console/workflows/hostile/start",
            "/console/chat/printer",
            "/console/help?text=%3Cimg%20src%3Dx%3E",
        ] {
            browser.open(&format!("{}{path}", world.mesh.base)).await;
            // A dialog of a script would make this call fail.
            let state = browser
                .script(
                    "return {wider: document.documentElement.scrollWidth > document.documentElement.clientWidth,
                        strangers: document.querySelectorAll('main img:not(.preview-image), main script, main iframe, [onerror], [onload], [onmouseover]').length}",
                )
                .await;
            assert_eq!(state, serde_json::json!({"wider": false, "strangers": 0}), "{path} {look}");
            assert_eq!(browser.messages().await, Vec::<String>::new(), "{path} {look}");
            assert_eq!(browser.script(LARGE).await, serde_json::json!([]), "{path} {look}");
        }
    }
    world.end().await;
}
