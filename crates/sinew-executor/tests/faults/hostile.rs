//! Messages that the client library does not survive: on every stream, subject and door, by whoever may publish there.
//!
//! nats-server passes on any bytes as headers and subjects. The messages here are written by hand for that reason.
//! `SINEW_HOSTILE_ROUNDS` repeats the flood so many times.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Delivery};
use sinew_executor::service::{Service, ServiceOptions};
use sinew_mesh::server::ServerOptions;
use sinew_mesh::{Connect, Mesh, Provision};
use sinew_protocol::ExecutionId;
use sinew_protocol::permission::{Guest, Login, Role, Tenant, User, config};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::faults::agents::begun;
use crate::faults::audit::{CHAIN, single, succeeded};
use crate::support::mesh::{LEASE, PATIENCE, Site, TestMesh, adapters, server};

/// Time in which an execution ends beside whatever else is on the mesh.
const INNOCENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The password of everybody.
const PASSWORD: &str = "not-a-secret-7f3a";

/// Header blocks that are not read.
const BLOCKS: [&[u8]; 16] = [
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nGood: 1\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nA b: c\r\n\r\n",
    b"NATS/1.0\r\n folded: first\r\n\r\n",
    b"NATS/1.0\r\n\xc3\xa4: c\r\n\r\n",
    b"NATS/1.0\r\nA\x00: c\r\n\r\n",
    b"NATS/1.0\r\nA: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\n\x80\r\n\r\n",
    b"NATS/1.0 5\r\n\r\n",
    b"NATS/1.0 abc\r\n\r\n",
    b"NATS/1.0 099 x\r\n\r\n",
    b"NATS/2.0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"\r\n\r\n",
    b"\x00\x01\x02\x03",
    // The library panics at this one.
    b"NATS/1.0\r\nA: b\rc\r\n\r\n",
];
const GOOD: &[u8] = b"NATS/1.0\r\nA: b\r\n\r\n";
/// Last tokens of subjects that are not read, or are read as several words.
const TOKENS: [&[u8]; 4] = [b"\xff", b"x\x0b7", b"\xe2\x80\x837", b"\xc3"];
const BODIES: [&[u8]; 3] = [b"", b"\x00\xff", b"{}"];

/// A client of the protocol that writes what it is told to.
struct RawClient(BufReader<TcpStream>);

impl RawClient {
    async fn open(port: u16, user: Option<&str>) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut hello = json!({ "verbose": false, "pedantic": false, "headers": true });
        if let Some(user) = user {
            hello["user"] = user.into();
            hello["pass"] = PASSWORD.into();
        }
        let mut client = Self(BufReader::new(stream));
        client.0.get_mut().write_all(format!("CONNECT {hello}\r\n").as_bytes()).await.unwrap();
        assert_eq!(client.flush().await, Vec::<String>::new());
        client
    }

    async fn publish(&mut self, subject: &[u8], block: &[u8], body: &[u8]) {
        let sizes = format!(" {} {}\r\n", block.len(), block.len() + body.len());
        let frame = [b"HPUB ", subject, sizes.as_bytes(), block, body, b"\r\n"].concat();
        self.0.get_mut().write_all(&frame).await.unwrap();
    }

    /// Waits until the server has taken everything; gives what it refused.
    async fn flush(&mut self) -> Vec<String> {
        self.0.get_mut().write_all(b"PING\r\n").await.unwrap();
        let mut refused = Vec::new();
        loop {
            let mut line = Vec::new();
            assert!(self.0.read_until(b'\n', &mut line).await.unwrap() > 0, "closed: {refused:?}");
            match String::from_utf8_lossy(&line).trim_end() {
                "PONG" => return refused,
                "PING" => self.0.get_mut().write_all(b"PONG\r\n").await.unwrap(),
                line if line.starts_with("-ERR") => refused.push(line.to_owned()),
                _ => {}
            }
        }
    }
}

/// A number that no other message here has, where ids stand.
fn fresh() -> String {
    static LAST: AtomicUsize = AtomicUsize::new(1);
    format!("{:032x}", LAST.fetch_add(1, Ordering::Relaxed))
}

/// Waits until so many messages of a stream are in quarantine.
async fn quarantined(mesh: &Mesh, stream: &str, wanted: usize) -> usize {
    let until = Instant::now() + INNOCENT_TIMEOUT;
    loop {
        let aside = mesh.quarantine().list(100_000).await.unwrap();
        let found: Vec<_> = aside.iter().filter(|one| one.stream == stream).map(|one| one.seq).collect();
        assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len(), "set aside twice");
        if found.len() >= wanted || Instant::now() > until {
            return found.len();
        }
        tokio::task::yield_now().await;
    }
}

/// One message is enough: the executor reads it again and again, and so does every one after it.
#[tokio::test]
async fn one_stored_message_stops_nothing() {
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("single", &single("")).await;
    let mut agents = mesh.agents_process(Delivery::Queue, &[("one", json!({ "pass": true }))]).await;
    let _executor = mesh.executor("one").await;
    let client = mesh.client().await;
    let mut raw = RawClient::open(mesh.server.port(), None).await;
    let good = |nth: usize| {
        let client = &client;
        async move {
            let execution = begun(client, &format!("good{nth}"), "single", json!({ "value": nth })).await;
            assert_eq!(succeeded(client, &execution).await, json!({ "value": nth }));
        }
    };
    good(0).await;
    let ghost = ExecutionId::of("test", "vandal", "ghost");
    for (nth, block) in [BLOCKS[0], BLOCKS[15], BLOCKS[6], BLOCKS[13]].into_iter().enumerate() {
        let (command, result) = (format!("test.v1.command.0.start.vandal.{}", fresh()), fresh());
        raw.publish(command.as_bytes(), block, b"{}").await;
        raw.publish(format!("test.v1.result.0.one.{ghost}.{result}.{result}").as_bytes(), block, b"{}").await;
        raw.flush().await;
        timeout(INNOCENT_TIMEOUT, good(nth + 1)).await.expect("a good execution does not end");
    }
    for stream in ["COMMANDS", "RESULTS"] {
        assert_eq!(quarantined(&mesh.mesh, stream, 4).await, 4, "{stream}");
    }
    let one = mesh.mesh.quarantine().list(1).await.unwrap().pop().unwrap();
    let one = mesh.mesh.quarantine().get(&one.stream, one.seq).await.unwrap();
    assert!(one.reason.contains("cannot be parsed"), "{one:?}");
    assert!(one.headers.get("Sinew-Raw-Headers").is_some(), "{one:?}");
    agents.end().await;
}

/// A mesh whose server knows who may do what.
struct Guarded {
    server: sinew_mesh::server::Server,
    mesh: Mesh,
}

impl Guarded {
    async fn new() -> Self {
        let login = || Login::Password(PASSWORD.to_owned());
        let user = |name: &str, roles: &[Role]| User {
            name: name.into(),
            roles: roles.into(),
            login: login(),
            calls: Vec::new(),
        };
        let users = vec![
            user("boss", &[Role::Provisioner, Role::Admin]),
            user("first", &[Role::Executor]),
            user("second", &[Role::Executor]),
            // A thief with stolen credentials may publish everything that the mesh itself may publish.
            user("thief", &[Role::Executor, Role::Admin]),
            user("tester", &[Role::Client]),
            user("vandal", &[Role::Client]),
            user("one", &[Role::Agent]),
            user("two", &[Role::Agent]),
            user("rogue", &[Role::Agent]),
        ];
        let guest = Guest { name: "stranger".to_owned(), login: login(), calls: vec!["two".to_owned()] };
        let tenant = Tenant {
            account: "NORTH".to_owned(),
            namespace: "test".to_owned(),
            users,
            guests: vec![guest],
            max_file: None,
            max_memory: None,
        };
        let config_extra = Some(config(&[tenant], None).unwrap());
        let server = server(ServerOptions { config_extra, ..ServerOptions::default() }).await;
        let mesh = open(server.port(), "boss").await;
        let shards = std::num::NonZeroU32::new(2);
        mesh.admin().provision(&Provision { shards, ..Provision::default() }).await.unwrap();
        Self { server, mesh }
    }

    /// The mesh as this user sees it, for what opens its own connections.
    fn site(&self, user: &str) -> Site {
        let url = format!("nats://{user}:{PASSWORD}@127.0.0.1:{}", self.server.port());
        Site { url, namespace: "test".to_owned(), mesh: self.mesh.clone() }
    }

    async fn open(&self, user: &str) -> Mesh {
        open(self.server.port(), user).await
    }

    async fn messages(&self, kind: &str) -> u64 {
        let mut stream = self.mesh.admin().jetstream().get_stream(format!("test_{kind}")).await.unwrap();
        stream.info().await.unwrap().state.messages
    }

    /// How many starts of this caller are stored as commands: those that no owner answered.
    async fn stored_starts(&self, caller: &str) -> u64 {
        let stream = self.mesh.admin().jetstream().get_stream("test_COMMANDS").await.unwrap();
        let subjects =
            stream.info_with_subjects(format!("test.v1.command.*.start.{caller}.*")).await.unwrap();
        subjects.count().await as u64
    }
}

async fn open(port: u16, user: &str) -> Mesh {
    let connect = Connect {
        url: Some(format!("nats://127.0.0.1:{port}")),
        user: Some(user.to_owned()),
        password: Some(PASSWORD.to_owned()),
        namespace: Some("test".to_owned()),
        ..Connect::default()
    };
    connect.open().await.unwrap()
}

/// An agent that gives back what it gets.
fn agent(mesh: Mesh, name: &str, delivery: Delivery, stop: &CancellationToken) {
    let agent = Agent::dynamic(name, None, None, async |input: Value, _| Ok(input));
    let agent = agent.delivery(delivery).grace(Duration::from_millis(100));
    let stop = stop.clone();
    tokio::spawn(async move { agent.serve(mesh, stop).await.unwrap() });
}

/// Subjects without their last token, by who may publish there.
fn subjects(round: usize) -> Vec<(&'static str, String)> {
    let ghost = ExecutionId::of("test", "vandal", "ghost");
    let shard = round % 2;
    let mut all = vec![
        ("vandal", format!("test.v1.command.{shard}.start.vandal")),
        ("vandal", format!("test.v1.command.{shard}.cancel.vandal")),
        ("vandal", "test.v1.rpc.one.SendMessage".to_owned()),
        ("vandal", "test.v1.rpc.chain.SendMessage".to_owned()),
        ("vandal", "test.v1.query".to_owned()),
    ];
    for name in ["rogue", "stranger"] {
        all.extend([
            (name, format!("test.v1.result.{shard}.{name}.{ghost}.{}", fresh())),
            (name, "test.v1.card".to_owned()),
            (name, format!("test.v1.progress.{ghost}")),
            (name, "test.v1.quarantine.TASKS".to_owned()),
            (name, "test.v1.artifact.group".to_owned()),
        ]);
    }
    all.extend([
        ("thief", format!("test.v1.event.chain.{ghost}")),
        ("thief", "test.v1.history".to_owned()),
        ("thief", "test.v1.journal".to_owned()),
        ("thief", "test.v1.control.one".to_owned()),
        ("thief", "test.v1.workflow".to_owned()),
        ("thief", format!("test.v1.task.one.{ghost}")),
        ("thief", "$KV.test_FLEET.owner".to_owned()),
        ("thief", "$O.test_PLANS.M".to_owned()),
    ]);
    all
}

/// The last token with which a subject is one that somebody reads.
fn own_token(user: &str, subject: &str, shard: usize) -> String {
    match subject.split('.').nth(2).unwrap() {
        "card" => user.to_owned(),
        "rpc" => "vandal".to_owned(),
        "query" | "journal" => shard.to_string(),
        "quarantine" => (1_000_000 + usize::from_str_radix(&fresh(), 16).unwrap()).to_string(),
        "history" => ExecutionId::of("test", "vandal", &fresh()).to_string(),
        _ => fresh(),
    }
}

#[tokio::test]
async fn a_flood_of_messages_that_break_connections_holds_up_nobody() {
    let rounds = std::env::var("SINEW_HOSTILE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let world = Guarded::new().await;
    world.site("boss").deploy("chain", CHAIN).await;
    let (stop, ended) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
    let meshes = [world.open("one").await, world.open("two").await, world.open("stranger").await];
    for (mesh, delivery) in meshes.iter().zip([Delivery::Queue, Delivery::Direct, Delivery::Queue]) {
        let name = mesh.caller().name().unwrap();
        // Executors make the queue when they see a task; the card has to be there before.
        agent(mesh.clone(), &name, delivery, &stop);
    }
    let mut first = world.site("first").executor_process("first").await;
    let second = world.open("second").await;
    let options = ServiceOptions { id: "second".to_owned(), lease: LEASE, ..ServiceOptions::new(adapters) };
    let service = Service::start(second.clone(), options).await.unwrap();
    let client = Arc::new(world.site("tester").client().await);
    // Executions that have nothing to do with all this, one after the other.
    let innocent = {
        let (client, ended) = (Arc::clone(&client), Arc::clone(&ended));
        tokio::spawn(async move {
            let (mut nth, mut times) = (0, Vec::new());
            while !ended.load(Ordering::SeqCst) || nth < 3 {
                let began = Instant::now();
                let execution = begun(&client, &format!("i{nth}"), "chain", json!({ "value": nth })).await;
                assert_eq!(succeeded(&client, &execution).await, json!({ "value": nth }));
                times.push(began.elapsed());
                nth += 1;
            }
            times
        })
    };
    let mut sent = 0;
    let mut refused = Vec::new();
    for round in 0..rounds {
        let mut clients = std::collections::BTreeMap::new();
        for user in ["vandal", "rogue", "stranger", "thief"] {
            clients.insert(user, RawClient::open(world.server.port(), Some(user)).await);
        }
        for (user, subject) in subjects(round) {
            let raw = clients.get_mut(user).unwrap();
            for (nth, block) in BLOCKS.iter().enumerate() {
                let subject = format!("{subject}.{}", own_token(user, &subject, round % 2));
                raw.publish(subject.as_bytes(), block, BODIES[nth % BODIES.len()]).await;
                sent += 1;
            }
            // A token that is not text is not the user's own.
            for token in TOKENS.iter().filter(|_| !subject.contains(".card") && !subject.contains(".rpc.")) {
                let subject = [subject.as_bytes(), b".", token].concat();
                raw.publish(&subject, GOOD, b"{}").await;
                sent += 1;
            }
            refused.extend(raw.flush().await);
        }
        if round == 0 {
            first.kill9().await;
        }
    }
    assert!(sent >= 200 * rounds, "{sent} messages are too few");
    assert!(refused.is_empty(), "not everything came through: {refused:?}");
    ended.store(true, Ordering::SeqCst);
    let times = timeout(PATIENCE, innocent).await.expect("an innocent execution does not end").unwrap();
    println!("{sent} messages; {} executions, the slowest took {:?}", times.len(), times.iter().max());
    // A task that was on its way when the agent's connection was lost comes again in time.
    assert!(times.iter().all(|time| *time < INNOCENT_TIMEOUT), "{times:?}");
    // Afterwards nothing is slow.
    let after = async {
        for nth in 0..3 {
            let execution = begun(&client, &format!("after{nth}"), "chain", json!({ "value": nth })).await;
            assert_eq!(succeeded(&client, &execution).await, json!({ "value": nth }));
        }
    };
    timeout(INNOCENT_TIMEOUT, after).await.expect("an execution does not end after the flood");
    let executions = (times.len() + 3) as u64;
    let stored = world.stored_starts("tester").await;
    for (stream, good) in [("COMMANDS", stored), ("RESULTS", executions)] {
        let bad = usize::try_from(world.messages(stream).await - good).unwrap();
        assert!(bad >= 16 * rounds, "{stream}: {bad}");
        assert_eq!(quarantined(&world.mesh, stream, bad).await, bad, "{stream}");
    }
    // Two losses at most, then a connection that is not lost.
    for mesh in meshes.iter().chain([&second]) {
        let connects = mesh.client().statistics().connects.load(Ordering::Relaxed);
        let limit = if mesh.admin().is_screened() { 1 } else { 2 };
        assert!(connects <= limit, "{}: {connects} connections", mesh.caller());
    }
    assert!(second.admin().is_screened());
    stop.cancel();
    service.drain().await;
}
