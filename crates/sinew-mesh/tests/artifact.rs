//! Artifacts: bytes come back as they were or not at all, whatever their name and address say.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use bytes::Bytes;
use sinew_mesh::artifact::{ArtifactOwner, ArtifactStore};
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::a2a::{Part, part_kind};
use sinew_protocol::artifact::{StoredAt, sha256};
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::task::{Content, ResultArtifact};
use sinew_protocol::{ArtifactName, ExecutionId, TaskId};

use crate::started;

fn name(text: &str) -> ArtifactName {
    ArtifactName::parse(text).unwrap()
}

/// Bytes of this length, no piece of which is like another.
fn noise(length: usize, seed: u64) -> Bytes {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn place<'a>(execution: &'a ExecutionId, task: &'a TaskId) -> ArtifactOwner<'a> {
    ArtifactOwner { app: "order/reviewer", user: "ä b", execution, task }
}

/// How the artifact looks to whoever reads the result that it travels in.
fn sent(stored: sinew_mesh::artifact::StoredArtifact) -> ResultArtifact {
    let artifact = ResultArtifact { content: Content::of(&stored.part).unwrap(), meta: stored.meta };
    ResultArtifact::from_value(&artifact.to_value(None), &serde_json::Value::Null).unwrap()
}

#[tokio::test]
async fn bytes_come_back_as_they_were() {
    let (_server, mesh) = started::mesh().await;
    let store = mesh.artifacts();
    let (execution, task, _) = started::ids(1);
    let here = place(&execution, &task);
    let spaced = r#"{ "a" : 1.0e3 }"#;
    let long = format!("\"{}\"", "x".repeat(INLINE_LIMIT));
    let cases: [(&str, &str, Bytes, &str); 11] = [
        ("value.json", "application/json", r#"{"b":[1,2.5,null],"a":"ä"}"#.into(), "data"),
        ("spaced.json", "application/json", spaced.into(), "text"),
        ("no.json", "application/json", "{".into(), "text"),
        ("text.txt", "text/plain; charset=utf-8", "ä\r\n\0".into(), "text"),
        ("latin.txt", "text/plain", Bytes::from_static(b"\xe4"), "file"),
        ("image.png", "image/png", noise(1000, 1), "file"),
        ("nothing", "application/octet-stream", Bytes::new(), "file"),
        ("limit.bin", "application/octet-stream", noise(INLINE_LIMIT, 2), "file"),
        ("above.bin", "application/octet-stream", noise(INLINE_LIMIT + 1, 3), "file"),
        ("above.json", "application/json", long.into(), "file"),
        ("large größe.bin", "application/octet-stream", noise(3 * 1024 * 1024 + 7, 4), "file"),
    ];
    for (n, (title, media_type, bytes, kind)) in cases.into_iter().enumerate() {
        let version = u32::try_from(n).unwrap();
        let stored = store.put(&here, name(title), version, media_type, bytes.clone()).await.unwrap();
        assert_eq!(part_kind(&stored.part), kind, "{title}");
        assert_eq!(stored.part.filename.as_deref(), Some(title));
        assert_eq!(stored.meta.sha256, sha256(&bytes));
        assert_eq!(store.get_part(&stored.part).await.unwrap(), bytes, "{title}");
        let artifact = sent(stored);
        assert_eq!(matches!(artifact.content, Content::Url(_)), bytes.len() > INLINE_LIMIT, "{title}");
        assert_eq!(store.get(&artifact).await.unwrap(), bytes, "{title}");
    }
    // The same again is the same, and another task's is another.
    let (_, other, _) = started::ids(2);
    let again = noise(INLINE_LIMIT + 1, 3);
    for (task, pieces) in [(&task, 0), (&other, 1)] {
        let before = pieces_of(&mesh).await;
        let (there, again) = (place(&execution, task), again.clone());
        store.put(&there, name("above.bin"), 8, "application/octet-stream", again).await.unwrap();
        assert_eq!(pieces_of(&mesh).await - before, pieces);
    }
}

/// Pieces in the stream of artifacts.
async fn pieces_of(mesh: &Mesh) -> u64 {
    let stream = mesh.admin().jetstream().get_stream("test_ARTIFACTS").await.unwrap();
    stream.cached_info().state.messages
}

#[tokio::test]
async fn hostile_names_reach_no_key_and_hostile_addresses_no_bytes() {
    let (_server, mesh) = started::mesh().await;
    let store = mesh.artifacts();
    let (execution, task, _) = started::ids(1);
    let (here, bytes) = (place(&execution, &task), noise(100_000, 7));
    // Legal names that would mean something to a subject, a path, a URL or a shell.
    for title in
        ["a.>", "*", "$JS.API.STREAM.DELETE.x", "%2e%2e", "a?version=9&task=x#b", "; rm -rf ~", "结果 é"]
    {
        let stored = store.put_object(&here, name(title), 0, "text/plain", bytes.clone()).await.unwrap();
        let Content::Url(address) = Content::of(&stored.part).unwrap() else {
            panic!("{title} is not an address")
        };
        let read: StoredAt = address.parse().unwrap();
        assert_eq!(read.uri.artifact.name.as_str(), title);
        assert_eq!(read.object(), format!("{execution}.{task}.{}", sha256(&bytes)));
        assert_eq!(store.fetch(&address).await.unwrap(), bytes);
    }
    let hash = sha256(&bytes);
    let stored = store.put_object(&here, name("n"), 0, "text/plain", bytes.clone()).await.unwrap();
    let Ok(Content::Url(address)) = Content::of(&stored.part) else { panic!("it has no address") };
    let key = address.parse::<StoredAt>().unwrap().key.to_string();
    let good = format!("artifact://a/u/{execution}/n?version=0&task={task}&sha256={hash}&key={key}");
    assert_eq!(store.fetch(&good).await.unwrap(), bytes);
    let other = started::ids(2);
    let cases = [
        ("another key", good.replace(&key, &"A".repeat(43)), "SINEW-7051"),
        ("no key", good.replace(&format!("&key={key}"), ""), "SINEW-5004"),
        ("a key twice", format!("{good}&key={key}"), "SINEW-5002"),
        ("a short key", good.replace(&key, &key[..42]), "SINEW-5002"),
        ("another execution", good.replace(execution.as_str(), other.0.as_str()), "SINEW-7051"),
        ("another task", good.replace(task.as_str(), other.1.as_str()), "SINEW-7052"),
        ("another hash", good.replace(&hash, &"0".repeat(64)), "SINEW-7052"),
        ("no task", good.replace(&format!("&task={task}"), ""), "SINEW-5002"),
        ("a task twice", format!("{good}&task={task}"), "SINEW-5002"),
        ("a hash twice", format!("{good}&sha256={hash}"), "SINEW-5002"),
        ("a hash in capitals", good.replace(&hash, &hash.to_uppercase()), "SINEW-5002"),
        ("a short hash", good.replace(&hash, &hash[..63]), "SINEW-5002"),
        ("a task with a dot", good.replace(task.as_str(), "a.b"), "SINEW-5002"),
        ("a task with a star", good.replace(task.as_str(), "*"), "SINEW-5002"),
        ("an execution with a dot", good.replace(execution.as_str(), "a%2Eb"), "SINEW-5002"),
        ("an execution with a slash", good.replace(execution.as_str(), "a%2Fb"), "SINEW-5002"),
        ("an execution with a wildcard", good.replace(execution.as_str(), "%3E"), "SINEW-5002"),
        ("a name that climbs", good.replace("/n?", "/..?"), "SINEW-5001"),
        ("a name that climbs, hidden", good.replace("/n?", "/%2e%2e%2fn?"), "SINEW-5001"),
        ("one segment more", good.replace("/n?", "/n/m?"), "SINEW-5002"),
        ("one segment fewer", good.replace("/u/", "/"), "SINEW-5002"),
        ("no version", good.replace("version=0", "version=-1"), "SINEW-5002"),
        ("a file", "file:///etc/passwd".to_owned(), "SINEW-5002"),
        ("the web", "https://example.org/a".to_owned(), "SINEW-5002"),
        ("nothing", String::new(), "SINEW-5002"),
        ("without end", format!("{good}&x={}", "y".repeat(5000)), "SINEW-5002"),
        ("a line break", good.replace(task.as_str(), "a\r\nb"), "SINEW-5002"),
    ];
    for (what, address, code) in cases {
        let error = store.get_part(&Part::url(&address)).await.expect_err(what);
        assert_eq!(error.code(), code, "{what}: {error}");
    }
    let odd = "text/plain\r\nNats-Rollup: all";
    let error = store.put(&here, name("a"), 0, odd, "x".into()).await.unwrap_err();
    assert_eq!(error.code(), "SINEW-7056");
}

async fn put(store: &ArtifactStore, bytes: &Bytes) -> (ResultArtifact, StoredAt) {
    let (execution, task, _) = started::ids(1);
    let here = place(&execution, &task);
    let artifact = sent(store.put(&here, name("a.bin"), 0, "image/png", bytes.clone()).await.unwrap());
    let Content::Url(address) = &artifact.content else { panic!("it is stored inline") };
    let address = address.parse().unwrap();
    (artifact, address)
}

/// Stores other bytes in place of a piece, as only somebody who may delete messages can.
async fn replace(mesh: &Mesh, at: &StoredAt, nth: u64, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let subject = mesh.subject(&at.key.piece(&at.execution, nth));
    let stream = mesh.admin().jetstream().get_stream("test_ARTIFACTS").await.unwrap();
    let message = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
    stream.delete_message(message.sequence).await.unwrap();
    let changed = change(message.payload.to_vec());
    if !changed.is_empty() {
        mesh.admin().jetstream().publish(subject, changed.into()).await.unwrap().await.unwrap();
    }
}

#[tokio::test]
async fn changed_and_missing_pieces_are_found() {
    type Change = fn(Vec<u8>) -> Vec<u8>;
    let (_server, mesh) = started::mesh().await;
    let store = mesh.artifacts();
    let flip: Change = |mut piece| {
        piece[17] ^= 4;
        piece
    };
    let cut: Change = |mut piece| {
        piece.truncate(20);
        piece
    };
    let cases: [(u64, Change, &str); 5] = [
        (0, flip, "SINEW-7052"),
        (2, flip, "SINEW-7052"),
        (1, cut, "SINEW-7052"),
        (1, |_| Vec::new(), "SINEW-7052"),
        (0, |_| Vec::new(), "SINEW-7051"),
    ];
    for (seed, (nth, change, code)) in (1..).zip(cases) {
        let (artifact, address) = put(&store, &noise(300_000, seed)).await;
        store.get(&artifact).await.unwrap();
        replace(&mesh, &address, nth, change).await;
        assert_eq!(store.get(&artifact).await.unwrap_err().code(), code, "{nth}");
    }
    // A piece of one object in the place of a piece of another one.
    let (_, address) = put(&store, &noise(300_000, 20)).await;
    let (artifact, other) = put(&store, &noise(300_000, 21)).await;
    let subject = mesh.subject(&address.key.piece(&address.execution, 1));
    let stream = mesh.admin().jetstream().get_stream("test_ARTIFACTS").await.unwrap();
    let piece = stream.get_last_raw_message_by_subject(&subject).await.unwrap().payload;
    replace(&mesh, &other, 1, |_| piece.to_vec()).await;
    assert_eq!(store.get(&artifact).await.unwrap_err().code(), "SINEW-7052");
    // Inside the message, against what the message says.
    let (execution, task, _) = started::ids(1);
    let stored = store.put(&place(&execution, &task), name("b"), 0, "image/png", noise(100, 3)).await;
    let mut inline = sent(stored.unwrap());
    inline.content = Content::Raw(noise(100, 4));
    assert_eq!(store.get(&inline).await.unwrap_err().code(), "SINEW-5003");
}

#[tokio::test]
async fn sizes_are_kept_within_limits() {
    let (_server, mesh) = started::mesh().await;
    let store = mesh.artifacts();
    let piece = 128 << 10;
    for (seed, size) in
        (1..).zip([INLINE_LIMIT + 1, piece - 9, piece - 8, piece - 7, 2 * piece - 8, 2 * piece])
    {
        let bytes = noise(size, seed);
        let (_, address) = put(&store, &bytes).await;
        let address = address.to_string();
        assert_eq!(store.fetch_within(&address, size).await.unwrap(), bytes, "{size}");
        let large = store.fetch_within(&address, size - 1).await.unwrap_err();
        assert!(matches!(large, MeshError::TooLarge { .. }), "{large}");
    }
}

/// The whole stream, as its owner sees it: no text of an artifact, no name and no id stands in it, and a subject takes one
/// message.
#[tokio::test]
async fn the_stream_shows_nothing_and_keeps_what_was_stored_first() {
    let (_server, mesh) = started::mesh().await;
    let store = mesh.artifacts();
    let secret = format!("{}payroll of ada{}", "x".repeat(40_000), "y".repeat(40_000));
    let (execution, task, _) = started::ids(1);
    let here = place(&execution, &task);
    let stored = store.put(&here, name("payroll.txt"), 0, "text/plain", secret.clone().into()).await.unwrap();
    let stream = mesh.admin().jetstream().get_stream("test_ARTIFACTS").await.unwrap();
    let mut seen = 0;
    for sequence in 1..=stream.cached_info().state.last_sequence {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let text = format!("{} {:?} ", message.subject, message.headers);
        let text = text + &String::from_utf8_lossy(&message.payload);
        for shown in ["xxxx", "payroll", "text/plain", execution.as_str(), task.as_str(), "ä b", "reviewer"]
        {
            assert!(!text.contains(shown), "{shown}");
        }
        for body in ["", "{\"deleted\":true}", "other"] {
            let jetstream = mesh.admin().jetstream();
            let again = jetstream.publish(message.subject.to_string(), body.into()).await.unwrap().await;
            assert!(again.is_err(), "{body}");
        }
        seen += 1;
    }
    assert_eq!(seen, 1);
    assert_eq!(store.get_part(&stored.part).await.unwrap(), secret);
}
