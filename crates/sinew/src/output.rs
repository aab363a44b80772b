//! Output: data to stdout, everything else to stderr; colour only on terminals.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};
use sinew_documents::csv;
use sinew_operations::failure::Failure;
use sinew_source::{EscapePolicy, escape, escape_line, escape_text, has_hidden_characters, indented};

/// Fields with the name of a document; the first one present is used.
const NAMED_BY: [&str; 10] =
    ["execution", "address", "name", "role", "check", "code", "stream", "node", "message", "would_start"];

/// Heading of the flags of every command, in help.
const GLOBAL_HEADING: &str = "Global options";

/// Flags of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Output format on stdout
    #[arg(short, long, global = true, help_heading = GLOBAL_HEADING, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    /// When to use colour (also: `NO_COLOR`, `CLICOLOR_FORCE`)
    #[arg(long, global = true, help_heading = GLOBAL_HEADING, value_enum, default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,
    /// Draw icons and lines in ASCII only
    #[arg(long, global = true, help_heading = GLOBAL_HEADING)]
    pub(crate) ascii: bool,
    /// Suppress progress and hints on stderr
    #[arg(short, long, global = true, help_heading = GLOBAL_HEADING)]
    pub(crate) quiet: bool,
}

/// Formats of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; may change between versions
    Table,
    /// For people, with more columns
    Wide,
    /// One document; stable
    Json,
    /// One document per line; stable
    Jsonl,
    /// One document; stable
    Yaml,
    /// Names only
    Name,
    /// Comma-separated values, for lists and reports
    Csv,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

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
    /// Whether stderr is a terminal that can repaint.
    pub(crate) live: bool,
    /// Icons in ASCII only.
    pub(crate) ascii: bool,
    /// No progress, no hints.
    pub(crate) quiet: bool,
}

#[expect(clippy::unused_self, reason = "printing needs an `Output`, whichever fields it reads")]
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

    /// Writes text to stdout with its hidden characters escaped. Ignores a closed pipe.
    pub(crate) fn text(&self, text: &str) {
        write_stdout(&escape_text(text));
    }

    /// Writes a view to stdout like [`Self::text`], but keeps its styles if colour is enabled.
    pub(crate) fn styled(&self, text: &str) {
        write_stdout(&escaped(&self.signs(text), self.color));
    }

    /// Returns text with the signs of views in ASCII if requested.
    fn signs<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.ascii { ascii_signs(text) } else { Cow::Borrowed(text) }
    }

    /// Writes one line to stdout: hidden characters and line breaks are escaped.
    pub(crate) fn line(&self, text: &str) {
        write_stdout(&escape_line(text));
    }

    /// Writes text unchanged to a file or a pipe, and escaped to a terminal, which would interpret it.
    pub(crate) fn raw(&self, text: &str) {
        if std::io::stdout().is_terminal() {
            self.text(text);
        } else {
            write_stdout(text);
        }
    }

    /// Writes bytes unchanged to a file or a pipe, and as escaped text to a terminal.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        if std::io::stdout().is_terminal() {
            return write_stdout(&escape_text(&String::from_utf8_lossy(bytes)));
        }
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(bytes);
        let _ = out.flush();
    }

    /// Writes a value in the chosen format; `table` formats it for people. In JSON Lines a list has a
    /// line per item.
    pub(crate) fn value<T: Serialize>(&self, value: &T, table: impl FnOnce(&T) -> String) {
        let document = || serde_json::to_value(value).unwrap_or_default();
        match self.format {
            Format::Table | Format::Wide => self.styled(&table(value)),
            Format::Name => match names(&document()) {
                Some(names) => names.iter().for_each(|name| self.line(name)),
                None => self.styled(&table(value)),
            },
            Format::Json => self.text(&serde_json::to_string_pretty(value).unwrap_or_default()),
            Format::Jsonl => match document() {
                Value::Array(items) => items.iter().for_each(|item| self.text(&item.to_string())),
                one => self.text(&one.to_string()),
            },
            Format::Yaml => self.text(&to_yaml(value)),
            Format::Csv => match csv::table(&document()) {
                Some(table) => self.raw(&table),
                None => self.text(&serde_json::to_string_pretty(value).unwrap_or_default()),
            },
        }
    }

    /// Writes a document in the chosen format, or in its default one for people.
    pub(crate) fn document<T: Serialize>(&self, document: &T, name: &str, usual: Format) {
        let format = match self.format {
            Format::Table | Format::Wide => usual,
            chosen => chosen,
        };
        match format {
            Format::Name => self.line(name),
            Format::Yaml => self.text(&to_yaml(document)),
            Format::Jsonl => self.text(&serde_json::to_string(document).unwrap_or_default()),
            Format::Table | Format::Wide | Format::Json | Format::Csv => {
                self.text(&serde_json::to_string_pretty(document).unwrap_or_default());
            }
        }
    }

    /// Writes one line to stderr, unless quiet. Line breaks are escaped, so that untrusted text cannot
    /// add a line.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr().lock(), "{}", escape_line(&self.signs(text)));
        }
    }

    /// Writes several lines to stderr, unless quiet.
    pub(crate) fn note_block(&self, text: &str) {
        if !self.quiet {
            self.error_block(text);
        }
    }

    /// Writes one line to stderr. Line breaks are escaped.
    pub(crate) fn error_line(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{}", escaped_line(&self.signs(text), self.color_err));
    }

    /// Writes several lines to stderr.
    pub(crate) fn error_block(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{}", escaped(&self.signs(text), self.color_err));
    }

    /// Prints why a command failed: as text, or as one JSON object with `-o json`.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.is_machine() {
            self.error_line(&document(failure).to_string());
            return;
        }
        if let Some(diagnostics) = &failure.diagnostics {
            self.error_block(sinew_source::render_text(diagnostics, self.color_err).trim_end());
        }
        let (red, off) = if self.color_err { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
        let message = indented(&failure.message);
        self.error_block(&format!("{red}error{off}: {message} [{}]", failure.code));
        if let Some(hint) = &failure.hint {
            self.error_block(&format!("hint: {}", indented(hint)));
        }
    }

    /// Returns whether the output format is machine-readable.
    pub(crate) fn is_machine(&self) -> bool {
        matches!(self.format, Format::Json | Format::Jsonl | Format::Yaml | Format::Csv)
    }
}

/// Returns text with the signs of views in ASCII. Other characters are data and stay.
fn ascii_signs(text: &str) -> Cow<'_, str> {
    const SIGNS: [(char, &str); 6] =
        [('…', "..."), ('×', "x"), ('→', "->"), ('≠', "!"), ('–', "-"), ('·', ".")];
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match SIGNS.iter().find(|(sign, _)| *sign == c) {
            Some((_, ascii)) => shown.push_str(ascii),
            None => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

fn write_stdout(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = out.write_all(b"\n");
    }
    let _ = out.flush();
}

/// Escapes text for a terminal. With `color`, the styles of views are kept.
pub(crate) fn escaped(text: &str, color: bool) -> Cow<'_, str> {
    escape(text, EscapePolicy { keep_line_breaks: true, keep_styles: color })
}

/// Escapes one line for a terminal. With `color`, the styles of views are kept.
pub(crate) fn escaped_line(text: &str, color: bool) -> Cow<'_, str> {
    escape(text, EscapePolicy { keep_line_breaks: false, keep_styles: color })
}

/// Returns a failure as JSON.
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

/// Returns the names by which other commands accept a document, or each of a list; `None` if it has none.
fn names(value: &Value) -> Option<Vec<&str>> {
    fn name(one: &Value) -> Option<&str> {
        NAMED_BY.iter().find_map(|key| one.get(key)?.as_str())
    }
    match value {
        Value::Array(items) => items.iter().map(name).collect(),
        one => Some(vec![name(one)?]),
    }
}

/// Returns a value as YAML.
pub(crate) fn to_yaml<T: Serialize>(value: &T) -> String {
    let json = || serde_json::to_string_pretty(value).unwrap_or_default();
    // JSON is YAML, so the fallback loses nothing. Escapes need its quotes: a plain scalar would use
    // them literally.
    match serde_saphyr::to_string(value) {
        Ok(yaml) if matches!(escape_text(&yaml), Cow::Borrowed(_)) => yaml,
        _ => json().chars().fold(String::new(), |mut out, c| {
            // A YAML escape names the character itself, where JSON has a pair of surrogates.
            if c > '\u{ffff}' && has_hidden_characters(c.encode_utf8(&mut [0; 4])) {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            } else {
                out.push(c);
            }
            out
        }),
    }
}

#[cfg(test)]
mod tests;
