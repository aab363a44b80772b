//! P8 and P10: who is no longer welcome, and who never was.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::permission::wire::Wire;
use crate::permission::world::{NORTH, PASSWORD, SOUTH, World, acks_in_both_shapes};

/// How soon a user must be gone.
const CUT_WITHIN: Duration = Duration::from_secs(5);
/// Prefixes of subjects of the server itself: advisories about calls, and the consumer of a mirror.
const OWN_MESSAGES: [&str; 4] =
    ["$JS.EVENT.ADVISORY.", "$JS.API.CONSUMER.CREATE.north_CARDS", "$JSC.R.", "$JS.M."];
/// Probes across accounts.
const PROBES: usize = 10_000;

#[test]
fn a_user_that_is_taken_out_is_cut_off() {
    for more in acks_in_both_shapes() {
        cut_off(&World::new(&more));
    }
}

fn cut_off(world: &World) {
    let (mut agent, mut other) = (world.wire(&NORTH, "agent"), world.wire(&NORTH, "agent2"));
    assert!(agent.settle().is_empty());
    let path = world.server.store().join("nats-server.conf");
    let config = std::fs::read_to_string(&path).unwrap();
    let user = NORTH.user("agent");
    let begin =
        config.find(&format!("      # {user}: agent\n")).expect("the user stands in the configuration");
    let end = begin + config[begin..].find("      } }\n").expect("its end") + "      } }\n".len();
    std::fs::write(&path, format!("{}{}", &config[..begin], &config[end..])).unwrap();
    let pid = world.server.pid().expect("it runs").to_string();
    let began = Instant::now();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill").success());
    agent.closed();
    assert!(began.elapsed() < CUT_WITHIN, "{:?}", began.elapsed());
    let again = Wire::login(world.server.port(), &user, PASSWORD).err();
    assert!(again.as_deref().is_some_and(|why| why.contains("Authorization")), "{again:?}");
    // The other tenant was not disturbed.
    assert!(other.settle().is_empty());
    assert!(other.may_publish(&format!("north.v1.card.{}", NORTH.user("agent2"))));
}

#[test]
fn nothing_crosses_from_one_account_to_another() {
    for more in acks_in_both_shapes() {
        probe(&World::new(&more));
    }
}

fn probe(world: &World) {
    // On both sides somebody who may hear and do everything in his own account: only the account is a wall to him.
    let (mut north, mut south) = (world.wire(&NORTH, "root"), world.wire(&SOUTH, "root"));
    let before = world.places(&NORTH);
    north.subscribe(">", None);
    assert!(north.settle().is_empty());
    let stranger = NORTH.user("agent");
    let subjects: Vec<String> = [
        "north.v1.journal.0",
        "north.v1.command.0.start.{x}.k",
        "north.v1.result.0.{x}.e.t.k",
        "north.v1.card.{x}",
        "north.v1.rpc.{x}.SendMessage.me",
        "north.v1.control.{x}.t",
        "north.v1.query.0",
        "north.v1.event.w.e.k",
        "$KV.north_FLEET.result_key",
        "north.v1.artifact.g.p",
        "$JS.API.STREAM.PURGE.north_JOURNAL",
        "$JS.API.STREAM.DELETE.north_JOURNAL",
        "$JS.API.STREAM.INFO.north_JOURNAL",
        "$JS.API.DIRECT.GET.KV_north_FLEET.$KV.north_FLEET.result_key",
        "$JS.API.CONSUMER.MSG.NEXT.north_TASKS.agent-{x}",
        "$JS.ACK.north_TASKS.agent-{x}.1.1.1.1.0",
        "_INBOX_{x}.a",
        "$SRV.PING",
        "$SYS.REQ.ACCOUNT.NORTH.INFO",
        "$SYS.REQ.SERVER.PING",
    ]
    .into_iter()
    .map(|subject| subject.replace("{x}", &stranger))
    .collect();
    let is_own = |subject: &str| OWN_MESSAGES.iter().any(|own| subject.starts_with(own));
    assert!(!subjects.iter().any(|subject| is_own(subject)), "a probe would not be seen");
    let mut probes = 0;
    for round in 0.. {
        if probes >= PROBES {
            break;
        }
        for subject in &subjects {
            let reply = format!("_INBOX_{}.{round}", SOUTH.user("root"));
            south.publish(subject, Some(&reply), &[], "{}");
            probes += 1;
        }
    }
    let complaints: Vec<_> = south.settle();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(north.settle().is_empty());
    // The server's own messages in the north: about calls, late, and between a stream and its mirror.
    north.came.retain(|message| !is_own(&message.subject));
    let heard: Vec<_> = north.came.iter().map(|message| &message.subject).collect();
    assert!(heard.is_empty(), "of {probes} probes came {heard:?}");
    assert_eq!(world.places(&NORTH), before);
    // And nothing of what the north says is heard in the south.
    south.subscribe(">", None);
    assert!(south.settle().is_empty());
    south.came.clear();
    for subject in subjects.iter().filter(|subject| !subject.starts_with('$')) {
        north.publish(subject, None, &[], "for the north");
    }
    assert!(north.settle().is_empty());
    assert!(south.settle().is_empty());
    assert!(south.came.is_empty(), "{:?}", south.came);
    // The probes can be heard where they belong: the same one in its own account.
    assert!(north.came.len() >= 8, "{}", north.came.len());
}
