//! Tests of `short_help`.

use clap::CommandFactory as _;

use super::*;
use crate::cli::Cli;

fn each_leaf(command: &Command, path: &str, check: &mut impl FnMut(&Command, &str)) {
    let is_shown = |one: &&Command| !one.is_hide_set() && one.get_name() != "help";
    if !command.get_subcommands().any(|one| is_shown(&one)) {
        return check(command, path);
    }
    for one in command.get_subcommands().filter(is_shown) {
        each_leaf(one, &format!("{path} {}", one.get_name()), check);
    }
}

#[test]
fn short_help_is_short_and_headings_keep_to_their_flags() {
    let mut count = 0;
    each_leaf(&shorten_help(Cli::command(), &|_| true), "sinew", &mut |command, path| {
        let help = command.clone().render_help().to_string();
        let lines = help_lines(command);
        assert!(lines <= MAX_SHORT_HELP_LINES, "{path}: {lines} lines\n{help}");
        // The mesh and the format are named, if only as something to read about.
        for arg in command.get_arguments().filter(|arg| ["mesh", "output"].contains(&arg.get_id().as_str())) {
            let name = arg.get_short().map_or_else(|| "--mesh".to_owned(), |short| format!("-{short}"));
            let is_named = help.lines().any(|line| {
                line.trim_start().starts_with(&name)
                    || (line.starts_with(HIDDEN_OPTIONS) && line.contains(&name))
            });
            assert!(is_named, "{path}: no {name}\n{help}");
        }
        count += 1;
    });
    assert!(count > 50, "{count}");
    let connection = [
        "mesh",
        "local",
        "dev",
        "nats",
        "context",
        "namespace",
        "creds",
        "nkey",
        "user",
        "password",
        "tlscert",
        "tlskey",
        "tlsca",
        "nats_timeout",
        "caller",
    ];
    let mut command = Cli::command();
    command.build();
    each_leaf(&command, "sinew", &mut |command, path| {
        let of_heading = |heading: &'static str| {
            command.get_arguments().filter(move |arg| arg.get_help_heading() == Some(heading))
        };
        for arg in of_heading("Connection") {
            assert!(connection.contains(&arg.get_id().as_str()), "{path}: {}", arg.get_id());
        }
        let global: Vec<&str> = of_heading("Global options").map(|arg| arg.get_id().as_str()).collect();
        assert_eq!(global, ["output", "color", "ascii", "quiet"], "{path}");
        let help = command.clone().render_long_help().to_string();
        let headings = ["Arguments:", "Options:", "On a mesh:", "Connection:", "Global options:"];
        let last = help.lines().rfind(|line| headings.contains(line));
        assert_eq!(last, Some("Global options:"), "{path}\n{help}");
    });
}
