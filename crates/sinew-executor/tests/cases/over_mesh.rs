//! The same runs over the mesh: a real nats-server, an executor, agents in a process of their own.
//!
//! Each case has a namespace. What it must show is compared as in virtual time, and then with what virtual time showed.
//! `mesh-differs.json` names the cases that cannot be had, with the reason; so does a case of which only some is compared.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_engine::TaskRequest;
use sinew_execution::Library;
use sinew_execution::request::{CardSchemas, Request, Sender};
use sinew_execution::{Call, TaskKey};
use sinew_mesh::server::ServerOptions;
use sinew_protocol::a2a::SendMessageRequest;
use sinew_protocol::command::{CancelCommand, Command};
use sinew_protocol::journal::ParentRef;
use sinew_protocol::task::{TaskExtra, WorkflowNodeRequest};
use sinew_protocol::{ArtifactName, ArtifactRef, ExecutionId, ResultToken, Subject, TaskId, Token};

use crate::cases::sam::{Agents, Asked, Seen, input, load, wanted};
use crate::support::mesh::{PATIENCE, Site, server, start};
use crate::support::process::{Part, Process};

/// Cases at work at the same time.
const AT_ONCE: usize = 6;
/// Cases that end later than this in virtual time are left out.
const LONGEST: u64 = 5_000;
/// Where nothing but the agents takes time, they take so many times more: a loaded machine is slower than virtual time.
const SLOWER: u64 = 8;

/// Timeouts of nodes that are too short here, in seconds, and what they become.
const SHORT: [(&str, &str); 4] =
    [("\"0.05s\"", LONG), ("\"0.1s\"", LONG), ("0.1 seconds", "0.75 seconds"), ("0.15", "0.75")];
const LONG: &str = "\"0.75s\"";
/// A pause between iterations into which a cancel has to fall, and what both become.
const SHORT_DELAY: &str = "\"0.2s\"";
const LONG_DELAY: &str = "\"3s\"";
/// Factor for the delays of agents, so that late answers are late on the mesh, too.
const LONGER: u64 = 15;

/// A case that differs over the mesh.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differs {
    id: String,
    why: String,
    /// Aspects that are not compared; all of them when absent.
    #[serde(default)]
    without: Vec<String>,
}

/// How executors ask the agents of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedBy {
    Queue,
    /// Node requests at the agent's endpoint.
    Node,
    /// A2A, as agents are asked that take no node requests.
    A2a,
}

#[tokio::test(flavor = "multi_thread")]
async fn queue() {
    all(AskedBy::Queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn direct() {
    all(AskedBy::Node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_a2a() {
    all(AskedBy::A2a).await;
}

/// Runs all cases with agents that are asked like this.
async fn all(asked_by: AskedBy) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/sam.json");
    // Deadlines of a twentieth of a second cannot be kept on a loaded machine: these cases get more, in all they say.
    let text = std::fs::read_to_string(folder).unwrap();
    let text = SHORT.iter().fold(text, |text, (short, long)| text.replace(short, long));
    let mut content: Value = serde_json::from_str(&text.replace(SHORT_DELAY, LONG_DELAY)).unwrap();
    for case in content["cases"].as_array_mut().unwrap() {
        if case.to_string().contains(LONG_DELAY)
            && let Some(cancelled) = case.get_mut("cancel_after_ms")
        {
            *cancelled = json!(cancelled.as_u64().unwrap() * LONGER);
        }
        if case.to_string().contains(LONG) {
            let agents = case["agents"].as_object_mut().into_iter().flatten();
            for delay in agents.filter_map(|(_, agent)| agent.get_mut("delay_ms")) {
                *delay = json!(delay.as_u64().unwrap() * LONGER);
            }
        }
    }
    let differs: Vec<Differs> = serde_json::from_str(include_str!("mesh-differs.json")).unwrap();
    let mut differs: BTreeMap<String, Differs> =
        differs.into_iter().map(|case| (case.id.clone(), case)).collect();
    let only = std::env::var("SINEW_CASE").ok();
    let server = server(ServerOptions::default()).await;
    let url = server.url();
    let mut work = Vec::new();
    let mut left_out = 0;
    for case in content["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        if case["kind"] != "run" || only.as_ref().is_some_and(|only| only != id) {
            continue;
        }
        // Cases without expectations and invalid definitions are judged without a mesh.
        let (Some(mut wanted), Ok(library)) = (wanted(case), load(case)) else { continue };
        let without = match differs.remove(id) {
            Some(case) if case.without.is_empty() => {
                println!("left out: {id}: {}", case.why);
                left_out += 1;
                continue;
            }
            Some(case) => case.without,
            None => Vec::new(),
        };
        wanted.retain(|key, _| !without.contains(key));
        let (url, nth) = (url.clone(), work.len());
        work.push(async move {
            let reference = Seen::of(case, &library, None);
            let late = reference.ended_at.is_none_or(|ended| ended > LONGEST);
            if late {
                return (
                    id,
                    vec!["it ends too late to be waited for: say so in mesh-differs.json".to_owned()],
                );
            }
            let site = Site::new(&url, &format!("case{nth}"), 1).await;
            let running = AssertUnwindSafe(run(&site, case, &library, asked_by, &reference));
            let Ok(seen) = running.catch_unwind().await else { return (id, vec!["it panicked".to_owned()]) };
            let mut wrong = seen.compare(&wanted);
            let (here, there) = (comparable(&seen), comparable(&reference));
            if here != there {
                wrong.push(format!("over the mesh {here}, in virtual time {there}"));
            }
            (id, wrong)
        });
    }
    assert!(only.is_some() || differs.is_empty(), "no such case: {:?}", differs.keys());
    let work = work.into_iter().map(Box::pin);
    let judged: Vec<_> = futures_util::stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
    let failed: Vec<_> = judged.iter().filter(|(_, wrong)| !wrong.is_empty()).collect();
    for (id, wrong) in &failed {
        println!("FAILED {id}");
        for line in wrong {
            println!("  {line}");
        }
    }
    println!("{} passed, {} failed, {left_out} left out", judged.len() - failed.len(), failed.len());
    assert!(only.is_some() || judged.len() >= 80, "only {} cases were judged", judged.len());
    assert_eq!(failed.len(), 0);
}

/// Returns the aspects in which both drivers must agree: all but times, and the order of concurrent calls.
fn comparable(seen: &Seen<'_>) -> Value {
    let mut end = seen.end();
    end.as_object_mut().unwrap().remove("elapsed_ms");
    // On the mesh a reason names who gave it.
    end["error"] = end["error"].as_str().unwrap().replace("by tester: ", "").into();
    let calls = end["calls"].as_array_mut().unwrap();
    calls.sort_by_key(Value::to_string);
    end
}

/// Runs a case.
async fn run<'c>(
    site: &Site,
    case: &'c Value,
    library: &Arc<Library>,
    asked_by: AskedBy,
    reference: &Seen<'_>,
) -> Seen<'c> {
    for program in library.iter() {
        site.deploy_program(program).await;
    }
    // Everything that is sent to agents passes here, whichever way it goes.
    let spy = site.mesh.client();
    let sent = spy.subscribe(format!("{}.v1.task.>", site.namespace)).await.unwrap();
    let asked = spy.subscribe(format!("{}.v1.rpc.>", site.namespace)).await.unwrap();
    let nodes = spy.subscribe(format!("{}.v1.node.>", site.namespace)).await.unwrap();
    spy.flush().await.unwrap();
    let mut agents = agents(site, case, library, asked_by, reference).await;
    let service = site.executor("one").await;
    let client = site.client().await;
    let mut command = start(&client, "k", "WF", input(case));
    let execution = command.execution.clone();
    if let Some(depth) = case["props"]["callDepth"].as_u64() {
        command.depth = depth as u32;
        command.parent = Some(parent(site).await);
    }
    let began = std::time::Instant::now();
    client.start(command).await.unwrap();
    if let Some(at) = case["cancel_after_ms"].as_u64() {
        let first = reference.agents.calls.iter().filter(|call| call.began < at).count();
        agents.asked(first).await;
        if reference.ended_at.is_some_and(|ended| ended < at) {
            client.outcome(&execution, Some(PATIENCE)).await.unwrap().unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(at).saturating_sub(began.elapsed())).await;
        let reason = "the case says so".to_owned();
        let cancel = Command::Cancel(CancelCommand { execution: execution.clone(), reason });
        client.signal(&Token::of("cancel"), cancel, PATIENCE).await.unwrap();
    }
    client.outcome(&execution, Some(PATIENCE)).await.unwrap().unwrap();
    // The last reports of agents are on their way.
    agents.asked(reference.agents.calls.len()).await;
    let cancels = reference.agents.cancels.len();
    agents.until("all are told", |told| of(told, "cancelled").count() >= cancels).await;
    let (_, folded) = client.execution(&execution).await.unwrap().unwrap();
    service.drain().await;
    agents.end().await;
    let began = folded.journal()[0].at;
    let mut messages = HashMap::new();
    let mut by_node = 0;
    for mut heard in [sent, asked, nodes] {
        heard.unsubscribe().await.unwrap();
        while let Some(message) = heard.next().await {
            by_node += usize::from(message.subject.contains(".v1.node."));
            let agent = message.subject.split('.').nth(3).map(Token::of).and_then(|token| token.name());
            let cards = &case["cards"][agent.unwrap_or_default()];
            messages.extend(request(&message.payload).or_else(|| node_request(&message.payload, cards)));
        }
    }
    let is_asked = !reference.agents.calls.is_empty();
    assert_eq!(by_node > 0, is_asked && asked_by == AskedBy::Node, "{by_node} node requests");
    Seen::folded(told(case, &agents, &messages), &folded, began)
}

/// The process with the agents that a case calls.
async fn agents(
    site: &Site,
    case: &Value,
    library: &Library,
    asked_by: AskedBy,
    reference: &Seen<'_>,
) -> Process {
    let mut names: Vec<String> = reference.agents.calls.iter().map(|call| call.agent.clone()).collect();
    names.extend(case["agents"].as_object().unwrap().keys().cloned());
    names.sort();
    names.dedup();
    names.retain(|name| library.get(name).is_none());
    let agents = names
        .into_iter()
        .map(|name| (name.clone(), case["agents"][&name].clone(), case["cards"][&name].clone()))
        .collect();
    let text = case.to_string();
    let patient = !["timeout", "max_workflow", "elapsed_ms"].iter().any(|word| text.contains(word));
    let (direct, a2a) = (asked_by != AskedBy::Queue, asked_by == AskedBy::A2a);
    site.process(Part::Agents { direct, a2a, agents, slower: if patient { SLOWER } else { 1 } }).await
}

/// A caller that some executor has a task from.
async fn parent(site: &Site) -> ParentRef {
    let execution = ExecutionId::of(&site.namespace, "tester", "parent");
    let task =
        TaskId::of(&execution, &sinew_protocol::ActivationKey::of::<String>(&execution, "caller", &[], 0), 1);
    let token = ResultToken::of(&site.mesh.admin().result_key().await.unwrap(), &task);
    let agent = Token::of("WF");
    let result = Subject::Result { shard: 0, agent, execution: execution.clone(), task: task.clone(), token };
    ParentRef { execution, task, result_subject: site.mesh.subject(&result), agent: "WF".to_owned() }
}

/// A task as it was sent, by its id: a message of the queue, or a request at the door.
fn request(body: &[u8]) -> Option<(String, Request)> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let body = if body.get("jsonrpc").is_some() { body["params"].clone() } else { body };
    let message: SendMessageRequest = serde_json::from_value(body).ok()?;
    let extra = TaskExtra::find(message.metadata.as_ref())?.ok()?;
    // An address, or the content itself.
    let is_file = message.message.parts.iter().any(|part| part.filename.is_some());
    let name = ArtifactName::parse("input.json").ok()?;
    let input = is_file.then_some((ArtifactRef { name, version: Some(0) }, extra.input.unwrap_or_default()));
    let task = message.message.metadata.as_ref()?["sub_task_id"].as_str()?.to_owned();
    Some((task, Request { message, input }))
}

/// A task that was sent in the short form, as the A2A message that says the same to an agent with this card.
fn node_request(body: &[u8], card: &Value) -> Option<(String, Request)> {
    let node = WorkflowNodeRequest::read(body).ok()?;
    let ask = TaskRequest {
        tag: node.purpose.to_string(),
        input: Arc::new(node.input.clone().into_owned()),
        instruction: node.instruction.as_deref().map(str::to_owned),
        context: node.context.as_deref().cloned().unwrap_or_default(),
        input_schema: node.input_schema.as_deref().cloned(),
        output_schema: node.output_schema.as_deref().cloned(),
        ..TaskRequest::default()
    };
    let call = Call {
        key: TaskKey { run: 0, act: 0, attempt: node.attempt },
        task: node.sub_task_id.clone(),
        activation: node.activation.clone(),
        execution: node.execution_id.clone(),
        workflow: node.workflow_name.to_string(),
        node: node.node.as_ref().unwrap_or(&node.node_id).to_string(),
        path: node.path.clone(),
        label: node.node_id.to_string(),
        depth: 0,
        tries: 1,
        ask: Arc::new(ask),
        deadline: node.deadline,
    };
    let card = CardSchemas { input: card.get("input_schema"), output: card.get("output_schema") };
    let sender = Sender { session: node.execution_id.to_string(), ..Sender::default() };
    let request = sinew_execution::request::request(&call, &sender, card);
    Some((node.sub_task_id.to_string(), request))
}

fn of<'t>(told: &'t [Value], kind: &'static str) -> impl Iterator<Item = &'t Value> {
    told.iter().filter_map(move |line| line.get(kind))
}

/// Returns the agents as their reports show them.
fn told<'c>(case: &'c Value, agents: &Process, messages: &HashMap<String, Request>) -> Agents<'c> {
    let calls = agents.began().map(|call| {
        let task = call["task"].as_str().unwrap();
        let mut ends = of(&agents.told, "ended").chain(of(&agents.told, "cancelled"));
        Asked {
            agent: call["agent"].as_str().unwrap().to_owned(),
            request: messages.get(task).unwrap_or_else(|| panic!("nobody sent {task}")).clone(),
            depth: 0,
            began: call["at"].as_u64().unwrap(),
            ended: ends.find(|end| end["task"] == task).and_then(|end| end["at"].as_u64()),
        }
    });
    let cancels = of(&agents.told, "cancelled").map(|call| call["agent"].as_str().unwrap().to_owned());
    let (calls, cancels) = (calls.collect(), cancels.collect());
    Agents { case, calls, cancels }
}
