//! Telemetry as processes have it: a client, an executor and an agent, each a process of its own, that hand the trace on
//! in headers only; a collector that gets their spans; a collector that is away.
//!
//! The processes are this program again, told by a variable which part to play.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use crate::common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use sinew_telemetry::TelemetryOptions;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use common::{Role, World, text};

const PART: &str = "SINEW_TEST_PART";
const HEADER: &str = "SINEW_TEST_TRACEPARENT";

/// Spans that a collector received.
#[derive(Clone, Default)]
pub(crate) struct Collected(pub(crate) Arc<Mutex<Received>>);

/// Each request's headers, and each span with the service it came from.
pub(crate) type Received = (Vec<String>, Vec<(String, Span)>);

/// A collector of traces: says yes to everything.
pub(crate) async fn collector() -> (SocketAddr, Collected) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, collected) = (listener.local_addr().unwrap(), Collected::default());
    let all = collected.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let all = all.clone();
            tokio::spawn(async move { take(stream, all).await });
        }
    });
    (address, collected)
}

/// Head and body of the next request; none if the client went away.
pub(crate) async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    Some((head, body))
}

async fn take(stream: TcpStream, all: Collected) {
    let mut stream = BufReader::new(stream);
    while let Some((head, body)) = read_request(&mut stream).await {
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        {
            let mut all = all.0.lock().unwrap();
            all.0.push(head);
            for resource in request.resource_spans {
                let attributes = resource.resource.unwrap().attributes;
                let name = attributes.into_iter().find(|attribute| attribute.key == "service.name").unwrap();
                let Some(Value::StringValue(name)) = name.value.unwrap().value else { panic!("no name") };
                let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                all.1.extend(spans.map(|span| (name.clone(), span)));
            }
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }
}

/// This program as a process that plays a part; what it prints after `traceparent ` is the header it sends on.
fn play(part: &str, header: Option<&str>, variables: &[(&str, &str)]) -> (Option<String>, Output) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "trace_of_processes::part", "--nocapture", "--include-ignored"])
        .env(PART, part)
        .stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_") || name == "SINEW_LOG") {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    if let Some(header) = header {
        command.env(HEADER, header);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let sent = said.lines().find_map(|line| Some(line.split_once("traceparent ")?.1.trim().to_owned()));
    assert!(output.status.success(), "{part}: {said}{}", String::from_utf8_lossy(&output.stderr));
    (sent, output)
}

/// One part, in a process of its own.
#[test]
#[ignore = "the tests below start it"]
fn part() {
    let part = std::env::var(PART).unwrap();
    let header = std::env::var(HEADER).ok();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let role = ["client", "executor", "agent"].into_iter().find(|role| *role == part).unwrap();
        let options = TelemetryOptions { id: Some(format!("{role}-1")), ..TelemetryOptions::default() };
        let telemetry = match part.as_str() {
            "client" => sinew_telemetry::start_client().unwrap(),
            _ => sinew_telemetry::start_service(role, options).await.unwrap(),
        };
        let read = |name: &str| header.clone().filter(|_| name == "traceparent");
        let span = match role {
            "client" => tracing::info_span!(target: "sinew", "start", workflow = "orders"),
            "executor" => tracing::info_span!(target: "sinew_executor", "activation", agent = "pricing"),
            _ => {
                let parent = header.clone();
                tracing::info_span!(target: "sinew_agent", "task", agent = "pricing", trace_parent = parent)
            }
        };
        if role == "executor" {
            sinew_telemetry::continue_trace(&span, &read);
        }
        span.in_scope(|| {
            tracing::warn!(target: "sinew", password = "canary-password", "working with nats://me:canary-url@host");
            sinew_telemetry::inject_trace(&mut |name, value| println!("{name} {value}"));
        });
        drop(span);
        let began = Instant::now();
        telemetry.stop(Duration::from_secs(2)).await;
        assert!(began.elapsed() < Duration::from_secs(4), "stopping took {:?}", began.elapsed());
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_goes_through_three_processes() {
    let (address, collected) = collector().await;
    let endpoint = format!("http://{address}");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=canary-header"),
        ("NATS_PASSWORD", "canary-password"),
    ];
    let played = tokio::task::spawn_blocking({
        let variables = variables.map(|(name, value)| (name, value.to_owned()));
        move || {
            let variables: Vec<(&str, &str)> =
                variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let mut header = None;
            let mut lines = String::new();
            for part in ["client", "executor", "agent"] {
                let (sent, output) = play(part, header.as_deref(), &variables);
                header = Some(sent.unwrap_or_else(|| panic!("{part} sent no traceparent")));
                lines.push_str(&String::from_utf8_lossy(&output.stderr));
            }
            lines
        }
    });
    let lines = played.await.unwrap();

    let (heads, spans) = collected.0.lock().unwrap().clone();
    assert!(heads.iter().all(|head| head.starts_with("POST /v1/traces HTTP/1.1")), "{heads:?}");
    assert!(heads.iter().all(|head| head.to_lowercase().contains("x-api-key: canary-header")), "{heads:?}");
    let by_service: BTreeMap<&str, &Span> = spans.iter().map(|(name, span)| (name.as_str(), span)).collect();
    assert_eq!((spans.len(), by_service.len()), (3, 3), "{by_service:?}");
    let [client, executor, agent] =
        ["sinew-client", "sinew-executor", "sinew-agent"].map(|name| by_service[name]);
    assert_eq!(client.name, "invoke_workflow orders");
    assert_eq!([&executor.name, &agent.name], ["invoke_agent pricing"; 2]);
    assert!(client.parent_span_id.is_empty(), "{client:?}");
    for (child, parent) in [(executor, client), (agent, executor)] {
        assert_eq!((&child.trace_id, &child.parent_span_id), (&parent.trace_id, &parent.span_id));
    }

    // The log has a line of each, as JSON, without secrets.
    let json = lines.lines().filter(|line| line.starts_with('{'));
    let json: Vec<serde_json::Value> = json.map(|line| serde_json::from_str(line).unwrap()).collect();
    // A client logs nothing: what it prints is its own.
    assert_eq!(json.iter().filter(|line| line["level"] == "WARN").count(), 2, "{lines}");
    assert!(!lines.contains("canary"), "{lines}");
}

const FLOW: &str = "
workflow:
  description: Greets
  nodes:
    - {id: greet, type: agent, agent_name: Greeter, input: {name: '{{workflow.input.name}}'}}
  output_mapping: {text: '{{greet.output.text}}'}
";
const GREETER: &str =
    "name: Greeter\nrun: {script: {source: \"lambda input: {'text': 'hello ' + input['name']}\"}}\n";

#[test]
fn a_run_on_a_mesh_is_one_trace_from_client_to_agent() {
    let (world, untraced) = World::new();
    untraced.stop();
    let (address, collected) = world.runtime.block_on(collector());
    let endpoint = format!("http://{address}");
    let traced = |args: &[&str]| {
        let mut command = world.command(args);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    world.write("greet.yaml", FLOW);
    world.write("greeter.agent.yaml", GREETER);
    let executor = Role(traced(&["serve", "executor"]).spawn().unwrap());
    let agent = Role(traced(&["serve", "agent", "greeter.agent.yaml"]).spawn().unwrap());
    world.online(&["Greeter"]);
    let mut run = traced(&["run", "greet.yaml", "--mesh", "-p", "name=ada", "--wait"]);
    let ran = run.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert!(ran.status.success() && text(&ran.stdout).contains("hello ada"), "{}", text(&ran.stderr));
    // Ending processes export their remaining spans.
    for role in [agent, executor] {
        role.stop();
    }

    let spans = collected.0.lock().unwrap().1.clone();
    let by_service =
        |name: &str| spans.iter().filter(|span| span.0 == name).map(|span| &span.1).collect::<Vec<_>>();
    let (client, agent) = (by_service("sinew-client"), by_service("sinew-agent"));
    assert_eq!((client.len(), agent.len()), (1, 1), "{spans:?}");
    let executor = by_service("sinew-executor");
    assert!(executor.len() >= 2, "an execution and its activation: {executor:?}");
    // From the agent's span upwards, every parent is there, up to the client's.
    let (mut at, mut through) = (agent[0], 0);
    while at.span_id != client[0].span_id {
        assert_eq!(at.trace_id, client[0].trace_id);
        let parent = spans.iter().find(|span| span.1.span_id == at.parent_span_id);
        at = &parent.unwrap_or_else(|| panic!("the parent of {at:?} was told by nobody: {spans:?}")).1;
        through += 1;
    }
    assert!(through >= 3, "agent, activation, execution, client");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_costs_a_line_and_no_more() {
    // A port that nobody listens on any more.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let endpoint = format!("http://{address}");
    let output = tokio::task::spawn_blocking(move || {
        play("agent", None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).1
    });
    let output = output.await.unwrap();
    let lines = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(lines.matches("cannot export traces to the collector").count(), 1, "{lines}");
}

#[test]
fn without_a_collector_no_trace_is_made_up() {
    let (sent, output) = play("client", None, &[]);
    assert_eq!(sent, None, "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn no_level_of_the_log_shows_what_messages_hold() {
    let (world, untraced) = World::new();
    untraced.stop();
    let traced = |args: &[&str], log: &str| {
        let log = std::fs::File::create(world.path().join(log)).unwrap();
        let mut command = world.command(args);
        command.env("SINEW_LOG", "trace,async_nats=trace").stdout(Stdio::null()).stderr(log);
        Role(command.spawn().unwrap())
    };
    let strict = GREETER.replace(
        "run:",
        "input_schema: {type: object, properties: {name: {type: string, enum: [canary-good, ada]}}}\nrun:",
    );
    world.write("greet.yaml", FLOW);
    world.write("greeter.agent.yaml", &strict);
    let executor = traced(&["serve", "executor"], "executor.log");
    let agent = traced(&["serve", "agent", "greeter.agent.yaml"], "agent.log");
    world.online(&["Greeter"]);
    // One that works, one that the agent refuses, and garbage.
    let ran = world.ok(&["run", "greet.yaml", "--mesh", "-p", "name=canary-good", "--wait"]);
    assert!(ran.contains("hello canary-good"), "{ran}");
    world.ends(&["run", "greet.yaml", "--mesh", "-p", "name=canary-bad", "--wait"], 1);
    world.runtime.block_on(async {
        let mesh = world.connect("vandal").await;
        for shard in 0..4 {
            let subject = format!("sinew.v1.command.{shard}.start.vandal.x");
            let body = r#"{"execution": "x", "workflow": 7, "note": "canary-garbage"}"#;
            mesh.admin().jetstream().publish(subject, body.into()).await.unwrap().await.unwrap();
        }
        while mesh.quarantine().list(10).await.unwrap().len() < 4 {
            tokio::task::yield_now().await;
        }
    });
    for (role, log) in [(agent, "agent.log"), (executor, "executor.log")] {
        role.stop();
        let lines = std::fs::read_to_string(world.path().join(log)).unwrap();
        assert!(lines.contains("\"level\":\"INFO\""), "{log} has nothing: {lines}");
        let leaked: Vec<&str> = lines.lines().filter(|line| line.contains("canary")).collect();
        assert!(leaked.is_empty(), "{log}: {leaked:#?}");
    }
}
