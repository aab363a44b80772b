//! `sinew schema`: JSON Schemas of the file formats, for editors and validators.

use clap::{Args, ValueEnum};
use serde_json::Value;
use sinew_operations::failure::Failure;

use crate::exit::Exit;
use crate::output::{Format, Output};

const EXAMPLES: &str = "Examples:
  sinew schema workflow > workflow.schema.json
  sinew schema workflow --dialect agentflow
  sinew schema agent -o yaml
  sinew schema workflow -o name                        # list the dialects

To use a schema in editors, add this line to a YAML file:
  # yaml-language-server: $schema=workflow.schema.json";

/// The default dialect.
pub(crate) const FIRST_DIALECT: &str = "sam";

/// Arguments of `sinew schema`.
#[derive(Args, Debug)]
#[command(
    long_about = "Print the JSON Schema of a file format, for editors and validation in other tools.",
    after_help = EXAMPLES
)]
pub(crate) struct SchemaArgs {
    /// File format
    #[arg(value_enum)]
    kind: Kind,
    /// Dialect of the workflow files [default: sam]
    #[arg(long)]
    dialect: Option<String>,
}

/// Files with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Workflow files
    Workflow,
    /// Agent files, `NAME.agent.yaml`
    Agent,
    /// Bridge files, `NAME.bridge.yaml`
    Bridge,
    /// Test files, `NAME.test.yaml`
    Test,
    /// Test files of model agents
    AgentTest,
    /// Evaluation files of model agents, `NAME.eval.yaml`
    AgentEval,
}

/// Runs the command.
pub(crate) fn schema(args: &SchemaArgs, output: &Output) -> Result<Exit, Failure> {
    if args.dialect.is_some() && args.kind != Kind::Workflow {
        return Err(Failure::usage("only workflow files have dialects").hint("remove --dialect"));
    }
    if output.format == Format::Name {
        output.text(&match args.kind {
            Kind::Workflow => dialects().join("\n"),
            Kind::Agent => "agent".to_owned(),
            Kind::Bridge => "bridge".to_owned(),
            Kind::Test => "test".to_owned(),
            Kind::AgentTest => "agent-test".to_owned(),
            Kind::AgentEval => "agent-eval".to_owned(),
        });
        return Ok(Exit::Ok);
    }
    let schema = of(args.kind, args.dialect.as_deref())?;
    output.value(&schema, |schema| serde_json::to_string_pretty(schema).unwrap_or_default());
    Ok(Exit::Ok)
}

/// Returns the schema of a file format.
pub(crate) fn of(kind: Kind, dialect: Option<&str>) -> Result<Value, Failure> {
    match kind {
        Kind::Workflow => {
            let name = dialect.unwrap_or(FIRST_DIALECT);
            sinew_dialects::by_name(name).map(sinew_dialects::Dialect::schema).ok_or_else(|| {
                Failure::usage(format!("there is no dialect '{name}'"))
                    .hint(format!("use one of {}", dialects().join(", ")))
            })
        }
        Kind::Agent => Ok(sinew_agents::agent_file_schema()),
        Kind::Bridge => Ok(sinew_bridge::bridge_file_schema()),
        Kind::Test => Ok(sinew_case_runner::workflow_case_schema()),
        Kind::AgentTest => Ok(sinew_case_runner::agent_case_schema()),
        Kind::AgentEval => Ok(sinew_case_runner::eval_schema()),
    }
}

fn dialects() -> Vec<&'static str> {
    sinew_dialects::all().iter().map(|dialect| dialect.name()).collect()
}
