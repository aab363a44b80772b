//! Commands to open executions: their targets, the confirmation for several executions, and the results.

use std::io::{BufRead as _, IsTerminal as _};

use clap::Args;
use serde_json::{Value, json};
use sinew_documents::bulk::{BulkResult, BulkVerb};
use sinew_documents::words;
use sinew_inspection::execution_status::status_of;
use sinew_operations::bulk::BulkOrder;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::mesh_operator::MeshOperator;
use sinew_operations::steering::Steering;
use sinew_protocol::ExecutionId;
use sinew_protocol::code;

use super::NEEDS_MESH;
use super::list::parse_filter;
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::{Format, Output};

/// All executions that match a filter.
#[derive(Args, Clone, Debug)]
pub(super) struct BulkArgs {
    /// All executions that match these terms, as in `sinew execution find`
    #[arg(long = "where", value_name = "FILTER", conflicts_with = "ids")]
    pub(super) filter: Option<String>,
}

/// Executions to change.
#[derive(Args, Debug)]
pub(super) struct TargetArgs {
    /// Ids, id prefixes, or @latest
    #[arg(value_name = "ID|@latest", required_unless_present = "filter")]
    ids: Vec<String>,
    #[command(flatten)]
    bulk: BulkArgs,
    /// List the executions that would change, without changing them
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation for several executions
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Sends one command to each execution that was named.
pub(super) async fn send_commands(
    targets: &TargetArgs,
    steering: &Steering,
    output: &Output,
) -> Result<Exit, Failure> {
    if let Some(file) = targets.ids.iter().find(|id| id.contains(['.', '/'])) {
        return Err(Failure::new(
            FailureKind::Usage,
            NEEDS_MESH,
            format!("{file} is a file; this command needs an execution on a mesh"),
        ));
    }
    let remote = targets.mesh.operator().await?;
    if let Some(filter) = &targets.bulk.filter {
        let order = BulkOrder::new(steering.bulk_verb(), steering.reason().to_owned());
        return send_bulk(&remote, filter, &order, (targets.dry_run, targets.yes), output).await;
    }
    let mut found: Vec<ExecutionId> = Vec::new();
    for text in &targets.ids {
        let id = remote.find(text).await?;
        if !found.contains(&id) {
            found.push(id);
        }
    }
    let names: Vec<&str> = found.iter().map(ExecutionId::as_str).collect();
    if targets.dry_run {
        return report_dry_run(&remote, &found, steering, output).await;
    }
    if found.len() > 1 && !targets.yes {
        confirm(&format!("{} {} executions: {}", steering.verb(), found.len(), names.join(", ")))?;
    }
    let alone = found.len() == 1;
    let mut results: Vec<Value> = Vec::new();
    let mut worst = None;
    for id in found {
        let execution = id.to_string();
        match remote.steer(id, steering).await {
            Ok(steered) => results.push(json!(steered)),
            Err(failure) => {
                results
                    .push(json!({ "execution": execution, "error": failure.message, "code": failure.code }));
                // The last failure is printed at the end; machine-readable output has all of them.
                if !alone && !output.is_machine() {
                    output.note(&format!("{execution}: {} [{}]", failure.message, failure.code));
                }
                worst = Some(failure);
            }
        }
    }
    let done: Vec<&Value> = results.iter().filter(|result| result["error"].is_null()).collect();
    let word = |result: &&Value, key: &str| result[key].as_str().unwrap_or_default().to_owned();
    if output.is_machine() {
        output.value(&results, |_| String::new());
    } else {
        for one in &done {
            output.value(one, |one| {
                format!("{} {}", words::short_id(&word(one, "execution")), word(one, "status"))
            });
        }
    }
    worst.map_or(Ok(Exit::Ok), Err)
}

/// Sends one command to every execution that matches a filter, after a confirmation.
pub(super) async fn send_bulk(
    remote: &MeshOperator,
    filter: &str,
    order: &BulkOrder,
    (dry_run, yes): (bool, bool),
    output: &Output,
) -> Result<Exit, Failure> {
    let preview = remote.plan_bulk(&parse_filter(filter)?, order).await?;
    if dry_run {
        match output.format {
            Format::Name => preview.executions.iter().for_each(|id| output.line(id)),
            _ => output.value(&preview, |preview| format!("would {}", preview.text())),
        }
        return Ok(Exit::Ok);
    }
    if preview.count == 0 {
        output.note("no executions match");
    } else if !yes {
        output.note_block(&preview.text());
        confirm(&format!("{} {}", order.verb.as_str(), words::count(preview.count, "execution")))?;
    }
    let ids = preview.executions.iter().filter_map(|id| ExecutionId::parse(id).ok()).collect();
    let (mut done, mut rejected) = (0, 0);
    let outcomes = remote.send_bulk(order, ids, |outcome| {
        done += 1;
        rejected += usize::from(!outcome.accepted);
        if let Some(error) = &outcome.error {
            output.note(&format!("{}: rejected: {error}", words::short_id(&outcome.execution)));
        }
        if done % PROGRESS_STEP == 0 {
            output.note(&format!(
                "{done} of {}: {} accepted, {rejected} rejected",
                preview.count,
                done - rejected
            ));
        }
    });
    let result = BulkResult::of(order.id.clone(), outcomes.await);
    output.value(&result, BulkResult::line);
    if order.verb == BulkVerb::Retry && result.accepted > 0 {
        output.note(
            "accepted retries are running; `sinew execution list --status failed` shows which fail again",
        );
    }
    Ok(if result.rejected > 0 { Exit::Conflict } else { Exit::Ok })
}

/// Number of commands of a bulk operation after which progress is reported.
const PROGRESS_STEP: usize = 100;

/// Reports what the command would do to executions, as far as is known before their owner decides.
async fn report_dry_run(
    remote: &MeshOperator,
    ids: &[ExecutionId],
    steering: &Steering,
    output: &Output,
) -> Result<Exit, Failure> {
    let verb = steering.verb();
    let mut rows: Vec<Value> = Vec::new();
    for id in ids {
        let status = status_of(remote.record(id).await?.execution.state());
        let fits = steering.applies_to(status);
        let word = words::status_word(status);
        rows.push(json!({ "execution": id.as_str(), "status": word, "would": fits.then_some(verb) }));
    }
    output.value(&rows, |rows| {
        let line = |row: &Value| {
            let word = if row["would"].is_null() { "cannot" } else { "would" };
            let said = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            format!("{word} {verb} {} ({})", words::short_id(&said("execution")), said("status"))
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(if rows.iter().any(|row| row["would"].is_null()) { Exit::Conflict } else { Exit::Ok })
}

/// Asks for confirmation on a terminal; fails elsewhere.
pub(crate) fn confirm(what: &str) -> Result<(), Failure> {
    let refused = || {
        Failure::new(FailureKind::Usage, code::NOT_CONFIRMED.as_str(), format!("not confirmed: {what}"))
            .hint("confirm with --yes")
    };
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(refused());
    }
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("{}. Continue? [y/N] ", words::name(what)).as_bytes(),
    );
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match line.trim() {
        "y" | "Y" | "yes" if read.is_ok() => Ok(()),
        _ => Err(refused()),
    }
}
