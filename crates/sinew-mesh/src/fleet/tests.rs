use proptest::prelude::*;

use super::*;

type Owners = BTreeMap<u32, (Option<String>, u64)>;

/// Executors that act on what they see, in this order and again, until nothing moves; how many shards were taken.
fn settle(owners: &mut Owners, living: &[String], shards: NonZeroU32) -> usize {
    let mut moved = 0;
    for _ in 0..3 * living.len() + 3 {
        let mut still = true;
        for me in living {
            let ShardShare { claim, release, .. } = share(owners, living, me, shards);
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
        (&["b", "c"], 6, vec![8, 8]), // only what the dead one had
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
    assert_eq!(share(&owners, &ids(&["a"]), "stranger", NonZeroU32::MIN), ShardShare::default());
    assert_eq!(share(&owners, &[], "a", NonZeroU32::MIN), ShardShare::default());
}

#[test]
fn who_comes_back_under_its_name_finds_its_shards() {
    let mut owners = Owners::new();
    let (living, four) = (ids(&["a", "b"]), NonZeroU32::new(4).unwrap());
    settle(&mut owners, &living, four);
    let again = share(&owners, &living, "a", four);
    assert_eq!((again.keep.len(), again.claim, again.release), (2, vec![], vec![]));
}

proptest! {
    /// From any owners, dead and unknown ones among them, any living executors come to even shares, and move no more than
    /// what is owned by nobody of them and what some have too much.
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
            let ShardShare { keep, claim, release } = share(&owners, &living, id, shards);
            prop_assert!((least..=fullest).contains(&keep.len()) && claim.is_empty() && release.is_empty());
        }
        let owned = |s: u32| owners.get(&s).and_then(|(o, _)| o.as_ref()).is_some_and(|o| living.contains(o));
        prop_assert!((0..shards.get()).all(owned));
    }

    /// Two who see the same never want the same shard.
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
            for (shard, _) in share(&owners, &living, id, shards).claim {
                prop_assert!(wanted.insert(shard), "shard {shard} is wanted twice");
            }
        }
    }
}

const LEASE: Duration = Duration::from_secs(6);

/// Returns the view of a poll that finds one executor at this revision, silent for so many seconds.
fn said(revision: u64, silent: u64) -> Snapshot {
    let member = Member { revision, silent: Duration::from_secs(silent), ..Member::default() };
    Snapshot { members: BTreeMap::from([("a".to_owned(), member)]), ..Snapshot::default() }
}

async fn after(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_death_and_a_word_is_life() {
    let mut watch = ExecutorWatch::new(LEASE);
    for (seconds, revision, lives) in
        [(0, 1, true), (2, 1, true), (2, 1, true), (2, 1, false), (2, 1, false), (2, 2, true), (2, 2, true)]
    {
        after(seconds).await;
        assert_eq!(!watch.living(&said(revision, 0)).is_empty(), lives, "{seconds} s, revision {revision}");
    }
    assert!(watch.living(&Snapshot::default()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_was_silent_before_we_came_gets_no_new_lease() {
    assert!(ExecutorWatch::new(LEASE).living(&said(1, 6)).is_empty());
    assert!(ExecutorWatch::new(LEASE).living(&said(1, u64::MAX)).is_empty());
    let mut watch = ExecutorWatch::new(LEASE);
    assert_eq!(watch.living(&said(1, 5)), ["a"]);
    after(1).await;
    assert!(watch.living(&said(1, 6)).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_outage_kills_nobody_and_wakes_nobody() {
    let mut watch = ExecutorWatch::new(LEASE);
    assert_eq!(watch.living(&said(1, 0)), ["a"]);
    after(120).await;
    assert_eq!(watch.living(&said(1, 0)), ["a"], "nobody could be heard");
    for _ in 0..3 {
        after(2).await;
        watch.living(&said(1, 0));
    }
    assert!(watch.living(&said(1, 0)).is_empty(), "it had time to come back");
    after(120).await;
    assert!(watch.living(&said(1, 0)).is_empty());
}

#[test]
fn what_others_write_is_read_with_care() {
    let mut seen = Snapshot::default();
    let huge = vec![b' '; LARGEST_BEAT + 1];
    for (key, body) in [
        ("executor.a", b"{\"shards\":[1],\"version\":\"1\"}".as_slice()),
        ("executor.newer", b"{\"shards\":\"all\"}"),
        ("executor.left", b""),
        ("executor.huge", &huge),
        ("shard.0", b"{\"owner\":\"a\"}"),
        ("shard.1", b"{\"owner\":\"\"}"),
        ("shard.2", b"garbage"),
        ("shard.x", b"{\"owner\":\"a\"}"),
        ("settings", b"{}"),
        ("", b""),
    ] {
        seen.take(key, body, 7);
    }
    assert_eq!(seen.members.keys().collect::<Vec<_>>(), ["a", "newer"]);
    assert_eq!(seen.members["a"].beat.shards, [1]);
    let owner = |name: Option<&str>| (name.map(str::to_owned), 7);
    assert_eq!(seen.owners, BTreeMap::from([(0, owner(Some("a"))), (1, owner(None)), (2, owner(None))]));
}
