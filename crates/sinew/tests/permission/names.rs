//! P7: names that would be more than a name if they were pasted into a subject or a configuration.

use std::process::Command;

use sinew_protocol::Token;

use crate::permission::wire::Wire;
use crate::permission::world::{NORTH, PASSWORD, World, account, acks_in_both_shapes};

/// Names of agents, each the name of a user as well. The longest that fits a line of the protocol is the last.
fn names() -> Vec<String> {
    let short = [
        "a.b",
        "*",
        ">",
        "a.>",
        "a b",
        "$JS",
        "$JS.API.>",
        "größe",
        "日本語",
        "\u{202e}evil",
        "\"",
        "\\",
        "'",
        "{{name()}}",
        "a}b{c",
        "#x",
        "$HOME",
        "include \"/etc/passwd\"",
        "-",
        "_INBOX",
        "true",
        "1e9",
    ];
    short.into_iter().map(str::to_owned).chain(["x".repeat(3_800)]).collect()
}

#[test]
fn a_name_is_never_more_than_a_name() {
    let names = names();
    let users: Vec<_> = names.iter().map(|name| (name.clone(), "agent")).collect();
    let guests: Vec<_> = names.iter().map(String::as_str).collect();
    let accounts = [account(&NORTH, &users, &[]), account(&NORTH, &NORTH.users(), &guests)];
    for (accounts, more) in accounts.iter().zip(acks_in_both_shapes()) {
        each_is_itself(&World::with(&format!("accounts {{\n{accounts}}}\n"), &more), &names);
    }
}

fn each_is_itself(world: &World, names: &[String]) {
    for name in names {
        let shown: String = name.chars().take(40).collect();
        let mut wire = Wire::login(world.server.port(), name, PASSWORD)
            .unwrap_or_else(|error| panic!("{shown} cannot log in: {error}"));
        let token = Token::of(name);
        assert!(wire.may_publish(&format!("north.v1.card.{token}")), "{shown}");
        assert!(wire.may_subscribe(&format!("north.v1.control.{token}.>"), None), "{shown}");
        assert!(wire.may_subscribe(&format!("_INBOX_{token}.>"), None), "{shown}");
        for other in ["x", "other", "a", "a.b", "*", ">"] {
            assert!(!wire.may_publish(&format!("north.v1.card.{other}")), "{shown} is {other}");
            assert!(
                !wire.may_subscribe(&format!("north.v1.control.{other}.>"), None),
                "{shown} hears {other}"
            );
        }
        for wide in ["_INBOX.>", "_INBOX_a.>", ">", "*.>", "north.>", "$JS.API.>"] {
            assert!(!wire.may_subscribe(wide, None), "{shown} hears {wide}");
        }
        assert!(!wire.may_publish("$JS.API.STREAM.INFO.north_CARDS"), "{shown}");
    }
}

#[test]
fn a_name_with_control_characters_is_refused() {
    for name in ["a\r\nPUB x 0", "a\nb", "a\tb", "a\u{7f}b", ""] {
        for option in [format!("--user={name}:agent:env:PASSWORD"), format!("--guest={name}:env:PASSWORD")] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
            command.args(["mesh", "permissions", "--format", "nats", "--user=x:client:env:PASSWORD"]);
            let output = command.arg(option).env("PASSWORD", "x").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name:?}: {said}");
            assert!(output.stdout.is_empty() && said.contains("SINEW-7006"), "{name:?}: {said}");
        }
    }
}
