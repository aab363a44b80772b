//! `sinew mesh quarantine`: messages that their receivers could not read or use.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sinew_documents::words;
use sinew_mesh::MeshError;
use sinew_operations::failure::Failure;
use sinew_operations::quarantine::{message_headers, message_name, message_row};
use sinew_runtime::local;

use crate::cmd::execution::command::confirm;
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

/// Bytes of a body that are shown to people.
const SHOWN: usize = 4_000;

/// Commands for the quarantine.
#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    #[command(about = "List quarantined messages")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    #[command(about = "Show a quarantined message")]
    Show(OneArgs),
    #[command(about = "Republish a message to its original subject after fixing the cause")]
    Replay(ReplayArgs),
    #[command(about = "Remove messages from the quarantine")]
    #[command(visible_alias = "rm")]
    Remove(RemoveArgs),
}

/// Arguments of `sinew mesh quarantine list`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew mesh quarantine list\n  sinew mesh quarantine list --limit 10 -o json"
)]
pub(crate) struct ListArgs {
    /// Show only the newest N messages
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    mesh: Connection,
}

/// One message.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sinew mesh quarantine show RESULTS.118")]
pub(crate) struct OneArgs {
    /// Stream and sequence number, as in the list
    #[arg(value_name = "STREAM.SEQ")]
    place: String,
    #[command(flatten)]
    mesh: Connection,
}

/// A message to republish.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew mesh quarantine replay RESULTS.118 --dry-run\n  sinew mesh quarantine replay RESULTS.118"
)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Show what would be published, without publishing it
    #[arg(long)]
    dry_run: bool,
}

/// Messages to remove.
#[derive(Args, Debug)]
#[command(
    long_about = "Remove messages from the quarantine. They are the only record of what was wrong: show or \
                  replay them first.",
    after_help = "Examples:\n  sinew mesh quarantine remove RESULTS.118 --dry-run\n  sinew mesh quarantine remove RESULTS.118 COMMANDS.7 --yes"
)]
pub(crate) struct RemoveArgs {
    /// Streams and sequence numbers, as in the list
    #[arg(value_name = "STREAM.SEQ", required = true)]
    places: Vec<String>,
    /// Show what would be removed, without removing it
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Runs the command.
pub(super) async fn quarantine(command: QuarantineCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        QuarantineCommand::List(args) => list(&args, output).await,
        QuarantineCommand::Show(args) => show(&args, output).await,
        QuarantineCommand::Replay(args) => replay(&args, output).await,
        QuarantineCommand::Remove(args) => remove(&args, output).await,
    }
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.mesh.open("cli").await?;
    let found = mesh.quarantine().list(args.limit).await?;
    let rows: Vec<_> = found.iter().map(message_row).collect();
    let now = local::now();
    output.value(&rows, |_| {
        if found.is_empty() {
            return "no quarantined messages".to_owned();
        }
        let mut lines = vec![["MESSAGE", "QUARANTINED", "SUBJECT", "REASON"].map(str::to_owned).to_vec()];
        lines.extend(found.iter().map(|one| {
            let reason = words::one_line(&one.reason, 100);
            vec![message_name(one), words::ago(one.aside, now), words::one_line(&one.subject, 60), reason]
        }));
        words::columns(&lines)
    });
    Ok(Exit::Ok)
}

async fn show(args: &OneArgs, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.mesh.open("cli").await?;
    let (stream, seq) = place(&args.place)?;
    let one = mesh.quarantine().get(&stream, seq).await?;
    let body = String::from_utf8_lossy(&one.body).into_owned();
    let mut document = json!(message_row(&one));
    document["headers"] = message_headers(&one);
    document["body"] = serde_json::from_slice(&one.body).unwrap_or_else(|_| Value::String(body.clone()));
    document["whole"] = json!(one.whole);
    output.value(&document, |_| {
        let body: String = sinew_source::indented(&body).chars().take(SHOWN).collect();
        let cut = if one.whole { "" } else { "\n(truncated; the message was too large)" };
        format!(
            "{}\nreason   {}\nsubject  {}\nheaders  {}\n\n{body}{cut}",
            message_name(&one),
            words::name(&one.reason),
            words::name(&one.subject),
            message_headers(&one)
        )
    });
    Ok(Exit::Ok)
}

async fn replay(args: &ReplayArgs, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.one.mesh.open("cli").await?;
    let (stream, seq) = place(&args.one.place)?;
    let one = mesh.quarantine().get(&stream, seq).await?;
    let subject = words::one_line(&one.subject, 200);
    if args.dry_run {
        output.value(&json!({ "would_send": subject, "bytes": one.body.len() }), |_| {
            format!("would send {} to {subject}", words::count(one.body.len(), "byte"))
        });
        return Ok(Exit::Ok);
    }
    let put = mesh.quarantine().replay(&stream, seq).await?;
    let word = match put {
        sinew_mesh::PutOutcome::New => "sent",
        sinew_mesh::PutOutcome::Same => "already stored",
        sinew_mesh::PutOutcome::Taken => "another message has its place",
    };
    output.value(&json!({ "subject": subject, "result": word }), |_| format!("{word}: {subject}"));
    Ok(if put == sinew_mesh::PutOutcome::Taken { Exit::Conflict } else { Exit::Ok })
}

async fn remove(args: &RemoveArgs, output: &Output) -> Result<Exit, Failure> {
    let places: Vec<_> = args.places.iter().map(|text| place(text)).collect::<Result<_, _>>()?;
    let mesh = args.mesh.open("cli").await?;
    // All messages must exist before any is removed.
    let mut found = Vec::new();
    for (stream, seq) in places {
        let one = mesh.quarantine().get(&stream, seq).await?;
        if !found.contains(&one) {
            found.push(one);
        }
    }
    let names: Vec<String> = found.iter().map(message_name).collect();
    if args.dry_run {
        output.value(&json!({ "would_remove": names }), |_| format!("would remove {}", names.join(", ")));
        return Ok(Exit::Ok);
    }
    if !args.yes {
        let count = words::count(found.len(), "quarantined message");
        confirm(&format!("remove {count}: {}", names.join(", ")))?;
    }
    for one in &found {
        match mesh.quarantine().remove(&one.stream, one.seq).await {
            // Another operator removed it first.
            Ok(()) | Err(MeshError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    output.value(&json!({ "removed": names }), |_| format!("removed {}", names.join(", ")));
    Ok(Exit::Ok)
}

/// Parses the stream and the sequence number of a message.
fn place(text: &str) -> Result<(String, u64), Failure> {
    let parts = text.rsplit_once('.').map(|(stream, seq)| (stream, seq.parse::<u64>()));
    match parts {
        Some((stream, Ok(seq))) if !stream.is_empty() => Ok((stream.to_owned(), seq)),
        _ => {
            let shown = words::one_line(text, 60);
            Err(Failure::usage(format!("'{shown}' is not of the form STREAM.SEQ"))
                .hint("see `sinew mesh quarantine list`"))
        }
    }
}
