//! P1, P2, P4, P5: every role against every family of subjects.

use crate::permission::expected::{CALLS, HEARD, OTHERS, PUBLISH, STREAMS, SUBSCRIBE};
use crate::permission::wire::Wire;
use crate::permission::world::{NORTH, ROLES, World, acks_in_both_shapes};

/// Another user's name.
pub(crate) const STRANGER: &str = "n-agent2";

/// A probe: whether it is a subscription, its subject, the letters of roles that may.
pub(crate) struct Probe {
    pub(crate) subscribe: bool,
    pub(crate) subject: String,
    pub(crate) may: String,
}

/// All probes, with `{me}` still in them.
pub(crate) fn probes() -> Vec<Probe> {
    let ns = NORTH.namespace;
    let mut all = Vec::new();
    let mut add = |subscribe, subject: String, may: &str| {
        let subject = subject.replace("{ns}", ns).replace("{x}", STRANGER);
        all.push(Probe { subscribe, subject, may: may.to_owned() });
    };
    for (subscribe, table) in [(false, PUBLISH), (true, SUBSCRIBE)] {
        for (subject, may) in table {
            add(subscribe, format!("{ns}.v1.{subject}"), may);
        }
    }
    for (subscribe, table) in [(false, OTHERS), (true, HEARD)] {
        for (subject, may) in table {
            add(subscribe, (*subject).to_owned(), may);
        }
    }
    for (call, rights) in CALLS {
        for (letter, kind) in STREAMS {
            let may: String =
                rights.iter().filter(|(_, on)| on.contains(letter)).map(|(role, _)| *role).collect();
            add(false, format!("$JS.API.{}", call.replace("{s}", &NORTH.stream(kind))), &may);
        }
    }
    all
}

fn may(wire: &mut Wire, probe: &Probe, me: &str) -> bool {
    let subject = probe.subject.replace("{me}", me);
    let (subject, queue) = subject.split_once(' ').map_or((&*subject, None), |(s, q)| (s, Some(q)));
    if probe.subscribe { wire.may_subscribe(subject, queue) } else { wire.may_publish(subject) }
}

/// The matrix on a server with this configuration, and how many probes it made.
pub(crate) fn matches(world: &World) -> usize {
    let probes = probes();
    let (mut wrong, mut made) = (Vec::new(), 0);
    for (letter, role) in ROLES {
        let mut wire = world.wire(&NORTH, role);
        for probe in &probes {
            let (want, is) = (probe.may.contains(letter), may(&mut wire, probe, &NORTH.user(role)));
            made += 1;
            if want != is {
                let verb = if probe.subscribe { "hear" } else { "say" };
                wrong.push(format!("{role} may{} {verb} {}", if is { "" } else { " not" }, probe.subject));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {made}:\n{}", wrong.len(), wrong.join("\n"));
    made
}

#[test]
fn every_role_may_do_what_it_is_for_and_nothing_else() {
    let worlds = acks_in_both_shapes().map(|more| World::new(&more));
    for world in &worlds {
        let made = matches(world);
        assert!(made > 2_000, "{made} probes");
    }
    let [world, _] = worlds;
    // Whoever does not log in, or with another's password, is nobody.
    for (user, password) in [("n-agent", "wrong"), ("", ""), ("n-nobody", crate::permission::world::PASSWORD)]
    {
        let refused = Wire::login(world.server.port(), user, password).err();
        assert!(refused.as_deref().is_some_and(|why| why.contains("Authorization")), "{user}: {refused:?}");
    }
}
