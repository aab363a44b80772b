//! Nodes that a workflow calls quiet: small in graphs, folded in lists and timelines, unless somebody has to look at them.

use serde_json::{Value, json};

use super::browser::Browser;
use super::world::{CHAIN, ConsoleWorld};

/// The chain, whose check and shipping are plumbing.
fn quiet_chain() -> String {
    format!("{}  display: {{quiet: {{nodes: [check, ship]}}}}\n", CHAIN.trim_start())
}

#[tokio::test]
async fn quiet_nodes_are_folded_unless_they_failed() {
    let world = ConsoleWorld::new().await;
    world.deploy("plumbed", &quiet_chain()).await;
    world.start("plumbed", "leak", &json!({"value": "an order"})).await;
    world.reaches("leak", "failed").await;
    // Programs get all nodes.
    let (_, _, tree) = world.page("/api/v1/executions/leak/tree").await;
    let tree: Value = serde_json::from_str(&tree).unwrap();
    let nodes =
        tree.as_array().unwrap().iter().map(|row| (row["node"].as_str().unwrap(), row["quiet"] == true));
    assert_eq!(nodes.collect::<Vec<_>>(), [("check", true), ("ship", true), ("invoice", false)]);
    // Nodes in the table of nodes and in that of the timeline, and the line about the rest.
    let check = async |page: &str, listed: &[&str], told: &[&str]| {
        let (_, _, text) = world.page(page).await;
        for node in ["check", "ship", "invoice"] {
            let link = format!("node={node}\"");
            let mut rows = text.split("<tr data-row").skip(1).filter_map(|row| row.split("</tr>").next());
            assert_eq!(
                rows.any(|row| row.contains(&link)),
                listed.contains(&node),
                "{page}: {node} in {text}"
            );
        }
        for one in told {
            assert!(text.contains(one), "{page}: {one:?} is not in {text}");
        }
    };
    let open = "href=\"/console/executions/leak?quiet=1\"";
    check("/console/executions/leak", &["ship", "invoice"], &["1 quiet node: 1 succeeded.", open]).await;
    check(
        "/console/executions/leak?quiet=1",
        &["check", "ship", "invoice"],
        &["Collapse quiet nodes", "--no-fold"],
    )
    .await;
    check("/console/executions/leak?status=succeeded", &["check"], &[]).await;
    check("/console/executions/leak/timeline", &["ship"], &["1 quiet activation, ", "timeline?quiet=1"])
        .await;
    check("/console/executions/leak/timeline?quiet=1", &["check", "ship"], &["--no-fold"]).await;
    // The drawing says all of them, the quiet ones small, and a failure in its colour.
    let (_, _, page) = world.page("/console/executions/leak").await;
    assert!(page.contains("class=\"node quiet succeeded\" data-node=\"check\""), "{page}");
    assert!(page.contains("class=\"node quiet failed\" data-node=\"ship\""), "{page}");
    // All that is quiet and well is one line, with a table or without.
    world.mend();
    let retry =
        world.mesh.http.post(format!("{}/api/v1/executions/leak/retry", world.mesh.base)).json(&json!({}));
    assert!(retry.send().await.unwrap().status().is_success());
    world.reaches("leak", "succeeded").await;
    check("/console/executions/leak", &["invoice"], &["2 quiet nodes: 2 succeeded."]).await;
    // A selected node is beside the list, folded or not.
    check("/console/executions/leak?node=check", &["invoice"], &["aria-label=\"Selected node\""]).await;
    if let Some(browser) = Browser::start().await {
        for scheme in ["light", "dark"] {
            browser.look_as((1280, 900), scheme).await;
            browser.open(&format!("{}/console/executions/leak", world.mesh.base)).await;
            browser.wait_until("document.querySelector('.drawing.moves')").await;
            browser.save_picture(&format!("quiet-{scheme}")).await;
        }
        let height = "return [...document.querySelectorAll('.drawing .node')].filter((one) => ['check', 'invoice'].includes(one.dataset.node)).map((one) => one.getBoundingClientRect().height)";
        let heights = browser.script(height).await;
        assert!(heights[0].as_f64().unwrap() * 1.5 < heights[1].as_f64().unwrap(), "{heights}");
        browser.click("a[href$='quiet=1']").await;
        browser.wait_until("document.querySelector(\"[data-row] a[href*='node=check']\")").await;
        assert_eq!(browser.messages().await, Vec::<String>::new());
    }
    world.end().await;
}
