//! The managed nats-server: found, started, killed, started again; gone when its owner is.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sinew_mesh::MeshError;
use sinew_mesh::async_nats::{self, jetstream};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::server_group::ServerGroup;

async fn connect(server: &Server) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.unwrap())
}

async fn stored(context: &jetstream::Context, text: &str) -> u64 {
    let config =
        jetstream::stream::Config { name: "S".into(), subjects: vec!["s.>".into()], ..Default::default() };
    context.create_or_update_stream(config).await.unwrap();
    context.publish("s.a", text.to_owned().into()).await.unwrap().await.unwrap().sequence
}

/// A program that says it is this version and does nothing else.
fn fake(folder: &Path, says: &str) -> PathBuf {
    let path = folder.join("nats-server");
    fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn what_is_stored_survives_a_crash_and_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        store: Some(folder.path().join("store \"of\" mine")),
        sync_always: true,
        ..ServerOptions::default()
    };
    let mut server = Server::start(options).await.unwrap();
    let (port, first) = (server.port(), server.pid().unwrap());
    assert_eq!(stored(&connect(&server).await, "one").await, 1);

    server.kill9().await.unwrap();
    assert!(server.pid().is_none() && !server.is_running());
    server.restart().await.unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid().unwrap(), first);
    assert_eq!(stored(&connect(&server).await, "two").await, 2);

    server.restart().await.unwrap();
    assert_eq!(stored(&connect(&server).await, "three").await, 3);
    server.stop().await.unwrap();
    server.stop().await.unwrap();
    let log = fs::read_to_string(server.log()).unwrap();
    assert!(log.contains("Initiating Shutdown") || log.contains("Server Exiting"), "{log}");
}

#[tokio::test]
async fn a_halted_server_answers_nothing_until_it_goes_on() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let client = async_nats::ConnectOptions::new()
        .request_timeout(Some(Duration::from_millis(300)))
        .connect(server.url())
        .await
        .unwrap();
    server.pause().await.unwrap();
    assert!(client.request("$JS.API.INFO", "".into()).await.is_err());
    server.resume().unwrap();
    let waited = async_nats::Request::new().timeout(Some(Duration::from_secs(10)));
    assert!(client.send_request("$JS.API.INFO", waited).await.is_ok());
}

#[tokio::test]
async fn a_halted_server_can_be_stopped() {
    let mut server = Server::start(ServerOptions::default()).await.unwrap();
    server.pause().await.unwrap();
    server.stop().await.unwrap();
    assert!(server.pid().is_none());
}

#[tokio::test]
async fn two_servers_never_share_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions { store: Some(folder.path().into()), ..ServerOptions::default() };
    let mut first = Server::start(options.clone()).await.unwrap();
    let second = Server::start(options.clone()).await.unwrap_err();
    assert!(matches!(second, MeshError::StoreInUse { .. }), "{second}");
    assert!(first.is_running());
    first.kill9().await.unwrap();
    Server::start(options).await.unwrap();
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    for (extra, named) in [("jetstream {", "Parse error"), ("include \"not-there.conf\"", "not-there.conf")] {
        let options = ServerOptions { config_extra: Some(extra.into()), ..ServerOptions::default() };
        let error = Server::start(options).await.unwrap_err();
        assert!(matches!(error, MeshError::ServerFailed { .. }), "{error}");
        assert!(error.to_string().contains(named), "{extra}: {error}");
    }
    let first = Server::start(ServerOptions::default()).await.unwrap();
    let options = ServerOptions { port: Some(first.port()), ..ServerOptions::default() };
    let error = Server::start(options).await.unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
}

#[tokio::test]
async fn programs_that_do_not_do_are_refused_by_name() {
    let cases = [
        ("nats-server: v2.11.11", "SINEW-7013", "2.11.11"),
        ("nats-server: v2.9.10", "SINEW-7013", "2.9.10"),
        ("hello", "SINEW-7012", "does not report"),
        ("", "SINEW-7012", "does not report"),
    ];
    for (says, code, named) in cases {
        let folder = tempfile::tempdir().unwrap();
        let program = Some(fake(folder.path(), says));
        let error = Server::start(ServerOptions { program, ..ServerOptions::default() }).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(named), "{says}: {error}");
    }
    let program = Some("/not/there/nats-server".into());
    let error = Server::start(ServerOptions { program, ..ServerOptions::default() }).await.unwrap_err();
    assert_eq!(error.code(), "SINEW-7012");
}

#[tokio::test]
async fn more_configuration_is_taken() {
    let options = ServerOptions {
        config_extra: Some("max_payload: 4096\nauthorization { token: secret }".into()),
        ..ServerOptions::default()
    };
    let server = Server::start(options).await.unwrap();
    assert!(async_nats::connect(server.url()).await.is_err());
    let client = async_nats::ConnectOptions::with_token("secret".into()).connect(server.url()).await.unwrap();
    assert_eq!(client.server_info().max_payload, 4096);
}

#[tokio::test]
async fn a_group_keeps_what_is_stored_without_one_member_and_with_an_emptied_disk() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions { store: Some(folder.path().into()), ..ServerOptions::default() };
    let mut group = ServerGroup::start(options.clone(), Some(3)).await.unwrap();
    let urls: Vec<String> = group.members().iter().map(Server::url).collect();
    // This client was told of one member and hears of the others from it.
    let context = jetstream::new(async_nats::connect(&urls[1]).await.unwrap());
    let config = jetstream::stream::Config {
        name: "S".into(),
        subjects: vec!["s.>".into()],
        num_replicas: 3,
        ..Default::default()
    };
    context.create_or_update_stream(config).await.unwrap();
    let leader = group.leader_of(&context, "S").await.unwrap();
    group.members_mut()[1].empty_disk().await.unwrap();
    let store = async |text: &'static str| loop {
        // The members may have to choose a leader first.
        if let Ok(stored) = context.publish("s.a", text.into()).await.unwrap().await {
            break stored.sequence;
        }
    };
    assert_eq!(store("one").await, 1, "led by {leader}");
    group.members_mut()[1].restart().await.unwrap();
    assert_eq!(store("two").await, 2);
    group.stop().await.unwrap();
    drop(group);

    let other = ServerGroup::start(options.clone(), Some(1)).await.unwrap_err().to_string();
    assert!(other.contains("created for 3"), "{other}");
    let group = ServerGroup::start(options, None).await.unwrap();
    assert_eq!(group.members().len(), 3);
    let context =
        jetstream::new(async_nats::connect(group.url().split(',').collect::<Vec<_>>()).await.unwrap());
    let mut stream = loop {
        if let Ok(stream) = context.get_stream("S").await {
            break stream;
        }
    };
    assert_eq!(stream.info().await.unwrap().state.messages, 2);
}

/// Plays the owner for the test below: starts a server, says where, and waits to be killed.
#[tokio::test]
async fn owner_that_will_be_killed() {
    let Some(store) = std::env::var_os("SERVER_TEST_OWNER_STORE") else { return };
    let options = ServerOptions { store: Some(store.into()), ..ServerOptions::default() };
    let server = Server::start(options).await.unwrap();
    fs::write(server.store().join("ready.new"), server.pid().unwrap().to_string()).unwrap();
    fs::rename(server.store().join("ready.new"), server.store().join("ready")).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_server_ends_with_its_owner_even_when_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "server::owner_that_will_be_killed"])
        .env("SERVER_TEST_OWNER_STORE", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !folder.path().join("ready").exists() {
        assert!(Instant::now() < until, "the owner did not start its server");
        std::thread::yield_now();
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    // The lock of the store is free once the server is gone; a start waits for it a little.
    let options = ServerOptions { store: Some(folder.path().into()), ..ServerOptions::default() };
    Server::start(options).await.unwrap();
}
