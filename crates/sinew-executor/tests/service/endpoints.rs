//! Two endpoints, one meaning: what agents do at the node endpoint and what they do through A2A become the same facts.

use std::num::NonZeroU32;

use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Context, Delivery, Failure};
use sinew_engine::{Fact, decode_round};
use sinew_executor::client::Client;
use sinew_mesh::Mesh;
use sinew_mesh::server::ServerOptions;
use sinew_protocol::ExecutionId;
use sinew_protocol::command::StartCommand;
use tokio::task::JoinSet;

use crate::support::mesh::{PATIENCE, Site, server};

/// One agent; the input names what it does.
const WORKFLOW: &str = r#"
workflow:
  description: One agent
  nodes:
    - id: a
      type: agent
      agent_name: one
      instruction: "be kind"
      input: {does: "{{workflow.input.does}}", pad: "{{workflow.input.pad}}"}
      retryStrategy: {limit: 2, retryPolicy: OnError, backoff: {duration: 0.01s}}
  output_mapping: {value: "{{a.output.value}}"}
"#;

/// Works of the agent, each asked for once by each endpoint.
const CORPUS: [&str; 16] = [
    "echo",
    "number",
    "null",
    "wait",
    "fail",
    "fail for good",
    "temporary",
    "panic",
    "panic late",
    "artifact",
    "artifact of the same name",
    "large",
    "usage",
    "bad output",
    "surroundings",
    "large input",
];

async fn work(input: Value, context: Context) -> Result<Value, Failure> {
    let does = input["does"].as_str().unwrap_or_default().to_owned();
    Ok(match does.as_str() {
        "number" => json!({"value": 0.1, "large": 12_345_678_901_234_567_890_u64}),
        "null" => json!({"value": null}),
        "wait" => {
            tokio::task::yield_now().await;
            json!({"value": "waited"})
        }
        "fail" => return Err(Failure::new("it failed")),
        "fail for good" => return Err(Failure::new("it failed").for_good()),
        "temporary" if context.attempt() < 3 => return Err(Failure::temporary("not this time")),
        "panic" => panic!("on purpose"),
        "panic late" => {
            tokio::task::yield_now().await;
            panic!("on purpose")
        }
        "artifact" => {
            context.artifacts().put("notes.txt", "text/plain", "notes")?;
            json!({"value": "with notes"})
        }
        "artifact of the same name" => {
            let name = format!("endpoints_a_{}.json", &context.task().as_str()[24..]);
            context.artifacts().put(&name, "text/plain", "first")?;
            json!({"value": "second"})
        }
        "large" => json!({"value": "x".repeat(100_000)}),
        "usage" => {
            context.usage(json!({"input_tokens": 3}));
            json!({"value": "costly"})
        }
        "bad output" => json!({"value": 1, "forbidden": true}),
        "surroundings" => json!({
            "value": context.context(),
            "told": [context.workflow(), context.node(), context.session(), context.instruction(),
                context.activation(), context.attempt(), context.deadline().is_some()],
        }),
        does => json!({"value": does}),
    })
}

fn agent(node_requests: bool) -> Agent {
    let output = json!({"type": "object", "not": {"required": ["forbidden"]}});
    Agent::dynamic("one", None, Some(output), work).delivery(Delivery::Direct).node_requests(node_requests)
}

/// All facts of one case, without points in time and the time that the agent worked.
async fn facts(client: &Client, execution: &ExecutionId) -> Vec<Value> {
    client.outcome(execution, Some(PATIENCE)).await.unwrap().unwrap();
    let record = client.record(execution).await.unwrap().unwrap();
    let rounds = record.rounds.iter().map(|round| decode_round(round).unwrap());
    let mut facts: Vec<Fact> = rounds.flat_map(|round| round.facts).collect();
    for fact in &mut facts {
        if let Fact::Replied { worked_ms, .. } = fact {
            *worked_ms = None;
        }
    }
    facts
        .iter()
        .map(|fact| {
            let mut fact = json!(format!("{fact:?}"));
            let text = fact.as_str().unwrap_or_default();
            // Each stored artifact has a key of its own.
            let text =
                text.split("&key=").enumerate().map(|(nth, part)| &part[if nth == 0 { 0 } else { 43 }..]);
            let text: String = text.collect();
            // Waits and deadlines are points in time.
            let plain: String = text
                .split_inclusive([' ', '(', ')', ','])
                .map(|word| if is_time(word) { "TIME" } else { word })
                .collect();
            fact = plain.into();
            fact
        })
        .collect()
}

/// Whether a word of a fact is a time in milliseconds since 1970.
fn is_time(word: &str) -> bool {
    let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
    digits.len() == 13 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Runs the corpus with an agent that is asked by one endpoint; gives the facts of each case.
async fn run(url: &str, namespace: &str, node_requests: bool) -> Vec<Vec<Value>> {
    let site = Site::new(url, namespace, NonZeroU32::MIN.get()).await;
    site.deploy("endpoints", WORKFLOW).await;
    let requests = heard(&site.mesh, "node").await;
    let calls = heard(&site.mesh, "rpc").await;
    let mut serving = JoinSet::new();
    serving.spawn(agent(node_requests).serve(site.connect("one").await, CancellationToken::new()));
    let service = site.executor("exec").await;
    site.mesh.cards().follow().wait_for("one").await;
    let client = site.client().await;
    let mut all = Vec::new();
    for (nth, does) in CORPUS.iter().enumerate() {
        // The same id in both namespaces, so that all ids within the facts are the same.
        let execution = ExecutionId::parse(&format!("case-{nth}")).unwrap();
        let pad = if *does == "large input" { "x".repeat(70_000) } else { String::new() };
        let input = json!({"does": does, "pad": pad});
        client.start(StartCommand::new(execution.clone(), "endpoints", input)).await.unwrap();
        all.push(facts(&client, &execution).await);
    }
    service.drain().await;
    let (by_node, by_a2a) = (count(requests), count(calls));
    if node_requests {
        assert!(by_node >= CORPUS.len() - 1, "only {by_node} node requests");
        assert_eq!(
            by_a2a, 1,
            "an input that is too large for the short form is stored, and asked about through A2A"
        );
    } else {
        assert_eq!(by_node, 0, "the agent takes no node requests");
        assert!(by_a2a >= CORPUS.len());
    }
    all
}

async fn heard(mesh: &Mesh, kind: &str) -> sinew_mesh::async_nats::Subscriber {
    let below = if kind == "node" { "" } else { ".>" };
    let client = mesh.client();
    let heard = client.subscribe(format!("{}.v1.{kind}.one{below}", mesh.namespace())).await.unwrap();
    client.flush().await.unwrap();
    heard
}

fn count(mut heard: sinew_mesh::async_nats::Subscriber) -> usize {
    use futures_util::{FutureExt as _, StreamExt as _};
    std::iter::from_fn(|| heard.next().now_or_never().flatten()).count()
}

#[tokio::test]
async fn both_endpoints_give_the_same_facts() {
    let server = server(ServerOptions::default()).await;
    let by_node = run(&server.url(), "node", true).await;
    let by_a2a = run(&server.url(), "a2a", false).await;
    for ((does, node), a2a) in CORPUS.iter().zip(by_node).zip(by_a2a) {
        assert_eq!(node, a2a, "{does}");
    }
}
