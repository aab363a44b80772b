//! Opening connections to real servers, and to ones that must be refused.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Connect, Mesh, MeshError, Provision};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

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
    mesh.provision(&Provision::default()).await.unwrap();
    assert_eq!(mesh.layout().await.unwrap().shards.get(), 16);
}

#[tokio::test]
async fn a_connection_comes_back_by_itself() {
    let mut server = server("").await;
    let mesh = to(server.url()).open().await.unwrap();
    mesh.provision(&Provision::default()).await.unwrap();
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while mesh.verify().await.is_err() {
        assert!(tokio::time::Instant::now() < until, "it did not come back");
    }
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
    mesh.provision(&Provision::default()).await.unwrap();
    // The server has streams, so the connection opens; the first question finds out that the account has none.
    let mesh: Mesh = with("b").open().await.unwrap();
    let error = mesh.layout().await.unwrap_err();
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
    proven.clone().open().await.unwrap().provision(&Provision::default()).await.unwrap();
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
