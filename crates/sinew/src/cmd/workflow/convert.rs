//! `sinew workflow convert`: converts a workflow.

use clap::Args;
use sinew_dialects::Loss;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

use super::describe::Which;
use super::{suggest, trial};
use crate::exit::Exit;
use crate::output::{Format, Output};

const EXAMPLES: &str = "Examples:
  sinew workflow convert flows/audit.yaml --plan
  sinew workflow convert flows/audit.yaml --plan -o yaml
  sinew workflow convert canvas.json --to sam > canvas.yaml    # losses are reported on stderr
  sinew workflow convert team.json --try c2 --sample '{\"content\": \"hi\"}'
  sinew workflow convert team.json --try c2 --sample @reply.json
  sinew workflow convert team.json --suggest           # functions for connections that have none
  diff <(sinew workflow convert old.yaml --plan) <(sinew workflow convert new.yaml --plan)";

/// Arguments of `sinew workflow convert`.
#[derive(Args, Debug)]
#[command(
    long_about = "Convert a workflow to its plan or to another dialect.\n\n\
                  Every dialect is lowered to a plan before it runs: nodes, edges, joins, budgets. Two files \
                  with the same plan run the same way. A conversion to another dialect never guesses: it \
                  fails on anything that the dialect cannot express, and reports anything that changes its \
                  meaning.\n\n\
                  --try converts only data: it calls the conversion function of one connection with a \
                  sample, as an execution would. If the function raises, the sample passes through \
                  unchanged, and the trial reports this and fails. --suggest prints a function for each \
                  connection without one whose target declares its input.",
    after_help = EXAMPLES
)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    form: WantedForm,
    /// Value at the port, for --try: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", requires = "connection")]
    sample: Option<String>,
}

/// Exactly one target of the conversion.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct WantedForm {
    /// Print the plan, as JSON or (with -o yaml) YAML
    #[arg(long)]
    plan: bool,
    /// Convert to this dialect, as far as it can express the workflow
    #[arg(long, value_name = "DIALECT", value_parser = ["sam"])]
    to: Option<String>,
    /// Run the conversion function of a connection on sample data
    #[arg(long = "try", value_name = "CONNECTION", requires = "sample")]
    connection: Option<String>,
    /// Suggest conversion functions for connections without one
    #[arg(long)]
    suggest: bool,
}

/// Runs the command.
pub(super) fn convert(args: &ConvertArgs, output: &Output) -> Result<Exit, Failure> {
    if let (Some(connection), Some(sample)) = (&args.form.connection, &args.sample) {
        return trial::run(&args.which, connection, sample, output);
    }
    if args.form.suggest {
        return suggest::run(&args.which, output);
    }
    let loaded = args.which.load(output)?;
    let plan = &args.which.pick(&loaded)?.plan;
    if args.form.to.is_none() {
        output.document(plan, &plan.name, Format::Json);
        return Ok(Exit::Ok);
    }
    let converted =
        sinew_dialects::to_sam(plan, loaded.dialect).map_err(|losses| impossible(&losses, output))?;
    report(&converted.losses, output);
    if output.is_machine() && output.format != Format::Yaml {
        output.document(&converted, &plan.name, Format::Json);
    } else {
        output.document(&converted.document, &plan.name, Format::Yaml);
    }
    Ok(Exit::Ok)
}

fn impossible(losses: &[Loss], output: &Output) -> Failure {
    if !output.is_machine() {
        report(losses, output);
    }
    let stops: Vec<String> = losses
        .iter()
        .filter(|loss| loss.fatal)
        .map(|loss| format!("'{}': {}", loss.node, loss.what))
        .collect();
    Failure::new(
        FailureKind::Failed,
        code::DIALECT_CANNOT_EXPRESS_WORKFLOW.as_str(),
        format!("sam cannot express the workflow: {}", stops.join("; ")),
    )
}

/// Reports the lost parts, one line each.
fn report(losses: &[Loss], output: &Output) {
    for loss in losses {
        let word = if loss.fatal { "impossible" } else { "changed" };
        output.note(&format!("{word}: node '{}': {}", loss.node, loss.what));
    }
}
