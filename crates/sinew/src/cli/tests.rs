//! Tests of `cli`.

use super::*;

/// Command lines of a text: those behind `$ sinew`, and those within backquotes.
fn command_lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A command may go on in the next line.
    for line in text.replace("\\\n", " ").lines() {
        if let Some(command) = line.trim().strip_prefix("$ sinew ") {
            found.push(command.to_owned());
        } else {
            let quoted = line.split('`').skip(1).step_by(2);
            found.extend(quoted.filter_map(|part| part.strip_prefix("sinew ")).map(str::to_owned));
        }
    }
    found
}

/// Words of a command line without what stands behind it for readers or the shell.
fn words_of(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (vec!["sinew".to_owned()], None::<String>, None::<char>);
    for c in line.chars() {
        match c {
            '\'' | '"' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            c if quote == Some(c) => quote = None,
            ' ' if quote.is_none() => words.extend(word.take()),
            '#' | '|' | '>' | '&' | ';' if quote.is_none() && word.is_none() => break,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn commands_of_documents_and_alerts_can_be_typed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files =
        vec!["README.md".to_owned(), "agent-cards/README.md".to_owned(), "examples/README.md".to_owned()];
    for folder in ["docs", "deploy", "examples", "crates/sinew-codes/codes"] {
        let mut left = vec![root.join(folder)];
        while let Some(at) = left.pop() {
            for entry in at.read_dir().unwrap().map(Result::unwrap) {
                let path = entry.path();
                let name = entry.file_name().into_string().unwrap();
                if path.is_dir() {
                    left.push(path);
                } else if path.extension().is_some_and(|ending| ending == "md") || name.contains("alert") {
                    files.push(path.strip_prefix(&root).unwrap().display().to_string());
                }
            }
        }
    }
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(root.join(&file)).unwrap();
        for line in command_lines(&text) {
            // Capitals, dots and brackets stand for words of the reader.
            let words = words_of(&line);
            let is_abridged = words.iter().any(|word| word.contains(['…', '[', '|']) || word == "...");
            if is_abridged || words.len() < 2 {
                continue;
            }
            checked += 1;
            if let Err(error) = Cli::try_parse_from(&words) {
                // The name of a command alone speaks of it.
                let is_incomplete = matches!(
                    error.kind(),
                    clap::error::ErrorKind::MissingRequiredArgument
                        | clap::error::ErrorKind::MissingSubcommand
                        | clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        | clap::error::ErrorKind::DisplayHelp
                        | clap::error::ErrorKind::DisplayVersion
                );
                // Words in capitals stand for values of the reader.
                let has_placeholder =
                    words.iter().any(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()));
                let is_placeholder = (has_placeholder
                    || words.last().is_some_and(|word| word.starts_with("--")))
                    && matches!(
                        error.kind(),
                        clap::error::ErrorKind::InvalidValue | clap::error::ErrorKind::ValueValidation
                    );
                if !is_incomplete && !is_placeholder {
                    let reason = error.to_string();
                    wrong.push(format!(
                        "{file}: `sinew {line}`: {}",
                        reason.lines().next().unwrap_or_default()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "{checked}");
}

#[test]
fn the_format_is_known_even_of_a_command_line_that_cannot_be_read() {
    for (line, want) in [
        ("sinew frobnicate -o json", true),
        ("sinew --output=yaml frobnicate", true),
        ("sinew -ojsonl --nope", true),
        ("sinew frobnicate -o table", false),
        ("sinew frobnicate json", false),
        ("sinew frobnicate -o", false),
    ] {
        assert_eq!(is_for_machines(line.split(' ').map(str::to_owned)), want, "{line}");
    }
}

#[test]
fn commands_of_other_tools_name_the_command_to_use() {
    let refused = |words: &[&str]| {
        let words = std::iter::once("sinew").chain(words.iter().copied()).map(OsString::from);
        parse(words).map(|_| ()).unwrap_err().to_string()
    };
    for (name, commands) in OTHER_NAMES {
        let error = refused(&[name]);
        assert!(error.contains(&format!("tip: use {commands}")), "{name}: {error}");
        for line in commands.split(", ") {
            let mut command = Cli::command();
            for word in line.split(' ').skip(1).filter(|word| word.chars().all(char::is_lowercase)) {
                command = command.find_subcommand(word).unwrap().clone();
            }
        }
    }
    // Within a group the name can mean something else.
    assert!(!refused(&["artifact", "logs"]).contains("tip: use"));
    assert!(!refused(&["frobnicate"]).contains("tip: use"));
}

/// A doc comment of a subcommand would replace the long description of its arguments.
#[test]
fn long_descriptions_are_shown() {
    fn count(command: &clap::Command) -> usize {
        let own = usize::from(command.get_long_about().is_some());
        own + command.get_subcommands().map(count).sum::<usize>()
    }
    let mut command = Cli::command();
    assert!(count(&command) > 50, "{} commands have a long description", count(&command));
    let call = command.find_subcommand_mut("tool").and_then(|tool| tool.find_subcommand_mut("call")).unwrap();
    assert!(call.render_long_help().to_string().contains("Exits with 8"));
}
