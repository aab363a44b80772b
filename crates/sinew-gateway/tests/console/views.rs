//! Views of the whole mesh in a real browser: an export that is opened, events as they come, and who calls whom.

use futures_util::StreamExt as _;
use serde_json::json;

use sinew_agent::Agent;

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
    // A file that is dropped on the page is opened.
    let drop = format!(
        "const given = new DataTransfer();
        given.items.add(new File([{}], 'gone.json', {{type: 'application/json'}}));
        document.body.dispatchEvent(new DragEvent('drop', {{dataTransfer: given, bubbles: true, cancelable: true}}));",
        json!(export)
    );
    browser.script(&drop).await;
    browser.wait_for_text("the truck broke down").await;
    browser.wait_until("document.querySelectorAll('.drawing [data-node]').length >= 3").await;
    assert_eq!(browser.script("return document.querySelectorAll('main img, main script').length").await, 0);
    // Its times are there too, and another export beside it.
    browser.wait_until("document.querySelectorAll('#times .bars .bar').length >= 2").await;
    browser.wait_until("document.querySelector('#times table').textContent.includes('ship')").await;
    browser.save_picture("import-opened").await;
    world.mend();
    world.start("chain", "better", &json!({ "value": "x" })).await;
    world.reaches("better", "succeeded").await;
    let (_, _, second) = world.page("/api/v1/executions/better/record").await;
    browser.script("document.querySelector('#import details').open = true").await;
    for (field, text) in [("text", &export), ("other", &second)] {
        browser
            .script(&format!("document.querySelector('textarea[name={field}]').value = {}", json!(text)))
            .await;
    }
    browser.click("#import button[type=submit]").await;
    browser.wait_for_text("Differences").await;
    browser
        .wait_until("document.querySelector('#compared-exports').textContent.includes('replace /value')")
        .await;
    browser.script("document.querySelector('textarea[name=other]').value = ''").await;
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

/// Events of the live mesh under which memory is measured, unless `SINEW_LIVE_SECONDS` names a time.
const LIVE_EVENTS: usize = 2_000;
/// Events a second while a time is measured.
const LIVE_RATE: usize = 500;
/// Bytes by which a page may grow meanwhile.
const MAX_GROWTH_BYTES: f64 = 8e6;

/// Tells of so many events of executions; in time if that is measured, else as fast as they go.
async fn tell_events(world: &ConsoleWorld, from: usize, count: usize, is_paced: bool) {
    let mut writer = world.mesh.mesh.events().writer();
    let mut beat = tokio::time::interval(std::time::Duration::from_millis(20));
    let body = json!({ "type": "workflow_node_execution_start", "node_id": "a", "text": "x".repeat(300) })
        .to_string();
    for n in from..from + count {
        if is_paced && n % (LIVE_RATE / 50) == 0 {
            beat.tick().await;
        }
        let execution = sinew_protocol::ExecutionId::parse(&format!("e{}", n / 8)).unwrap();
        let event = sinew_mesh::event::OutgoingEvent {
            workflow: "single",
            execution: &execution,
            kind: "workflow_node_execution_start",
            place: Some((n, 0)),
            at: Some(crate::support::now()),
            traceparent: None,
        };
        writer.write(event, body.clone().into()).await;
    }
}

#[tokio::test]
async fn memory_stays_level_while_a_mesh_is_watched() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    let seconds: Option<usize> = std::env::var("SINEW_LIVE_SECONDS").ok().and_then(|text| text.parse().ok());
    let count = seconds.map_or(LIVE_EVENTS, |seconds| seconds * LIVE_RATE);
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/traffic", world.mesh.base)).await;
    browser.wait_until("document.documentElement.dataset.traffic === 'open'").await;
    let begin = std::time::Instant::now();
    let first = (count / 10).max(400);
    tell_events(&world, 0, first, seconds.is_some()).await;
    browser.wait_until("document.getElementById('traffic').rows.length === 200").await;
    let before = browser.heap_bytes().await;
    // Ten samples, so that a slow growth is seen before it is large.
    for part in 0..10 {
        let of = |part: usize| first + (count - first) * part / 10;
        tell_events(&world, of(part), of(part + 1) - of(part), seconds.is_some()).await;
        println!("{} events: {:.2} MB", of(part + 1), browser.heap_bytes().await / 1e6);
    }
    // The last event is there: none of those before is still to come.
    let last =
        format!("document.getElementById('traffic').rows[0].innerText.includes('e{}')", (count - 1) / 8);
    browser.wait_until(&last).await;
    let after = browser.heap_bytes().await;
    println!("{count} events in {:?}: {:.1} MB, then {:.1} MB", begin.elapsed(), before / 1e6, after / 1e6);
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

/// Edges that an agent chooses.
const JUDGED: &str = "id: judged\nname: judged\nnodes:\n  a: {name: a, instruction: look}\n  b: {name: b, instruction: fix}\n  c: {name: c, instruction: leave}\nedges:\n  - {from: a, to: b, when: it is broken}\n  - {from: a, to: c, when: it is whole}\nentry: a\n";

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
        ["<td class=\"is-removed\">", "sinew execution diff goes stays --node first", "first of stays"];
    check("/console/executions/goes?node=first&with=stays", &differs).await;
    check("/console/executions/goes?node=second&with=first", &["No differences."]).await;
    // A conversion that failed is told beside the node whose value travelled on as it was.
    let mut file: serde_json::Value = serde_json::from_str(&crate::support::review()).unwrap();
    file["connections"][0]["conversion_function"] = json!("lambda d: 1 / 0");
    (file["id"], file["name"]) = (json!("converts"), json!("converts"));
    world.deploy("converts.json", &file.to_string()).await;
    world.start("converts", "unconverted", &json!({ "amount": 1 })).await;
    world.reaches("unconverted", "waiting").await;
    let raised = ["conversion function of 'c' raised at line 1", "ZeroDivisionError", "unconverted"];
    check("/console/executions/unconverted?node=t", &raised).await;
    // An agent judges the edges of sweny, and its choice is told.
    let judge = Agent::dynamic("agent", None, None, |input: serde_json::Value, _| async move {
        Ok(if input["choices"].is_array() { json!({"choice": "c"}) } else { json!({"status": "success"}) })
    });
    world.mesh.serve(judge).await;
    world.deploy("judged.yaml", JUDGED).await;
    world.start("judged", "chosen", &json!({})).await;
    world.reaches("chosen", "succeeded").await;
    check("/console/executions/chosen?node=a", &["it is whole", "route"]).await;
    // A way that was not taken is told as soon as the execution has ended, and by which edge.
    let not_taken = ["is-skipped", "Skipped: the edge ", "it is broken", "of a was not taken"];
    check("/console/executions/chosen?node=b", &not_taken).await;
    check("/console/executions/chosen", &["3/3, 1 skipped"]).await;
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
    // Before the first execution, no edge is said to be used or unused.
    assert!(edges.iter().all(|edge| edge["taken"].is_null()), "{map}");
    let (_, _, page) = world.page("/console/agents").await;
    assert!(page.contains("Calls between agents") && page.contains("data-node=\"shipper\""), "{page}");
    // Calls that happened are told apart, and an agent that asks another one is there without a declaration.
    let asker = Agent::dynamic("asker", None, None, |input: serde_json::Value, context| async move {
        context.call("one", input).await
    });
    world.mesh.serve(asker).await;
    world
        .deploy("asking.yaml", &crate::support::SINGLE.replace("agent_name: one", "agent_name: asker"))
        .await;
    world.start("asking", "asked", &json!({ "value": "x" })).await;
    world.start("chain", "tried", &json!({ "value": "x" })).await;
    world.reaches("asked", "succeeded").await;
    world.reaches("tried", "failed").await;
    let (_, _, map) = world.page("/api/v1/map?format=json").await;
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let taken = |from: &str, to: &str| {
        let edges = map["edges"].as_array().unwrap().iter();
        let mut found = edges.filter(|edge| edge["from"] == from && edge["to"] == to);
        found.next().map(|edge| (edge["taken"].clone(), edge["kind"].clone()))
    };
    assert_eq!(taken("chain", "one"), Some((json!(1), json!("Flow"))), "{map}");
    assert_eq!(taken("single", "one"), Some((json!(0), json!("Flow"))), "{map}");
    assert_eq!(taken("asking", "asker"), Some((json!(1), json!("Flow"))), "{map}");
    assert_eq!(taken("asker", "one"), Some((json!(1), json!("Attach"))), "{map}");
    assert!(taken("chain", "shipper").unwrap().0.as_u64() >= Some(1), "{map}");
    world.end().await;
}

/// Executions of the list that is measured, unless `SINEW_LIST_EXECUTIONS` names more.
const LISTED_EXECUTIONS: usize = 600;
/// Records that are on their way to the mesh at once.
const RECORDS_AT_ONCE: usize = 200;

/// Puts records into the history: copies of an execution that ended, each with an id and a start of its own.
async fn fill_history(world: &ConsoleWorld, count: usize) {
    let history = world.mesh.mesh.history();
    let id = sinew_protocol::ExecutionId::parse("model").unwrap();
    let (closed, record) = history.get(&id).await.unwrap().unwrap();
    let record = sinew_protocol::journal::ExecutionRecord::decode(&record).unwrap();
    let copies = futures_util::stream::iter(1..=count).map(|n| {
        let (mut closed, mut record) = (closed.clone(), record.clone());
        let execution = sinew_protocol::ExecutionId::parse(&format!("old-{n:06}")).unwrap();
        // The later it is stored, the later it began.
        let began = closed.started - 1_000 * (count - n) as u64;
        (closed.ended, closed.started) = (began + 5, began);
        (closed.execution, record.meta.execution, record.meta.created) =
            (execution.clone(), execution, began);
        async move { history.put(&closed, record.encode()).await.unwrap() }
    });
    copies.buffer_unordered(RECORDS_AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test]
async fn a_long_list_comes_page_by_page() {
    let world = ConsoleWorld::new().await;
    let wanted = std::env::var("SINEW_LIST_EXECUTIONS").ok().and_then(|text| text.parse().ok());
    let count = wanted.unwrap_or(LISTED_EXECUTIONS);
    world.start("single", "model", &json!({ "value": "x" })).await;
    world.reaches("model", "succeeded").await;
    while world
        .mesh
        .mesh
        .history()
        .get(&sinew_protocol::ExecutionId::parse("model").unwrap())
        .await
        .unwrap()
        .is_none()
    {
        tokio::task::yield_now().await;
    }
    fill_history(&world, count).await;
    let mut took = Vec::new();
    for _ in 0..9 {
        let begin = std::time::Instant::now();
        let (_, _, page) = world.page("/console/executions").await;
        took.push(begin.elapsed());
        assert_eq!(page.matches("<tr data-row").count(), 50);
        assert!(page.len() < 256 << 10, "{} bytes", page.len());
        // `model` began last.
        assert!(page.contains(">model</a>") && page.contains(&format!("old-{count:06}")), "{page}");
    }
    took.sort();
    println!(
        "{count} executions: a page of 50 rows takes {:?} (median of 9), {:?} at most",
        took[4], took[8]
    );
    if std::env::var_os("SINEW_BUDGETS").is_some() {
        assert!(took[4].as_millis() <= 100, "{took:?}");
    }
    // Page after page, every execution comes once, in order.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    while seen.len() <= LISTED_EXECUTIONS {
        let (_, _, page) = world.page(&format!("/api/v1/executions?limit=200{cursor}")).await;
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        seen.extend(
            page["executions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["execution"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let expected: Vec<String> = std::iter::once("model".to_owned())
        .chain((1..=count).rev().map(|n| format!("old-{n:06}")))
        .take(seen.len())
        .collect();
    assert_eq!(seen, expected);
    assert!(count > LISTED_EXECUTIONS || seen.len() == count + 1, "{}", seen.len());
    world.end().await;
}
