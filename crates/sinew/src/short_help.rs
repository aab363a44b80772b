//! `-h` in at most 24 lines: the options that are used most, and examples. `--help` has all of it.

use clap::Command;

/// Lines of a short help.
const MAX_SHORT_HELP_LINES: usize = 24;
/// Examples of a short help, with their heading.
const MAX_EXAMPLE_LINES: usize = 4;

/// Shortens the short help of each command that has no commands of its own.
pub(crate) fn shorten_help(command: Command) -> Command {
    let mut command = command;
    command.build();
    shorten(command)
}

fn shorten(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    if names.is_empty() {
        return shorten_leaf(command);
    }
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, shorten))
}

fn shorten_leaf(mut command: Command) -> Command {
    if let Some(all) = command.get_after_help().map(ToString::to_string) {
        let first: Vec<&str> =
            all.lines().take(MAX_EXAMPLE_LINES).take_while(|line| !line.is_empty()).collect();
        let first = first.join("\n");
        command = command.after_help(first).after_long_help(all);
    }
    // Options are declared in the order of their use, so the last ones go first; those of a heading before the command's own.
    let mut left: Vec<(bool, String)> = command
        .get_arguments()
        .filter(|arg| !arg.is_positional() && !arg.is_required_set() && !arg.is_hide_short_help_set())
        .filter(|arg| arg.get_id() != "help" && arg.get_id() != "mesh" && arg.get_id() != "output")
        .map(|arg| (arg.get_help_heading().is_none(), arg.get_id().to_string()))
        .collect();
    left.sort_by_key(|(is_own, _)| *is_own);
    let (headed, own): (Vec<_>, Vec<_>) = left.into_iter().partition(|(is_own, _)| !is_own);
    let mut next = headed.into_iter().rev().chain(own.into_iter().rev());
    while command.clone().render_help().to_string().lines().count() > MAX_SHORT_HELP_LINES {
        let Some((_, id)) = next.next() else { break };
        command = command.mut_arg(id, |arg| arg.hide_short_help(true));
    }
    command
}

#[cfg(test)]
mod tests;
