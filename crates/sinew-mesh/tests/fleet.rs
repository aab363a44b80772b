//! The fleet on a real server: who is there, who owns which shard, and who is faster.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::num::NonZeroU32;
use std::time::Duration;

use sinew_mesh::fleet::{ExecutorHeartbeat, Fleet, Member};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Connect, Mesh, Provision};
use sinew_shard::membership::{LastHeartbeat, LeaseWatch, rebalance};
use tokio::time::Instant;

const SHARDS: NonZeroU32 = NonZeroU32::new(8).unwrap();

async fn mesh(server: &Server) -> Mesh {
    let mesh = Connect { url: Some(server.url()), namespace: Some("m".into()), ..Connect::default() };
    let mesh = mesh.open().await.unwrap();
    mesh.admin().provision(&Provision { shards: Some(SHARDS), ..Provision::default() }).await.unwrap();
    mesh
}

fn beat(nth: u64) -> ExecutorHeartbeat {
    ExecutorHeartbeat { shards: vec![1, 2], version: "1".into(), place: "here".into(), nth }
}

#[tokio::test]
async fn members_come_beat_and_leave() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let fleet = mesh(&server).await.fleet();
    assert!(fleet.look().await.unwrap().members.is_empty());
    fleet.beat("one", &beat(1)).await.unwrap();
    fleet.beat("two", &beat(1)).await.unwrap();
    let first = fleet.look().await.unwrap();
    assert_eq!(first.members.keys().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(first.members["one"].beat, beat(1));

    fleet.beat("one", &beat(2)).await.unwrap();
    let second = fleet.look().await.unwrap();
    assert!(second.members["one"].revision > first.members["one"].revision);
    assert_eq!(second.members["two"].revision, first.members["two"].revision);
    assert_eq!(second.members["one"].silent, Duration::ZERO, "the newest word is its own");
    assert!(second.members["two"].silent > Duration::ZERO);

    fleet.leave("one").await.unwrap();
    assert_eq!(fleet.look().await.unwrap().members.keys().collect::<Vec<_>>(), ["two"]);
    fleet.beat("one", &beat(3)).await.unwrap();
    assert_eq!(fleet.look().await.unwrap().members.len(), 2);
}

#[tokio::test]
async fn one_of_many_gets_a_shard() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let fleet = mesh(&server).await.fleet();
    let mut revision = 0;
    for round in 0..10 {
        let claims = (0..8).map(|n| {
            let fleet = fleet.clone();
            async move { fleet.claim(3, &format!("e{n}"), revision).await.unwrap() }
        });
        let won = futures_util::future::join_all(claims).await;
        let winners: Vec<_> = (0..8).filter(|n| won[*n]).collect();
        assert_eq!(winners.len(), 1, "round {round}: {won:?}");
        let owner = format!("e{}", winners[0]);
        assert_eq!(fleet.owner(3).await.unwrap().as_ref(), Some(&owner));
        let (seen, now) = fleet.look().await.unwrap().owners[&3].clone();
        assert_eq!(seen.as_ref(), Some(&owner));
        assert!(now > revision);
        assert!(!fleet.claim(3, "late", revision).await.unwrap());
        revision = now;
    }
}

#[tokio::test]
async fn a_shard_is_given_back_by_its_owner_only() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let fleet = mesh(&server).await.fleet();
    assert_eq!(fleet.owner(0).await.unwrap(), None);
    fleet.release(0, "one").await.unwrap();
    assert!(fleet.claim(0, "one", 0).await.unwrap());
    fleet.release(0, "two").await.unwrap();
    assert_eq!(fleet.owner(0).await.unwrap().as_deref(), Some("one"));
    fleet.release(0, "one").await.unwrap();
    assert_eq!(fleet.owner(0).await.unwrap(), None);
    // A released shard is claimed at its current revision, not as if it had never been owned.
    let (owner, revision) = fleet.look().await.unwrap().owners[&0].clone();
    assert_eq!(owner, None);
    assert!(!fleet.claim(0, "two", 0).await.unwrap());
    assert!(fleet.claim(0, "two", revision).await.unwrap());
}

/// One turn of an executor: say that one is there, look, act.
async fn turn(fleet: &Fleet, (watch, began): (&mut LeaseWatch, Instant), me: &str, nth: u64) {
    fleet.beat(me, &beat(nth)).await.unwrap();
    let seen = fleet.look().await.unwrap();
    let heartbeat = |one: &Member| LastHeartbeat { revision: one.revision, silent: one.silent };
    let members = seen.members.iter().map(|(id, member)| (id.clone(), heartbeat(member))).collect();
    let share = rebalance(&seen.owners, &watch.living(began.elapsed(), &members), me, SHARDS);
    for shard in share.release {
        fleet.release(shard, me).await.unwrap();
    }
    for (shard, revision) in share.claim {
        fleet.claim(shard, me, revision).await.unwrap();
    }
}

async fn owned(fleet: &Fleet, who: &str) -> usize {
    let seen = fleet.look().await.unwrap();
    seen.owners.values().filter(|(owner, _)| owner.as_deref() == Some(who)).count()
}

#[tokio::test]
async fn shards_move_to_who_comes_and_from_who_dies() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let fleet = mesh(&server).await.fleet();
    let lease = Duration::from_secs(1);
    let (mut one, mut two, began) = (LeaseWatch::new(lease), LeaseWatch::new(lease), Instant::now());
    turn(&fleet, (&mut one, began), "one", 1).await;
    assert_eq!(owned(&fleet, "one").await, 8);
    let mut nth = 2;
    while (owned(&fleet, "one").await, owned(&fleet, "two").await) != (4, 4) {
        assert!(nth < 20, "the shares are not even after {nth} turns");
        turn(&fleet, (&mut two, began), "two", nth).await;
        turn(&fleet, (&mut one, began), "one", nth).await;
        nth += 1;
    }
    // The first falls silent; the second goes on and has all of them when the lease is over, not before.
    let silent = std::time::Instant::now();
    while owned(&fleet, "two").await < 8 {
        assert!(silent.elapsed() < Duration::from_secs(20), "nobody took over");
        turn(&fleet, (&mut two, began), "two", nth).await;
        nth += 1;
    }
    assert!(silent.elapsed() > lease / 2, "taken over after {:?}", silent.elapsed());
}

#[tokio::test]
async fn a_fleet_outlives_its_broker() {
    let mut server =
        Server::start(ServerOptions { sync_always: true, ..ServerOptions::default() }).await.unwrap();
    let fleet = mesh(&server).await.fleet();
    assert!(fleet.claim(5, "one", 0).await.unwrap());
    fleet.beat("one", &beat(1)).await.unwrap();
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    let seen = loop {
        match fleet.look().await {
            Ok(seen) => break seen,
            Err(error) => assert!(tokio::time::Instant::now() < until, "{error}"),
        }
    };
    assert_eq!(seen.owners[&5].0.as_deref(), Some("one"));
    assert_eq!(seen.members["one"].beat, beat(1));
}

#[tokio::test]
async fn a_takeover_note_is_of_one_owner() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let fleet = mesh(&server).await.fleet();
    assert_eq!(fleet.takeover_note(3).await.unwrap(), (bytes::Bytes::default(), 0));
    let first = fleet.put_takeover_note(3, "one".into(), 0).await.unwrap().unwrap();
    assert_eq!(fleet.takeover_note(3).await.unwrap(), ("one".into(), first));
    // An owner that has lost the shard cannot write over what its successor has noted.
    let second = fleet.put_takeover_note(3, "two".into(), first).await.unwrap().unwrap();
    assert_eq!(fleet.put_takeover_note(3, "one again".into(), first).await.unwrap(), None);
    assert_eq!(fleet.takeover_note(3).await.unwrap(), ("two".into(), second));
    // A note is not an executor and not an owner.
    let seen = fleet.look().await.unwrap();
    assert!(seen.members.is_empty() && seen.owners.is_empty());
}
