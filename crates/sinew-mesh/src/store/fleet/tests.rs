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
