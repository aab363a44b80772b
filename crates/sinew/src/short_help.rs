//! `-h` in at most 24 lines: the most used options, and examples. `--help` shows everything.

use clap::Command;

/// Start of the line that names hidden options.
const HIDDEN_OPTIONS: &str = "More in --help:";
/// Maximum lines of a short help.
const MAX_SHORT_HELP_LINES: usize = 24;
/// Columns of a terminal that fits a short help.
const HELP_COLUMNS: usize = 80;
/// Maximum lines of examples in a short help, with their heading.
const MAX_EXAMPLE_LINES: usize = 4;

/// Shortens the short help of each command without subcommands whose name `is_asked` accepts.
/// Rendering the help of all commands to count lines takes half a second in an unoptimised build.
pub(crate) fn shorten_help(command: Command, is_asked: &dyn Fn(&str) -> bool) -> Command {
    let mut command = command;
    command.build();
    shorten(command, is_asked)
}

fn shorten(command: Command, is_asked: &dyn Fn(&str) -> bool) -> Command {
    // A command whose subcommands are all hidden counts as a leaf.
    let is_leaf = !command.get_subcommands().any(|one| !one.is_hide_set() && one.get_name() != "help");
    if is_leaf {
        return shorten_leaf(command);
    }
    let asked = command
        .get_subcommands()
        .filter(|one| is_asked(one.get_name()) || one.get_all_aliases().any(is_asked));
    let names: Vec<String> = asked.map(|one| one.get_name().to_owned()).collect();
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |one| shorten(one, is_asked)))
}

fn shorten_leaf(mut command: Command) -> Command {
    let mut examples = String::new();
    if let Some(all) = command.get_after_help().map(ToString::to_string) {
        let first: Vec<&str> =
            all.lines().take(MAX_EXAMPLE_LINES).take_while(|line| !line.is_empty()).collect();
        examples = first.join("\n");
        command = command.after_help(examples.clone()).after_long_help(all);
    }
    if help_lines(&command) <= MAX_SHORT_HELP_LINES {
        return command;
    }
    // The line that names hidden options precedes the examples.
    let ending = |hidden: &str| {
        if examples.is_empty() { hidden.to_owned() } else { format!("{hidden}\n\n{examples}") }
    };
    command = command.after_help(ending(HIDDEN_OPTIONS));
    // Options are declared most used first, so the last ones are hidden first. Options under a heading
    // are hidden before the command's own, and the two most important of them last.
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
        // A built command finds its arguments by position, so none may move: `mut_arg` would move it.
        command = command.mut_args(|arg| {
            let is_next = *arg.get_id() == id;
            if is_next { arg.hide_short_help(true) } else { arg }
        });
    }
    let hidden = hidden_options(&command);
    command.after_help(ending(&hidden))
}

/// Returns the line that names the hidden options: the mesh and the format first, as many as fit.
fn hidden_options(command: &Command) -> String {
    let mut hidden: Vec<(u8, String)> = command
        .get_arguments()
        .filter(|arg| arg.is_hide_short_help_set() && !arg.is_hide_set())
        .filter_map(|arg| {
            let rank = match (arg.get_id().as_str(), arg.get_help_heading()) {
                ("mesh" | "output", _) => 0,
                (_, None) => 1,
                (_, Some(_)) => 2,
            };
            let short = arg.get_short().map(|short| format!("-{short}"));
            Some((rank, short.or_else(|| arg.get_long().map(|long| format!("--{long}")))?))
        })
        .collect();
    hidden.sort_by_key(|(rank, _)| *rank);
    let mut line = HIDDEN_OPTIONS.to_owned();
    for (nth, (_, name)) in hidden.iter().enumerate() {
        let between = if nth == 0 { " " } else { ", " };
        if line.len() + between.len() + name.len() + ", …".len() > HELP_COLUMNS {
            return line + ", …";
        }
        line = line + between + name;
    }
    line
}

/// Returns the number of lines that `-h` prints: the text and an empty line.
fn help_lines(command: &Command) -> usize {
    let mut narrow = command.clone().term_width(HELP_COLUMNS).max_term_width(HELP_COLUMNS);
    narrow.render_help().to_string().lines().count() + 1
}

#[cfg(test)]
mod tests;
