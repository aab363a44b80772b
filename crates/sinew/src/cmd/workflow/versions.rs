//! `sinew workflow versions | diff | delete`: workflows that are deployed on a mesh.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use sinew_documents::comparison::{PatchKind, PatchOperation};
use sinew_documents::words;
use sinew_inspection::diff;
use sinew_operations::deployed_workflows::version_rows;
use sinew_operations::deployment::{find_deployed, is_workflow_name, load_deployed};
use sinew_operations::failure::Failure;
use sinew_operations::workflow_file::{self, Options};
use sinew_runtime::local;

use super::list::short;
use crate::cmd::execution::command::confirm;
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `sinew workflow versions`.
#[derive(Args, Debug)]
#[command(
    long_about = "List the versions of a deployed workflow, newest first. New executions run the newest; an \
                  execution keeps the version it started with.",
    after_help = "Examples:\n  sinew workflow versions orders\n  sinew workflow describe orders@3f2a91"
)]
pub(crate) struct VersionsArgs {
    /// The name of the workflow
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    mesh: Connection,
}

/// Lists versions.
pub(super) fn versions(args: &VersionsArgs, output: &Output) -> Result<Exit, Failure> {
    block(async {
        let remote = args.mesh.operator().await?;
        find_deployed(&remote, &args.name, None).await?;
        let workflows = remote.workflows().await?;
        let rows = version_rows(&workflows, &args.name);
        let now = local::now();
        output.value(&rows, |rows| {
            let heads = ["VERSION", "AUTHOR'S", "CURRENT", "DEPLOYED", "BY", "DIALECT"];
            let mut lines = vec![heads.map(str::to_owned).to_vec()];
            lines.extend(rows.iter().map(|one| {
                let by = words::one_line(&one.by, 30);
                let name = words::one_line(&one.name, 60);
                vec![
                    format!("{name}@{}", short(&one.version)),
                    words::one_line(one.author_version.as_deref().unwrap_or_default(), 30),
                    if one.current { "yes" } else { "" }.to_owned(),
                    words::ago(one.deployed.ms(), now),
                    by,
                    one.dialect.clone(),
                ]
            }));
            words::columns(&lines)
        });
        Ok(Exit::Ok)
    })
}

/// Arguments of `sinew workflow diff`.
#[derive(Args, Debug)]
#[command(
    long_about = "Compare the plans of two workflows: files, deployed workflows, or versions of them. \
                  Changes are JSON Patch (RFC 6902) from the first to the second, with the previous value. \
                  Exits with 1 if they differ.",
    after_help = "Examples:\n  sinew workflow diff orders orders.yaml          # does a deployment change anything?\n  sinew workflow diff orders@3f2a orders"
)]
pub(crate) struct DiffArgs {
    /// The first workflow: a file, or NAME or NAME@VERSION of a deployed workflow
    #[arg(value_name = "FILE|NAME")]
    first: PathBuf,
    /// The second workflow
    #[arg(value_name = "FILE|NAME")]
    second: PathBuf,
    /// Workflow of a file with several [default: the first]
    #[arg(short, long, value_name = "NAME")]
    workflow: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Compares workflows.
pub(super) fn diff(args: &DiffArgs, output: &Output) -> Result<Exit, Failure> {
    let read = |argument: &PathBuf| {
        let loaded = if is_workflow_name(argument) {
            block(async { load_deployed(&args.mesh.operator().await?, argument).await })?
        } else {
            workflow_file::workflow(argument, &Options::default())?
        };
        let name = args.workflow.as_deref().filter(|_| !is_workflow_name(argument));
        Ok::<_, Failure>(loaded.pick(name)?.plan.clone())
    };
    let (first, second) = (read(&args.first)?, read(&args.second)?);
    let (before, after) = (json!(first), json!(second));
    let changes = diff::patch(&before, &after);
    let same = changes.is_empty();
    let document = json!({
        "same": same,
        "first": sinew_plan::digest(&first),
        "second": sinew_plan::digest(&second),
        "changes": changes,
    });
    output.value(&document, |_| {
        if same {
            return "the workflows are the same".to_owned();
        }
        let line = |change: &PatchOperation| {
            let text = |value: &Option<Value>| value.as_ref().map(ToString::to_string).unwrap_or_default();
            let PatchOperation { op, path, value, was } = change;
            let sign = match op {
                PatchKind::Add => format!("+ {path}  {}", text(value)),
                PatchKind::Remove => format!("- {path}  {}", text(was)),
                PatchKind::Replace => format!("~ {path}  {} -> {}", text(was), text(value)),
            };
            words::one_line(&sign, 200)
        };
        changes.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(if same { Exit::Ok } else { Exit::Failed })
}

/// Arguments of `sinew workflow delete`.
#[derive(Args, Debug)]
#[command(
    long_about = "Delete a workflow from a mesh. No new executions of it can start, and its card is removed. \
                  Open executions continue with their version, and records are kept.",
    after_help = "Examples:\n  sinew workflow delete orders --dry-run\n  sinew workflow delete orders --yes"
)]
pub(crate) struct DeleteArgs {
    /// The name of the workflow
    #[arg(value_name = "NAME")]
    name: String,
    /// Show what would be deleted, without deleting it
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Deletes a workflow.
pub(super) fn delete(args: &DeleteArgs, output: &Output) -> Result<Exit, Failure> {
    block(async {
        let remote = args.mesh.operator().await?;
        let removal = remote.preview_removal(&args.name).await?;
        let (name, version, open) = (&removal.name, &removal.version, removal.open_executions);
        let shown = format!("{}@{}", words::name(name), short(version));
        if args.dry_run {
            let document = json!({ "would_delete": name, "version": version, "open_executions": open });
            output.value(&document, |_| {
                format!("would delete {shown}; unaffected: {}", words::count(open, "open execution"))
            });
            return Ok(Exit::Ok);
        }
        if !args.yes {
            confirm(&format!("delete workflow {shown}"))?;
        }
        remote.remove_workflow(&removal).await?;
        let document =
            json!({ "name": name, "version": version, "status": "deleted", "open_executions": open });
        output.value(&document, |_| format!("deleted {shown}"));
        Ok(Exit::Ok)
    })
}
