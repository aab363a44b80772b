//! Artifacts: bytes come back as they were or not at all, whatever their name and address say.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use bytes::Bytes;
use serde_json::json;
use sinew_mesh::artifact::{ArtifactStore, Place};
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

fn place<'a>(execution: &'a ExecutionId, task: &'a TaskId) -> Place<'a> {
    Place { app: "order/reviewer", user: "ä b", execution, task }
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
    let mut stored_objects = Vec::new();
    for (n, (title, media_type, bytes, kind)) in cases.into_iter().enumerate() {
        let version = u32::try_from(n).unwrap();
        let stored = store.put(&here, name(title), version, media_type, bytes.clone()).await.unwrap();
        assert_eq!(part_kind(&stored.part), kind, "{title}");
        assert_eq!(stored.part.filename.as_deref(), Some(title));
        assert_eq!(stored.meta.sha256, sha256(&bytes));
        assert_eq!(store.get_part(&stored.part).await.unwrap(), bytes, "{title}");
        if bytes.len() > INLINE_LIMIT {
            stored_objects.push((task.clone(), stored.meta.clone()));
        }
        let artifact = sent(stored);
        assert_eq!(matches!(artifact.content, Content::Url(_)), bytes.len() > INLINE_LIMIT, "{title}");
        assert_eq!(store.get(&artifact).await.unwrap(), bytes, "{title}");
    }
    // The same again is the same, and another task's is another.
    let (_, other, _) = started::ids(2);
    let again = noise(INLINE_LIMIT + 1, 3);
    for task in [&task, &other] {
        let (there, again) = (place(&execution, task), again.clone());
        store.put(&there, name("above.bin"), 8, "application/octet-stream", again).await.unwrap();
    }
    let listed = store.list(&execution).await.unwrap();
    assert_eq!(listed.len(), stored_objects.len() + 1);
    for stored in stored_objects {
        assert!(listed.contains(&stored), "{stored:?}");
    }
    assert!(store.list(&started::ids(9).0).await.unwrap().is_empty());
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
        assert_eq!(read.key(), format!("{execution}.{task}.{}", sha256(&bytes)));
        assert_eq!(store.fetch(&address).await.unwrap(), bytes);
    }
    let hash = sha256(&bytes);
    let good = format!("artifact://a/u/{execution}/n?version=0&task={task}&sha256={hash}");
    assert_eq!(store.fetch(&good).await.unwrap(), bytes);
    let other = started::ids(2);
    let cases = [
        ("another execution", good.replace(execution.as_str(), other.0.as_str()), "SINEW-7051"),
        ("another task", good.replace(task.as_str(), other.1.as_str()), "SINEW-7051"),
        ("another hash", good.replace(&hash, &"0".repeat(64)), "SINEW-7051"),
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

/// The stream behind the store, with the descriptions and pieces in it.
async fn rewrite(mesh: &Mesh, subject: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let stream = mesh.admin().jetstream().get_stream("OBJ_test_ARTIFACTS").await.unwrap();
    let message = stream.get_last_raw_message_by_subject(subject).await.unwrap();
    let mut bytes = message.payload.to_vec();
    change(&mut bytes);
    stream.delete_message(message.sequence).await.unwrap();
    let subject = message.subject.to_string();
    mesh.admin().jetstream().publish(subject, bytes.into()).await.unwrap().await.unwrap();
}

async fn put(store: &ArtifactStore, bytes: &Bytes) -> ResultArtifact {
    let (execution, task, _) = started::ids(1);
    let here = place(&execution, &task);
    sent(store.put(&here, name("a.bin"), 0, "image/png", bytes.clone()).await.unwrap())
}

#[tokio::test]
async fn a_flipped_bit_is_found_wherever_it_is() {
    let (_server, mesh) = started::mesh().await;
    let store = mesh.artifacts();
    let large = noise(300_000, 1);
    let artifact = put(&store, &large).await;
    assert_eq!(store.get(&artifact).await.unwrap(), large);
    // In a piece on the disk of the server.
    rewrite(&mesh, "$O.test_ARTIFACTS.C.>", |bytes| bytes[17] ^= 4).await;
    assert!(matches!(store.get(&artifact).await, Err(MeshError::Damaged { .. })));
    // Bytes that somebody stored under the key of others, with a description that fits them.
    let small = noise(70_000, 2);
    let artifact = put(&store, &small).await;
    rewrite(&mesh, "$O.test_ARTIFACTS.C.>", |bytes| bytes[0] ^= 1).await;
    let mut flipped = small.to_vec();
    flipped[0] ^= 1;
    let digest = |bytes: &[u8]| {
        use sha2::Digest as _;
        data_encoding::BASE64URL.encode(&sha2::Sha256::digest(bytes))
    };
    rewrite(&mesh, "$O.test_ARTIFACTS.M.>", |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let fitting = text.replace(&digest(&small), &digest(&flipped));
        assert_ne!(text, fitting);
        *bytes = fitting.into_bytes();
    })
    .await;
    let error = store.get(&artifact).await.unwrap_err();
    assert_eq!(error.code(), "SINEW-5003", "{error}");
    // Inside the message, against what the message says.
    let mut inline = put(&store, &noise(100, 3)).await;
    inline.content = Content::Raw(noise(100, 4));
    assert_eq!(store.get(&inline).await.unwrap_err().code(), "SINEW-5003");
    // The right bytes, stored again, are right again.
    let again = put(&store, &small).await;
    assert_eq!(store.get(&again).await.unwrap(), small);
}

#[tokio::test]
async fn a_hostile_description_leads_nowhere() {
    let (_server, mesh) = started::mesh().await;
    let store = mesh.artifacts();
    let artifact = put(&store, &noise(100_000, 1)).await;
    let cases: [(&str, &str, serde_json::Value); 9] = [
        ("pieces of everybody", "nuid", json!("*")),
        ("pieces elsewhere", "nuid", json!("x.>")),
        ("no pieces", "nuid", json!("")),
        ("another name", "name", json!("other")),
        ("more bytes than there are", "size", json!(1_000_000)),
        ("fewer bytes than there are", "size", json!(10)),
        ("more pieces than bytes", "chunks", json!(u32::MAX)),
        ("small pieces, each of which is a request", "chunks", json!(50_000)),
        ("more bytes than fit", "size", json!(u32::MAX)),
    ];
    let Content::Url(address) = &artifact.content else { panic!("it is stored inline") };
    let large = store.fetch_within(address, 99_999).await.unwrap_err();
    assert!(matches!(large, MeshError::TooLarge { size: 100_000, .. }), "{large}");
    assert!(store.fetch_within(address, 100_000).await.is_ok());
    let mut original: Option<serde_json::Value> = None;
    for (what, field, value) in cases {
        rewrite(&mesh, "$O.test_ARTIFACTS.M.>", |bytes| {
            let mut info = original.get_or_insert_with(|| serde_json::from_slice(bytes).unwrap()).clone();
            info[field] = value;
            *bytes = info.to_string().into_bytes();
        })
        .await;
        let error = store.get(&artifact).await.expect_err(what);
        assert!(matches!(error, MeshError::Damaged { .. } | MeshError::TooLarge { .. }), "{what}: {error}");
    }
    rewrite(&mesh, "$O.test_ARTIFACTS.M.>", |bytes| *bytes = b"{".to_vec()).await;
    assert_eq!(store.get(&artifact).await.unwrap_err().code(), "SINEW-7052");
    rewrite(&mesh, "$O.test_ARTIFACTS.M.>", |bytes| {
        let mut info = original.clone().unwrap();
        info["deleted"] = json!(true);
        *bytes = info.to_string().into_bytes();
    })
    .await;
    assert_eq!(store.get(&artifact).await.unwrap_err().code(), "SINEW-7051");
}

#[tokio::test]
async fn the_clients_own_object_store_reads_what_was_stored() {
    let (_server, mesh) = started::mesh().await;
    let bytes = noise(500_000, 5);
    let artifact = put(&mesh.artifacts(), &bytes).await;
    let Content::Url(address) = &artifact.content else { panic!("no address") };
    let theirs = mesh.admin().jetstream().get_object_store("test_ARTIFACTS").await.unwrap();
    let mut object = theirs.get(address.parse::<StoredAt>().unwrap().key()).await.unwrap();
    let mut read = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut object, &mut read).await.unwrap();
    assert_eq!(read, bytes);
}
