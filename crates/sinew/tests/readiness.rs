//! `/readyz` of the processes of a mesh, while their server is away and after it has come back.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{PRICING, Role, Said, World};

/// How long a process may take to notice that its server went or came back.
const PATIENCE: Duration = Duration::from_mins(1);

/// A process with a health port.
struct ProbedRole {
    name: &'static str,
    host: String,
    _role: Role,
    /// Read on, so that the process can write.
    _said: Said,
}

impl ProbedRole {
    fn start(world: &World, name: &'static str, more: &[&str]) -> Self {
        let args = [&["serve", name, "--health-port", "0"], more].concat();
        Self::of(name, world.command(&args))
    }

    fn of(name: &'static str, mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Said::by(child.stderr.take().unwrap());
        let role = Role(child);
        let told = said.wait_for("health and metrics: http://");
        let host = told.rsplit_once("http://").unwrap().1.split('/').next().unwrap().to_owned();
        Self { name, host, _role: role, _said: said }
    }

    fn readyz(&self) -> String {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        write!(stream, "GET /readyz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.host).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Asks until the answer has this status, and returns its body.
    fn until(&self, status: u16) -> String {
        let began = Instant::now();
        loop {
            let answer = self.readyz();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            if head.starts_with(&format!("HTTP/1.1 {status} ")) {
                return body.to_owned();
            }
            assert!(began.elapsed() < PATIENCE, "{} does not answer {status}: {answer}", self.name);
        }
    }
}

#[test]
fn the_next_command_works_as_soon_as_a_development_mesh_is_ready() {
    let (world, port) = World::for_dev();
    let args = ["dev", "--port", &port, "--ephemeral", "--gateway-port", "0", "--health-port", "0"];
    let mut command = world.command(&args);
    command.env_remove("NATS_URL").stdout(Stdio::null()).stderr(Stdio::piped());
    let role = ProbedRole::of("dev", command);
    assert_eq!(role.until(200), "ready\n");
    let listed = world.ok(&["agent", "list", "--mesh"]);
    assert!(listed.contains("echo"), "{listed}");
}

/// An agent of another mesh, behind a gateway.
#[test]
fn a_bridge_is_ready_once_its_agent_can_be_called() {
    let (outside, _executor) = World::new();
    outside.write("pricing.agent.yaml", PRICING);
    let _agent = outside.serve(&["serve", "agent", "pricing.agent.yaml"]);
    outside.online(&["Pricing"]);
    let mut command = outside.command(&["serve", "gateway", "--listen", "127.0.0.1:0"]);
    let mut gateway = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = Said::by(gateway.stderr.take().unwrap());
    let told = said.wait_for("/.well-known/agent-card.json");
    let base = told.rsplit_once("http://").unwrap().1.split("/.well-known").next().unwrap().to_owned();
    let _gateway = Role(gateway);

    let (world, _executor) = World::new();
    let bridge = ProbedRole::start(&world, "bridge", &[&format!("http://{base}/agents/Pricing")]);
    assert_eq!(bridge.until(200), "ready\n");
    let answer = world.json(&["agent", "call", "Pricing", "-i", r#"{"amount": 4}"#]);
    assert_eq!(answer["output"]["data"], serde_json::json!({"price": 8}), "{answer}");
}

#[test]
fn processes_are_not_ready_while_their_server_is_away() {
    let (mut world, _executor) = World::new();
    world.write("cards/pricing.agent.yaml", PRICING);
    let roles = [
        ("executor", &[][..]),
        ("agent", &["cards"]),
        ("gateway", &["--listen", "127.0.0.1:0"]),
        ("bridge", &["https://agents.invalid/translator"]),
    ]
    .map(|(name, more)| ProbedRole::start(&world, name, more));
    for role in &roles {
        assert_eq!(role.until(200), "ready\n", "{}", role.name);
    }
    world.stop_server();
    for role in &roles {
        assert_eq!(role.until(503), "not ready: disconnected from NATS\n", "{}", role.name);
    }
    world.start_server_again();
    for role in &roles {
        assert_eq!(role.until(200), "ready\n", "{}", role.name);
    }
}
