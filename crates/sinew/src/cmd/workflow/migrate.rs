//! `sinew workflow migrate`: migrates older output shapes to the standard message.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use sinew_dialects::agentteam::{self, MigrationNote};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Diagnostics, Document};

use crate::exit::Exit;
use crate::output::{Format, Output};

/// The dialect that has older shapes.
const DIALECT: &str = "agentteam";

const EXAMPLES: &str = "Examples:
  sinew workflow migrate team.json --check              # what would change, and what remains to do by hand
  sinew workflow migrate team.json -O team.json         # in place
  sinew workflow migrate team.json | diff team.json -
  sinew workflow migrate team.json -o json | jq .remaining";

/// Arguments of `sinew workflow migrate`.
#[derive(Args, Debug)]
#[command(
    long_about = "Rewrite an Agent Team workflow from the output shapes of older nodes to the standard \
                  message {content, metadata, format_type, source_node, timestamp}.\n\n\
                  Only safe changes are made: templates, conditions and conversion functions that read an \
                  agent's text by an older name (response, output) are rewritten. A file that reads nothing \
                  else of older shapes gets `message_format: standard` in its metadata: all that leaves a \
                  node at `result`, and the result of the workflow, is then such a message. The remaining \
                  places are reported on stderr. All other text of the file is unchanged.",
    after_help = EXAMPLES
)]
pub(crate) struct MigrateArgs {
    /// The file, or - for stdin
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Write the new text to this file instead of stdout
    #[arg(short = 'O', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write nothing; fail if something would be rewritten or remains to do
    #[arg(long, conflicts_with = "out")]
    check: bool,
    /// Dialect of the file [default: detected from its content]
    #[arg(long)]
    dialect: Option<String>,
}

/// Runs the command.
pub(super) fn migrate(args: &MigrateArgs, output: &Output) -> Result<Exit, Failure> {
    let document = workflow_file::document(&args.file, &workflow_file::read(&args.file)?)
        .map_err(Failure::diagnostics)?;
    let dialect = workflow_file::dialect_of(&document, args.dialect.as_deref())?.name();
    if dialect != DIALECT {
        let text =
            format!("{} is in the dialect {dialect}, which has no older output shapes", args.file.display());
        return Err(Failure::new(FailureKind::Failed, code::MIGRATION_FAILED.as_str(), text));
    }
    let folder = workflow_file::folder_of(&args.file);
    let migration = agentteam::migrate(&document, &|wanted| {
        workflow_file::read_beside(&folder, std::path::Path::new(wanted))
    });
    if let Some(out) = &args.out {
        std::fs::write(out, &migration.text).map_err(|error| {
            Failure::new(
                FailureKind::Failed,
                code::FILE_CANNOT_BE_WRITTEN.as_str(),
                format!("cannot write {}: {error}", out.display()),
            )
        })?;
    }
    let text = (!args.check && args.out.is_none()).then_some(migration.text.as_str());
    if output.is_machine() {
        let report = json!({
            "changes": notes(&migration.changes, &document),
            "remaining": notes(&migration.rest, &document),
            "standard": migration.standard,
            "text": text,
        });
        output.document(&report, "", Format::Json);
    } else {
        if let Some(text) = text {
            output.raw(text);
        }
        say(&migration, &document, args.check, output);
    }
    let clean = migration.changes.is_empty() && migration.rest.is_empty();
    Ok(if args.check && !clean { Exit::Failed } else { Exit::Ok })
}

/// Reports the changes and the remaining work, for people.
fn say(migration: &agentteam::Migration, document: &Document, check: bool, output: &Output) {
    let done = if check { "to rewrite" } else { "rewritten" };
    for (name, line, what) in migration.changes.iter().map(|note| place(note, document)) {
        output.note(&format!("{name}:{line}: {done}: {what}"));
    }
    if !migration.rest.is_empty() && !output.quiet {
        let mut left = Diagnostics::new(document.sources.clone());
        for note in &migration.rest {
            left.push(Diagnostic::warning(code::MIGRATION_FAILED.as_str(), note.what.clone()).at(note.span));
        }
        output.note_block(sinew_source::render_text(&left, output.color_err).trim_end());
    }
    let format = match (migration.standard, check) {
        (true, true) => "the file would use the standard message",
        (true, false) => "the file uses the standard message",
        (false, true) => "the file would not use the standard message yet",
        (false, false) => "the file does not use the standard message yet",
    };
    output.note(&format!("{} {done}, {} remaining; {format}", migration.changes.len(), migration.rest.len()));
}

fn place<'n>(note: &'n MigrationNote, document: &'n Document) -> (&'n str, u32, &'n str) {
    let name = document.sources.get(note.span.file).map_or("", |file| file.name.as_str());
    (name, note.span.line, &note.what)
}

fn notes(notes: &[MigrationNote], document: &Document) -> Vec<Value> {
    let row = |note: &MigrationNote| {
        let (file, line, what) = place(note, document);
        json!({ "file": file, "line": line, "column": note.span.column, "what": what })
    };
    notes.iter().map(row).collect()
}
