//! Records of gateways: replaced under a condition, removed, listed and followed.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token};

use crate::started;

fn key(id: &str) -> Subject {
    Subject::Access { kind: AccessKind::Key, id: Token::of(id) }
}

#[tokio::test]
async fn records_are_replaced_under_a_condition_and_read_back() {
    let (_server, mesh) = started::mesh().await;
    let records = mesh.records().access();
    assert_eq!(records.get(&key("a")).await.unwrap(), None);
    let first = records.put(&key("a"), Bytes::from_static(b"1"), Some(0)).await.unwrap().unwrap();
    assert_eq!(
        records.put(&key("a"), Bytes::from_static(b"2"), Some(0)).await.unwrap(),
        None,
        "there is one"
    );
    let found = records.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((found.revision, &found.body[..]), (first, &b"1"[..]));
    let second = records.put(&key("a"), Bytes::from_static(b"2"), Some(first)).await.unwrap().unwrap();
    assert_eq!(records.put(&key("a"), Bytes::from_static(b"3"), Some(first)).await.unwrap(), None);
    assert_eq!(records.get(&key("a")).await.unwrap().unwrap().revision, second);
    let hook = Subject::Access { kind: AccessKind::Hook, id: Token::of("a") };
    records.put(&hook, Bytes::from_static(b"hook"), None).await.unwrap();
    records.put(&key("b"), Bytes::from_static(b"b"), None).await.unwrap();
    let listed = records.list(&["access", "key"]).await.unwrap();
    assert_eq!(listed.values().map(|one| &one.body[..]).collect::<Vec<_>>(), [&b"2"[..], b"b"]);
    records.put(&key("b"), Bytes::new(), None).await.unwrap();
    assert_eq!(records.list(&["access", "key"]).await.unwrap().len(), 1, "an empty record is none");
}

#[tokio::test]
async fn a_view_follows_what_is_stored_replaced_and_removed() {
    let (_server, mesh) = started::mesh().await;
    mesh.records().access().put(&key("a"), Bytes::from_static(b"a"), None).await.unwrap();
    let mut view = mesh.records().access().follow(&["access", "key"], |_, stored| {
        String::from_utf8(stored.body.to_vec()).ok().filter(|text| text != "unreadable")
    });
    view.ready().await;
    let texts = |view: &sinew_mesh::record::RecordView<String>| -> Vec<String> {
        view.list().iter().map(ToString::to_string).collect()
    };
    assert_eq!(texts(&view), ["a"]);
    for (id, body, expected) in [
        ("b", "b", vec!["a", "b"]),
        ("a", "A", vec!["A", "b"]),
        ("c", "c", vec!["A", "b", "c"]),
        ("d", "d", vec!["A", "b", "c", "d"]),
        ("e", "e", vec!["A", "b", "c", "d", "e"]),
        ("b", "", vec!["A", "c", "d", "e"]),
        ("c", "unreadable", vec!["A", "d", "e"]),
    ] {
        mesh.records().access().put(&key(id), Bytes::from(body), None).await.unwrap();
        let shown = async {
            while texts(&view) != expected {
                view.changed().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), shown).await.unwrap();
    }
    assert!(view.get(&key("a")).is_some() && view.get(&key("b")).is_none());
}
