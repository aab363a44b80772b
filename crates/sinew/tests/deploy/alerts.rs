//! The alerts over pages of real processes: a quiet mesh fires none, and each fires when its cause is there.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use promql_parser::parser::{self, Expr};
use serde_json::json;
use sinew_protocol::Token;
use sinew_protocol::journal::Commit;

use super::commands::known;
use super::promql::{Sample, ScrapeWindow, read_page};
use super::slow_link::{LinkRule, SlowLink};
use super::{deploy, said, yaml};
use crate::common::{Role, Said, World};

/// Alerts whose causes are in the other tests of this file.
const CAUSED_BELOW: [&str; 10] = [
    "SinewBudgetsUsedUp",
    "SinewCommitsSlow",
    "SinewExecutionSetAside",
    "SinewExecutorsFight",
    "SinewFilesRunOut",
    "SinewMemoryRunsOut",
    "SinewMessagesUndeliverable",
    "SinewQuarantineLost",
    "SinewResultsForeign",
    "SinewStreamBehind",
];

fn rules() -> Vec<(String, Expr)> {
    let file = yaml(&deploy("prometheus/alerts.yaml")).remove(0);
    let groups = file["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules
        .map(|rule| {
            let expression = parser::parse(rule["expr"].as_str().unwrap()).unwrap();
            (rule["alert"].as_str().unwrap().to_owned(), expression)
        })
        .collect()
}

/// Commands that the texts of alerts tell operators to type.
fn commands() -> BTreeSet<Vec<String>> {
    let file = yaml(&deploy("prometheus/alerts.yaml")).remove(0);
    let groups = file["groups"].as_array().unwrap().iter();
    let texts = groups.flat_map(|group| group["rules"].as_array().unwrap()).map(|rule| {
        let text = rule["annotations"]["action"].as_str().unwrap();
        text.replace("{{ $labels.code }}", "SINEW-6004")
    });
    let mut found = BTreeSet::new();
    for text in texts {
        for (at, _) in text.match_indices("sinew ") {
            let rest = &text[at + "sinew ".len()..];
            let rest = rest.split([';', ':', ',', '`', '?', '(']).next().unwrap_or_default();
            let mut words: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
            // Words of the sentence follow the command.
            while !words.is_empty() && known(&words).is_err() {
                words.pop();
            }
            assert!(!words.is_empty(), "no command of sinew in {text:?}");
            found.insert(words);
        }
    }
    found
}

/// Types the commands of all alerts on a mesh where things have gone wrong.
fn operators_can_type_the_actions(world: &World) {
    let commands = commands();
    assert!(commands.len() >= 7, "{commands:?}");
    for mut words in commands {
        match words.join(" ").as_str() {
            // The executors of this test are started by it.
            "serve executor" => continue,
            "execution describe" => words.push("@latest".to_owned()),
            _ => {}
        }
        let output = world.run(&words);
        // The doctor of a mesh with quarantined messages ends with 1.
        let fits = output.status.success() || (words[0] == "doctor" && output.status.code() == Some(1));
        assert!(fits && !output.stdout.is_empty(), "{words:?}: {}", said(&output));
    }
}

fn firing(window: &ScrapeWindow) -> BTreeSet<String> {
    let fires = |(name, expression): (String, Expr)| (!window.firing(&expression).is_empty()).then_some(name);
    rules().into_iter().filter_map(fires).collect()
}

const SERVE: [&str; 4] = ["serve", "executor", "--health-port", "0"];

/// An executor with a health port.
struct ScrapedExecutor {
    role: Role,
    address: String,
    // The process writes on while it runs.
    _said: Said,
}

impl ScrapedExecutor {
    fn start(world: &World) -> Self {
        Self::start_as(world.command(&SERVE))
    }

    /// Starts an executor that may open so many files.
    fn with_open_files(world: &World, limit: u32) -> Self {
        let inner = world.command(&SERVE);
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n {limit}; exec \"$0\" \"$@\""));
        command
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(world.path())
            .stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Self::start_as(command)
    }

    /// Starts an executor of this name whose connection to the server is the link.
    fn behind(world: &World, link: &SlowLink, name: &str) -> Self {
        let mut command = world.command(&[&SERVE[..], &["--id", name]].concat());
        command.env("NATS_URL", link.url());
        Self::start_as(command)
    }

    fn start_as(mut command: Command) -> Self {
        let mut child = command
            // No collector listens there.
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
            .env("OTEL_BSP_SCHEDULE_DELAY", "50")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Said::by(child.stderr.take().unwrap());
        let line = said.wait_for("health and metrics:");
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Self { role: Role(child), address, _said: said }
    }

    /// The page of metrics; none if nothing answers.
    fn scrape(&self) -> Vec<Sample> {
        let Ok(mut stream) = TcpStream::connect(&self.address) else { return Vec::new() };
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && !head.contains("chunked"), "{head}");
        read_page(body, "sinew-executor", &self.address)
    }
}

fn owned(samples: &[Sample]) -> f64 {
    let is_owned =
        |one: &&Sample| one.labels.get("__name__").is_some_and(|name| name == "sinew_shards_owned");
    samples.iter().filter(is_owned).map(|one| one.value).sum()
}

/// Scrapes until the pages say so.
fn scraped_until(executors: &[&ScrapedExecutor], so: impl Fn(&[Sample]) -> bool) -> Vec<Sample> {
    let since = Instant::now();
    loop {
        let samples: Vec<Sample> = executors.iter().flat_map(|one| one.scrape()).collect();
        if so(&samples) {
            return samples;
        }
        assert!(since.elapsed().as_secs() < 60, "the pages have not said so within a minute");
        std::thread::yield_now();
    }
}

fn count(samples: &[Sample], name: &str, label: Option<(&str, &str)>) -> f64 {
    let fits = |one: &&Sample| {
        one.labels.get("__name__").is_some_and(|found| found == name)
            && label.is_none_or(|(label, value)| one.labels.get(label).is_some_and(|found| found == value))
    };
    samples.iter().filter(fits).map(|one| one.value).sum()
}

const SLOW: &str = "name: Slow\ndescription: Never answers in time.\nrun: {command: {argv: [sleep, '30']}}\n";
const WRONG: &str = "name: Wrong\ndescription: Breaks its schema.\noutput_schema: {type: object, required: [a]}\nrun: {command: {argv: [echo, '{}']}}\n";

const RAISING: &str =
    "name: Raising\ndescription: Raises.\nrun: {script: {source: \"lambda input: 1 // 0\"}}\n";

/// Answers with a list of 300,000 objects.
const BULKY: &str = "name: Bulky\nrun: {command: {argv: [cat, bulk.json]}}\n";
/// Answers when a file is there.
const LATE: &str = "name: Late\nrun: {command: {argv: [sh, -c, 'until [ -e answer.json ]; do sleep 0.05; done; cat answer.json']}}\n";

fn flow(name: &str, nodes: &str) -> String {
    format!("name: {name}\nworkflow:\n  description: d\n  nodes:\n{nodes}  output_mapping: {{}}\n")
}

fn team() -> String {
    json!({
        "metadata": { "id": "team", "name": "team" },
        "triggers": ["start"],
        "nodes": [
            { "id": "start", "name": "start", "type": "TRIGGER", "subtype": "MANUAL" },
            { "id": "merge", "name": "merge", "type": "FLOW", "subtype": "MERGE" },
        ],
        "connections": [{ "id": "c1", "from_node": "start", "to_node": "merge",
            "conversion_function": "lambda d: d['nothing']['there']" }],
    })
    .to_string()
}

#[test]
fn a_quiet_mesh_fires_nothing_and_each_cause_its_alert() {
    let (world, first) = World::new();
    first.stop();
    let (one, two) = (ScrapedExecutor::start(&world), ScrapedExecutor::start(&world));
    let quiet = scraped_until(&[&one, &two], |samples| (owned(samples) - 4.0).abs() < 0.5);
    let window = ScrapeWindow { first: quiet.clone(), last: quiet.clone(), seconds: 60.0 };
    assert_eq!(firing(&window), BTreeSet::new(), "nothing has happened");

    world.write("slow.agent.yaml", SLOW);
    world.write("wrong.agent.yaml", WRONG);
    world.write("raising.agent.yaml", RAISING);
    let _agents =
        world.serve(&["serve", "agent", "slow.agent.yaml", "wrong.agent.yaml", "raising.agent.yaml"]);
    world.online(&["Slow", "Wrong", "Raising"]);
    world.write("slow.yaml", &flow("slow", "    - {id: a, type: agent, agent_name: Slow, timeout: 1s}\n"));
    world.write("wrong.yaml", &flow("wrong", "    - {id: a, type: agent, agent_name: Wrong}\n"));
    world.write("raising.yaml", &flow("raising", "    - {id: a, type: agent, agent_name: Raising}\n"));
    world.write("team.json", &team());
    world.ok(&["workflow", "deploy", "slow.yaml", "wrong.yaml", "raising.yaml", "team.json"]);
    let ids: Vec<String> = ["slow", "wrong", "raising", "team"]
        .iter()
        .map(|name| world.ok(&["run", name, "--mesh", "--detach"]).trim().to_owned())
        .collect();
    for id in &ids {
        world.run(&["execution", "watch", id, "-q"]);
    }
    world.runtime.block_on(async {
        let mesh = world.connect("vandal").await;
        let subject = format!("sinew.v1.command.0.cancel.vandal.{:032x}", 7);
        mesh.admin().jetstream().publish(subject, "{".into()).await.unwrap().await.unwrap();
    });
    let loud = scraped_until(&[&one, &two], |samples| {
        count(samples, "sinew_quarantined_total", None) > 0.0
            && count(samples, "sinew_spans_lost_total", None) > 0.0
            && count(samples, "sinew_executions_ended_total", Some(("status", "failure"))) >= 3.0
            // The second executor takes its part of the shards at its own time.
            && count(samples, "sinew_shards_owned", None) >= 4.0
    });
    let window = ScrapeWindow { first: quiet.clone(), last: loud.clone(), seconds: 60.0 };
    let fired = firing(&window);
    let caused = [
        "SinewConversionsFail",
        "SinewExecutionsFail",
        "SinewMessagesQuarantined",
        "SinewOutputsInvalid",
        "SinewScriptsFail",
        "SinewTasksTimeOut",
        "SinewTracesLost",
    ];
    assert_eq!(fired, caused.map(str::to_owned).into(), "{loud:#?}");

    operators_can_type_the_actions(&world);

    // One of two executors is gone: its shards are nobody's for a moment. Then both are.
    drop(one.role);
    let last = two.scrape();
    let window = ScrapeWindow { first: quiet.clone(), last, seconds: 60.0 };
    assert!(firing(&window).contains("SinewShardsUnowned"));
    drop(two.role);
    let window = ScrapeWindow { first: quiet.clone(), last: Vec::new(), seconds: 60.0 };
    assert!(firing(&window).contains("SinewNoExecutor"));

    let known = caused.into_iter().chain(["SinewShardsUnowned", "SinewNoExecutor"]);
    let known: BTreeSet<String> = known.chain(CAUSED_BELOW).map(str::to_owned).collect();
    assert_eq!(rules().into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>(), known);
}

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
            std::thread::yield_now();
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
    let files = count(&one.scrape(), "process_open_fds", None);
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

    rare.executors.push(ScrapedExecutor::with_open_files(&rare.world, (files * 1.2) as u32));
    rare.fires("SinewFilesRunOut", |_| ());
}

/// An execution that three executors in a row had in hand when they were killed, and commits that are late.
#[test]
fn owners_behind_a_bad_link_fire_their_alerts() {
    let (world, first) = World::new();
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
    scraped_until(&[&slow], |samples| (owned(samples) - 4.0).abs() < 0.5);
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
    let link = SlowLink::to(&rare.world.url, LinkRule::HoldsAppends);
    rare.executors.push(ScrapedExecutor::behind(&rare.world, &link, "fragile"));
    link.wait_until_held();
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
