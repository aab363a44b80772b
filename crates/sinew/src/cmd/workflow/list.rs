//! `sinew workflow list`: workflows in files or on a mesh.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use sinew_documents::words;
use sinew_operations::catalogue_records::CatalogueRecords;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file::Options;
use sinew_operations::workflow_search::find_workflows;
use sinew_operations::workflow_search::nothing_found;
use sinew_runtime::local;

use crate::connect::{Connection, block};
use crate::entry_filter_args::ListFilterArgs;
use crate::exit::Exit;
use crate::output::{Format, Output};
use crate::variable_args::VariableArgs;

const EXAMPLES: &str = "Examples:
  sinew workflow list
  sinew workflow list flows examples -o wide
  sinew workflow list -o name | xargs -n1 echo
  sinew workflow list --mesh                    # workflows deployed on a mesh
  sinew workflow list --mesh --tag orders --stage stable";

/// Arguments of `sinew workflow list`.
#[derive(Args, Debug)]
#[command(
    long_about = "List the workflows in files and folders, with their dialect and version.\n\n\
                  The digest identifies a workflow's exact content: an execution keeps the digest it was \
                  started with.",
    after_help = EXAMPLES
)]
pub(crate) struct ListArgs {
    /// Files and folders
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    filter: ListFilterArgs,
    #[command(flatten)]
    on: Connection,
}

/// A line of the list.
#[derive(Serialize)]
struct ListedWorkflow {
    name: String,
    dialect: &'static str,
    nodes: usize,
    description: String,
    version: Option<String>,
    digest: String,
    file: PathBuf,
}

/// Runs the command.
pub(super) fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    if args.on.is_meant(!args.paths.is_empty()) {
        if !args.paths.is_empty() {
            return Err(Failure::usage("PATH is not supported for workflows on a mesh"));
        }
        return block(deployed(args, output));
    }
    if args.filter.is_set() {
        return Err(Failure::usage("filters are supported for workflows on a mesh only").hint("add --mesh"));
    }
    let here = [PathBuf::from(".")];
    let paths = if args.paths.is_empty() { &here[..] } else { &args.paths };
    let mut rows = Vec::new();
    let options = Options { variables: args.variables.rules()?, ..Options::default() };
    for file in find_workflows(paths, &options)? {
        let Some(loaded) = file.loaded else {
            let path = file.path.display();
            output.note(&format!(
                "warning: {path} cannot be read: {} (see `sinew workflow validate {path}`)",
                sinew_source::summary(file.diagnostics.errors(), file.diagnostics.warnings(), 1)
            ));
            continue;
        };
        for lowered in loaded.workflows {
            rows.push(ListedWorkflow {
                digest: sinew_plan::digest(&lowered.plan),
                nodes: lowered.plan.nodes.len(),
                name: lowered.plan.name,
                dialect: loaded.dialect.name(),
                description: lowered.plan.description,
                version: lowered.plan.version,
                file: file.path.clone(),
            });
        }
    }
    if rows.is_empty() {
        return Err(nothing_found(FailureKind::NotFound, paths));
    }
    output.value(&rows, |rows| table(rows, output.format));
    Ok(Exit::Ok)
}

/// Lists deployed workflows.
async fn deployed(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let remote = args.on.operator().await?;
    let mut all = remote.workflows().await?.list();
    let mut rows = remote.list_workflows().await?;
    if args.filter.is_set() {
        let records = CatalogueRecords::open(remote.mesh()).await.set();
        let selected = remote.select_workflows((&records, &args.filter.query()), |_| true).await?;
        all.retain(|one| selected.contains(&one.deployment.name));
        rows.retain(|row| selected.contains(&row.name));
    }
    let now = local::now();
    output.value(&rows, |_| {
        if all.is_empty() {
            let empty = if args.filter.is_set() { "passes the filters" } else { "is deployed" };
            return format!("no workflow {empty}");
        }
        let heads = ["NAME", "DIALECT", "DIGEST", "DEPLOYED", "BY", "DESCRIPTION"];
        let mut lines = vec![heads.map(str::to_owned).to_vec()];
        lines.extend(all.iter().map(|one| {
            let one = &one.deployment;
            vec![
                words::one_line(&one.name, 60),
                one.dialect.clone(),
                short(&one.digest).to_owned(),
                words::ago(one.at, now),
                words::one_line(&one.by, 30),
                words::one_line(&one.description, 60),
            ]
        }));
        words::columns(&lines)
    });
    for row in &rows {
        for warning in &row.warnings {
            output.note(&format!("warning: {}: {warning}", words::name(&row.name)));
        }
    }
    Ok(Exit::Ok)
}

fn table(rows: &[ListedWorkflow], format: Format) -> String {
    let mut lines = vec![["NAME", "DIALECT", "NODES", "DIGEST", "FILE", "DESCRIPTION"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let first = row.description.lines().next().unwrap_or_default();
        [
            row.name.clone(),
            row.dialect.to_owned(),
            row.nodes.to_string(),
            short(&row.digest).to_owned(),
            row.file.display().to_string(),
            words::one_line(first, if format == Format::Wide { usize::MAX } else { 60 }),
        ]
    }));
    words::columns(&lines)
}

/// The part of a digest that people compare.
pub(super) fn short(digest: &str) -> &str {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    hex.get(..12).unwrap_or(hex)
}
