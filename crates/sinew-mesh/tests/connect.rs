//! Opening connections to real servers, and to ones that must be refused.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use sinew_mesh::async_nats;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Connect, HeaderMap, Mesh, MeshError, Provision};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

#[path = "../../../fuzz/src/frames.rs"]
#[expect(unreachable_pub, reason = "also part of a crate of its own")]
mod frames;

/// A seed that everybody knows: it stands in the documentation of NATS.
const SEED: &str = "SUAIO3FHUX5PNV2LQIIP7TZ3N4L7TX3W53MQGEIVYFIGA635OZCKEYHFLM";

async fn server(extra: &str) -> Server {
    let config_extra = Some(extra.to_owned());
    Server::start(ServerOptions { config_extra, ..ServerOptions::default() }).await.unwrap()
}

fn to(url: String) -> Connect {
    Connect { url: Some(url), role: "test", caller: Some("tester".into()), ..Connect::default() }
}

async fn refusal(connect: Connect) -> MeshError {
    connect.open().await.unwrap_err()
}

#[tokio::test]
async fn a_mesh_is_opened_named_and_used() {
    let server = server("").await;
    let mesh = Connect { namespace: Some("mine".into()), ..to(server.url()) }.open().await.unwrap();
    assert_eq!((mesh.namespace(), mesh.caller().as_str()), ("mine", "tester"));
    assert!(mesh.client().new_inbox().starts_with("_INBOX_tester."));
    mesh.admin().provision(&Provision::default()).await.unwrap();
    assert_eq!(mesh.admin().layout().await.unwrap().shards.get(), 4);
}

#[tokio::test]
async fn a_connection_comes_back_by_itself() {
    let mut server = server("").await;
    let mesh = to(server.url()).open().await.unwrap();
    mesh.admin().provision(&Provision::default()).await.unwrap();
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while mesh.admin().verify().await.is_err() {
        assert!(tokio::time::Instant::now() < until, "it did not come back");
    }
}

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
struct LogCatcher(Arc<Mutex<String>>);

struct FieldWriter<'a>(&'a mut String);

impl tracing::field::Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl tracing::Subscriber for LogCatcher {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("sinew") {
            let mut log = self.0.lock().unwrap();
            event.record(&mut FieldWriter(&mut log));
            log.push('\n');
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// The lines of a log with this text.
fn lines(log: &LogCatcher, text: &str) -> Vec<String> {
    log.0.lock().unwrap().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// Waits until a line with this text is logged. The log is written by tasks of this thread.
async fn logged(log: &LogCatcher, text: &str) {
    let found = async {
        while lines(log, text).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(30), found).await;
    assert!(found.is_ok(), "{text:?} is not logged: {}", log.0.lock().unwrap());
}

#[tokio::test]
async fn a_lost_broker_makes_one_line_and_its_return_another() {
    let log = LogCatcher::default();
    // With one subscriber alone, a thread without one that reaches a call site first turns it off
    // for all.
    let _second = tracing::Dispatch::new(LogCatcher::default());
    let _guard = tracing::subscriber::set_default(log.clone());
    let mut server = server("").await;
    let address = server.url().replace("nats://", "");
    let _mesh = to(server.url()).open().await.unwrap();
    logged(&log, "connected to NATS").await;
    server.kill9().await.unwrap();
    logged(&log, "the connection to NATS was lost").await;
    server.restart().await.unwrap();
    logged(&log, "reconnected to NATS after").await;
    let (lost, back) = (lines(&log, "was lost"), lines(&log, "reconnected"));
    assert_eq!((lost.len(), back.len()), (1, 1), "{}", log.0.lock().unwrap());
    assert!([&lost[0], &back[0]].iter().all(|line| line.contains(&address)), "{lost:?} {back:?}");
    assert!(lines(&log, "connection to NATS failed").is_empty(), "{}", log.0.lock().unwrap());
}

/// A client that publishes faster than a process reads must not fill its log.
#[tokio::test]
async fn messages_that_come_too_fast_make_few_log_lines() {
    const DROPPED: u64 = 20_000;
    /// Messages that the client library keeps for a subscription that is not read.
    const KEPT: u64 = 65_536;
    let log = LogCatcher::default();
    let _second = tracing::Dispatch::new(LogCatcher::default());
    let _guard = tracing::subscriber::set_default(log.clone());
    let server = server("").await;
    let mesh = to(server.url()).open().await.unwrap();
    let _unread = mesh.client().subscribe("flood").await.unwrap();
    let mut behind = mesh.client().subscribe("flood.end").await.unwrap();
    mesh.client().flush().await.unwrap();
    let began = std::time::Instant::now();
    let flood = async_nats::connect(server.url()).await.unwrap();
    for _ in 0..KEPT + DROPPED {
        flood.publish("flood", "".into()).await.unwrap();
    }
    flood.publish("flood.end", "".into()).await.unwrap();
    tokio::time::timeout(Duration::from_mins(1), behind.next()).await.unwrap().unwrap();
    logged(&log, "messages were dropped").await;
    let (lines, seconds) = (lines(&log, "messages were dropped").len(), began.elapsed().as_secs() + 1);
    assert!(lines as u64 <= seconds, "{lines} lines in {seconds} s");
}

/// A seed that the server does not know.
const OTHER: &str = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y\n";

const USERS: &str = "authorization { users: [
    { user: pat, password: secret }
    { nkey: UD2FLLGFERQVQQ3SBKONNG2QMIMTZQKKLTU3AVG5I3EQEFHBPGPE2XQS }
] }";

#[tokio::test]
async fn credentials_open_the_door_and_wrong_ones_do_not() {
    let server = server(USERS).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let user = |user: &str, password: &str| Connect {
        user: Some(user.into()),
        password: Some(password.into()),
        caller: None,
        ..to(server.url())
    };
    assert_eq!(user("pat", "secret").open().await.unwrap().caller().as_str(), "pat");
    let nkey = |text: &str| Connect { nkey: Some(file(&text.len().to_string(), text)), ..to(server.url()) };
    nkey(&format!("-----BEGIN\n{SEED}\n-----END\n")).open().await.unwrap();
    let in_address = server.url().replace("nats://", "nats://pat:secret@");
    to(in_address).open().await.unwrap();

    let damaged = format!("{}A", &SEED[..SEED.len() - 1]);
    for (connect, code) in [
        (to(server.url()), "SINEW-7017"),
        (user("pat", "hunter2"), "SINEW-7017"),
        (nkey(OTHER), "SINEW-7017"),
        (nkey(&damaged), "SINEW-7020"),
        (to(server.url().replace("nats://", "nats://pat:hunter2@")), "SINEW-7017"),
        (nkey("hunter2"), "SINEW-7020"),
        (Connect { nkey: Some("/not/there".into()), ..to(server.url()) }, "SINEW-7020"),
        (Connect { creds: Some(file("creds", "hunter2")), ..to(server.url()) }, "SINEW-7020"),
        (Connect { creds: Some("/not/there".into()), ..to(server.url()) }, "SINEW-7020"),
        (Connect { ca: Some("/not/there".into()), ..to(server.url()) }, "SINEW-7020"),
    ] {
        let error = refusal(connect).await;
        assert_eq!(error.code(), code, "{error}");
        assert!(!error.to_string().contains("hunter2") && !error.to_string().contains(SEED), "{error}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_at_once_and_with_its_address() {
    let mut server = server("").await;
    server.stop().await.unwrap();
    let error = refusal(to(server.url())).await;
    assert_eq!(error.code(), "SINEW-7016", "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{} (as given)", server.port())), "{error}");
    let error = refusal(to("nats://no-such-host.invalid:1".into())).await;
    assert_eq!(error.code(), "SINEW-7016", "{error}");
}

#[tokio::test]
async fn a_connection_that_is_away_is_told_until_it_is_back() {
    let mut server = server("").await;
    let mesh = to(server.url()).open().await.unwrap();
    assert_eq!(mesh.connection_problem(), None);
    let until_away = async |is_away: bool| {
        while mesh.connection_problem().is_some() != is_away {
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_mins(1);
    server.stop().await.unwrap();
    tokio::time::timeout(limit, until_away(true)).await.unwrap();
    server.restart().await.unwrap();
    tokio::time::timeout(limit, until_away(false)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up() {
    let server = server("").await;
    server.pause().await.unwrap();
    let error = refusal(Connect { timeout: Some(Duration::from_millis(200)), ..to(server.url()) }).await;
    assert_eq!(error.code(), "SINEW-7016", "{error}");
}

/// Greets like a NATS server of this version and answers pings.
async fn fake(info: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (reader, mut writer) = stream.into_split();
            writer.write_all(format!("INFO {info}\r\n").as_bytes()).await.unwrap();
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line.starts_with("PING") && writer.write_all(b"PONG\r\n").await.is_err() {
                    break;
                }
            }
        }
    });
    url
}

#[tokio::test]
async fn servers_that_cannot_be_trusted_are_refused() {
    for (info, code) in [
        (r#"{"server_id":"x","version":"2.9.10","jetstream":true,"max_payload":1048576}"#, "SINEW-7013"),
        (r#"{"server_id":"x","version":"2.11.11","jetstream":true,"max_payload":1048576}"#, "SINEW-7013"),
        (r#"{"server_id":"x","version":"new","jetstream":true,"max_payload":1048576}"#, "SINEW-7010"),
    ] {
        let error = refusal(to(fake(info).await)).await;
        assert_eq!(error.code(), code, "{error}");
    }
}

#[tokio::test]
async fn a_server_or_account_without_streams_is_refused() {
    let accounts = "accounts { A { jetstream: enabled, users: [{user: a, password: p}] }, B { users: [{user: b, password: p}] } }";
    let server = server(accounts).await;
    let with =
        |user: &str| Connect { user: Some(user.into()), password: Some("p".into()), ..to(server.url()) };
    let mesh = with("a").open().await.unwrap();
    mesh.admin().provision(&Provision::default()).await.unwrap();
    // The server has streams, so the connection opens; the first question finds out that the account has none.
    let mesh: Mesh = with("b").open().await.unwrap();
    let error = mesh.admin().layout().await.unwrap_err();
    assert_eq!(error.code(), "SINEW-7019", "{error}");
}

#[tokio::test]
async fn both_ends_prove_who_they_are() {
    let fixture =
        |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name);
    let [ca, cert, key] =
        ["ca.pem", "server.pem", "server.key"].map(|name| fixture(name).display().to_string());
    let server =
        server(&format!("tls {{ cert_file: {cert:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true }}"))
            .await;
    let trusting = Connect { ca: Some(fixture("ca.pem")), ..to(server.url()) };
    let proven =
        Connect { cert: Some(fixture("client.pem")), key: Some(fixture("client.key")), ..trusting.clone() };
    proven.clone().open().await.unwrap().admin().provision(&Provision::default()).await.unwrap();
    for (connect, code) in [
        (trusting, "SINEW-7016"),
        (Connect { ca: None, ..proven.clone() }, "SINEW-7016"),
        (Connect { ca: Some(fixture("README.md")), ..proven.clone() }, "SINEW-7016"),
        (Connect { key: Some(fixture("not-there.key")), ..proven }, "SINEW-7020"),
    ] {
        let error = refusal(connect).await;
        assert_eq!(error.code(), code, "{error}");
    }
}

#[tokio::test]
async fn who_wants_tls_never_talks_in_the_open() {
    let server = server("").await;
    let ca = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls/ca.pem");
    let error = refusal(Connect { ca: Some(ca), ..to(server.url()) }).await;
    assert_eq!(error.code(), "SINEW-7016", "{error}");
}

/// Header blocks and subjects that nats-server passes on and the client library does not survive.
fn poisons() -> Vec<(&'static [u8], &'static [u8])> {
    let blocks: [&[u8]; 8] = [
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\nA b: c\r\n\r\n",
        b"NATS/1.0\r\nA: \xff\r\n\r\n",
        b"NATS/1.0 5\r\n\r\n",
        b"NATS/2.0\r\n\r\n",
        b"garbage",
        b"\r\n\r\n",
        // The library panics.
        b"NATS/1.0\r\nA: b\rc\r\n\r\n",
    ];
    let subjects: [&[u8]; 3] = [b"a.\xff", b"a.\x0bb", "a.\u{2003}1".as_bytes()];
    let good: &[u8] = b"NATS/1.0\r\nA: b\r\n\r\n";
    blocks
        .map(|block| (&b"a.b"[..], block))
        .into_iter()
        .chain(subjects.map(|subject| (subject, good)))
        .collect()
}

/// Publishes bytes that no client library would.
async fn publish_raw(server: &Server, messages: &[(&[u8], &[u8])]) {
    let mut stream =
        BufReader::new(tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await.unwrap());
    let mut bytes = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\n".to_vec();
    for (subject, block) in messages {
        let (headers, total) = (block.len(), block.len() + 4);
        bytes.extend_from_slice(b"HPUB ");
        bytes.extend_from_slice(subject);
        bytes.extend_from_slice(format!(" {headers} {total}\r\n").as_bytes());
        bytes.extend_from_slice(block);
        bytes.extend_from_slice(b"body\r\n");
    }
    bytes.extend_from_slice(b"PING\r\n");
    stream.get_mut().write_all(&bytes).await.unwrap();
    let mut line = String::new();
    while !line.starts_with("PONG") {
        line.clear();
        assert!(stream.read_line(&mut line).await.unwrap() > 0, "the server closed the connection");
        assert!(!line.starts_with("-ERR"), "{line}");
    }
}

/// A subscription that the server knows of: it has delivered something to it.
async fn subscribed(client: &async_nats::Client, subject: &str) -> async_nats::Subscriber {
    let mut messages = client.subscribe(subject.to_owned()).await.unwrap();
    client.publish("a.ready", "".into()).await.unwrap();
    messages.next().await.unwrap();
    messages
}

/// As long as this holds, the screen is needed.
#[tokio::test]
async fn the_client_library_does_not_survive_what_the_server_passes_on() {
    let server = server("").await;
    for (subject, block) in poisons() {
        let client = async_nats::connect(server.url()).await.unwrap();
        let mut messages = subscribed(&client, "a.*").await;
        // The message behind it shows whether the one before was lost without a word.
        publish_raw(&server, &[(subject, block), (b"a.good", b"NATS/1.0\r\n\r\n")]).await;
        let message = async {
            loop {
                let next = tokio::time::timeout(Duration::from_millis(20), messages.next()).await;
                if let Ok(message) = next {
                    return message;
                }
                if client.statistics().connects.load(Ordering::Relaxed) > 1 {
                    return None;
                }
            }
        };
        let message = tokio::time::timeout(Duration::from_secs(20), message).await;
        let message = message.unwrap_or_else(|_| panic!("nothing came of {}", block.escape_ascii()));
        // White space in a subject gives another subject.
        assert!(
            message.is_none_or(|message| message.subject.as_bytes() != subject),
            "{} {}",
            subject.escape_ascii(),
            block.escape_ascii()
        );
    }
}

#[tokio::test]
async fn messages_that_break_the_connection_are_passed_over() {
    for tls in [false, true] {
        let (server, connect) = if tls { secured().await } else { plain().await };
        let mesh = connect.open().await.unwrap();
        let mut messages = mesh.services().listen("a.*".to_owned()).await.unwrap();
        let inbox = mesh.client().new_inbox();
        let mut poisons_again = poisons().into_iter().cycle();
        let good = async {
            loop {
                match tls {
                    _ if mesh.admin().is_screened() => {}
                    true => mesh.client().force_reconnect().await.unwrap(),
                    false => publish_raw(&server, &[poisons_again.next().unwrap()]).await,
                }
                let _ = mesh.client().publish("a.last", "".into()).await;
                let next = tokio::time::timeout(Duration::from_millis(50), messages.next()).await;
                if let Ok(Some(message)) = next
                    && message.subject.as_str() == "a.last"
                    && mesh.admin().is_screened()
                {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), good).await.unwrap();
        let statistics = mesh.client().statistics();
        if !tls {
            let all: Vec<_> = poisons_again.take(200).collect();
            publish_raw(&server, &all).await;
        }
        mesh.admin().provision(&Provision::default()).await.unwrap();
        mesh.client().publish("a.end", "".into()).await.unwrap();
        while messages.next().await.unwrap().subject.as_str() != "a.end" {}
        assert_eq!(statistics.connects.load(Ordering::Relaxed), 1, "the screened connection was lost");
        // Ids of requests are counted up behind a prefix; nothing of it is known to who saw another connection.
        let next = mesh.client().new_inbox();
        let prefix = |inbox: &str| inbox.split('.').nth(1).unwrap().to_owned();
        assert_ne!(prefix(&inbox), prefix(&next));
        // A client outlives its mesh and still finds the screen at its port.
        let client = mesh.client();
        drop((mesh, messages));
        client.force_reconnect().await.unwrap();
        let again = async {
            while statistics.connects.load(Ordering::Relaxed) < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), again).await.unwrap();
    }
}

/// A process that was disturbed once does not pay for it until it restarts, and is as safe as before.
#[tokio::test]
async fn the_screen_is_left_when_no_message_needs_it_any_more() {
    let (server, connect) = plain().await;
    let connect = Connect { screen_calm: Some(Duration::from_millis(300)), ..connect };
    let mesh = connect.open().await.unwrap();
    let mut messages = mesh.services().listen("a.*".to_owned()).await.unwrap();
    for round in 0..2 {
        let screened = async {
            while !mesh.admin().is_screened() {
                publish_raw(&server, &[poisons().into_iter().next().unwrap()]).await;
                let _ = tokio::time::timeout(Duration::from_millis(50), mesh.services().renewed()).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), screened).await.unwrap();
        let direct = async {
            while mesh.admin().is_screened() {
                let _ = tokio::time::timeout(Duration::from_millis(50), mesh.services().renewed()).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), direct).await.unwrap();
        // Listeners listen again on the direct connection.
        let subject = format!("a.round-{round}");
        let heard = async {
            loop {
                let _ = mesh.client().publish(subject.clone(), "".into()).await;
                let next = tokio::time::timeout(Duration::from_millis(50), messages.next()).await;
                if next.is_ok_and(|next| next.is_some_and(|message| message.subject.as_str() == subject)) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard).await.unwrap();
    }
}

async fn plain() -> (Server, Connect) {
    let server = server("").await;
    let url = server.url();
    (server, to(url))
}

/// A server that wants certificates, and a connection that has one.
async fn secured() -> (Server, Connect) {
    let fixture =
        |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name);
    let [ca, cert, key] =
        ["ca.pem", "server.pem", "server.key"].map(|name| fixture(name).display().to_string());
    let tls = format!("tls {{ cert_file: {cert:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true }}");
    let server = server(&tls).await;
    let connect = Connect {
        ca: Some(fixture("ca.pem")),
        cert: Some(fixture("client.pem")),
        key: Some(fixture("client.key")),
        ..to(server.url())
    };
    (server, connect)
}

/// An agent that is asked sees where its answer goes. Answers to others go elsewhere.
#[tokio::test]
async fn nobody_can_guess_where_an_answer_goes() {
    let server = server("").await;
    let mesh = to(server.url()).open().await.unwrap();
    mesh.admin().provision(&Provision::default()).await.unwrap();
    let spy = async_nats::connect(server.url()).await.unwrap();
    let mut asked = subscribed(&spy, ">").await;
    let wait = Duration::from_millis(50);
    for _ in 0..3 {
        let _ = mesh.services().call_rpc("nobody", "SendMessage", HeaderMap::new(), "".into(), wait).await;
        let _ = mesh.services().ask_shard_within(0, &sinew_mesh::query::Query::Status {}, wait).await;
        mesh.cards().retract("nobody").await.unwrap();
    }
    let (mut own, mut stored) = (BTreeSet::new(), BTreeSet::new());
    while own.len() < 6 || stored.len() < 3 {
        let message = asked.next().await.unwrap();
        let Some(reply) = message.reply.filter(|reply| reply.starts_with("_INBOX_tester.")) else { continue };
        if message.subject.contains(".rpc.") || message.subject.contains(".query.") {
            own.insert(reply.to_string());
        } else {
            stored.insert(reply.to_string());
        }
    }
    // 128 random bits each.
    let token = |inbox: &String| inbox.split('.').nth(1).unwrap().to_owned();
    let tokens: BTreeSet<_> = own.iter().map(token).collect();
    assert_eq!(tokens.len(), 6, "{own:?}");
    let prefixes: BTreeSet<_> = stored.iter().map(token).collect();
    assert_eq!((prefixes.len(), prefixes.intersection(&tokens).count()), (1, 0), "{stored:?}");
    for token in tokens.iter().chain(&prefixes) {
        assert!(token.len() == 32 && token.bytes().all(|letter| letter.is_ascii_hexdigit()), "{token}");
    }
}

/// Frames that fuzzers found, and the seeds they begin with.
fn frame_corpus() -> Vec<Vec<u8>> {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frames");
    std::fs::read_dir(corpus).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn the_corpus_of_frames_holds() {
    let corpus = frame_corpus();
    assert!(corpus.len() > 20);
    for bytes in &corpus {
        frames::frames(bytes);
    }
}

/// Pieces of the corpus, joined and changed by chance, where no fuzzer is at hand. `SINEW_FUZZ_SECONDS` makes it last
/// longer, `SINEW_SEED` begins elsewhere; a panic is told with the bytes that caused it.
#[test]
fn frames_that_chance_makes_of_the_corpus_hold() {
    const WORDS: [&[u8]; 10] =
        [b"\r\n", b"\r", b"\n", b"\0", b":", b" ", b"NATS/1.0", b"HMSG ", b"99999999999999999999", b"\xff"];
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = setting("SINEW_FUZZ_SECONDS").unwrap_or(1);
    let mut state = setting("SINEW_SEED").unwrap_or(1);
    let mut below = |count: usize| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % count.max(1) as u64).unwrap()
    };
    let corpus = frame_corpus();
    let began = std::time::Instant::now();
    let mut count = 0;
    while count < 2_000 || began.elapsed() < Duration::from_secs(seconds) {
        let mut bytes = Vec::new();
        for _ in 0..=below(3) {
            let one = &corpus[below(corpus.len())];
            let from = below(one.len() + 1) * below(2);
            bytes.extend_from_slice(&one[from..]);
        }
        for _ in 0..below(6) {
            let at = below(bytes.len() + 1);
            match below(4) {
                0 => drop(bytes.splice(at..at, WORDS[below(WORDS.len())].iter().copied())),
                1 => drop(bytes.drain(at..(at + below(9)).min(bytes.len()))),
                2 => bytes.truncate(at),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = below(256).to_le_bytes()[0]),
            }
        }
        let held = std::panic::catch_unwind(|| frames::frames(&bytes));
        assert!(held.is_ok(), "{}", bytes.escape_ascii());
        count += 1;
    }
    println!("{count} inputs in {:?}", began.elapsed());
}
