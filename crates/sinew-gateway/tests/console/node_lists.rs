//! Nodes of an execution as a list: those that were not reached, and the filter by status.

use serde_json::{Value, json};
use sinew_agent::Agent;

use super::browser::Browser;
use super::world::ConsoleWorld;

/// A map whose items fail if their text says so, and a node behind it.
const SIFTED: &str = r#"
workflow:
  description: Each item is looked at
  fail_fast: false
  input_schema: {type: object, properties: {items: {type: array}}, required: [items]}
  nodes:
    - {id: all, type: map, node: each, items: "{{workflow.input.items}}"}
    - {id: each, type: agent, agent_name: sieve, input: {value: "{{_map_item}}"}}
    - {id: rest, type: agent, agent_name: one, depends_on: [all], input: {value: "the rest"}}
  output_mapping: {value: "{{rest.output.value}}"}
"#;

/// Two ways, of which a switch takes one; a node behind the other.
const PARTED: &str = r#"
workflow:
  description: One of two ways
  input_schema: {type: object, properties: {value: {type: string}}, required: [value]}
  nodes:
    - {id: first, type: agent, agent_name: one, input: {value: "{{workflow.input.value}}"}}
    - {id: route, type: switch, depends_on: [first], cases: [{condition: "'{{first.output.value}}' == 'left'", node: left}], default: right}
    - {id: left, type: agent, agent_name: one, depends_on: [route], input: {value: "l"}}
    - {id: right, type: agent, agent_name: one, depends_on: [route], input: {value: "r"}}
  output_mapping: {value: "{{left.output.value}}"}
"#;

/// Edges that an agent chooses, and a node behind the one that it does not choose.
const JUDGED: &str = "id: judged\nname: judged\nnodes:\n  a: {name: a, instruction: look}\n  b: {name: b, instruction: fix}\n  c: {name: c, instruction: leave}\n  d: {name: d, instruction: tell}\nedges:\n  - {from: a, to: b, when: it is broken}\n  - {from: a, to: c, when: it is whole}\n  - {from: b, to: d}\nentry: a\n";

/// Labels of the rows of the table, in order.
const ROWS: &str = "[...document.querySelectorAll('[data-part=nodes] [data-node-link]')].map((row) => row.dataset.nodeLink).join(' ')";

async fn serve_agents(world: &ConsoleWorld) {
    let sieve = Agent::dynamic("sieve", None, None, |input: Value, _| async move {
        match input["value"].as_str() {
            Some(text) if text.contains("stone") => Err(sinew_agent::Failure::new("a stone")),
            _ => Ok(input),
        }
    });
    world.mesh.serve(sieve).await;
    let judge = Agent::dynamic("agent", None, None, |input: Value, _| async move {
        Ok(if input["choices"].is_array() { json!({"choice": "c"}) } else { json!({"status": "success"}) })
    });
    world.mesh.serve(judge).await;
}

#[tokio::test]
async fn nodes_are_filtered_by_status_on_the_server() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    serve_agents(&world).await;
    world.deploy("sifted.yaml", SIFTED).await;
    let items: Vec<String> =
        (0..12).map(|n| if n % 5 == 1 { format!("stone {n}") } else { format!("sand {n}") }).collect();
    world.start("sifted", "sift", &json!({ "items": items })).await;
    world.reaches("sift", "failed").await;
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/executions/sift", world.mesh.base)).await;
    browser.wait_until(&format!("{ROWS} === 'all rest'")).await;
    // A chip is an address; it lists children that stand so below the node around them, and counts the others.
    browser.click("[data-part=nodes] .chips a[href*='status=failed']").await;
    browser.wait_until("new URLSearchParams(location.search).get('status') === 'failed'").await;
    browser.wait_until(&format!("{ROWS} === 'all all_1 all_6 all_11'")).await;
    browser.wait_for_text("9 succeeded").await;
    browser.wait_for_text("sinew execution tree sift --status failed").await;
    browser.save_picture("nodes-failed").await;
    // A second status is added, and stays while a node is opened and after a reload.
    browser.click("[data-part=nodes] .chips a[href*='skipped']").await;
    browser.wait_until(&format!("{ROWS} === 'all all_1 all_6 all_11 rest'")).await;
    browser.click("[data-part=nodes] [data-node-link='all_6']").await;
    browser.wait_until("document.querySelector('.inspector h2')?.textContent.includes('all_6')").await;
    browser.reload().await;
    browser.wait_until("document.querySelector('.inspector h2')?.textContent.includes('all_6')").await;
    browser.wait_until(&format!("{ROWS} === 'all all_1 all_6 all_11 rest'")).await;
    browser.click("[data-part=nodes] .chips a").await;
    browser.wait_until(&format!("{ROWS} === 'all rest'")).await;
    let (status, _, page) = world.page("/console/executions/sift?status=waiting").await;
    assert!(status == 200 && page.contains("No nodes have this status."), "{page}");
    let (status, _, page) = world.page("/api/v1/executions/sift/tree?status=odd").await;
    assert!(status == 400 && page.contains("is not a status of nodes"), "{page}");
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn ways_that_were_not_taken_are_told_once_an_execution_has_ended() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    serve_agents(&world).await;
    world.deploy("judged.yaml", JUDGED).await;
    world.deploy("parted.yaml", PARTED).await;
    world.start("judged", "chosen", &json!({})).await;
    world.start("parted", "goes-left", &json!({"value": "left"})).await;
    browser.look_as((1280, 800), "light").await;
    for (id, skipped) in [
        (
            "chosen",
            vec![
                ("b", "the edge \u{2019}it is broken\u{2019} of a was not taken"),
                ("d", "b was not reached"),
            ],
        ),
        ("goes-left", vec![("right", "")]),
    ] {
        let described = world.reaches(id, "succeeded").await;
        assert_eq!(described["nodes"]["over"], described["nodes"]["total"], "{described}");
        browser.open(&format!("{}/console/executions/{id}", world.mesh.base)).await;
        for (node, why) in skipped {
            let row = format!(
                "document.querySelector('[data-part=nodes] [data-node-link=\"{node}\"]').closest('tr')"
            );
            browser.wait_until(&format!("{row}.querySelector('.is-skipped')")).await;
            let why = why.replace('\u{2019}', "'");
            browser.wait_until(&format!("{row}.textContent.includes({})", json!(why))).await;
            // The drawing, the table and the inspector agree.
            browser.click(&format!(".drawing [data-node='{node}']")).await;
            browser
                .wait_until(&format!(
                    "document.querySelector('.inspector')?.textContent.includes('Skipped: {}')",
                    why.replace('\'', "\\'")
                ))
                .await;
        }
        browser.wait_until("!document.querySelector('[data-part=nodes] tbody .is-planned')").await;
    }
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}
