use super::*;

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

#[test]
fn shards_of_silent_executors_are_not_served() {
    // Executors with the time of their last heartbeat, owners of shards, and the shards that are served at second 100.
    for (heard, owners, served) in [
        (&[("a", 99), ("b", 98)][..], &[Some("a"), Some("b"), Some("a")][..], 3),
        (&[("a", 99), ("b", 94)], &[Some("a"), Some("b"), Some("a")], 2),
        (&[("a", 10), ("b", 11)], &[Some("a"), Some("b")], 0),
        (&[("a", 99)], &[Some("a"), Some("gone"), None], 1),
        // The clock of the server was set back.
        (&[("a", 200)], &[Some("a")], 1),
        (&[], &[], 0),
    ] {
        let member = |second: u64| Member { heard_at: second * 1_000, ..Member::default() };
        let seen = Snapshot {
            members: heard.iter().map(|(id, second)| ((*id).to_owned(), member(*second))).collect(),
            owners: (0..).zip(owners.iter().map(|owner| (owner.map(str::to_owned), 1))).collect(),
        };
        assert_eq!(seen.served_shards(100_000), served, "{heard:?} {owners:?}");
    }
}
