//! Words that a shell completes: commands and options, and the ids, nodes, names and codes that exist now.
//!
//! The shell calls this program with the words that are typed so far. Ids and names come from the program itself, called
//! with the connection that is typed: one rule says which mesh or folder is meant.

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

/// Variable by which a shell asks.
const SHELL_VARIABLE: &str = "COMPLETE";
/// A shell that waits longer seems to hang.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Options of a connection that are handed on, and whether a value follows.
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

/// Answers a shell that asks for words; none if the program was called for something else.
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

/// The command line with lists of words at its arguments.
fn completed_command() -> Command {
    let mut command = Cli::command();
    command.build();
    attach(command, "")
}

fn attach(command: Command, path: &str) -> Command {
    // A command that is built finds its arguments by position, so none may move.
    let command = command.mut_args(|arg| match WordKind::of(path, &arg) {
        Some(kind) => arg.add(ArgValueCompleter::new(move |current: &OsStr| kind.candidates(current))),
        None => arg,
    });
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let inner = format!("{path} {name}").trim_start().to_owned();
        command.mut_subcommand(name, |one| attach(one, &inner))
    })
}

/// A kind of words that exist outside the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordKind {
    Code,
    Execution,
    Node,
    Agent,
    Workflow,
    WorkflowOrFile,
}

impl WordKind {
    /// The kind of the words of an argument; none for words that nothing lists.
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

/// Words that are typed so far, without the name of the program.
fn typed() -> Vec<String> {
    let mut words = std::env::args().skip_while(|word| word != "--");
    words.next();
    words.skip(1).collect()
}

/// Nodes of the first execution or file that is typed.
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

/// The lines that this program prints for other arguments; none if it fails or takes too long.
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
    // It has ended, or it is too late.
    let _ = child.kill();
    let _ = child.wait();
    text.lines().map(str::to_owned).collect()
}

/// The options of a connection among typed words.
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
