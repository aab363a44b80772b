//! Transcripts as files. What is typed stands there; what comes back is written below it, and compared.
//!
//! ```text
//! # said to whoever reads
//! $ sinew execution pause one             once, not on a terminal
//! % sinew execution cancel a b <<< y      once, on a terminal, `y` typed ahead
//! * sinew execution list                  in every format; JSON, YAML and JSON Lines must say the same
//!   stdout
//! ! stderr
//! ? exit code, unless 0
//! ```
//!
//! Commands that only look (`*`) stand side by side and are run so.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::common::{World, text};
use super::{plain, pty};

/// Commands that look at the same time.
const AT_ONCE: usize = 4;
/// How long a command on a terminal may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// Before what is wrong whatever the transcript says.
pub(crate) const COMPLAINT: &str = "WRONG: ";

/// Plays what is typed in a transcript, and gives it with what came back.
pub(crate) fn play(world: &World, transcript: &str) -> String {
    let typed: Vec<&str> = transcript.lines().filter(|line| is_typed(line)).collect();
    let mut played: Vec<String> = Vec::new();
    while let Some(line) = typed.get(played.len()) {
        if line.starts_with("* ") {
            let side_by_side = typed[played.len()..].iter().take_while(|line| line.starts_with("* "));
            played.extend(look(world, &side_by_side.copied().collect::<Vec<_>>()));
        } else {
            played.push(once(world, line));
        }
    }
    let mut out = String::new();
    let mut before = "";
    for (line, back) in typed.iter().zip(played) {
        // The output of a command stands below the command.
        let apart = !out.is_empty() && !before.starts_with('#');
        let _ = writeln!(out, "{}{line}", if apart { "\n" } else { "" });
        out.push_str(&back);
        before = line;
    }
    out
}

fn is_typed(line: &str) -> bool {
    ["# ", "$ ", "% ", "* "].iter().any(|sign| line.starts_with(sign))
}

/// Result of a command.
struct Back {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Back {
    /// As a transcript shows it.
    fn show(&self, world: &World, figures: bool) -> String {
        let mut shown = String::new();
        let folder = world.path().display().to_string();
        let mut lines = |sign: &str, text: &str| {
            for line in plain::text(text, &folder, figures).lines() {
                let _ = writeln!(shown, "{}", format!("{sign}{line}").trim_end());
            }
        };
        lines("  ", &self.out);
        // Whether a node is seen at work depends on who is faster.
        let seen = |line: &&str| !["◐ ", "? "].iter().any(|sign| line.starts_with(sign));
        lines("! ", &self.err.lines().filter(seen).collect::<Vec<_>>().join("\n"));
        match self.code {
            Some(0) => {}
            Some(code) => _ = writeln!(shown, "? {code}"),
            None => shown.push_str("? ended by a signal\n"),
        }
        shown
    }
}

fn once(world: &World, line: &str) -> String {
    if line.starts_with("# ") {
        return String::new();
    }
    let (sign, rest) = line.split_at(2);
    let (command, typed) = rest.split_once(" <<< ").unwrap_or((rest, ""));
    let args = arguments(command);
    let back = match sign {
        "% " => {
            let typed = if typed.is_empty() { String::new() } else { format!("{typed}\n") };
            let (code, out) = typed_on_terminal(world, &args, &typed);
            Back { code, out, err: String::new() }
        }
        _ => ran(world, &args),
    };
    back.show(world, is_figures(&args))
}

/// `top` and agents of a mesh show figures that are never the same.
fn is_figures(args: &[String]) -> bool {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["top", ..] => true,
        ["agent", "list" | "describe", ..] => words.contains(&"--mesh"),
        _ => false,
    }
}

fn ran(world: &World, args: &[String]) -> Back {
    let output = world.run(args);
    Back { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Its exit code, and what is seen in the end.
pub(crate) fn on_terminal(world: &World, args: &[&str]) -> (Option<i32>, String) {
    typed_on_terminal(world, args, "")
}

fn typed_on_terminal<S: AsRef<OsStr>>(world: &World, args: &[S], typed: &str) -> (Option<i32>, String) {
    let mut command = world.command(args);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    let (code, screen) = pty::run(command, typed, PATIENCE);
    (code, pty::seen(&screen))
}

/// Commands that change nothing, in every format.
fn look(world: &World, lines: &[&str]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let seen = Mutex::new(vec![String::new(); lines.len()]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(line) = lines.get(at) else { break };
                    let back = in_all_formats(world, &line[2..]);
                    seen.lock().unwrap_or_else(PoisonError::into_inner)[at] = back;
                }
            });
        }
    });
    seen.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn in_all_formats(world: &World, command: &str) -> String {
    let args = arguments(command);
    let figures = is_figures(&args);
    let with = |format: &str| ran(world, &[&args[..], &["-o".to_owned(), format.to_owned()]].concat());
    let table = with("table").show(world, figures);
    let mut shown = table.clone();
    for format in ["wide", "name"] {
        let back = with(format).show(world, figures);
        if back != table {
            let _ = write!(shown, "-o {format}\n{back}");
        }
    }
    let json = with("json");
    let _ = write!(shown, "-o json\n{}", json.show(world, figures));
    let same = document(&json).and_then(|data| {
        ["yaml", "jsonl"].into_iter().try_for_each(|format| agrees(format, &with(format), json.code, &data))
    });
    if let Err(complaint) = same {
        let _ = writeln!(shown, "{COMPLAINT}{complaint}");
    }
    shown
}

/// Reads output as JSON: one document on stdout, or one object on stderr that gives the reason.
fn document(json: &Back) -> Result<Value, String> {
    let read = |text: &str| {
        serde_json::from_str::<Value>(text).map_err(|error| format!("-o json is not JSON: {error}: {text}"))
    };
    // Work that ended badly is data; a command that did not get to it says why.
    if json.code != Some(0) && json.out.is_empty() {
        let error = read(json.err.lines().last().unwrap_or_default())?;
        if !error["error"]["code"].is_string() {
            return Err(format!("-o json has no error with a code on stderr: {error}"));
        }
    }
    match (json.out.is_empty(), json.code) {
        (true, Some(0)) => Err("-o json says nothing".to_owned()),
        (true, _) => Ok(Value::Null),
        (false, _) => read(&json.out),
    }
}

/// Whether another format of data says what JSON says.
fn agrees(format: &str, back: &Back, code: Option<i32>, data: &Value) -> Result<(), String> {
    if back.code != code {
        return Err(format!("-o {format} ends with {:?}, not {code:?}", back.code));
    }
    let said = match (format, back.out.is_empty()) {
        // No line is a list without items, too.
        (_, true) if format == "jsonl" && data.is_array() => Value::Array(Vec::new()),
        (_, true) => Value::Null,
        ("yaml", _) => serde_saphyr::from_str(&back.out).map_err(|error| format!("-o yaml: {error}"))?,
        _ => lines(&back.out, data.is_array())?,
    };
    let (said, data) = (plain::value(&said), plain::value(data));
    if said == data { Ok(()) } else { Err(format!("-o {format} says something else: {said}")) }
}

/// JSON Lines: a document a line. A list has a line for each of its items.
fn lines(out: &str, is_list: bool) -> Result<Value, String> {
    let read = out.lines().map(|line| {
        serde_json::from_str::<Value>(line).map_err(|error| format!("-o jsonl: {error}: {line}"))
    });
    let read: Vec<Value> = read.collect::<Result<_, _>>()?;
    match <[Value; 1]>::try_from(read) {
        Ok([one]) if !is_list => Ok(one),
        Ok(one) => Ok(Vec::from(one).into()),
        Err(several) if is_list => Ok(several.into()),
        Err(several) => Err(format!("-o jsonl has {} lines for one document", several.len())),
    }
}

/// The words of a command line after `sinew`; quotes hold a word together.
fn arguments(command: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut quoted, mut open) = (false, false);
    for c in command.strip_prefix("sinew ").unwrap_or_else(|| panic!("no sinew: {command}")).chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                if !open {
                    words.push(String::new());
                }
                open = true;
            }
            ' ' if !quoted => open = false,
            c => {
                if !open {
                    words.push(String::new());
                }
                open = true;
                words.last_mut().expect("it was just pushed").push(c);
            }
        }
    }
    words
}
