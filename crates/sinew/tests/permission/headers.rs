//! P6: what the server does because of a header, asked for by an agent on a subject that it may write to.

use crate::permission::world::{NORTH, World, accounts_with, acks_in_both_shapes};

/// An agent in an account of its own.
const GUEST: &str = "Guest";

/// Headers that command the server, and whether it takes a message with them at all on a stream of the mesh.
const HEADERS: &[(&[(&str, &str)], bool)] = &[
    (&[("Nats-Rollup", "all")], false),
    (&[("Nats-Rollup", "sub")], false),
    (&[("Nats-TTL", "1s")], false),
    (&[("Nats-TTL", "never")], false),
    (&[("Nats-Schedule", "@at 2020-01-01T00:00:00Z"), ("Nats-Schedule-Target", "north.v1.journal.0")], false),
    (&[("Nats-Schedule", "@every 1s"), ("Nats-Schedule-Target", "north.v1.result.0.x.e.t.k")], false),
    (&[("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "1"), ("Nats-Batch-Commit", "1")], false),
    (&[("Nats-Incr", "+1")], false),
    (&[("Nats-Expected-Stream", "north_JOURNAL")], false),
    (&[("Nats-Expected-Last-Sequence", "999")], false),
    (&[("Nats-Expected-Last-Subject-Sequence", "999")], false),
    (&[("Nats-Expected-Last-Msg-Id", "x")], false),
    // Tells the server to report on the message to a subject that the sender may not write to.
    (&[("Nats-Trace-Dest", "north.v1.journal.0")], false),
    (&[("Nats-Trace-Dest", "north.v1.card.other"), ("Nats-Trace-Only", "true")], false),
    // A message like any other.
    (&[("Nats-Msg-Id", "mine")], true),
    (&[("Nats-Stream", "north_JOURNAL"), ("Nats-Subject", "north.v1.journal.0")], true),
];

#[test]
fn no_header_gives_an_agent_power_over_other_messages() {
    for more in acks_in_both_shapes() {
        let world = World::with(&accounts_with(&[], &[GUEST]), &more);
        world.ok(&NORTH, "provisioner", &["mesh", "provision", "--shards", "2", "--keep-events"]);
        for agent in ["agent", GUEST] {
            every_header(&world, agent);
        }
    }
}

fn every_header(world: &World, agent: &str) {
    let mut root = world.wire(&NORTH, "root");
    for n in 0..3 {
        for subject in [format!("north.v1.result.0.other.e.t{n}.k"), format!("north.v1.card.other{n}")] {
            root.request(&subject, "there before").unwrap();
        }
    }
    let me = NORTH.user(agent);
    let mut agent = world.wire(&NORTH, agent);
    for (stream, subject) in [("RESULTS", "north.v1.result.0.{me}.e.{n}.k"), ("CARDS", "north.v1.card.{me}")]
    {
        for (n, (headers, takes)) in HEADERS.iter().enumerate() {
            let before = world.places(&NORTH);
            let subject = subject.replace("{me}", &me).replace("{n}", &format!("n{n}"));
            let said = agent.request_with(&subject, headers, "a message");
            let stored =
                said.as_ref().is_ok_and(|said| said.body.contains("\"seq\"") && !said.body.contains("error"));
            assert_eq!(stored, *takes, "{headers:?} on {subject}: {said:?}");
            agent.settle();
            // The mirror of the cards follows them a moment later.
            let places = before.into_iter().zip(world.places(&NORTH));
            for (was, is) in places.filter(|(was, _)| was.0 != "AGENTS") {
                let mine = *takes && was.0 == stream;
                assert!(
                    was == is || mine && is.1 == was.1 + 1,
                    "{headers:?} on {subject}: {was:?} became {is:?}"
                );
            }
        }
    }
    // The earlier messages are still there.
    for (kind, subject) in [("RESULTS", "north.v1.result.0.other.e.t0.k"), ("CARDS", "north.v1.card.other0")]
    {
        let call = format!("$JS.API.DIRECT.GET.{}.{subject}", NORTH.stream(kind));
        assert_eq!(root.request(&call, "").unwrap().body, "there before");
    }
}
