//! What a reader sees first: the root cause, values, readable parts of large graphs, times, and lists that hold still.

use serde_json::{Value, json};
use sinew_agent::{Agent, Failure};

use super::browser::Browser;
use super::graphs::long_chain;
use super::world::{ConsoleWorld, PRINTING};

const DESK: (u32, u32) = (1280, 800);
const PHONE: (u32, u32) = (390, 844);

/// An SVG that would run scripts and load things, and Markdown that would, too.
const SVG: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'><script>alert(1)</script>\
    <image href='https://example.com/x.png'/><rect width='8' height='8' onload='alert(2)'/></svg>";
const MARKDOWN: &str = "# Report\n\n**on its way** to [us](https://example.com), [not](javascript:alert(3))\n\n\
    <img src=x onerror=alert(4)>\n";

/// A map whose item `bad` fails.
const MAPPED: &str = r#"
workflow:
  description: Each item
  input_schema: {type: object, properties: {items: {type: array}}, required: [items]}
  nodes:
    - {id: all, type: map, node: each, items: "{{workflow.input.items}}", max_items: 200}
    - {id: each, type: agent, agent_name: picky, input: {value: "{{_map_item}}"}}
  output_mapping: {value: "{{all.output}}"}
"#;

async fn serve_artist(world: &ConsoleWorld) {
    let artist = Agent::dynamic("artist", None, None, |_: Value, context| async move {
        context.artifacts().put("chart.svg", "image/svg+xml", SVG)?;
        context.artifacts().put("report.md", "text/markdown", MARKDOWN)?;
        Ok(json!({ "value": "**done** <script>alert(5)</script>" }))
    });
    world.mesh.serve(artist).await;
}

async fn serve_picky(world: &ConsoleWorld) {
    let picky = Agent::dynamic("picky", None, None, |input: Value, context| async move {
        if input["value"] == "bad" {
            return Err(Failure::new("no address"));
        }
        context.artifacts().put("slip.txt", "text/plain", "slip")?;
        Ok(input)
    });
    world.mesh.serve(picky).await;
}

#[tokio::test]
async fn an_execution_shows_its_cause_its_values_and_its_items() {
    let world = ConsoleWorld::new().await;
    serve_picky(&world).await;
    world.deploy("mapped.yaml", MAPPED).await;
    let items = |last: &str| json!({ "items": (0..120).map(|n| format!("item {n}")).chain([last.to_owned()]).collect::<Vec<_>>() });
    world.start("mapped", "fine", &items("good")).await;
    world.start("mapped", "wrong", &items("bad")).await;
    world.reaches("fine", "succeeded").await;
    world.reaches("wrong", "failed").await;
    let (_, _, page) = world.page("/console/executions/wrong").await;
    let failure = page.split("aria-label=\"Failure\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert_eq!(failure.matches("no address").count(), 1, "{failure}");
    assert!(failure.contains(" UTC</time>") && failure.contains("sinew execution retry"), "{failure}");
    assert!(page.contains("<h2>Input</h2>"), "the input is on top");
    let (_, _, other) = world.page("/console/executions/wrong/events").await;
    assert!(!other.contains("sinew execution retry wrong --dry-run"), "other tabs have the cause only");
    // Items are counted, and all of them can be reached.
    let (_, _, page) = world.page("/console/executions/fine").await;
    assert!(page.contains("items 121/121") && page.contains("<h2>Result</h2>"), "{page}");
    let (_, _, page) = world.page("/console/executions/fine?node=all&skip=100").await;
    assert!(page.contains("101–121 of 121") && page.contains(">all_120</a>"), "{page}");
    assert!(page.contains("skip=50"), "{page}");
    let (_, _, page) = world.page("/console/executions/fine/artifacts").await;
    assert!(page.contains(" of the items of all</summary>"), "artifacts of items are folded: {page}");
    // The other executions are offered, and differences have both values.
    let (_, _, page) = world.page("/console/executions/wrong/compare").await;
    assert!(page.contains("Compare with the last success") && page.contains("?with=fine"), "{page}");
    let (_, _, page) = world.page("/console/executions/fine/compare?with=wrong").await;
    assert!(page.contains("<code>good</code> → <code>bad</code>"), "{page}");
    world.end().await;
}

#[tokio::test]
async fn pictures_and_markdown_are_shown_and_run_nothing() {
    let world = ConsoleWorld::new().await;
    serve_artist(&world).await;
    world
        .deploy(
            "printing.yaml",
            &PRINTING.replace("printer", "artist").replace("output.sha256", "output.value"),
        )
        .await;
    world.start("printing", "drawn", &json!({ "value": "a" })).await;
    world.reaches("drawn", "succeeded").await;
    let image = "/console/executions/drawn/artifact-image?artifact=print%2Fchart.svg%3Av0";
    let (status, headers, _) = world.page(image).await;
    assert_eq!(status, 200);
    assert_eq!(headers["content-type"], "image/svg+xml");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && policy.ends_with("sandbox"), "{policy}");
    let (_, _, page) =
        world.page("/console/executions/drawn/artifacts?artifact=print%2Freport.md%3Av0").await;
    assert!(
        page.contains("<strong>on its way</strong>") && page.contains("<summary>Source</summary>"),
        "{page}"
    );
    assert!(!page.contains("<img src=x") && !page.contains("href=\"javascript"), "{page}");
    // An answer in a chat.
    let chat = "0199d5a0-0000-7000-8000-000000000000";
    let body = json!({"agent": "artist", "id": "said", "input": {"value": "hi"}, "labels": {"chat": chat, "kind": "chat"}});
    let address = format!("{}/api/v1/executions", world.mesh.base);
    assert_eq!(world.mesh.http.post(address).json(&body).send().await.unwrap().status(), 201);
    world.reaches("said", "succeeded").await;
    let (_, _, page) = world.page(&format!("/console/chat/artist?chat={chat}")).await;
    assert!(page.contains("<strong>done</strong> &lt;script&gt;"), "{page}");
    let Some(browser) = Browser::start().await else { return };
    browser.look_as(DESK, "light").await;
    browser
        .open(&format!(
            "{}/console/executions/drawn/artifacts?artifact=print%2Fchart.svg%3Av0",
            world.mesh.base
        ))
        .await;
    browser.wait_until("document.querySelector('.preview-image')?.naturalWidth > 0").await;
    browser.save_picture("artifact-svg").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn large_graphs_are_searched_and_cut_to_the_failure() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.deploy("longer.yaml", &long_chain(200, 120)).await;
    world.start("longer", "lost", &json!({})).await;
    world.reaches("lost", "failed").await;
    browser.look_as(DESK, "light").await;
    let page = format!("{}/console/executions/lost", world.mesh.base);
    browser.open(&page).await;
    browser.wait_until("document.querySelector('.drawing[data-ready] .minimap')").await;
    browser.write(".graph-search input", "n77\u{e007}").await;
    browser.wait_until("document.querySelector('.graph-search span').textContent === '1 of 1'").await;
    browser.script("document.querySelector('.graph-search input').value = ''").await;
    browser.write(".graph-search input", "no such node\u{e007}").await;
    browser.wait_until("document.querySelector('.graph-search span').textContent === 'no match'").await;
    browser.save_picture("graph-search").await;
    browser.script("[...document.querySelectorAll('.opened a')].find((link) => link.textContent.includes('path to the failure')).click()").await;
    // The first 121 nodes of the chain, small enough for a picture.
    browser.wait_until("location.search.includes('path=n120') && document.querySelector('.drawing svg [data-node=n120]')").await;
    assert_eq!(
        browser.script("return document.querySelectorAll('.drawing [data-node=n121]').length").await,
        0
    );
    // On a phone, the list is shown and the graph waits.
    browser.look_as(PHONE, "light").await;
    browser.open(&page).await;
    browser.wait_until("document.querySelector('[data-show-graph]').offsetParent !== null").await;
    assert_eq!(browser.script("return document.querySelector('.drawing').offsetParent === null").await, true);
    browser.click("[data-show-graph]").await;
    browser.wait_until("document.querySelector('.drawing[data-ready]')").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn times_are_shown_as_chosen() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.fill().await;
    browser.look_as(DESK, "light").await;
    browser.open(&format!("{}/console/executions/good", world.mesh.base)).await;
    let shown = "document.querySelector('.facts time').textContent";
    browser.wait_until(&format!("/ ago$/.test({shown})")).await;
    browser.click("#times").await;
    browser.click("#times").await;
    browser.wait_until(&format!("/^\\d{{4}}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d UTC$/.test({shown})")).await;
    // The choice holds on other pages.
    browser.open(&format!("{}/console/executions", world.mesh.base)).await;
    browser.wait_until("document.getElementById('times').textContent === 'Times: UTC'").await;
    browser.wait_until("/ UTC$/.test(document.querySelector('[data-row] time').textContent)").await;
    world.end().await;
}

#[tokio::test]
async fn rows_do_not_move_under_the_pointer() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.fill().await;
    browser.look_as(DESK, "light").await;
    browser.open(&format!("{}/console/executions", world.mesh.base)).await;
    browser.wait_until("document.getElementById('live').textContent === 'live'").await;
    let row = browser
        .script("const box = document.querySelector('[data-row] a').getBoundingClientRect(); return [box.left + 5, box.top + 5]")
        .await;
    let order = "return [...document.querySelectorAll('[data-row] a.id, [data-row] .id a')].map((link) => link.getAttribute('href')).join()";
    let before = browser.script(order).await;
    browser.point_at((row[0].as_f64().unwrap(), row[1].as_f64().unwrap())).await;
    world.start("single", "fresh", &json!({ "value": "new" })).await;
    browser.wait_until("document.querySelector('.held')?.textContent === '1 new'").await;
    assert_eq!(browser.script(order).await, before);
    browser.save_picture("list-held").await;
    browser.point_at((2.0, 2.0)).await;
    browser
        .wait_until(
            "document.querySelector('.held') === null && document.querySelector('[data-row] a[href*=fresh]')",
        )
        .await;
    world.end().await;
}
