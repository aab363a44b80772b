//! Tests of leases and of even shares of shards.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use crate::membership::{LastHeartbeat, LeaseWatch, ShardOwners as Owners, ShardShare, rebalance};

/// Lets executors act in this order, repeatedly, until no shard moves; returns how many shards were
/// claimed.
fn settle(owners: &mut Owners, living: &[String], shards: NonZeroU32) -> usize {
    let mut moved = 0;
    for _ in 0..3 * living.len() + 3 {
        let mut still = true;
        for me in living {
            let ShardShare { claim, release, .. } = rebalance(owners, living, me, shards);
            for shard in release {
                still = false;
                owners
                    .entry(shard)
                    .and_modify(|(owner, revision)| (*owner, *revision) = (None, *revision + 1));
            }
            for (shard, revision) in claim {
                let entry = owners.entry(shard).or_default();
                assert_eq!(entry.1, revision, "a claim by one's own snapshot names what is there");
                (still, moved) = (false, moved + 1);
                *entry = (Some(me.clone()), revision + 1);
            }
        }
        if still {
            return moved;
        }
    }
    panic!("shards keep moving: {owners:?}");
}

fn counts(owners: &Owners) -> Vec<usize> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for (owner, _) in owners.values() {
        *counts.entry(owner.as_deref().unwrap()).or_default() += 1;
    }
    counts.into_values().collect()
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn shares_are_even_and_little_moves() {
    let mut owners = Owners::new();
    let sixteen = NonZeroU32::new(16).unwrap();
    for (living, moved, shares) in [
        (["a"].as_slice(), 16, vec![16]),
        (&["a", "b"], 8, vec![8, 8]),
        (&["a", "b", "c"], 5, vec![6, 5, 5]),
        (&["b", "c"], 6, vec![8, 8]), // only the shards of the dead one
        (&["c", "b"], 0, vec![8, 8]),
        (&["x", "y"], 16, vec![8, 8]),
    ] {
        assert_eq!(settle(&mut owners, &ids(living), sixteen), moved, "{living:?}");
        assert_eq!(counts(&owners), shares, "{living:?}");
    }
}

#[test]
fn there_may_be_more_executors_than_shards() {
    let mut owners = Owners::new();
    settle(&mut owners, &ids(&["a", "b", "c"]), NonZeroU32::new(2).unwrap());
    assert_eq!(counts(&owners), [1, 1]);
    assert_eq!(rebalance(&owners, &ids(&["a"]), "stranger", NonZeroU32::MIN), ShardShare::default());
    assert_eq!(rebalance(&owners, &[], "a", NonZeroU32::MIN), ShardShare::default());
}

#[test]
fn who_comes_back_under_its_name_finds_its_shards() {
    let mut owners = Owners::new();
    let (living, four) = (ids(&["a", "b"]), NonZeroU32::new(4).unwrap());
    settle(&mut owners, &living, four);
    let again = rebalance(&owners, &living, "a", four);
    assert_eq!((again.keep.len(), again.claim, again.release), (2, vec![], vec![]));
}

proptest! {
    /// From any owners, including dead and unknown ones, all live executors reach even shares, and
    /// move only shards without a live owner and excess shards.
    #[test]
    fn any_fleet_settles(
        shards in 1u32..40,
        living in prop::collection::btree_set(0u8..12, 1..8),
        had in prop::collection::vec((prop::option::of(0u8..12), 0u64..5), 0..45),
    ) {
        let shards = NonZeroU32::new(shards).unwrap();
        let living: Vec<String> = living.iter().map(|n| format!("e{n}")).collect();
        let mut owners: Owners = (0u32..)
            .zip(had)
            .map(|(shard, (owner, revision))| (shard, (owner.map(|n| format!("e{n}")), revision)))
            .collect();
        let least = shards.get() as usize / living.len();
        let has = |id: &String| {
            (0..shards.get()).filter(|s| owners.get(s).is_some_and(|(o, _)| o.as_ref() == Some(id))).count()
        };
        let has: Vec<usize> = living.iter().map(has).collect();
        let fullest = least + usize::from(!(shards.get() as usize).is_multiple_of(living.len()));
        let lacking: usize = has.iter().map(|has| fullest.saturating_sub(*has)).sum();
        let moved = settle(&mut owners, &living, shards);
        prop_assert!(moved <= lacking, "{moved} moved, {lacking} were lacking");
        for id in &living {
            let ShardShare { keep, claim, release } = rebalance(&owners, &living, id, shards);
            prop_assert!((least..=fullest).contains(&keep.len()) && claim.is_empty() && release.is_empty());
        }
        let owned = |s: u32| owners.get(&s).and_then(|(o, _)| o.as_ref()).is_some_and(|o| living.contains(o));
        prop_assert!((0..shards.get()).all(owned));
    }

    /// Two executors with the same view never claim the same shard.
    #[test]
    fn who_sees_the_same_claims_nothing_twice(
        shards in 1u32..40,
        living in prop::collection::btree_set(0u8..12, 1..8),
        had in prop::collection::vec(prop::option::of(0u8..12), 0..45),
    ) {
        let shards = NonZeroU32::new(shards).unwrap();
        let living: Vec<String> = living.iter().map(|n| format!("e{n}")).collect();
        let owners: Owners =
            (0u32..).zip(had).map(|(shard, owner)| (shard, (owner.map(|n| format!("e{n}")), 1))).collect();
        let mut wanted = std::collections::BTreeSet::new();
        for id in &living {
            for (shard, _) in rebalance(&owners, &living, id, shards).claim {
                prop_assert!(wanted.insert(shard), "shard {shard} is wanted twice");
            }
        }
    }
}

const LEASE: Duration = Duration::from_secs(6);

/// Heartbeats found by a poll: of one executor, with this revision and this time without heartbeats
/// in seconds.
fn heard(revision: u64, silent: u64) -> BTreeMap<String, LastHeartbeat> {
    BTreeMap::from([("a".to_owned(), LastHeartbeat { revision, silent: Duration::from_secs(silent) })])
}

/// Polls at these seconds; each has the revision, the time without heartbeats, and whether the
/// executor is live.
fn check(polls: &[(u64, u64, u64, bool)]) {
    let mut watch = LeaseWatch::new(LEASE);
    for (second, revision, silent, lives) in polls {
        let living = watch.living(Duration::from_secs(*second), &heard(*revision, *silent));
        assert_eq!(!living.is_empty(), *lives, "second {second}, revision {revision}, silent {silent}");
    }
    assert!(watch.living(Duration::from_secs(10_000), &BTreeMap::new()).is_empty());
}

#[test]
fn silence_is_death_and_a_heartbeat_is_life() {
    check(&[
        (0, 1, 0, true),
        (2, 1, 0, true),
        (4, 1, 0, true),
        (6, 1, 0, false),
        (8, 1, 0, false),
        (10, 2, 0, true),
        (12, 2, 0, true),
    ]);
}

#[test]
fn silence_before_the_first_poll_counts() {
    check(&[(0, 1, 6, false)]);
    check(&[(0, 1, u64::MAX, false)]);
    check(&[(0, 1, 5, true), (1, 1, 6, false)]);
}

#[test]
fn an_outage_of_the_broker_ends_no_lease_and_begins_none() {
    check(&[
        (0, 1, 0, true),
        (120, 1, 0, true),
        (122, 1, 0, true),
        (124, 1, 0, true),
        (126, 1, 0, false),
        (246, 1, 0, false),
    ]);
}

#[test]
fn the_next_lease_to_end_is_known() {
    let mut watch = LeaseWatch::new(LEASE);
    assert_eq!(watch.next_end(), None);
    let heartbeat = |revision, silent| LastHeartbeat { revision, silent: Duration::from_secs(silent) };
    // Each row: the second of the poll, the heartbeats of two executors, and the second at which
    // the first lease expires.
    for (second, one, other, end) in [
        (10, heartbeat(1, 4), heartbeat(1, 0), Some(12)),
        (11, heartbeat(1, 4), heartbeat(2, 0), Some(12)),
        (12, heartbeat(1, 4), heartbeat(2, 0), Some(17)),
        (13, heartbeat(2, 0), heartbeat(2, 0), Some(17)),
        (15, heartbeat(2, 0), heartbeat(3, 0), Some(19)),
        (17, heartbeat(2, 0), heartbeat(3, 0), Some(19)),
        (19, heartbeat(2, 0), heartbeat(3, 0), Some(21)),
        (21, heartbeat(2, 0), heartbeat(3, 0), None),
    ] {
        let members = BTreeMap::from([("one".to_owned(), one), ("other".to_owned(), other)]);
        watch.living(Duration::from_secs(second), &members);
        assert_eq!(watch.next_end(), end.map(Duration::from_secs), "second {second}");
    }
}
