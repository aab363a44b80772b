//! Faults in the table of rights: each row that is taken away, given to another role, or widened shows in the matrix.

use std::collections::BTreeSet;

use sinew_protocol::Token;
use sinew_protocol::permission::{Permissions, Role};

use crate::permission::matrix::{Probe, STRANGER, probes};
use crate::permission::world::{NORTH, ROLES};

/// Rows that no probe of the matrix asks for: tests of their own show that they are needed.
const SHOWN_ELSEWHERE: &[(&str, &str)] = &[];

/// The probes that these rights answer otherwise than the matrix wants for the role of this letter.
fn differs(rights: &Permissions, probes: &[Probe], letter: char, me: &str) -> bool {
    probes.iter().any(|probe| {
        let subject = probe.subject.replace("{me}", me);
        let (subject, queue) = subject.split_once(' ').map_or((&*subject, None), |(s, q)| (s, Some(q)));
        let may =
            if probe.subscribe { rights.may_subscribe(subject, queue) } else { rights.may_publish(subject) };
        may != probe.may.contains(letter)
    })
}

/// The rights of a role under a name.
fn rights_of(role: &str, name: &str) -> Permissions {
    Role::parse(role).unwrap().permissions(NORTH.namespace, &Token::parse(name).unwrap())
}

#[test]
fn a_row_that_is_missing_shows() {
    let probes = probes();
    let mut unseen = Vec::new();
    let mut faults = 0;
    for (letter, role) in ROLES {
        let me = NORTH.user(role);
        let rights = rights_of(role, &me);
        assert!(!differs(&rights, &probes, letter, &me), "{role} has its rights");
        for row in &rights.publish {
            let mut without = rights.clone();
            without.publish.remove(row);
            // A row that others cover is not a right of its own.
            if without.may_publish(row) {
                continue;
            }
            faults += 1;
            if !differs(&without, &probes, letter, &me) {
                unseen.push(format!("{role} may no longer say {row}"));
            }
        }
        for row in &rights.subscribe {
            let mut without = rights.clone();
            without.subscribe.remove(row);
            let (subject, queue) = row.split_once(' ').map_or((&**row, None), |(s, q)| (s, Some(q)));
            if without.may_subscribe(subject, queue) {
                continue;
            }
            faults += 1;
            if !differs(&without, &probes, letter, &me) {
                unseen.push(format!("{role} may no longer hear {row}"));
            }
        }
    }
    unseen.retain(|row| !SHOWN_ELSEWHERE.iter().any(|(known, _)| row == known));
    assert!(
        faults > 100 && unseen.is_empty(),
        "{} of {faults} faults are not seen:\n{}",
        unseen.len(),
        unseen.join("\n")
    );
}

#[test]
fn a_row_of_another_role_shows() {
    let probes = probes();
    let mut unseen = BTreeSet::new();
    let mut faults = 0;
    for (letter, role) in ROLES {
        let me = NORTH.user(role);
        let own = rights_of(role, &me);
        for (other, name) in ROLES.iter().flat_map(|(_, other)| [(other, &*me), (other, STRANGER)]) {
            for row in &rights_of(other, name).publish {
                // A row that its own rows cover gives it nothing.
                if own.may_publish(row) {
                    continue;
                }
                let mut more = own.clone();
                more.publish.insert(row.clone());
                faults += 1;
                if !differs(&more, &probes, letter, &me) {
                    unseen.insert(format!("{role} may say {row} as {other}"));
                }
            }
        }
    }
    assert!(
        faults > 300 && unseen.is_empty(),
        "{} of {faults} faults are not seen:\n{}",
        unseen.len(),
        unseen.into_iter().collect::<Vec<_>>().join("\n")
    );
}
