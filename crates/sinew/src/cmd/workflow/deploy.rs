//! `sinew workflow deploy`: deploys workflows from files to a mesh.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use sinew_documents::words;
use sinew_documents::workflow::Deployed;
use sinew_operations::deployment;
use sinew_operations::failure::Failure;
use sinew_operations::workflow_file::Options;

use super::list;
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;
use crate::variable_args::VariableArgs;

const EXAMPLES: &str = "Examples:
  sinew workflow deploy flows/audit.yaml
  sinew workflow deploy flows --dry-run
  sinew workflow deploy flows -o name";

/// Arguments of `sinew workflow deploy`.
#[derive(Args, Debug)]
#[command(
    long_about = "Deploy workflows. New executions run the newest version of a workflow, and other workflows \
                  and agents call it.\n\n\
                  Open executions keep the version they started with. A version that is already deployed is \
                  unchanged. If any file has errors, nothing is deployed.",
    after_help = EXAMPLES
)]
pub(crate) struct DeployArgs {
    /// Files and folders
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Dialect of the files [default: detected from their content]
    #[arg(long)]
    dialect: Option<String>,
    /// Agent for work that the file assigns to none
    #[arg(long, value_name = "KIND=AGENT")]
    default_agent: Vec<String>,
    /// Maximum cost of model calls per execution, in USD; an execution that exceeds it fails
    #[arg(long, value_name = "USD", value_parser = crate::input::price)]
    cost_usd: Option<f64>,
    /// Fetch texts that the files reference by URL, from public addresses only
    #[arg(long)]
    fetch: bool,
    /// Deploy nothing if there are warnings, such as callees that are not on the mesh
    #[arg(long)]
    strict: bool,
    /// Show what would be deployed, without deploying it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// Runs the command.
pub(super) fn deploy(args: &DeployArgs, output: &Output) -> Result<Exit, Failure> {
    let options = Options {
        dialect: args.dialect.clone(),
        agents: crate::input::pairs(&args.default_agent, "--default-agent")?.into_iter().collect(),
        fetch: args.fetch,
        variables: args.variables.rules()?,
        cost_usd: args.cost_usd,
        ..Options::default()
    };
    let loaded = deployment::read_workflows(&args.paths, &options)?;
    if args.dry_run {
        let rows: Vec<_> = loaded
            .iter()
            .flat_map(|file| &file.workflows)
            .map(|one| json!({ "name": one.plan.name, "version": sinew_plan::digest(&one.plan) }))
            .collect();
        output.value(&rows, |rows| {
            let word = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let line = |row| {
                format!(
                    "would deploy {}@{}",
                    words::name(&word(row, "name")),
                    list::short(&word(row, "version"))
                )
            };
            rows.iter().map(line).collect::<Vec<_>>().join("\n")
        });
        return Ok(Exit::Ok);
    }
    let deployed = block(async {
        let mesh = args.mesh.open("cli").await?;
        mesh.admin().layout().await?;
        if args.strict {
            deployment::refuse_warnings(&mesh, &loaded).await?;
        }
        deployment::deploy_all(&mesh, &loaded).await
    })?;
    for found in deployed.iter().map(|one| &one.findings).filter(|found| !found.is_empty()) {
        output.note_block(sinew_source::render_text(found, output.color_err).trim_end());
    }
    let deployed: Vec<Deployed> = deployed.into_iter().map(|one| one.deployed).collect();
    output.value(&deployed, |deployed| table(deployed));
    Ok(Exit::Ok)
}

fn table(deployed: &[Deployed]) -> String {
    let line = |one: &Deployed| {
        let word = if one.new { "deployed" } else { "unchanged" };
        format!("{word}  {}@{}  ({})", words::name(&one.name), list::short(&one.version), one.dialect)
    };
    deployed.iter().map(line).collect::<Vec<_>>().join("\n")
}
