//! Pulse and the list of executions: bars by minute, top errors, counts by status, columns and saved views.

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};

use super::browser::Browser;
use super::world::ConsoleWorld;
use crate::support::PATIENCE;

async fn document(world: &ConsoleWorld, path: &str) -> Value {
    let (status, _, text) = world.page(path).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// The sum of a figure over all minutes.
fn sum(activity: &Value, figure: &str) -> u64 {
    activity["minutes"].as_array().unwrap().iter().map(|minute| minute[figure].as_u64().unwrap()).sum()
}

/// Reads the activity until so many executions failed by an error with a code: codes are told once records are archived.
async fn activity_with_errors(world: &ConsoleWorld, errors: usize) -> Value {
    loop {
        let activity = document(world, "/api/v1/pulse/activity").await;
        if activity["errors"].as_array().unwrap().len() == errors {
            return activity;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn activity_and_counts_are_told_and_lead_to_filtered_lists() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let activity = activity_with_errors(&world, 1).await;
    assert_eq!(activity["minutes"].as_array().unwrap().len(), 60);
    assert_eq!(
        (sum(&activity, "started"), sum(&activity, "ended"), sum(&activity, "failed"), &activity["is_whole"]),
        (3, 2, 1, &json!(true)),
        "{activity}"
    );
    let error = &activity["errors"][0];
    let code = error["code"].as_str().unwrap();
    assert!(code.starts_with("SINEW-") && error["count"] == 1 && error["latest"] == "bad", "{error}");
    assert_eq!(
        document(&world, "/api/v1/pulse/activity?minutes=1").await["minutes"].as_array().unwrap().len(),
        1
    );
    let (_, _, page) = world.page("/console").await;
    let link = format!("/console/executions?status=failed&amp;error={code}");
    for one in
        ["Per minute", "aria-label=\"Failed: 1 executions, max 1 per minute\"", "Top errors", link.as_str()]
    {
        assert!(page.contains(one), "{one:?} is not in {page}");
    }
    let (_, _, list) = world.page(&format!("/console/executions?status=failed&error={code}")).await;
    assert!(list.contains("href=\"/console/executions/bad\""), "{list}");
    assert!(list.contains(&format!("sinew execution list --status failed --error {code}")), "{list}");
    for filter in ["error=SINEW-0000", "error=<b>"] {
        let (_, _, list) = world.page(&format!("/console/executions?{filter}")).await;
        assert!(list.contains("No matching executions") && !list.contains("<b>\""), "{filter}: {list}");
    }

    let counts = |query: &'static str| document(&world, query);
    assert_eq!(
        counts("/api/v1/execution-counts").await,
        json!({"counts": {"failed": 1, "succeeded": 1, "waiting": 1}, "is_whole": true})
    );
    assert_eq!(
        counts("/api/v1/execution-counts?workflow=chain").await,
        json!({"counts": {"failed": 1}, "is_whole": true})
    );
    assert_eq!(counts("/api/v1/execution-counts?since=9999999999999").await["counts"], json!({}));
    let (status, ..) = world.page("/api/v1/execution-counts?label=a%3Db").await;
    assert_eq!(status, 400, "labels are not counted");
    let (_, _, list) = world.page("/console/executions?workflow=chain").await;
    assert!(list.contains("All <span class=\"quiet count\">1</span>"), "{list}");
    let (_, _, list) = world.page("/console/executions?label=team%3Da").await;
    assert!(!list.contains("quiet count"), "{list}");

    // A retried execution is one execution still: its earlier end no longer counts.
    world.mend();
    let retry =
        world.mesh.http.post(format!("{}/api/v1/executions/bad/retry", world.mesh.base)).json(&json!({}));
    assert!(retry.send().await.unwrap().status().is_success());
    world.reaches("bad", "succeeded").await;
    let activity = activity_with_errors(&world, 0).await;
    assert_eq!((sum(&activity, "started"), sum(&activity, "ended"), sum(&activity, "failed")), (3, 2, 0));
    assert_eq!(counts("/api/v1/execution-counts").await["counts"], json!({"succeeded": 2, "waiting": 1}));
    world.end().await;
}

#[tokio::test]
async fn words_of_the_search_box_lead_to_lists_and_executions() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let find = async |words: &str| {
        let words = percent_encoding::utf8_percent_encode(words, percent_encoding::NON_ALPHANUMERIC);
        let address = format!("{}/console/executions?find={words}&hide=caller", world.mesh.base);
        let answer = client.get(address).send().await.unwrap();
        let to = answer.headers().get("location").map(|to| to.to_str().unwrap().to_owned());
        (answer.status().as_u16(), to.unwrap_or_default(), answer.text().await.unwrap())
    };
    let (status, to, _) = find("status:failed workflow:chain label:team=a").await;
    let wanted = "/console/executions?status=failed&workflow=chain&label=team%3Da&hide=caller";
    assert_eq!((status, to.as_str()), (303, wanted));
    let (_, _, list) = world.page(&to).await;
    assert!(
        list.contains("href=\"/console/executions/bad\"") && !list.contains("executions/good\""),
        "{list}"
    );
    // A text that is no id is searched for.
    assert_eq!(find("nothing").await.1, "/console/executions?q=nothing&hide=caller");
    // The begin of an id is enough.
    assert_eq!(find(" ba ").await.1, "/console/executions/bad");
    {
        let (words, status, told) = ("<b>:1", 400, "is not one of status");
        let (found, to, page) = find(words).await;
        assert_eq!((found, to.as_str()), (status, ""), "{words}");
        // The box keeps what was written, above the whole list.
        assert!(
            page.contains(told) && page.contains("executions/good\"") && !page.contains("<b>:1"),
            "{words}: {page}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn views_are_saved_and_columns_are_chosen() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    world.fill().await;
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/executions?status=failed", world.mesh.base)).await;
    // One box ticks all rows.
    browser.open(&format!("{}/console/executions", world.mesh.base)).await;
    browser.click("[data-choose-all]").await;
    browser.wait_until("document.querySelectorAll('[data-row] input:checked').length === 3").await;
    browser.click("[data-choose-all]").await;
    browser.wait_until("document.querySelectorAll('[data-row] input:checked').length === 0").await;
    browser.open(&format!("{}/console/executions?status=failed", world.mesh.base)).await;
    // The address holds the columns.
    browser.script("document.querySelector('.columns-choice').open = true").await;
    browser.click(".columns-choice a[href*='hide=caller']").await;
    browser.wait_until("location.search.includes('hide=caller')").await;
    let heads = "return [...document.querySelectorAll('.rows th')].map((one) => one.textContent).join(' ')";
    let heads = browser.script(heads).await;
    let heads = heads.as_str().unwrap();
    assert!(heads.contains("Labels") && !heads.contains("Caller"), "{heads}");
    // A view is saved under a name, is there after a reload, and is an address.
    browser.write("#views input[name=name]", "<b>broken</b>").await;
    browser.click("#views button[type=submit]").await;
    browser.wait_until("document.querySelector('#views li a')?.textContent === '<b>broken</b>'").await;
    browser.open(&format!("{}/console/executions", world.mesh.base)).await;
    browser.wait_for_text("good").await;
    browser.click("#views li a").await;
    browser.wait_until("location.search === '?status=failed&hide=caller'").await;
    browser.wait_until("document.querySelector('#views li a[aria-current]')").await;
    browser.save_picture("executions-views").await;
    browser.click("#views li button").await;
    browser.wait_until("!document.querySelector('#views li')").await;
    // Views of another version in the storage break nothing.
    browser.script("localStorage.setItem('sinew-views', '{\"name\": 3}')").await;
    browser.open(&format!("{}/console/executions", world.mesh.base)).await;
    browser.wait_until("document.querySelector('#views:not([hidden])')").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn lists_are_told_what_changed() {
    let world = ConsoleWorld::new().await;
    let answer = world.mesh.request(Method::GET, "/api/v1/changes").send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut chunks = answer.bytes_stream();
    let mut told = async |kind: &str| {
        let told = async {
            loop {
                let chunk = chunks.next().await.unwrap().unwrap();
                let text = String::from_utf8(chunk.to_vec()).unwrap();
                assert!(!text.contains("event") || text.starts_with("event: changed\ndata: [\""), "{text}");
                if text.contains(&format!("\"{kind}\"")) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap();
    };
    world.start("single", "new", &json!({"value": "x"})).await;
    told("executions").await;
    world.serve_printer().await;
    told("agents").await;
    let (_, _, page) = world.page("/console/agents").await;
    assert!(page.contains("data-list=\"agents\" data-changes=\"/api/v1/changes\""), "{page}");
    world.end().await;
}

#[tokio::test]
async fn the_selected_node_stays_beside_every_tab() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let inspected = "aria-label=\"Selected node\"";
    for tab in ["", "/timeline", "/events", "/data", "/artifacts", "/agents", "/source"] {
        let (_, _, page) = world.page(&format!("/console/executions/bad{tab}?node=ship")).await;
        let close = format!("class=\"close\" href=\"/console/executions/bad{tab}\"");
        assert!(page.contains(inspected) && page.contains(&close), "{tab}: {page}");
        assert!(
            page.contains("the truck broke down") && page.contains(">card 1.0.0</span>"),
            "{tab}: {page}"
        );
        // Each tab leads to the others with the same node.
        assert!(page.contains("href=\"/console/executions/bad/timeline?node=ship\""), "{tab}: {page}");
        let (_, _, page) = world.page(&format!("/console/executions/bad{tab}")).await;
        assert!(!page.contains(inspected), "{tab}: {page}");
    }
    // The range of a timeline stays while its nodes are looked at.
    let (_, _, page) = world.page("/console/executions/bad/timeline?from=0&to=90000&cut=1").await;
    let link = "href=\"/console/executions/bad/timeline?from=0&amp;to=90000&amp;cut=1&amp;node=ship\"";
    assert!(page.contains(link), "{page}");
    // The server chooses what was there at the time; the command line does the same.
    let (_, _, page) = world.page("/console/executions/bad/timeline?from=3600000").await;
    for one in ["No activations in this range", "--from 3600000ms", ">Show all</a>"] {
        assert!(page.contains(one), "{one:?} is not in {page}");
    }
    // A comparison of the node stays in the view that it was asked for in.
    let (_, _, page) = world.page("/console/executions/bad/timeline?from=0&to=90000&node=ship").await;
    let form = "<form class=\"filter\" method=\"get\" action=\"/console/executions/bad/timeline\"><input type=\"hidden\" name=\"node\" value=\"ship\"><input type=\"hidden\" name=\"from\" value=\"0\">";
    assert!(page.contains(form), "{page}");
    world.end().await;
}
