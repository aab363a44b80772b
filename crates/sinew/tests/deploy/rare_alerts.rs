//! Alerts whose causes are rare: budgets, forged and unreadable messages, full streams, fights of owners, memory, files, late
//! commits, and an execution that ends its owners.
//!
//! Three causes stand for others that take a disk or a second machine, and an executor cannot tell them apart: a link that
//! delays appends for a slow disk, a commit of a stranger for an executor that took the shard, a kill while an append is
//! held back for a message that ends its reader.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use sinew_protocol::Token;
use sinew_protocol::journal::Commit;

use super::alerts::{SLOW, ScrapedExecutor, count, flow, owned, rules, scraped_until};
use super::promql::{Sample, ScrapeWindow};
use super::slow_link::{LinkRule, SlowLink};
use crate::common::{POLL_INTERVAL, World};

/// Answers with a list of 300,000 objects.
const BULKY: &str = "name: Bulky\nrun: {command: {argv: [cat, bulk.json]}}\n";
/// Answers when a file is there.
const LATE: &str = "name: Late\nrun: {command: {argv: [sh, -c, 'until [ -e answer.json ]; do sleep 0.05; done; cat answer.json']}}\n";

/// Executions below each other, one deeper than the innermost allows.
const NESTED: [(&str, &str); 3] = [
    ("outer", "    - {id: a, type: workflow, workflow_name: inner, input: {}}\n"),
    ("inner", "    - {id: a, type: workflow, workflow_name: leaf, input: {}}\n"),
    ("leaf", "    - {id: a, type: agent, agent_name: Prompt, input: {}}\n"),
];
const PROMPT: &str = "name: Prompt\nrun: {script: {source: \"lambda input: {}\"}}\n";
/// A mesh of two executors whose counters are watched.
struct RareCauses {
    world: World,
    executors: Vec<ScrapedExecutor>,
}

impl RareCauses {
    fn scrape(&self) -> Vec<Sample> {
        self.executors.iter().flat_map(ScrapedExecutor::scrape).collect()
    }

    /// Does something, and waits until an alert fires because of it.
    #[track_caller]
    fn fires(&self, alert: &str, cause: impl FnOnce(&World)) {
        let first = self.scrape();
        cause(&self.world);
        let expression = rules().into_iter().find(|(name, _)| name == alert).expect(alert).1;
        let since = Instant::now();
        loop {
            let window = ScrapeWindow { first: first.clone(), last: self.scrape(), seconds: 60.0 };
            if !window.firing(&expression).is_empty() {
                return;
            }
            assert!(
                since.elapsed().as_secs() < 60,
                "{alert} has not fired within a minute: {:#?}",
                window.last
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Publishes with the rights of everybody.
fn vandal<T>(world: &World, work: impl AsyncFnOnce(sinew_mesh::Mesh) -> T) -> T {
    world.runtime.block_on(async { work(world.connect("vandal").await).await })
}

#[test]
fn rarer_causes_fire_their_alerts() {
    let (world, first) = World::new();
    first.stop();
    let one = ScrapedExecutor::start(&world);
    scraped_until(&[&one], |samples| (owned(samples) - 4.0).abs() < 0.5);
    let files = one.open_files();
    world.write("prompt.agent.yaml", PROMPT);
    world.write("slow.agent.yaml", SLOW);
    world.write("bulky.agent.yaml", BULKY);
    let _agents =
        world.serve(&["serve", "agent", "prompt.agent.yaml", "slow.agent.yaml", "bulky.agent.yaml"]);
    world.online(&["Prompt", "Slow", "Bulky"]);
    for (name, nodes) in NESTED {
        let depth = if name == "outer" { 3 } else { 1 };
        let file = flow(name, nodes).replace("  nodes:", &format!("  max_call_depth: {depth}\n  nodes:"));
        world.write(&format!("nested/{name}.yaml"), &file);
    }
    world.write(
        "nested/slow.yaml",
        &flow("slow", "    - {id: a, type: agent, agent_name: Slow, timeout: 60s}\n"),
    );
    let bulky = |n: usize| format!("    - {{id: n{n}, type: agent, agent_name: Bulky, input: {{}}}}\n");
    // The last node keeps the execution open.
    let waiting = "    - {id: last, type: agent, agent_name: Slow, timeout: 60s, depends_on: [n0]}\n";
    let nodes = (0..8).map(bulky).collect::<String>() + waiting;
    world.write("nested/bulky.yaml", &flow("bulky", &nodes));
    world.ok(&["workflow", "deploy", "nested"]);
    let mut rare = RareCauses { world, executors: vec![one] };

    rare.fires("SinewBudgetsUsedUp", |world| {
        world.ends(&["run", "outer", "--mesh", "-q", "--wait"], 1);
    });
    rare.fires("SinewResultsForeign", |world| {
        world.ok(&["run", "slow", "--mesh", "--detach", "-q", "--id", "slow"]);
        vandal(world, foreign_result);
    });
    rare.fires("SinewMessagesUndeliverable", |world| {
        // A header block that no client library reads.
        let block = "NATS/1.0\r\nno colon\r\n\r\n";
        let subject = format!("sinew.v1.command.0.cancel.vandal.{:032x}", 9);
        let mut stream = TcpStream::connect(world.url.trim_start_matches("nats://")).unwrap();
        write!(stream, "CONNECT {{\"verbose\":false,\"headers\":true}}\r\n").unwrap();
        write!(stream, "HPUB {subject} {} {}\r\n{block}\r\nPING\r\n", block.len(), block.len()).unwrap();
        let mut said = std::io::BufReader::new(stream);
        let mut line = String::new();
        while !line.starts_with("PONG") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0);
        }
    });
    rare.fires("SinewQuarantineLost", |world| vandal(world, full_quarantine));
    rare.fires("SinewExecutorsFight", |world| {
        vandal(world, strange_commits);
        for _ in 0..8 {
            world.ok(&["run", "leaf", "--mesh", "--detach", "-q"]);
        }
    });
    rare.fires("SinewStreamBehind", |world| {
        vandal(world, async |mesh| mesh.admin().jetstream().delete_stream("sinew_RESULTS").await.unwrap());
        world.ok(&["mesh", "provision"]);
    });

    // Eight answers, each of some hundred megabytes once it is read.
    rare.fires("SinewMemoryRunsOut", |world| {
        world.write("bulk.json", &format!("{{\"l\": [{}0]}}", "{\"a\":0},".repeat(300_000)));
        world.ok(&["run", "bulky", "--mesh", "--detach", "-q"]);
    });

    rare.executors.push(ScrapedExecutor::with_open_files(&rare.world, files + files / 5));
    rare.fires("SinewFilesRunOut", |_| ());
}

/// Tasks of an agent whose only process was killed: executors tell of them, one after the other.
#[test]
fn queues_of_a_dead_agent_fire_their_alerts() {
    let (world, first) = World::new();
    first.stop();
    let one = ScrapedExecutor::start(&world);
    scraped_until(&[&one], |samples| (owned(samples) - 4.0).abs() < 0.5);
    world.write("prompt.agent.yaml", PROMPT);
    world.write("leaf.yaml", &flow(NESTED[2].0, NESTED[2].1));
    let agent = world.serve(&["serve", "agent", "prompt.agent.yaml"]);
    world.online(&["Prompt"]);
    world.ok(&["workflow", "deploy", "leaf.yaml"]);
    world.ok(&["run", "leaf", "--mesh", "--wait", "-q"]);
    drop(agent);

    let waits = |samples: &[Sample], tasks: f64| {
        let told = count(samples, "sinew_agent_queued", Some(("agent", "Prompt")));
        (told - tasks).abs() < 0.5
    };
    let fired = |first: &[Sample], last: &[Sample]| {
        let window = ScrapeWindow { first: first.to_vec(), last: last.to_vec(), seconds: 60.0 };
        let of_queues = rules().into_iter().filter(|(name, _)| name.starts_with("SinewQueue"));
        let firing = of_queues.filter(|(_, expression)| {
            let samples = window.firing(expression);
            samples.iter().any(|one| one.labels.get("agent").is_some_and(|agent| agent == "Prompt"))
        });
        firing.map(|(name, _)| name).collect::<Vec<_>>()
    };
    let quiet = scraped_until(&[&one], |samples| waits(samples, 0.0));
    assert_eq!(fired(&quiet, &quiet), Vec::<String>::new());
    world.ok(&["run", "leaf", "--mesh", "--detach", "-q"]);
    let few = scraped_until(&[&one], |samples| waits(samples, 1.0));
    world.ok(&["run", "leaf", "--mesh", "--detach", "-q"]);
    let many = scraped_until(&[&one], |samples| waits(samples, 2.0));
    assert_eq!(fired(&few, &many), ["SinewQueueGrows", "SinewQueueStands"]);

    // The executor that tells dies as well.
    let two = ScrapedExecutor::start(&world);
    drop(one.role);
    let later = scraped_until(&[&two], |samples| waits(samples, 2.0));
    assert_eq!(fired(&later, &later), ["SinewQueueStands"]);
    let _agent = world.serve(&["serve", "agent", "prompt.agent.yaml"]);
    let drained = scraped_until(&[&two], |samples| waits(samples, 0.0));
    assert_eq!(fired(&later, &drained), Vec::<String>::new());
}

/// An execution that three executors in a row had in hand when they were killed, and commits that are late.
#[test]
fn owners_behind_a_bad_link_fire_their_alerts() {
    let (world, first) = World::with_shards(1);
    first.stop();
    world.write("late.agent.yaml", LATE);
    let _agents = world.serve(&["serve", "agent", "late.agent.yaml"]);
    world.online(&["Late"]);
    world.write(
        "late.yaml",
        &flow("late", "    - {id: a, type: agent, agent_name: Late, input: {}, timeout: 300s}\n"),
    );
    world.ok(&["workflow", "deploy", "late.yaml"]);

    let link = SlowLink::to(&world.url, LinkRule::Open);
    let slow = ScrapedExecutor::behind(&world, &link, "fragile");
    scraped_until(&[&slow], |samples| (owned(samples) - 1.0).abs() < 0.5);
    // Prometheus sees an increase of what was there before.
    world.ok(&["run", "late", "--mesh", "--detach", "-q"]);
    scraped_until(&[&slow], |samples| count(samples, "sinew_commits_total", None) > 0.0);
    let mut rare = RareCauses { world, executors: vec![slow] };
    rare.fires("SinewCommitsSlow", |world| {
        link.obey(LinkRule::DelaysAppends(Duration::from_millis(1_500)));
        world.ok(&["run", "late", "--mesh", "--detach", "-q", "--id", "late"]);
    });
    vandal(&rare.world, async |mesh| stored(&mesh, "sinew_TASKS", "sinew.v1.task.Late.late.>").await);

    // It is killed while the agent works, and so is each successor once it has the answer in hand.
    rare.executors.clear();
    rare.world.write("answer.json", "{}");
    vandal(&rare.world, async |mesh| stored(&mesh, "sinew_RESULTS", "sinew.v1.result.*.Late.late.>").await);
    for _ in 0..3 {
        let link = SlowLink::to(&rare.world.url, LinkRule::HoldsAppendsOf("late".to_owned()));
        let killed = ScrapedExecutor::behind(&rare.world, &link, "fragile");
        link.wait_until_held();
        drop(killed);
    }
    // The next one sets it aside as soon as it has the shard.
    let link = SlowLink::to(&rare.world.url, LinkRule::HoldsAll);
    rare.executors.push(ScrapedExecutor::behind(&rare.world, &link, "fragile"));
    rare.fires("SinewExecutionSetAside", |_| link.obey(LinkRule::Open));
    let listed = rare.world.json(&["execution", "list"]);
    let waiting = listed[0]["waiting"].as_str().unwrap_or_default().to_owned();
    assert!(waiting.contains("operator"), "{listed:#}");
}

/// Waits until a stream has a message of this subject.
async fn stored(mesh: &sinew_mesh::Mesh, stream: &str, subject: &str) {
    let stream = mesh.admin().jetstream().get_stream(stream).await.unwrap();
    let since = Instant::now();
    while let Err(error) = stream.get_last_raw_message_by_subject(subject).await {
        assert!(since.elapsed().as_secs() < 60, "nothing of {subject}: {error}");
    }
}

/// Answers a task of an agent in the name of another one.
async fn foreign_result(mesh: sinew_mesh::Mesh) {
    let tasks = mesh.admin().jetstream().get_stream("sinew_TASKS").await.unwrap();
    let since = Instant::now();
    let message = loop {
        match tasks.get_last_raw_message_by_subject("sinew.v1.task.Slow.>").await {
            Ok(message) => break message,
            Err(error) => assert!(since.elapsed().as_secs() < 60, "no task of Slow: {error}"),
        }
    };
    let subject = message.headers.get("Sinew-Result-Subject").expect("where the result goes").as_str();
    let foreign = subject.replace(".Slow.", ".Stranger.");
    assert_ne!(subject, foreign);
    let task = message.subject.rsplit('.').next().unwrap();
    let result = json!({"id": task, "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}});
    mesh.admin().jetstream().publish(foreign, result.to_string().into()).await.unwrap().await.unwrap();
}

/// Leaves no room for another message in quarantine, and sends one that belongs there.
async fn full_quarantine(mesh: sinew_mesh::Mesh) {
    let mut stream = mesh.admin().jetstream().get_stream("sinew_QUARANTINE").await.unwrap();
    let mut config = stream.info().await.unwrap().config.clone();
    config.max_bytes = 256;
    mesh.admin().jetstream().update_stream(config).await.unwrap();
    let subject = format!("sinew.v1.command.1.cancel.vandal.{:032x}", 11);
    mesh.admin().jetstream().publish(subject, "{".repeat(1_000).into()).await.unwrap().await.unwrap();
}

/// Writes to every journal what another executor might write: a commit in which nothing happened.
async fn strange_commits(mesh: sinew_mesh::Mesh) {
    let journal = mesh.admin().jetstream().get_stream("sinew_JOURNAL").await.unwrap();
    for shard in 0..4 {
        let subject = format!("sinew.v1.journal.{shard}");
        let Ok(last) = journal.get_last_raw_message_by_subject(&subject).await else { continue };
        let mut commit = Commit::decode(&last.payload).unwrap();
        (commit.owner, commit.entries) = (Token::of("stranger"), Vec::new());
        mesh.admin().jetstream().publish(subject, commit.encode()).await.unwrap().await.unwrap();
    }
}
