//! Where words go: data to stdout, everything else to stderr; colour only where somebody looks.

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{ColorChoice, Format, Global};
use crate::exit::Failure;

/// Fields that name what a document is about, the first of them that is there.
const NAMED_BY: [&str; 8] = ["execution", "address", "name", "role", "check", "code", "stream", "message"];

/// Writes a command's output the way the global flags ask.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Output {
    /// The format of data.
    pub(crate) format: Format,
    /// Colour on stdout.
    pub(crate) color: bool,
    /// Colour on stderr.
    pub(crate) color_err: bool,
    /// Stderr is a terminal somebody looks at.
    pub(crate) live: bool,
    /// Icons in ASCII only.
    pub(crate) ascii: bool,
    /// No progress, no hints.
    pub(crate) quiet: bool,
}

#[expect(clippy::unused_self, reason = "who prints needs an `Output`, whatever it looks at")]
impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let wanted = |terminal: bool| match global.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => set("CLICOLOR_FORCE") || (terminal && !dumb && !set("NO_COLOR")),
        };
        Self {
            format: global.output,
            color: wanted(std::io::stdout().is_terminal()),
            color_err: wanted(std::io::stderr().is_terminal()),
            live: std::io::stderr().is_terminal() && !dumb && !global.quiet,
            ascii: global.ascii,
            quiet: global.quiet,
        }
    }

    /// Writes text to stdout as it is. A reader that went away is no error of ours.
    pub(crate) fn text(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes());
        if !text.ends_with('\n') {
            let _ = out.write_all(b"\n");
        }
        let _ = out.flush();
    }

    /// Writes bytes to stdout as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(bytes);
        let _ = out.flush();
    }

    /// Writes a value in the chosen format; `table` words it for people. A list has a line for each item in JSON Lines.
    pub(crate) fn value<T: Serialize>(&self, value: &T, table: impl FnOnce(&T) -> String) {
        let document = || serde_json::to_value(value).unwrap_or_default();
        match self.format {
            Format::Table | Format::Wide => self.text(&table(value)),
            Format::Name => match names(&document()) {
                Some(names) => names.iter().for_each(|name| self.text(name)),
                None => self.text(&table(value)),
            },
            Format::Json => self.text(&serde_json::to_string_pretty(value).unwrap_or_default()),
            Format::Jsonl => match document() {
                Value::Array(items) => items.iter().for_each(|item| self.text(&item.to_string())),
                one => self.text(&one.to_string()),
            },
            Format::Yaml => self.text(&to_yaml(value)),
        }
    }

    /// One line to stderr, unless quiet.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.error_line(text);
        }
    }

    /// One line to stderr.
    pub(crate) fn error_line(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Says why a command failed: for people, and as one JSON object with `-o json`.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.is_machine() {
            self.error_line(&document(failure).to_string());
            return;
        }
        if let Some(diagnostics) = &failure.diagnostics {
            self.error_line(sinew_source::render_text(diagnostics, self.color_err).trim_end());
        }
        let (red, off) = if self.color_err { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
        self.error_line(&format!("{red}error{off}: {} [{}]", failure.message, failure.code));
        if let Some(hint) = &failure.hint {
            self.error_line(&format!("hint: {hint}"));
        }
    }

    /// True if a program reads the data.
    pub(crate) fn is_machine(&self) -> bool {
        matches!(self.format, Format::Json | Format::Jsonl | Format::Yaml)
    }
}

/// A failure as programs read it.
pub(crate) fn document(failure: &Failure) -> Value {
    let mut error = json!({ "error": { "code": failure.code, "message": failure.message } });
    if let Some(hint) = &failure.hint {
        error["error"]["hint"] = json!(hint);
    }
    if let Some(diagnostics) = &failure.diagnostics {
        error["error"]["diagnostics"] =
            serde_json::from_str(&sinew_source::render_json(diagnostics)).unwrap_or_default();
    }
    error
}

/// What a document, or each of a list, is called by other commands; none if they have no use for it.
fn names(value: &Value) -> Option<Vec<&str>> {
    fn name(one: &Value) -> Option<&str> {
        NAMED_BY.iter().find_map(|key| one.get(key)?.as_str())
    }
    match value {
        Value::Array(items) => items.iter().map(name).collect(),
        one => Some(vec![name(one)?]),
    }
}

/// YAML text of a value.
pub(crate) fn to_yaml<T: Serialize>(value: &T) -> String {
    // What JSON can say YAML can say, and JSON is YAML: the fallback loses nothing.
    serde_saphyr::to_string(value).unwrap_or_else(|_| serde_json::to_string_pretty(value).unwrap_or_default())
}
