//! Report of `sinew doctor` about the credentials that it runs with.

use serde_json::Value;

use crate::permission::world::{NORTH, ROLES, World, accounts, accounts_with};

/// Returns state, code and message of each finding about rights.
fn rights(world: &World, role: &str, args: &[&str], code: i32) -> Vec<[String; 3]> {
    let (out, _) = world.ends(&NORTH, role, &[&["doctor", "-o", "json"], args].concat(), code);
    let checks: Vec<Value> = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let checks = checks.iter().filter(|check| check["check"] == "rights");
    checks
        .inspect(|check| assert_eq!(check["hint"].is_string(), check["state"] != "ok", "{check}"))
        .map(|check| ["state", "code", "message"].map(|field| text(check, field)))
        .collect()
}

#[test]
fn the_table_is_neither_too_wide_nor_too_narrow() {
    let world = World::new("");
    for (_, role) in ROLES {
        // Without an executor something is wrong, for those who can see it.
        let code = i32::from(["executor", "gateway", "operator", "admin"].contains(&role));
        let [found] = &rights(&world, role, &[], code)[..] else { panic!("{role}") };
        let name = NORTH.user(role);
        assert_eq!(found[2], format!("{name} has exactly the rights that {role} requires"));
        assert_eq!((&*found[0], &*found[1]), ("ok", ""));
    }
    // For a role that it is not meant for both are wrong.
    let found = rights(&world, "client", &["--role", "agent"], 1);
    let (states, codes): (Vec<_>, Vec<_>) = found.iter().map(|found| (&*found[0], &*found[1])).unzip();
    assert_eq!((states, codes), (vec!["fail", "warn"], vec!["SINEW-7025", "SINEW-7026"]), "{found:?}");
    // A user with all rights.
    let [found] = &rights(&world, "root", &[], 1)[..] else { panic!("root") };
    assert_eq!((&*found[0], &*found[1]), ("warn", "SINEW-7026"), "{found:?}");
}

#[test]
fn a_guest_has_the_rights_of_an_agent_and_calls_whom_it_was_told_to() {
    let world = World::with(&accounts_with(&[], &["Guest:other"]), "");
    world.ok(&NORTH, "provisioner", &["mesh", "provision", "--shards", "2", "--keep-events"]);
    let [found] = &rights(&world, "Guest", &[], 0)[..] else { panic!("one word about rights") };
    assert_eq!(found[2], "Guest has exactly the rights that agent requires");
}

#[test]
fn a_right_that_is_missing_and_one_that_is_too_wide_are_named() {
    // The operator hears everybody's answers; the agent cannot announce itself, and may list streams.
    let (operator, agent) = (NORTH.user("operator"), NORTH.user("agent"));
    let table = accounts(&[]);
    let (own, card) =
        (format!("          \"_INBOX_{operator}.>\"\n"), format!("          \"north.v1.card.{agent}\"\n"));
    let changed = table
        .replacen(&own, &format!("{own}          \"_INBOX.>\"\n"), 1)
        // The first is what it says, the second what it hears.
        .replacen(&card, "          \"$JS.API.STREAM.LIST\"\n", 1);
    assert_ne!(changed, table);
    let world = World::with(&changed, "");
    world.ok(&NORTH, "provisioner", &["mesh", "provision", "--shards", "2", "--keep-events"]);
    let said = |state: &str, code: &str, message: String| [state.to_owned(), code.to_owned(), message];
    assert_eq!(
        rights(&world, "operator", &[], 1),
        [said(
            "warn",
            "SINEW-7026",
            format!("{operator} as operator does not require the right to subscribe to _INBOX.>"),
        )]
    );
    let missing = format!("{agent} as agent requires the right to publish to north.v1.card.{agent}");
    let wide = format!("{agent} as agent does not require the right to publish to $JS.API.STREAM.LIST");
    assert_eq!(
        rights(&world, "agent", &[], 1),
        [said("fail", "SINEW-7025", missing.clone()), said("warn", "SINEW-7026", wide),]
    );
    // For people: the same, with what to do.
    let (out, _) = world.ends(&NORTH, "agent", &["doctor"], 1);
    assert!(
        out.contains(&format!(
            "fail  rights       {missing} [SINEW-7025]\n      hint: sinew mesh permissions"
        )),
        "{out}"
    );
}
