//! Graphs in a real browser: what opens in place, how they move, and ten thousand nodes of them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::browser::Browser;
use super::world::ConsoleWorld;

const DESK: (u32, u32) = (1280, 800);
/// Nodes of a large graph.
const LARGE: usize = 10_000;

/// A map over items, then another workflow.
const NESTED: &str = r#"
workflow:
  description: Each item, then the rest
  input_schema: {type: object, properties: {items: {type: array}}, required: [items]}
  nodes:
    - {id: all, type: map, node: each, items: "{{workflow.input.items}}"}
    - {id: each, type: agent, agent_name: one, input: {value: "{{_map_item}}"}}
    - {id: rest, type: workflow, workflow_name: single, depends_on: [all], input: {value: "the rest"}}
  output_mapping: {value: "{{rest.output.value}}"}
"#;

/// A hundred rows of a hundred nodes, each behind the one above; all behind one.
fn large_file() -> String {
    let mut file =
        String::from("workflow:\n  description: Large\n  input_schema: {type: object}\n  nodes:\n");
    for n in 0..LARGE {
        let before = if n < 100 { String::new() } else { format!(", depends_on: [n{}]", n - 100) };
        let _ =
            writeln!(file, "    - {{id: n{n}, type: agent, agent_name: one, input: {{value: x}}{before}}}");
    }
    let _ = writeln!(file, "  output_mapping: {{value: done}}");
    file
}

/// A chain too long to be read at once, one of whose nodes fails.
pub(super) fn long_chain(nodes: usize, failing: usize) -> String {
    let mut file = String::from("workflow:\n  description: Long\n  input_schema: {type: object}\n  nodes:\n");
    for n in 0..nodes {
        let before = if n == 0 { String::new() } else { format!(", depends_on: [n{}]", n - 1) };
        let agent = if n == failing { "shipper" } else { "one" };
        let _ = writeln!(
            file,
            "    - {{id: n{n}, type: agent, agent_name: {agent}, input: {{value: x}}{before}}}"
        );
    }
    let _ = writeln!(file, "  output_mapping: {{value: done}}");
    file
}

#[tokio::test]
async fn a_graph_begins_where_it_failed_and_can_be_read() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.deploy("long.yaml", &long_chain(30, 15)).await;
    world.start("long", "stuck", &json!({})).await;
    world.reaches("stuck", "failed").await;
    browser.look_as(DESK, "light").await;
    browser.open(&format!("{}/console/executions/stuck", world.mesh.base)).await;
    browser.wait_until("document.querySelector('.drawing.moves .zoom')").await;
    // Whether a node is within the frame of the drawing, and its text at least 7 px high.
    let shows = |node: &str| {
        format!(
            "(() => {{
                const frame = document.querySelector('.drawing').getBoundingClientRect();
                const node = document.querySelector('[data-node={node}]');
                const box = node.getBoundingClientRect();
                const scale = box.height / node.getBBox().height;
                return box.top >= frame.top && box.bottom <= frame.bottom && 13 * scale > 7;
            }})()"
        )
    };
    browser.wait_until(&shows("n15")).await;
    assert_eq!(browser.script(&format!("return {}", shows("n0"))).await, false);
    assert_eq!(browser.script("return location.hash").await, "", "nobody chose the place");
    browser.save_picture("graph-begins").await;
    // A node that the address names comes first, and all of the graph is one key away.
    browser.open(&format!("{}/console/executions/stuck?node=n2", world.mesh.base)).await;
    browser.wait_until(&shows("n2")).await;
    browser.script("document.querySelector('.drawing').focus()").await;
    browser.press(&["0"]).await;
    let is_whole = "(() => {
        const frame = document.querySelector('.drawing').getBoundingClientRect();
        const ends = ['n0', 'n29'].map((name) => document.querySelector(`[data-node=${name}]`).getBoundingClientRect());
        return ends[0].top >= frame.top && ends[1].bottom <= frame.bottom;
    })()";
    browser.wait_until(is_whole).await;
    // So it is where a canvas shows the graph: what failed is in its middle, or what the address or somebody names.
    world.deploy("longer.yaml", &long_chain(200, 120)).await;
    world.start("longer", "lost", &json!({})).await;
    world.reaches("lost", "failed").await;
    let middle = "history.replaceState(null, '', location.pathname);
        const box = document.querySelector('.drawing').getBoundingClientRect();
        document.querySelector('.drawing').dispatchEvent(new MouseEvent('click', {bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));
        return new URLSearchParams(location.search).get('node')";
    for (query, node) in [("", "n120"), ("?node=n30", "n30")] {
        browser.open(&format!("{}/console/executions/lost{query}", world.mesh.base)).await;
        browser.wait_until("document.querySelector('.drawing[data-ready]')").await;
        // A click opens a node once its text has come.
        browser.wait_until(&format!("(() => {{ {middle} }})() === '{node}'")).await;
    }
    browser.save_picture("graph-large-begins").await;
    browser.open(&format!("{}/console/executions/lost", world.mesh.base)).await;
    browser.write("form[role=search] input[name=node]", "n77").await;
    browser.click("form[role=search] button").await;
    browser
        .wait_until("location.search === '?node=n77' && document.querySelector('.drawing[data-ready]')")
        .await;
    browser.wait_until(&format!("(() => {{ {middle} }})() === 'n77'")).await;
    world.end().await;
}

#[tokio::test]
async fn parts_of_a_graph_open_in_place_and_stay_where_one_looks() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.deploy("nested.yaml", NESTED).await;
    let items: Vec<Value> = (0..30).map(|n| json!(format!("item {n}"))).collect();
    world.start("nested", "nest", &json!({ "items": items })).await;
    world.reaches("nest", "succeeded").await;
    browser.look_as(DESK, "light").await;
    browser.open(&format!("{}/console/executions/nest", world.mesh.base)).await;
    browser.wait_until("document.querySelector('.drawing.moves .zoom')").await;
    // The fan-out is one stacked node with its count.
    assert_eq!(
        browser.script("return document.querySelectorAll('[data-node=each] > g > rect').length").await,
        3
    );
    browser.wait_for_text("30 ok").await;
    let document = "return performance.timeOrigin";
    let opened_at = browser.script(document).await;
    browser.click(".drawing [data-node='all']").await;
    browser.wait_until("document.querySelectorAll('.inspector .cell').length === 30").await;
    browser.click(".inspector a[data-stay]").await;
    browser.wait_until("document.querySelectorAll('.drawing [data-node^=\"all_\"]').length === 24").await;
    browser.wait_for_text("and 6 more").await;
    // All of it is one key away, and a child is asked for by a click on it.
    browser.script("document.querySelector('.drawing').focus()").await;
    browser.press(&["0"]).await;
    let is_seen = "document.querySelector('.drawing [data-node=\"all_3\"]').getBoundingClientRect().left >=
        document.querySelector('.drawing').getBoundingClientRect().left";
    browser.wait_until(is_seen).await;
    browser.click(".drawing [data-node='all_3']").await;
    browser.wait_until("document.querySelector('.inspector h2').textContent.includes('all_3')").await;
    browser.wait_for_text("item 3").await;
    // The workflow behind a node opens there too, and its nodes can be asked.
    browser.open(&format!("{}/console/executions/nest?node=rest", world.mesh.base)).await;
    browser.click(".inspector a[data-stay]").await;
    browser.wait_until("document.querySelector('.drawing [data-node=\"rest/a\"]')").await;
    browser.click(".drawing [data-node='rest/a']").await;
    browser.wait_until("location.search.includes('node=rest%2Fa')").await;
    browser.wait_until("document.querySelector('.inspector').textContent.includes('the rest')").await;
    assert_ne!(browser.script(document).await, opened_at, "the page was opened anew in between");
    // The place survives the drawing that replaces it, and back goes back.
    browser.script("document.querySelector('.drawing').focus()").await;
    browser.press(&["+", "+"]).await;
    browser.wait_until("/#at=/.test(location.hash)").await;
    // The new drawing is less high; what is looked at is as large as before.
    let view = "return document.querySelector('.drawing svg').viewBox.baseVal.width";
    let (before, opened_at) = (browser.script(view).await, browser.script(document).await);
    browser.click(".opened a").await;
    browser.wait_until("!document.querySelector('.drawing [data-node=\"rest/a\"]')").await;
    assert_eq!(browser.script(document).await, opened_at, "the page was left");
    assert_eq!(browser.script(view).await, before);
    browser.script("history.back()").await;
    browser.wait_until("document.querySelector('.drawing [data-node=\"rest/a\"]')").await;
    browser.save_picture("graph-opened").await;
    fingers_zoom(&browser).await;
    stillness_is_kept(&browser).await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

/// Two fingers that part make the drawing larger, around the place between them.
async fn fingers_zoom(browser: &Browser) {
    browser
        .devtools("Emulation.setTouchEmulationEnabled", json!({ "enabled": true, "maxTouchPoints": 2 }))
        .await;
    browser.script("document.querySelector('.drawing').scrollIntoView()").await;
    let frame = browser
        .script("const {left, top, width, height} = document.querySelector('.drawing').getBoundingClientRect(); return [left + width / 2, top + height / 2]")
        .await;
    let (x, y) = (frame[0].as_f64().unwrap(), frame[1].as_f64().unwrap());
    let touch = async |kind: &str, spread: f64| {
        let points = if kind == "touchEnd" {
            json!([])
        } else {
            json!([{"x": x - spread, "y": y, "id": 1}, {"x": x + spread, "y": y, "id": 2}])
        };
        browser.devtools("Input.dispatchTouchEvent", json!({ "type": kind, "touchPoints": points })).await;
    };
    let width = "return document.querySelector('.drawing svg').viewBox.baseVal.width";
    let before = browser.script(width).await.as_f64().unwrap();
    touch("touchStart", 40.0).await;
    for spread in [50.0, 60.0, 80.0] {
        touch("touchMove", spread).await;
    }
    touch("touchEnd", 80.0).await;
    browser
        .wait_until(&format!(
            "document.querySelector('.drawing svg').viewBox.baseVal.width < {}",
            before * 0.7
        ))
        .await;
    browser.devtools("Emulation.setTouchEmulationEnabled", json!({ "enabled": false })).await;
}

/// Places of the drawing between a click and its rest: one where people want no motion, several for others.
async fn stillness_is_kept(browser: &Browser) {
    for (wish, is_still) in [("reduce", true), ("no-preference", false)] {
        let wish = json!({"features": [{"name": "prefers-reduced-motion", "value": wish}]});
        browser.devtools("Emulation.setEmulatedMedia", wish).await;
        let places = browser
            .script_until_called(
                "const done = arguments[arguments.length - 1];
                const svg = document.querySelector('.drawing svg');
                for (let n = 0; n < 3; n += 1) document.querySelector('.zoom [aria-label=\"Zoom in\"]').click();
                requestAnimationFrame(() => requestAnimationFrame(() => {
                    const places = new Set();
                    new MutationObserver(() => places.add(svg.getAttribute('viewBox'))).observe(svg, {attributes: true});
                    document.querySelector('.zoom [aria-label=\"Show all\"]').click();
                    let frames = 0;
                    const step = () => { frames += 1; if (frames < 40) requestAnimationFrame(step); else done(places.size); };
                    step();
                }));",
            )
            .await;
        let places = places.as_u64().unwrap();
        assert!(if is_still { places == 1 } else { places > 2 }, "{places} places, still: {is_still}");
    }
    let styles = "return getComputedStyle(document.body).scrollBehavior";
    assert_eq!(browser.script(styles).await, "auto");
}

#[tokio::test]
async fn ten_thousand_nodes_are_painted_at_once_and_move() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.deploy("large.yaml", &large_file()).await;
    browser.look_as(DESK, "light").await;
    let page = format!("{}/console/workflows/large", world.mesh.base);
    browser.open(&page).await;
    browser.wait_until("document.querySelector('.drawing[data-ready]')").await;
    // A second visit: the layout is known then, as it is for everybody but the first.
    browser.open(&page).await;
    browser.wait_until("document.querySelector('.drawing[data-ready]')").await;
    let times = browser
        .script(
            "const paint = performance.getEntriesByName('first-contentful-paint')[0].startTime;
            const parts = performance.getEntriesByType('resource').filter((one) => one.name.includes('format=placed'));
            return {paint, parts: parts.length, elements: document.querySelectorAll('*').length, graph: Math.max(...parts.map((one) => one.responseEnd)), largest: Math.max(...parts.map((one) => one.decodedBodySize)),
                page: performance.getEntriesByType('navigation')[0].decodedBodySize}",
        )
        .await;
    println!("10,000 nodes: {times}");
    // The first paint waits for little: a small page without its nodes, and then a few parts of the drawing.
    assert!(times["parts"].as_u64().unwrap() <= 8 && times["elements"].as_u64().unwrap() < 6_000, "{times}");
    let has_budgets = std::env::var_os("SINEW_BUDGETS").is_some();
    if has_budgets {
        assert!(times["paint"].as_f64().unwrap() < 1_000.0, "the first paint took too long: {times}");
    }
    assert!(times["largest"].as_f64().unwrap() < 256.0 * 1024.0, "{times}");
    assert!(times["page"].as_f64().unwrap() < 256.0 * 1024.0, "{times}");
    browser.save_picture("graph-large").await;
    let frames = browser
        .script_until_called(
            "const done = arguments[arguments.length - 1];
            const box = document.querySelector('.drawing');
            const frame = box.getBoundingClientRect();
            const at = (type, x, y) => box.dispatchEvent(new PointerEvent(type, {pointerId: 1, button: 0, clientX: frame.left + x, clientY: frame.top + y, bubbles: true}));
            box.setPointerCapture = () => {};
            box.focus();
            const measure = (act) => new Promise((end) => {
                let frames = 0; const begin = performance.now();
                const step = (now) => {
                    frames += 1; act(now - begin);
                    if (now - begin < 1000) requestAnimationFrame(step); else end(frames * 1000 / (now - begin));
                };
                requestAnimationFrame(step);
            });
            (async () => {
                at('pointerdown', 600, 200);
                const pan = await measure((ms) => at('pointermove', 600 - ms / 4, 200 + ms / 10));
                at('pointerup', 0, 0);
                const zoom = await measure((ms) => box.dispatchEvent(new WheelEvent('wheel', {deltaY: ms < 500 ? -40 : 40, ctrlKey: true, bubbles: true, cancelable: true, clientX: frame.left + 300, clientY: frame.top + 200})));
                at('pointerdown', 600, 200);
                const near = await measure((ms) => at('pointermove', 600 - ms / 2, 200));
                at('pointerup', 0, 0);
                done({pan, zoom, near});
            })();",
        )
        .await;
    println!("frames a second: {frames}");
    for movement in ["pan", "zoom", "near"] {
        // How many there are is the machine's matter, too; that the picture moves at all is not.
        let fewest = if has_budgets { 30.0 } else { 1.0 };
        assert!(frames[movement].as_f64().unwrap() >= fewest, "{movement}: {frames}");
    }
    // Near enough to read, the nodes in view have their names, and only they were asked for.
    browser.open(&format!("{page}#at=2000,1500,0.9")).await;
    browser.reload().await;
    browser.wait_until("document.querySelector('.drawing[data-ready]')").await;
    browser
        .wait_until("performance.getEntriesByType('resource').some((one) => one.name.includes('part=window') && one.responseEnd > 0)")
        .await;
    browser.save_picture("graph-large-near").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}
