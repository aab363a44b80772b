//! `sinew audit`: who changed what on a mesh, why, and from where.

use clap::Args;
use sinew_documents::audit::{AuditEntry, AuditReport};
use sinew_documents::words;
use sinew_operations::audit::AuditFilter;
use sinew_operations::failure::Failure;
use sinew_operations::quantity::parse_duration;
use sinew_runtime::local;

use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::{Format, Output};

/// Arguments of `sinew audit`.
#[derive(Args, Debug)]
#[command(
    long_about = "List the changes of a mesh, newest first: commands to executions, decisions, deployments and deletions of \
                  workflows, keys and webhook triggers. Each entry states who made the change, why, from where and with which \
                  key. Names that no credentials prove are marked as unproven.",
    after_help = "Examples:\n  sinew audit\n  sinew audit --since 30d --who margaret\n  sinew audit --what reject -o jsonl > audit.jsonl"
)]
pub(crate) struct AuditArgs {
    /// Only changes within this time
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    since: String,
    /// Only changes of this caller
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Only this kind of change (`cancel`, `approve`, `deploy`, `key`), or changes of this execution, workflow or key owner
    #[arg(long, value_name = "TEXT")]
    what: Option<String>,
    /// List at most N changes
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    mesh: Connection,
}

/// Runs the command.
pub(crate) fn audit(args: &AuditArgs, output: &Output) -> Result<Exit, Failure> {
    block(async {
        let filter = AuditFilter {
            since: local::now().saturating_sub(parse_duration(&args.since)?),
            who: args.who.clone(),
            what: args.what.clone(),
            limit: args.limit,
        };
        let report = args.mesh.operator().await?.audit(&filter).await?;
        match output.format {
            // A line for each change.
            Format::Jsonl => output.value(&report.rows, |_| String::new()),
            _ => output.value(&report, table),
        }
        if !report.is_whole {
            output.note("older changes are not listed; see --limit and --since");
        }
        if !report.unread.is_empty() {
            output.note(&format!("this user may not read: {}", report.unread.join(", ")));
        }
        Ok(Exit::Ok)
    })
}

fn table(report: &AuditReport) -> String {
    if report.rows.is_empty() {
        return "no changes".to_owned();
    }
    let heads = ["AT", "WHO", "WHAT", "TARGET", "DETAIL", "VIA", "KEY", "WHY"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    lines.extend(report.rows.iter().map(line));
    words::columns(&lines)
}

fn line(entry: &AuditEntry) -> Vec<String> {
    let shown = |text: &str, limit: usize| {
        if text.is_empty() { "-".to_owned() } else { words::one_line(text, limit) }
    };
    let mark = if entry.unproven { " (unproven)" } else { "" };
    vec![
        entry.at.to_string(),
        format!("{}{mark}", words::one_line(&entry.who, 40)),
        shown(&entry.what, 20),
        shown(words::short_id(&entry.target), 40),
        shown(&entry.detail, 30),
        shown(&entry.via, 10),
        shown(&entry.key, 12),
        shown(&entry.why, 80),
    ]
}
