//! A shard's journal: order, fences, parts, and appends whose acknowledgement got lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on")]

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use sinew_mesh::async_nats::{HeaderMap, HeaderValue};
use sinew_mesh::{AppendError, Journal, Mesh, MeshError, Stored};
use sinew_protocol::Subject;
use sinew_protocol::header::{COMMIT, PART};

use crate::started;

async fn read(journal: &mut Journal) -> Result<Vec<Stored>, MeshError> {
    let mut all = Vec::new();
    journal
        .replay(|stored| {
            all.push(stored);
            Ok::<_, MeshError>(())
        })
        .await?;
    Ok(all)
}

async fn opened(mesh: &Mesh, shard: u32) -> Journal {
    let mut journal = mesh.journal(shard);
    read(&mut journal).await.unwrap();
    journal
}

async fn bodies(mesh: &Mesh, shard: u32) -> Vec<Bytes> {
    read(&mut mesh.journal(shard)).await.unwrap().into_iter().map(|stored| stored.body).collect()
}

/// A server puts answers to whatever subject somebody names, a journal's too; what is in them he may choose.
#[tokio::test]
async fn what_no_executor_wrote_is_passed_over_and_fences() {
    let (_server, mesh) = started::mesh().await;
    let mut journal = opened(&mesh, 0).await;
    journal.append(body("a")).await.unwrap();
    let subject = mesh.subject(&Subject::Journal { shard: 0 });
    let mut marked = HeaderMap::new();
    marked.insert(COMMIT, "forged");
    marked.insert("Nats-Stream", "test_EVENTS");
    for headers in [HeaderMap::new(), marked] {
        let stored =
            mesh.admin().jetstream().publish_with_headers(subject.clone(), headers, body("forged")).await;
        let last = stored.unwrap().await.unwrap().sequence;
        assert!(matches!(journal.append(body("b")).await.unwrap_err(), AppendError::Fenced { .. }));
        assert_eq!(read(&mut journal).await.unwrap().len(), 1);
        assert_eq!(journal.position(), Some(last));
    }
    journal.append(body("b")).await.unwrap();
    assert_eq!(bodies(&mesh, 0).await, ["a", "b"]);
}

fn body(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

#[tokio::test]
async fn what_was_appended_is_read_in_order_with_the_servers_time() {
    let (_server, mesh) = started::mesh().await;
    let mut journal = mesh.journal(3);
    assert_eq!(journal.position(), None);
    assert!(read(&mut journal).await.unwrap().is_empty());
    assert_eq!(journal.position(), Some(0));
    let mut positions = Vec::new();
    for text in ["a", "", "c"] {
        positions.push(journal.append(body(text)).await.unwrap());
        // Another shard's journal lies in the same stream, and does not matter.
        opened(&mesh, 4).await.append(body("other")).await.unwrap();
    }
    let read = read(&mut mesh.journal(3)).await.unwrap();
    assert_eq!(read.iter().map(|stored| &stored.body[..]).collect::<Vec<_>>(), [&b"a"[..], b"", b"c"]);
    assert_eq!(read.iter().map(|stored| stored.seq).collect::<Vec<_>>(), positions);
    assert!(read.iter().all(|stored| stored.first == stored.seq));
    assert!(read.is_sorted_by_key(|stored| stored.time));

    let clock = mesh.admin().server_clock().await.unwrap();
    let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(clock.now().abs_diff(here) < 1_000, "the server runs on this machine");
    assert!(read[2].time <= clock.now() && read[0].time + 60_000 > clock.now());
}

#[tokio::test]
async fn whoever_did_not_read_the_last_commit_cannot_append() {
    let (_server, mesh) = started::mesh().await;
    let (mut first, mut second) = (opened(&mesh, 0).await, opened(&mesh, 0).await);
    first.append(body("a")).await.unwrap();
    let lost = second.append(body("b")).await.unwrap_err();
    assert!(matches!(lost, AppendError::Fenced { shard: 0 }), "{lost}");
    assert_eq!(lost.code(), "SINEW-7030");
    assert_eq!(
        second.append(body("b")).await.unwrap_err().code(),
        "SINEW-7031",
        "not before it was read again"
    );
    assert_eq!(read(&mut second).await.unwrap().len(), 1);
    second.append(body("b")).await.unwrap();
    assert!(matches!(first.append(body("c")).await.unwrap_err(), AppendError::Fenced { .. }));
    assert_eq!(bodies(&mesh, 0).await, ["a", "b"]);
}

#[tokio::test]
async fn many_writers_make_one_chain() {
    let (server, mesh) = started::mesh().await;
    let writers = (0..4).map(|writer| {
        let url = server.url();
        tokio::spawn(async move {
            let mesh = started::connect(&url, "writer").await;
            let mut journal = opened(&mesh, 0).await;
            let mut written = Vec::new();
            let mut lost = 0;
            while written.len() < 25 {
                let text = format!("{writer}.{}", written.len());
                match journal.append(body(&text)).await {
                    Ok(position) => written.push((position, Bytes::from(text))),
                    Err(AppendError::Fenced { .. }) => {
                        lost += 1;
                        read(&mut journal).await.unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            (written, lost)
        })
    });
    let (mut written, mut lost) = (Vec::new(), 0);
    for writer in futures_util::future::join_all(writers).await {
        let (more, races) = writer.unwrap();
        written.extend(more);
        lost += races;
    }
    assert!(lost > 0, "the writers must have met");
    written.sort_unstable();
    let read = read(&mut mesh.journal(0)).await.unwrap();
    assert_eq!(read.into_iter().map(|stored| (stored.seq, stored.body)).collect::<Vec<_>>(), written);
}

#[tokio::test]
async fn a_large_commit_travels_in_parts_and_is_purged_as_one() {
    let (_server, mesh) = started::mesh().await;
    let mut journal = opened(&mesh, 0).await;
    let large: Bytes = (0..3_500_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
    journal.append(body("before")).await.unwrap();
    let position = journal.append(large.clone()).await.unwrap();
    assert_eq!(position, 5, "four parts after one message");
    let after = journal.append(body("after")).await.unwrap();

    let mut reader = mesh.journal(0);
    let all = read(&mut reader).await.unwrap();
    assert_eq!((all[1].first, all[1].seq, all.len()), (2, 5, 3));
    assert_eq!(all[1].body, large);
    // Both who wrote it and who read it know where it begins.
    for journal in [&mut journal, &mut reader] {
        journal.purge_below(position).await.unwrap();
        assert_eq!(bodies(&mesh, 0).await, [large.clone(), body("after")]);
    }
    // The last message is the fence, and cannot be purged.
    journal.purge_below(u64::MAX).await.unwrap();
    assert_eq!(bodies(&mesh, 0).await, ["after"]);
    assert_eq!(journal.append(body("more")).await.unwrap(), after + 1);

    let largest = Bytes::from(vec![0; 1_100_000_000]);
    assert_eq!(journal.append(largest).await.unwrap_err().code(), "SINEW-7053");
    journal.append(body("and more")).await.unwrap();
}

async fn raw(mesh: &Mesh, part: &str, commit: &str) -> u64 {
    let mut headers = HeaderMap::new();
    headers.insert(PART, part.parse::<HeaderValue>().unwrap());
    headers.insert(COMMIT, commit.parse::<HeaderValue>().unwrap());
    let subject = mesh.subject(&Subject::Journal { shard: 0 });
    let sent = mesh.admin().jetstream().publish_with_headers(subject, headers, body(part)).await.unwrap();
    sent.await.unwrap().sequence
}

#[tokio::test]
async fn parts_of_a_commit_that_was_never_finished_are_dropped_and_others_are_damage() {
    let (_server, mesh) = started::mesh().await;
    opened(&mesh, 0).await.append(body("a")).await.unwrap();
    // A writer dies after the second of three parts, twice.
    raw(&mesh, "1/3", "x").await;
    raw(&mesh, "1/3", "y").await;
    let last = raw(&mesh, "2/3", "y").await;
    let mut journal = mesh.journal(0);
    assert_eq!(read(&mut journal).await.unwrap().len(), 1);
    assert_eq!(journal.position(), Some(last), "the fence is behind the parts");
    journal.append(body("b")).await.unwrap();
    assert_eq!(bodies(&mesh, 0).await, ["a", "b"]);
    let large = Bytes::from(vec![7; 2_000_000]);
    journal.append(large.clone()).await.unwrap();
    assert_eq!(bodies(&mesh, 0).await, [body("a"), body("b"), large]);

    for (begin, then) in [
        (None, ("2/3", "z")),
        (Some(("1/3", "z")), ("3/3", "z")),
        (Some(("1/3", "z")), ("2/3", "other")),
        (Some(("1/3", "z")), ("2/4", "z")),
        (None, ("0/3", "z")),
        (None, ("4/3", "z")),
        (None, ("1/4000000000", "z")),
        (None, ("one", "z")),
    ] {
        journal = opened(&mesh, 0).await;
        if let Some((part, commit)) = begin {
            raw(&mesh, part, commit).await;
        }
        raw(&mesh, then.0, then.1).await;
        let damaged = read(&mut journal).await.unwrap_err();
        assert_eq!(damaged.code(), "SINEW-7052", "{begin:?} {then:?}: {damaged}");
        assert_eq!(journal.position(), None);
        let stream = mesh.admin().jetstream().get_stream("test_JOURNAL").await.unwrap();
        stream.purge().await.unwrap();
    }
}

/// An append over a wire that loses one direction, and is then cut.
async fn lost(stored: bool) {
    let (server, direct) = started::mesh().await;
    let wire = started::Wire::to(&server).await;
    let mesh = started::connect(&wire.url, "owner").await;
    let mut journal = opened(&mesh, 0).await;
    journal.append(body("a")).await.unwrap();
    let mut seen = direct.client().subscribe("test.v1.journal.0").await.unwrap();
    // An answer on the same connection: the subscription was read before it.
    assert_eq!(started::messages(&direct, "JOURNAL").await, 1);
    if stored {
        wire.deafen();
    } else {
        wire.mute();
    }
    let began = Instant::now();
    let append = tokio::spawn(async move { journal.append(body("b")).await.map(|at| (at, journal)) });
    if stored {
        seen.next().await.unwrap();
    }
    wire.swallowed().await;
    wire.cut();
    let (position, mut journal) = append.await.unwrap().unwrap();
    assert_eq!(position, 2);
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "the lost connection is noticed, not the time that passes"
    );
    journal.append(body("c")).await.unwrap();
    assert_eq!(bodies(&direct, 0).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn an_append_whose_acknowledgement_is_lost_is_read_back() {
    lost(true).await;
}

#[tokio::test]
async fn an_append_that_never_arrived_is_sent_again() {
    lost(false).await;
}

#[tokio::test]
async fn commits_survive_a_server_that_is_killed_between_any_two_of_them() {
    let (mut server, mesh) = started::mesh().await;
    let (asked, mut done) = tokio::sync::mpsc::channel(1);
    let owner = tokio::spawn(async move {
        let mut journal = opened(&mesh, 0).await;
        for n in 0..300 {
            journal.append(body(&n.to_string())).await.unwrap();
            asked.send(n).await.unwrap();
        }
        drop(asked);
        bodies(&mesh, 0).await
    });
    while let Some(n) = done.recv().await {
        if n % 100 == 50 {
            server.kill9().await.unwrap();
            server.restart().await.unwrap();
        }
    }
    let stored = owner.await.unwrap();
    assert_eq!(stored, (0..300).map(|n: u32| n.to_string()).collect::<Vec<_>>());
}

/// One request of a reader brings a few MiB at most; what lies behind that comes with the next.
#[tokio::test]
async fn a_journal_larger_than_one_request_is_read_to_its_end() {
    const MOST: usize = 12;
    let (_server, mesh) = started::mesh().await;
    let mut journal = opened(&mesh, 0).await;
    for nth in 0..MOST {
        journal.append(Bytes::from(vec![nth as u8; 700 * 1024])).await.unwrap();
    }
    let mut again = mesh.journal(0);
    let all = tokio::time::timeout(Duration::from_secs(20), read(&mut again)).await;
    let all = all.unwrap_or_else(|_| panic!("the reader waits for what nobody asks for")).unwrap();
    let marks: Vec<usize> = all.iter().map(|stored| usize::from(stored.body[0])).collect();
    assert_eq!(marks, (0..MOST).collect::<Vec<_>>());
}
