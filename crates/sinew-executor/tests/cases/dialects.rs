//! Runs of the other dialects over the mesh, held to what virtual time makes of the same file and the same agents.
//!
//! What the files of cases say about these dialects is judged in sinew-dialects, with doubles that only exist there. Here
//! the agents answer by a rule that needs no order, and both drivers must agree on every task and on the end.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_dialects::LowerOptions;
use sinew_engine::{ExecutionMode, Fact, TaskReply, Time};
use sinew_execution::Call;
use sinew_execution::{Execution, Library, Program};
use sinew_mesh::server::ServerOptions;
use sinew_runtime::sim::{Sim, Stub, Stubbed};
use sinew_source::{Document, Node, Sources};

use crate::support::mesh::{PATIENCE, Site, server, start};
use crate::support::process::Part;

/// Runs at work at the same time.
const AT_ONCE: usize = 6;
/// Waits of more virtual milliseconds than this are not waited for.
const LONGEST: Time = 1_000;
/// A day: longer than any case that ends.
const FOREVER: Time = 24 * 3_600_000;

/// One in so many is run, and all with `SINEW_CASES_ALL=1`: they take minutes.
const ONE_IN: usize = 5;

/// A case that cannot be compared, and why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differs {
    id: String,
    why: String,
}

/// Agents that give back what they are given.
struct Echo(BTreeSet<String>);

impl Stub for Echo {
    fn call(&mut self, _now: Time, call: &Call) -> Stubbed {
        self.0.insert(call.ask.target.name().to_owned());
        Stubbed::now(Ok(TaskReply::new(json!({ "echo": Value::clone(&call.ask.input) }))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_dialects() {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases"));
    let server = server(ServerOptions::default()).await;
    let all = std::env::var_os("SINEW_CASES_ALL").is_some();
    let differs: Vec<Differs> = serde_json::from_str(include_str!("dialects-differ.json")).unwrap();
    let mut work = Vec::new();
    let mut loaded = 0;
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    let mut judged: BTreeMap<String, usize> = BTreeMap::new();
    for file in
        ["dialects.json", "own-agentflow.json", "own-agentteam.json", "own-covalt.json", "own-sweny.json"]
    {
        let content: Value = serde_json::from_slice(&std::fs::read(folder.join(file)).unwrap()).unwrap();
        for case in content["cases"].as_array().unwrap() {
            if case["kind"] != "run" {
                continue;
            }
            let Some(library) = load(case) else {
                *left_out.entry("it does not load").or_default() += 1;
                continue;
            };
            loaded += 1;
            if !all && loaded % ONE_IN != 0 {
                continue;
            }
            if let Some(differs) = differs.iter().find(|differs| case["id"] == differs.id) {
                *left_out.entry(&differs.why).or_default() += 1;
                continue;
            }
            let input = case["input"].clone();
            let (reference, agents) = virtually(&library, &input);
            let late = reference.journal().last().unwrap().at > LONGEST;
            if late || !reference.state().ended {
                *left_out.entry("it waits, for time or for a person").or_default() += 1;
                continue;
            }
            let dialect = case["dialect"].as_str().unwrap();
            *judged.entry(dialect.to_owned()).or_default() += 1;
            let (id, url) = (case["id"].as_str().unwrap().to_owned(), server.url());
            let namespace = format!("{dialect}{}", work.len());
            work.push(Box::pin(async move {
                let site = Site::new(&url, &namespace, 1).await;
                let run = AssertUnwindSafe(over_mesh(&site, &library, &agents, input)).catch_unwind().await;
                let (seen, wanted) = (run.map(|seen| comparable(&seen)), comparable(&reference));
                match seen {
                    Ok(seen) if seen == wanted => None,
                    Ok(seen) => Some(format!("{id}\n  over the mesh {seen}\n  in virtual time {wanted}")),
                    Err(_) => Some(format!("{id}: it panicked")),
                }
            }));
        }
    }
    let done: Vec<_> = futures_util::stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
    let failed: Vec<_> = done.iter().flatten().collect();
    for line in &failed {
        println!("FAILED {line}");
    }
    println!(
        "{} passed, {} failed; judged {judged:?}; left out {left_out:?}",
        done.len() - failed.len(),
        failed.len()
    );
    assert!(judged.len() == 4 && judged.values().all(|count| *count >= 10), "{judged:?}");
    assert_eq!(failed.len(), 0);
}

fn load(case: &Value) -> Option<Arc<Library>> {
    let dialect = sinew_dialects::by_name(case["dialect"].as_str()?)?;
    let document = Document { root: Node::from_json(&case["workflow"]), sources: Sources::default() };
    let read = |path: &str| Err(format!("{path} cannot be read here"));
    let agents = BTreeMap::new();
    let options =
        LowerOptions { default_name: "WF", read: &read, list: &sinew_dialects::no_list, agents: &agents };
    let mut lowered = dialect.lower(document, &options).ok()?;
    let mut library = Library::default();
    // One workflow, under a name that is known here.
    let mut plan = lowered.pop().filter(|_| lowered.is_empty())?.plan;
    "WF".clone_into(&mut plan.name);
    library.insert(Program::new(plan, dialect.adapter()).ok()?);
    Some(Arc::new(library))
}

/// In virtual time, with the names of the agents that were called.
fn virtually(library: &Arc<Library>, input: &Value) -> (Execution, BTreeSet<String>) {
    let mut sim = Sim::new(Arc::clone(library), Echo(BTreeSet::new()));
    sim.run(library.get("WF").unwrap().clone(), input.clone(), ExecutionMode::default(), FOREVER);
    let names = std::mem::take(&mut sim.stub_mut().0);
    let execution = sim.execution();
    let id = execution.id().clone();
    (Execution::recover(id, execution.program().clone(), execution.journal()), names)
}

async fn over_mesh(
    site: &Site,
    library: &Arc<Library>,
    agents: &BTreeSet<String>,
    input: Value,
) -> Execution {
    site.deploy_program(library.get("WF").unwrap()).await;
    let agents = agents.iter().map(|name| (name.clone(), json!({ "echo": true }), Value::Null)).collect();
    let mut agents = site.process(Part::Agents { direct: false, a2a: false, agents, slower: 1 }).await;
    let service = site.executor("one").await;
    let client = site.client().await;
    let command = start(&client, "k", "WF", input);
    let execution = command.execution.clone();
    client.start(command).await.unwrap();
    client.outcome(&execution, Some(PATIENCE)).await.unwrap().unwrap();
    let (_, folded) = client.execution(&execution).await.unwrap().unwrap();
    service.drain().await;
    agents.end().await;
    folded
}

/// Every task that was asked for, in no order, and the end.
fn comparable(execution: &Execution) -> Value {
    let facts = execution.journal().iter().flat_map(|round| &round.facts);
    let mut tasks: Vec<String> = facts
        .filter_map(|fact| match fact {
            Fact::Dispatched { act, attempt, ask, .. } => {
                let node = &execution.program().graph.plan().node(execution.state().act(*act).node).id;
                Some(json!([node, attempt, ask.tag, ask.target.name(), *ask.input]).to_string())
            }
            _ => None,
        })
        .collect();
    tasks.sort();
    let outcome = execution.state().outcome.as_ref();
    json!({
        "status": outcome.map(|outcome| outcome.status.as_str()),
        "output": outcome.and_then(|outcome| outcome.output.as_deref()),
        "fault": outcome.and_then(|outcome| outcome.fault.as_ref()).map(|fault| &fault.message),
        "tasks": tasks,
    })
}
