//! `sinew workflow describe`: the nodes, schemas, agents and limits of a workflow.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use sinew_dialects::{Lowered, PlanGraph};
use sinew_documents::words;
use sinew_operations::deployed_workflows::{describe_file, owners, partners, waits_for};
use sinew_operations::deployment::{is_workflow_name, load_deployed};
use sinew_operations::failure::Failure;
use sinew_operations::workflow_file::{self, Loaded, Options};
use sinew_plan::NodeIndex;

use super::list::short;
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::{Format, Output};
use crate::variable_args::VariableArgs;

const EXAMPLES: &str = "Examples:
  sinew workflow describe flows/audit.yaml
  sinew workflow describe app.yaml --workflow audit
  sinew workflow describe flow.yaml -o json | jq .agents
  sinew workflow describe audit --mesh                 # the deployed workflow; audit@3f2a for a version
  sinew workflow describe flow.yaml -o name            # the names of its nodes";

/// Arguments of `sinew workflow describe`.
#[derive(Args, Debug)]
#[command(
    long_about = "Describe a workflow: its nodes in file order with their dependencies, the schemas of its \
                  input and output, the agents it uses, and its limits.",
    after_help = EXAMPLES
)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    pub(super) which: Which,
}

/// One workflow of a file.
#[derive(Args, Debug)]
pub(super) struct Which {
    /// The file, - for stdin, or the name of a deployed workflow (NAME or NAME@VERSION)
    #[arg(value_name = "FILE|NAME|-")]
    pub(super) file: PathBuf,
    /// Workflow of a file with several [default: the first]
    #[arg(short, long, value_name = "NAME")]
    workflow: Option<String>,
    /// Dialect of the file [default: detected from its content]
    #[arg(long)]
    pub(super) dialect: Option<String>,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    pub(super) mesh: Connection,
}

impl Which {
    /// Reads the file or the deployed workflow. Returns errors in a file as the failure.
    pub(super) fn load(&self, output: &Output) -> Result<Loaded, Failure> {
        let options = Options {
            dialect: self.dialect.clone(),
            variables: self.variables.rules()?,
            ..Options::default()
        };
        if is_workflow_name(&self.file) && !self.mesh.local {
            return block(async { load_deployed(&self.mesh.operator().await?, &self.file).await });
        }
        let loaded = workflow_file::workflow(&self.file, &options)?;
        for lowered in &loaded.workflows {
            if lowered.warnings.has_errors() {
                return Err(Failure::diagnostics(lowered.warnings.clone()));
            }
        }
        let picked = self.pick(&loaded)?;
        if self.workflow.is_none() && loaded.workflows.len() > 1 {
            let names: Vec<&str> =
                loaded.workflows.iter().map(|lowered| lowered.plan.name.as_str()).collect();
            output.note(&format!(
                "note: showing '{}'; the file has {}; choose one with --workflow",
                picked.plan.name,
                names.join(", ")
            ));
        }
        Ok(loaded)
    }

    /// Returns the selected workflow.
    pub(super) fn pick<'l>(&self, loaded: &'l Loaded) -> Result<&'l Lowered, Failure> {
        loaded.pick(self.workflow.as_deref())
    }
}

/// Runs the command.
pub(super) fn describe(args: &DescribeArgs, output: &Output) -> Result<Exit, Failure> {
    let loaded = args.which.load(output)?;
    let lowered = args.which.pick(&loaded)?;
    let plan = &lowered.plan;
    if output.format == Format::Name {
        let names: Vec<&str> = plan.nodes.iter().map(|node| node.id.as_str()).collect();
        for name in &names {
            output.line(name);
        }
        return Ok(Exit::Ok);
    }
    output.value(&describe_file(&loaded, lowered), |_| text(&loaded, lowered));
    Ok(Exit::Ok)
}

fn text(loaded: &Loaded, lowered: &Lowered) -> String {
    let plan = &lowered.plan;
    let mut out = String::new();
    let version = plan.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
    let digest = sinew_plan::digest(plan);
    // Writing to a String cannot fail.
    let title = words::name(&format!("{}{version}", plan.name));
    let _ = writeln!(out, "{title}  ({}, {})", loaded.dialect.name(), short(&digest));
    if !plan.description.is_empty() {
        let _ = writeln!(out, "{}", sinew_source::indented(plan.description.trim_end()));
    }
    let schema =
        |schema: &Option<Value>| schema.as_ref().map_or_else(|| "any JSON".to_owned(), Value::to_string);
    let names = |names: BTreeSet<&str>| {
        let names = names.into_iter().map(words::name).collect::<Vec<_>>();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let _ = writeln!(out, "\n  input      {}", schema(&plan.input_schema));
    let _ = writeln!(out, "  output     {}", schema(&plan.output_schema));
    let _ = writeln!(out, "  agents     {}", names(partners(plan, true)));
    if !partners(plan, false).is_empty() {
        let _ = writeln!(out, "  workflows  {}", names(partners(plan, false)));
    }
    let limits = &plan.limits;
    let time = limits.wall_ms.map(|ms| format!(", {} in all", words::duration(ms))).unwrap_or_default();
    let cost = limits.cost_usd.map(|usd| format!(", ${usd} for models")).unwrap_or_default();
    let _ = writeln!(
        out,
        "  limits     {} items per map, {} iterations per loop, depth {}{time}{cost}\n",
        limits.fan_out, limits.iterations, limits.depth
    );
    let mut lines = vec![["NODE", "KIND", "AGENT", "DEPENDS ON"].map(str::to_owned)];
    let (graph, owners) = (PlanGraph::new(plan), owners(plan));
    for (ix, node) in plan.nodes.iter().enumerate() {
        let ix = ix as NodeIndex;
        let waits = match owners.get(&ix) {
            Some(owner) => format!("(run by {owner})"),
            None => waits_for(&graph, ix).join(", "),
        };
        lines.push([
            node.id.clone(),
            node.kind.clone(),
            node.agent.clone().unwrap_or_else(|| "-".to_owned()),
            if waits.is_empty() { "-".to_owned() } else { waits },
        ]);
    }
    out.push_str(&words::columns(&lines));
    out
}
