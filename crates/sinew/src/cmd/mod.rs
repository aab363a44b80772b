//! One file per command.

pub(crate) mod agent;
pub(crate) mod approval;
pub(crate) mod artifact;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod execution;
pub(crate) mod explain;
pub(crate) mod mesh;
pub(crate) mod new;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod test;
pub(crate) mod tool;
pub(crate) mod top;
pub(crate) mod workflow;

use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Does what the command line says.
pub(crate) fn run(cli: Cli, output: &Output) -> Result<Exit, Failure> {
    match cli.command {
        Command::Run(args) => run::run(&args, output),
        Command::Test(args) => test::test(&args, output),
        Command::Workflow(command) => workflow::workflow(command, output),
        Command::Execution(command) => execution::execution(command, output),
        Command::Approval(command) => approval::approval(command, output),
        Command::Bench(args) => bench::bench(&args, output),
        Command::Dev(args) => dev::dev(&args, output),
        Command::Serve(command) => serve::serve(command, output),
        Command::Mesh(command) => mesh::mesh(command, output),
        Command::Artifact(command) => artifact::artifact(command, output),
        Command::Tool(command) => tool::tool(command, output),
        Command::Top(args) => top::top(&args, output),
        Command::Doctor(args) => doctor::doctor(&args, output),
        Command::Agent(command) => agent::agent(command, output),
        Command::Schema(args) => schema::schema(&args, output),
        Command::Explain(args) => explain::explain(&args, output),
        Command::New(command) => new::new(&command, output),
        Command::Completions(args) => Ok(completions::completions(&args, output)),
        Command::Man(args) => completions::man(&args, output),
    }
}
