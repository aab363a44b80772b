//! `sinew completions` and `sinew man`, generated from the definition of the command line.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::env::Shells;
use serde_json::json;
use sinew_documents::words;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

use crate::exit::Exit;
use crate::output::{Format, Output};

const COMPLETIONS: &str = "Examples:
  sinew completions bash > ~/.local/share/bash-completion/completions/sinew
  sinew completions zsh > ~/.zfunc/_sinew
  sinew completions fish > ~/.config/fish/completions/sinew.fish";

const MAN: &str = "Examples:
  sinew man ~/.local/share/man/man1
  man sinew-workflow-validate";

/// Arguments of `sinew completions`.
#[derive(Debug, Args)]
#[command(
    long_about = "Print a completion script; save it where your shell loads completions.\n\n\
                  While you type, the shell calls sinew to complete commands and options, ids of executions, \
                  nodes, names of agents and workflows, and error codes.",
    after_help = COMPLETIONS
)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Arguments of `sinew man`.
#[derive(Debug, Args)]
#[command(
    long_about = "Write man pages, one per command, to a folder. Creates the folder if it does not exist, \
                  and overwrites existing pages.",
    after_help = MAN
)]
pub(crate) struct ManArgs {
    /// Folder for the pages
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints completions of a command line.
pub(crate) fn completions(args: &CompletionsArgs, output: &Output) -> Exit {
    let script = registration(&args.shell.to_string());
    if output.is_machine() {
        let script = String::from_utf8_lossy(&script);
        output.value(&json!({ "shell": args.shell.to_string(), "script": script }), |_| String::new());
    } else {
        output.bytes(&script);
    }
    Exit::Ok
}

/// Returns the script with which a shell completes by calling this program; empty for an unknown shell.
fn registration(shell: &str) -> Vec<u8> {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(shell) {
        // A write into memory does not fail.
        let _ = shell.write_registration("COMPLETE", "sinew", "sinew", "sinew", &mut script);
    }
    script
}

/// Writes man pages of a command line.
pub(crate) fn man(args: &ManArgs, command: Command, output: &Output) -> Result<Exit, Failure> {
    let pages = write(&args.folder, command).map_err(|error| {
        let text = format!("cannot write man pages to {}: {error}", args.folder.display());
        Failure::new(FailureKind::Failed, code::FILE_CANNOT_BE_WRITTEN.as_str(), text)
    })?;
    output.value(&json!({ "folder": args.folder, "pages": pages }), |_| match output.format {
        Format::Name => pages.join("\n"),
        _ => format!("{} in {}", words::count(pages.len(), "page"), args.folder.display()),
    });
    Ok(Exit::Ok)
}

/// One page per command, named like it: `sinew-workflow-validate.1`.
fn write(folder: &Path, command: Command) -> std::io::Result<Vec<String>> {
    std::fs::create_dir_all(folder)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned());
        let page = clap_mangen::Man::new(command).generate_to(folder)?;
        pages.extend(page.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    pages.sort();
    Ok(pages)
}
