//! `sinew explain`: the page of an error code.

use clap::Args;
use serde::Serialize;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew explain SINEW-1003
  sinew explain 1003
  sinew explain --list
  sinew explain --list -o json | jq -r '.[].code'

The first digit is the area of a code:
  1 files   2 workflows   3 expressions and scripts   4 schemas and data   5 agents and artifacts
  6 executions   7 mesh   8 command line   9 gateway and bridge";

/// Arguments of `sinew explain`.
#[derive(Args, Debug)]
#[command(
    long_about = "Explain an error code: its meaning, its causes, and what to do.",
    after_help = EXAMPLES
)]
pub(crate) struct ExplainArgs {
    /// The code, with or without SINEW-
    #[arg(required_unless_present = "list")]
    code: Option<String>,
    /// List all codes with their titles
    #[arg(long, conflicts_with = "code")]
    list: bool,
}

/// A code and its page.
#[derive(Serialize)]
struct CodeEntry {
    code: &'static str,
    title: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<&'static str>,
}

/// Runs the command.
pub(crate) fn explain(args: &ExplainArgs, output: &Output) -> Result<Exit, Failure> {
    if let Some(wanted) = &args.code {
        return one(wanted, output);
    }
    list(output);
    Ok(Exit::Ok)
}

fn list(output: &Output) {
    let entry = |(code, _): &(&'static str, &'static str)| CodeEntry {
        code,
        title: code::title(code).unwrap_or_default(),
        page: None,
    };
    let pages: Vec<CodeEntry> = code::all().iter().map(entry).collect();
    output.value(&pages, |pages| {
        let line = |page: &CodeEntry| format!("{}  {}", page.code, page.title);
        pages.iter().map(line).collect::<Vec<_>>().join("\n")
    });
}

fn one(wanted: &str, output: &Output) -> Result<Exit, Failure> {
    let full = full(wanted);
    let Some((code, page)) = code::all().iter().find(|(code, _)| *code == full).copied() else {
        let failure = Failure::new(
            FailureKind::NotFound,
            code::NO_SUCH_CODE.as_str(),
            format!("there is no code '{}'", wanted.escape_debug()),
        );
        return Err(match sinew_source::did_you_mean(&full, code::all().iter().map(|(code, _)| *code)) {
            Some(near) if full.len() == near.len() => failure.hint(format!("did you mean {near}?")),
            _ => failure.hint("see `sinew explain --list`"),
        });
    };
    let page = CodeEntry { code, title: code::title(code).unwrap_or_default(), page: Some(page) };
    output.value(&page, |page| text(page, output.color));
    Ok(Exit::Ok)
}

/// `1003`, `sinew-1003` and `Sinew1003` as `SINEW-1003`.
fn full(wanted: &str) -> String {
    let upper = wanted.trim().to_ascii_uppercase();
    let number = upper.strip_prefix("SINEW").unwrap_or(&upper).trim_start_matches(['-', '_', ' ']);
    format!("{}{number}", code::PREFIX)
}

fn text(page: &CodeEntry, color: bool) -> String {
    let body = page.page.unwrap_or_default();
    let body = body.split_once('\n').map_or("", |(_, body)| body).trim();
    let (bold, off) = if color { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
    format!("{bold}{}: {}{off}\n\n{body}", page.code, page.title)
}
