//! `sinew workflow deploy`: workflows from files, for all of a mesh.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sinew_mesh::Mesh;

use super::{find, list};
use crate::connect::{Connection, block};
use crate::deploy::{self, Deployed};
use crate::exit::{Exit, Failure};
use crate::load::{self, Loaded, Options, VariableArgs};
use crate::output::Output;
use sinew_inspection::words;

const EXAMPLES: &str = "Examples:
  sinew workflow deploy flows/audit.yaml
  sinew workflow deploy flows --dry-run
  sinew workflow deploy flows -o name";

/// Arguments of `sinew workflow deploy`.
#[derive(Args, Debug)]
#[command(
    long_about = "Deploy workflows: the newest version of a name is what new executions run, and what other workflows \
                  and agents call.\n\nOpen executions keep the version they began with. A version that is deployed \
                  already is left alone. If a file has errors, nothing of any file is deployed.",
    after_help = EXAMPLES
)]
pub(crate) struct DeployArgs {
    /// Files and folders
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Take the files as this dialect, whatever they look like
    #[arg(long)]
    dialect: Option<String>,
    /// Agent for work that the file leaves open
    #[arg(long, value_name = "KIND=AGENT")]
    default_agent: Vec<String>,
    /// Read texts that the files name by URL, at public addresses
    #[arg(long)]
    fetch: bool,
    /// Say what would be deployed, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// Does what the command line says.
pub(super) fn deploy(args: &DeployArgs, output: &Output) -> Result<Exit, Failure> {
    let options = Options {
        dialect: args.dialect.clone(),
        agents: crate::input::pairs(&args.default_agent, "--default-agent")?.into_iter().collect(),
        fetch: args.fetch,
        variables: args.variables.rules()?,
        ..Options::default()
    };
    let loaded = read(&args.paths, &options)?;
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
        all(&mesh, &loaded).await
    })?;
    output.value(&deployed, |deployed| table(deployed));
    Ok(Exit::Ok)
}

/// Reads workflow files; the first that has errors fails all.
pub(crate) fn read(paths: &[PathBuf], options: &Options) -> Result<Vec<Loaded>, Failure> {
    let mut loaded = Vec::new();
    for file in find::workflows(paths, options)? {
        if file.diagnostics.has_errors() {
            return Err(Failure::diagnostics(file.diagnostics));
        }
        loaded.extend(file.loaded);
    }
    if loaded.is_empty() && !paths.iter().any(|path| path == Path::new("-")) {
        return Err(find::nothing(Exit::NotFound, paths));
    }
    load::unique_names(&loaded)?;
    Ok(loaded)
}

/// Deploys what was read.
pub(crate) async fn all(mesh: &Mesh, loaded: &[Loaded]) -> Result<Vec<Deployed>, Failure> {
    let mut deployed = Vec::new();
    for file in loaded {
        deployed.extend(deploy::deploy(mesh, file).await?);
    }
    Ok(deployed)
}

fn table(deployed: &[Deployed]) -> String {
    let line = |one: &Deployed| {
        let word = if one.new { "deployed" } else { "unchanged" };
        format!("{word}  {}@{}  ({})", words::name(&one.name), list::short(&one.version), one.dialect)
    };
    deployed.iter().map(line).collect::<Vec<_>>().join("\n")
}
