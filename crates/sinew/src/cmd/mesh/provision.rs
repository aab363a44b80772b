//! `sinew mesh provision | check`.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use sinew_mesh::MeshError;
use sinew_mesh::problem::ServerProblem;
use sinew_mesh::provision::{Change, Difference, Provision};
use sinew_operations::failure::Failure;
use sinew_operations::quantity::{parse_byte_count, parse_duration};

use crate::cmd::serve::VocabularyArg;
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

const PROVISION_EXAMPLES: &str = "Examples:
  sinew mesh provision
  sinew mesh provision --replicas 3 --retention 30d
  sinew mesh provision --dry-run";

/// Name of the mesh's settings among the changes of provisioning.
const SETTINGS: &str = "settings";

/// Arguments of `sinew mesh provision`.
#[derive(Args, Debug)]
#[command(
    long_about = "Create the streams and buckets of a mesh, or correct those that differ. Safe to run \
                  repeatedly. Settings that are not given are unchanged; a new mesh uses their defaults.",
    after_help = PROVISION_EXAMPLES
)]
pub(crate) struct ProvisionArgs {
    /// Number of shards; cannot be changed later [default for a new mesh: 4]
    #[arg(long, value_name = "N")]
    shards: Option<NonZeroU32>,
    /// Number of servers with a copy of each stream [default for a new mesh: 1]
    #[arg(long, value_name = "N")]
    replicas: Option<usize>,
    /// Retention of closed executions (`12h`, `30d`) [default for a new mesh: 7d]
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
    /// Maximum size of a stream (`512MB`, `10GB`) [default for a new mesh: the account's limit]
    #[arg(long, value_name = "BYTES")]
    storage_limit: Option<String>,
    /// Keep events in a stream for later readers; the history of executions does not need it
    #[arg(long)]
    keep_events: bool,
    /// Vocabulary of messages to agents and callers [default for a new mesh: spec]
    #[arg(long, value_enum)]
    vocabulary: Option<VocabularyArg>,
    /// Show what differs, without changing it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Provisions a mesh.
pub(super) async fn provision(args: &ProvisionArgs, output: &Output) -> Result<Exit, Failure> {
    let options = Provision {
        shards: args.shards,
        replicas: args.replicas,
        retention: args.retention.as_deref().map(parse_duration).transpose()?.map(Duration::from_millis),
        storage_limit: args.storage_limit.as_deref().map(parse_byte_count).transpose()?,
        keep_events: args.keep_events.then_some(true),
        vocabulary: args.vocabulary.map(Into::into),
    };
    let mesh = args.mesh.open_when_reachable("provisioner").await?;
    if args.dry_run {
        let differences = match mesh.admin().check().await {
            Ok(differences) => differences,
            Err(MeshError::NotProvisioned { namespace }) => {
                output.value(&json!({ "would_make": namespace }), |_| {
                    format!("would create the mesh {namespace}")
                });
                return Ok(Exit::Ok);
            }
            Err(error) => return Err(error.into()),
        };
        say(&differences, "would correct", output);
        return Ok(Exit::Ok);
    }
    let new = matches!(mesh.admin().layout().await, Err(MeshError::NotProvisioned { .. }));
    let changes = mesh.admin().provision(&options).await?;
    // Changed settings are reported only for a new mesh.
    let made = |change: &Change| change.differed.is_empty() && (new || change.of != SETTINGS);
    let rows: Vec<Value> = changes
        .iter()
        .map(|change| {
            let differed: Vec<Value> = change.differed.iter().map(row).collect();
            json!({ "name": change.of, "made": made(change), "differed": differed })
        })
        .collect();
    output.value(&rows, |_| {
        if changes.is_empty() {
            return format!("the mesh {} is up to date", mesh.namespace());
        }
        let line = |change: &Change| {
            let fields: Vec<&str> = change.differed.iter().map(|one| one.field).collect();
            match fields.as_slice() {
                [] if made(change) => format!("created  {}", change.of),
                [] => format!("updated  {}", change.of),
                fields => format!("updated  {}: {}", change.of, fields.join(", ")),
            }
        };
        changes.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(Exit::Ok)
}

/// Arguments of `sinew mesh check`.
#[derive(Args, Debug)]
#[command(
    long_about = "Check that the server meets the requirements of the mesh: settings of streams, free \
                  storage, the limit of message sizes, streams that are not behind the positions of shards, \
                  a server that stores data. Exits with 1 on problems; almost full storage is a warning. The \
                  role provisioner is sufficient; checks of shards and executors need the permissions of an \
                  operator.",
    after_help = "Examples:\n  sinew mesh check\n  sinew mesh check -o json | jq length"
)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    mesh: Connection,
}

/// Checks a mesh.
pub(super) async fn check(args: &CheckArgs, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.mesh.open("check").await?;
    let differences = mesh.admin().check().await?;
    let problems = mesh.admin().find_problems().await;
    let mut rows: Vec<Value> = differences.iter().map(row).collect();
    rows.extend(problems.iter().map(ServerProblem::to_json));
    output.value(&rows, |_| {
        let mut lines: Vec<String> = differences.iter().map(|one| format!("differs  {one}")).collect();
        lines.extend(problems.iter().map(|problem| {
            let word = if problem.severe { "problem" } else { "warning" };
            format!("{word}  {} [{}]\n  hint: {}", problem.message, problem.code, problem.hint)
        }));
        if lines.is_empty() { "all checks passed".to_owned() } else { lines.join("\n") }
    });
    if !differences.is_empty() {
        output.note("hint: `sinew mesh provision` corrects the differences");
    }
    let wrong = !differences.is_empty() || problems.iter().any(|problem| problem.severe);
    Ok(if wrong { Exit::Failed } else { Exit::Ok })
}

fn say(differences: &[Difference], word: &str, output: &Output) {
    let rows: Vec<Value> = differences.iter().map(row).collect();
    output.value(&rows, |_| {
        if differences.is_empty() {
            return "no differences".to_owned();
        }
        differences.iter().map(|one| format!("{word}  {one}")).collect::<Vec<_>>().join("\n")
    });
}

fn row(difference: &Difference) -> Value {
    let Difference { stream, field, expected, found } = difference;
    json!({ "stream": stream, "field": field, "expected": expected, "found": found })
}
