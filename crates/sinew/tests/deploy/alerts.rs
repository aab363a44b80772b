//! The alerts over pages of real processes: a quiet mesh fires none, and each fires when its cause is there.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use promql_parser::parser::{self, Expr};
use serde_json::json;

use super::commands::known;
use super::outside_alerts::CAUSED_OUTSIDE;
use super::promql::{Sample, ScrapeWindow, read_page};
use super::slow_link::SlowLink;
use super::{deploy, said, yaml};
use crate::common::{POLL_INTERVAL, Role, Said, World};

/// Alerts whose causes are in `rare_alerts.rs`.
const CAUSED_RARELY: [&str; 12] = [
    "SinewBudgetsUsedUp",
    "SinewCommitsSlow",
    "SinewExecutionSetAside",
    "SinewExecutorsFight",
    "SinewFilesRunOut",
    "SinewMemoryRunsOut",
    "SinewMessagesUndeliverable",
    "SinewQuarantineLost",
    "SinewQueueGrows",
    "SinewQueueStands",
    "SinewResultsForeign",
    "SinewStreamBehind",
];

/// Alerts that take money, hours or a full disk, and are checked on written pages.
const ON_WRITTEN_PAGES: [&str; 4] =
    ["SinewApprovalsWait", "SinewCertificateExpires", "SinewModelsCost", "SinewStorageFills"];

#[test]
fn written_pages_fire_their_alerts() {
    const DAY: f64 = 86_400.0;
    let page = |lines: &[String]| read_page(&(lines.join("\n") + "\n"), "sinew-executor", "one");
    let check = |first: &[String], last: &[String], expected: &[&str]| {
        let window = ScrapeWindow { first: page(first), last: page(last), seconds: DAY };
        let here = rules().into_iter().filter(|(name, _)| ON_WRITTEN_PAGES.contains(&name.as_str()));
        let fired = here.filter(|(_, expression)| !window.firing(expression).is_empty());
        let fired: BTreeSet<String> = fired.map(|(name, _)| name).collect();
        assert_eq!(fired.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{last:?}");
    };
    let cost =
        |micros: u64| vec![format!("sinew_model_cost_micro_usd_total{{agent=\"a\",model=\"m\"}} {micros}")];
    check(&cost(0), &cost(49_000_000), &[]);
    check(&cost(10_000_000), &cost(59_000_000), &[]);
    check(&cost(1_000_000), &cost(52_000_000), &["SinewModelsCost"]);
    let gauges = |waiting: u64, used: f64, expires_in_days: f64| {
        let end = DAY * (1.0 + expires_in_days);
        vec![
            format!("sinew_executions_waiting{{shard=\"0\"}} {waiting}"),
            "sinew_executions_waiting{shard=\"1\"} 0".to_owned(),
            format!("sinew_storage_used_ratio{{store=\"account\"}} {used}"),
            format!("sinew_certificate_expiry_timestamp_seconds{{file=\"a.pem\"}} {end}"),
        ]
    };
    let quiet = || gauges(0, 0.5, 60.0);
    check(&gauges(1, 0.9, 1.0), &quiet(), &[]);
    check(&quiet(), &gauges(2, 0.5, 60.0), &["SinewApprovalsWait"]);
    check(&quiet(), &gauges(0, 0.9, 60.0), &["SinewStorageFills"]);
    check(&quiet(), &gauges(0, 0.5, 10.0), &["SinewCertificateExpires"]);
}

pub(super) fn rules() -> Vec<(String, Expr)> {
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

pub(super) const SERVE: [&str; 4] = ["serve", "executor", "--health-port", "0"];

/// An executor with a health port.
pub(super) struct ScrapedExecutor {
    pub(super) role: Role,
    address: String,
    // The process writes on while it runs.
    _said: Said,
}

impl ScrapedExecutor {
    pub(super) fn start(world: &World) -> Self {
        Self::start_as(world.command(&SERVE))
    }

    /// Starts an executor that may open so many files.
    pub(super) fn with_open_files(world: &World, limit: usize) -> Self {
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
    pub(super) fn behind(world: &World, link: &SlowLink, name: &str) -> Self {
        let mut command = world.command(&[&SERVE[..], &["--id", name]].concat());
        command.env("NATS_URL", link.url());
        Self::start_as(command)
    }

    pub(super) fn start_as(mut command: Command) -> Self {
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

    /// Files that the process has open.
    pub(super) fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.role.0.id());
        std::fs::read_dir(folder).unwrap().count()
    }

    /// The page of metrics; none if nothing answers.
    pub(super) fn scrape(&self) -> Vec<Sample> {
        let Ok(mut stream) = TcpStream::connect(&self.address) else { return Vec::new() };
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && !head.contains("chunked"), "{head}");
        read_page(body, "sinew-executor", &self.address)
    }
}

pub(super) fn owned(samples: &[Sample]) -> f64 {
    let is_owned =
        |one: &&Sample| one.labels.get("__name__").is_some_and(|name| name == "sinew_shards_owned");
    samples.iter().filter(is_owned).map(|one| one.value).sum()
}

/// Scrapes until the pages say so.
pub(super) fn scraped_until(executors: &[&ScrapedExecutor], so: impl Fn(&[Sample]) -> bool) -> Vec<Sample> {
    let since = Instant::now();
    loop {
        let samples: Vec<Sample> = executors.iter().flat_map(|one| one.scrape()).collect();
        if so(&samples) {
            return samples;
        }
        assert!(since.elapsed().as_secs() < 60, "the pages have not said so within a minute");
        std::thread::sleep(POLL_INTERVAL);
    }
}

pub(super) fn count(samples: &[Sample], name: &str, label: Option<(&str, &str)>) -> f64 {
    samples.iter().filter(|one| is_series(one, name, label)).map(|one| one.value).sum()
}

fn is_series(one: &Sample, name: &str, label: Option<(&str, &str)>) -> bool {
    one.labels.get("__name__").is_some_and(|found| found == name)
        && label.is_none_or(|(label, value)| one.labels.get(label).is_some_and(|found| found == value))
}

const SCRIPT_FAILED: Option<(&str, &str)> = Some(("code", "SINEW-3002"));

pub(super) const SLOW: &str =
    "name: Slow\ndescription: Never answers in time.\nrun: {command: {argv: [sleep, '30']}}\n";
const WRONG: &str = "name: Wrong\ndescription: Breaks its schema.\noutput_schema: {type: object, required: [a]}\nrun: {command: {argv: [echo, '{}']}}\n";

const RAISING: &str =
    "name: Raising\ndescription: Raises.\nrun: {script: {source: \"lambda input: 1 // 0\"}}\n";

pub(super) fn flow(name: &str, nodes: &str) -> String {
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
    // An increase is seen behind a first value only, so both must have told theirs.
    let quiet = scraped_until(&[&one, &two], |samples| {
        let counters =
            samples.iter().filter(|one| is_series(one, "sinew_activations_failed_total", SCRIPT_FAILED));
        (owned(samples) - 4.0).abs() < 0.5 && counters.count() == 2
    });
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
            // An end is told before the facts that led to it are counted.
            && count(samples, "sinew_activations_failed_total", SCRIPT_FAILED) > 0.0
            && count(samples, "sinew_attempts_ended_total", Some(("outcome", "invalid"))) > 0.0
            && count(samples, "sinew_attempts_ended_total", Some(("outcome", "timeout"))) > 0.0
            && count(samples, "sinew_conversions_failed_total", None) > 0.0
            && count(samples, "sinew_executions_ended_total", Some(("status", "failed"))) >= 3.0
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
    let known: BTreeSet<String> =
        known.chain(CAUSED_RARELY).chain(CAUSED_OUTSIDE).chain(ON_WRITTEN_PAGES).map(str::to_owned).collect();
    assert_eq!(rules().into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>(), known);
}
