//! `-h` in at most 24 lines: the options that are used most, and examples. `--help` has all of it.

use clap::Command;

/// Lines of a short help.
const MAX_SHORT_HELP_LINES: usize = 24;
/// Columns of the terminal that holds a short help.
const HELP_COLUMNS: usize = 80;
/// Examples of a short help, with their heading.
const MAX_EXAMPLE_LINES: usize = 4;

/// Shortens the short help of each command that has no commands of its own.
pub(crate) fn shorten_help(command: Command) -> Command {
    let mut command = command;
    command.build();
    shorten(command)
}

fn shorten(command: Command) -> Command {
    // A command whose own commands are hidden does the work itself.
    let is_leaf = !command.get_subcommands().any(|one| !one.is_hide_set() && one.get_name() != "help");
    if is_leaf {
        return shorten_leaf(command);
    }
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, shorten))
}

fn shorten_leaf(mut command: Command) -> Command {
    if let Some(all) = command.get_after_help().map(ToString::to_string) {
        let first: Vec<&str> =
            all.lines().take(MAX_EXAMPLE_LINES).take_while(|line| !line.is_empty()).collect();
        let first = first.join("\n");
        command = command.after_help(first).after_long_help(all);
    }
    // Options are declared in the order of their use, so the last ones go first; those of a heading go before the command's
    // own, and of them the two that matter most go last.
    let hideable = command
        .get_arguments()
        .filter(|arg| !arg.is_positional() && !arg.is_required_set() && !arg.is_hide_short_help_set())
        .filter(|arg| arg.get_id() != "help");
    let mut next: Vec<(u8, String)> = hideable
        .map(|arg| match (arg.get_help_heading(), arg.get_id().as_str()) {
            (None, id) => (3, id.to_owned()),
            (Some(_), "output") => (2, "output".to_owned()),
            (Some(_), "mesh") => (1, "mesh".to_owned()),
            (Some(_), id) => (0, id.to_owned()),
        })
        .collect();
    next.reverse();
    next.sort_by_key(|(rank, _)| *rank);
    let mut next = next.into_iter();
    while help_lines(&command) > MAX_SHORT_HELP_LINES {
        let Some((_, id)) = next.next() else { break };
        // A command that is built finds its arguments by position, so none may move: `mut_arg` would put it last.
        command = command.mut_args(|arg| {
            let is_next = *arg.get_id() == id;
            if is_next { arg.hide_short_help(true) } else { arg }
        });
    }
    command
}

/// Lines that `-h` prints: the text, and an empty one behind it.
fn help_lines(command: &Command) -> usize {
    let mut narrow = command.clone().term_width(HELP_COLUMNS).max_term_width(HELP_COLUMNS);
    narrow.render_help().to_string().lines().count() + 1
}

#[cfg(test)]
mod tests {
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
        each_leaf(&shorten_help(Cli::command()), "sinew", &mut |command, path| {
            let help = command.clone().render_help().to_string();
            let lines = help_lines(command);
            assert!(lines <= MAX_SHORT_HELP_LINES, "{path}: {lines} lines\n{help}");
            count += 1;
        });
        assert!(count > 50, "{count}");
        let connection = [
            "mesh",
            "local",
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
}
