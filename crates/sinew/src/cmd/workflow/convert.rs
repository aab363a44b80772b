//! `sinew workflow convert`: a workflow in another form.

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
  sinew workflow convert canvas.json --to sam > canvas.yaml    # what is lost stands on stderr
  sinew workflow convert team.json --try c2 --sample '{\"content\": \"hi\"}'
  sinew workflow convert team.json --try c2 --sample @reply.json
  sinew workflow convert team.json --suggest           # functions for connections that have none
  diff <(sinew workflow convert old.yaml --plan) <(sinew workflow convert new.yaml --plan)";

/// Arguments of `sinew workflow convert`.
#[derive(Args, Debug)]
#[command(
    long_about = "Print a workflow in another form.\n\nThe plan is what every dialect becomes before it runs: nodes, \
                  edges, joins, budgets. Two files with the same plan run the same way. A conversion to another \
                  dialect never guesses: what that dialect cannot say stops it, what it says with another meaning is \
                  reported.\n\nWith --try nothing is converted but data: the conversion function of one connection \
                  is called with a sample, as a run would call it. A function that raises lets the sample travel on as \
                  it is; the trial says so and fails. With --suggest a function is offered for each connection without \
                  one whose target says what it takes.",
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

/// The form wanted: exactly one.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct WantedForm {
    /// The plan, as JSON or (with -o yaml) YAML
    #[arg(long)]
    plan: bool,
    /// Another dialect, as far as it can say it
    #[arg(long, value_name = "DIALECT", value_parser = ["sam"])]
    to: Option<String>,
    /// Try the conversion function of a connection on sample data
    #[arg(long = "try", value_name = "CONNECTION", requires = "sample")]
    connection: Option<String>,
    /// Conversion functions that connections without one could have
    #[arg(long)]
    suggest: bool,
}

/// Does what the command line says.
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
        format!("the workflow cannot be said in sam: {}", stops.join("; ")),
    )
}

/// Reports the lost parts, one line each.
fn report(losses: &[Loss], output: &Output) {
    for loss in losses {
        let word = if loss.fatal { "impossible" } else { "changed" };
        output.note(&format!("{word}: node '{}': {}", loss.node, loss.what));
    }
}
