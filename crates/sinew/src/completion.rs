//! Shell completion of commands and options, and of existing ids, nodes, names and codes.
//!
//! The shell calls this program with the words typed so far. Ids and names come from running the
//! program with the typed connection flags, so the mesh or folder is selected by the same rules.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::process::{ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use clap::builder::Arg;
use clap::{Command, CommandFactory as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::CompleteEnv;
use sinew_protocol::code;

use crate::cli::Cli;
use crate::exit::Exit;

/// Variable with which a shell requests completions.
const SHELL_VARIABLE: &str = "COMPLETE";
/// Timeout of a list: a shell that waits longer seems to hang.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Connection options to pass on, and whether a value follows.
const CONNECTION_OPTIONS: [(&str, bool); 13] = [
    ("--mesh", false),
    ("--local", false),
    ("--nats", true),
    ("--context", true),
    ("--namespace", true),
    ("--creds", true),
    ("--nkey", true),
    ("--user", true),
    ("--password", true),
    ("--tlscert", true),
    ("--tlskey", true),
    ("--tlsca", true),
    ("--nats-timeout", true),
];

/// Answers a completion request of a shell; returns `None` if the program was called for something else.
pub(crate) fn answer_shell() -> Option<ExitCode> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let folder = std::env::current_dir().ok();
    let answered = CompleteEnv::with_factory(completed_command)
        .var(SHELL_VARIABLE)
        .try_complete(args, folder.as_deref());
    match answered {
        Ok(false) => None,
        Ok(true) => Some(Exit::Ok.into()),
        Err(error) => {
            let _ = error.print();
            Some(Exit::Usage.into())
        }
    }
}

/// Returns the command line with completers for its arguments.
fn completed_command() -> Command {
    let mut command = Cli::command();
    command.build();
    attach(command, "")
}

fn attach(command: Command, path: &str) -> Command {
    // A built command finds its arguments by position, so none may move.
    let command = command.mut_args(|arg| match CompletionKind::of(path, &arg) {
        Some(kind) => arg.add(ArgValueCompleter::new(move |current: &OsStr| kind.candidates(current))),
        None => arg,
    });
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let inner = format!("{path} {name}").trim_start().to_owned();
        command.mut_subcommand(name, |one| attach(one, &inner))
    })
}

/// A kind of completed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompletionKind {
    Code,
    Execution,
    Node,
    Agent,
    Workflow,
    WorkflowOrFile,
}

impl CompletionKind {
    /// Returns the kind of an argument's words; `None` if they cannot be listed.
    fn of(path: &str, arg: &Arg) -> Option<Self> {
        let value = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let about = path.split(' ').next().unwrap_or_default();
        Some(match (about, value, arg.get_id().as_str()) {
            ("explain", _, "code") => Self::Code,
            (_, "ID|@latest" | "ID|@latest|FILE" | "ID|FILE", _) => Self::Execution,
            (_, "NODE", _) => Self::Node,
            ("agent", "NAME", _) if arg.is_positional() => Self::Agent,
            ("tool" | "workflow", "NAME", _) if arg.is_positional() => Self::Workflow,
            (_, "FILE|NAME" | "FILE|NAME|-", _) => Self::WorkflowOrFile,
            _ => return None,
        })
    }

    fn candidates(self, current: &OsStr) -> Vec<CompletionCandidate> {
        let start = current.to_string_lossy();
        let found = match self {
            Self::Code => code::all().iter().map(|(code, _)| (*code).to_owned()).collect(),
            Self::Execution => {
                let mut ids = vec!["@latest".to_owned()];
                ids.extend(listed(&["execution", "list", "-o", "name"]));
                ids
            }
            Self::Node => nodes(),
            Self::Agent => listed(&["agent", "list", "-o", "name"]),
            Self::Workflow | Self::WorkflowOrFile => listed(&["workflow", "list", "-o", "name"]),
        };
        let names = found.into_iter().filter(|word| word.starts_with(&*start)).map(CompletionCandidate::new);
        let mut all: Vec<CompletionCandidate> = names.collect();
        if matches!(self, Self::WorkflowOrFile | Self::Execution) {
            all.extend(PathCompleter::file().complete(current));
        }
        all
    }
}

/// Returns the words typed so far, without the name of the program.
fn typed() -> Vec<String> {
    let mut words = std::env::args().skip_while(|word| word != "--");
    words.next();
    words.skip(1).collect()
}

/// Returns the nodes of the first typed execution or file.
fn nodes() -> Vec<String> {
    let typed = typed();
    let is_run = typed.first().is_some_and(|word| word == "run");
    let plain: Vec<&String> =
        typed.iter().filter(|word| !word.is_empty() && !word.starts_with('-')).collect();
    let subject = plain.get(if is_run { 1 } else { 2 });
    match subject {
        None => Vec::new(),
        Some(file) if is_run => listed(&["workflow", "describe", file, "-o", "name"]),
        Some(execution) => listed(&["execution", "tree", execution, "-o", "name"]),
    }
}

/// Returns the lines that this program prints for other arguments; empty if it fails or takes too long.
fn listed(args: &[&str]) -> Vec<String> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let child = std::process::Command::new(program)
        .args(args)
        .args(connection(&typed()))
        .env_remove(SHELL_VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return Vec::new() };
    let (sender, lines) = mpsc::channel();
    if let Some(mut out) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            let read = out.read_to_string(&mut text);
            drop(sender.send(read.map(|_| text).unwrap_or_default()));
        });
    }
    let text = lines.recv_timeout(LIST_TIMEOUT).unwrap_or_default();
    // The process has ended, or the timeout has passed.
    let _ = child.kill();
    let _ = child.wait();
    text.lines().map(str::to_owned).collect()
}

/// Returns the connection options among typed words.
fn connection(typed: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = typed.iter().peekable();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        let Some((_, has_value)) = CONNECTION_OPTIONS.iter().find(|(option, _)| *option == name) else {
            continue;
        };
        found.push(word.clone());
        if *has_value && !word.contains('=') {
            found.extend(words.next().cloned());
        }
    }
    found
}

#[cfg(test)]
mod tests;
