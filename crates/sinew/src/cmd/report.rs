//! `sinew report`: times of nodes and usage of models, over the history of a mesh.

use clap::{Args, Subcommand};
use sinew_documents::agent::Percentiles;
use sinew_documents::report::{CostReport, NodeReport, ReportCoverage};
use sinew_documents::words;
use sinew_operations::failure::Failure;
use sinew_operations::quantity::parse_duration;
use sinew_operations::reports::{ReportGroup, ReportScope, report_costs, report_nodes};
use sinew_runtime::local;

use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;

/// Reports over closed executions.
#[derive(Debug, Subcommand)]
pub(crate) enum ReportCommand {
    #[command(about = "Report work and queue times of nodes, the slowest first")]
    #[command(
        after_help = "Examples:\n  sinew report nodes\n  sinew report nodes --since 1d --by agent\n  sinew report nodes -o csv > nodes.csv"
    )]
    Nodes(ReportArgs),
    #[command(about = "Report turns, tokens and price of language models, the most expensive first")]
    #[command(
        after_help = "Examples:\n  sinew report cost\n  sinew report cost --since 30d --by label:customer\n  sinew report cost --by model -o json"
    )]
    Cost(ReportArgs),
}

/// What a report covers.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Executions that ended within this time
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    since: String,
    /// Group by workflow, node, agent, model (costs) or label:NAME [default: node, or workflow for costs]
    #[arg(long, value_name = "GROUP")]
    by: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Runs the command.
pub(crate) fn report(command: &ReportCommand, output: &Output) -> Result<Exit, Failure> {
    block(async {
        let (args, usual) = match command {
            ReportCommand::Nodes(args) => (args, "node"),
            ReportCommand::Cost(args) => (args, "workflow"),
        };
        let scope = ReportScope {
            since: local::now().saturating_sub(parse_duration(&args.since)?),
            by: ReportGroup::parse(args.by.as_deref().unwrap_or(usual))?,
            opens: &|_, _| true,
        };
        let remote = args.mesh.operator().await?;
        match command {
            ReportCommand::Nodes(_) => output.value(&report_nodes(&remote, &scope).await?, node_table),
            ReportCommand::Cost(_) => output.value(&report_costs(&remote, &scope).await?, cost_table),
        }
        Ok(Exit::Ok)
    })
}

fn node_table(report: &NodeReport) -> String {
    let times = |times: Percentiles| format!("{}/{}", words::duration(times.p50), words::duration(times.p95));
    let heads = ["NAME", "TASKS", "FAILED", "WORK p50/p95", "QUEUE p50/p95", "WORK", "QUEUE"];
    let rows = report.rows.iter().map(|row| {
        vec![
            words::one_line(&row.name, 80),
            row.tasks.to_string(),
            row.failed.to_string(),
            times(row.work_ms),
            times(row.queue_ms),
            words::duration(row.working_ms),
            words::duration(row.queued_ms),
        ]
    });
    table(&heads, rows, &report.coverage)
}

fn cost_table(report: &CostReport) -> String {
    let price = |cost: Option<f64>| cost.map_or_else(|| "-".to_owned(), |cost| format!("${cost:.4}"));
    let heads = ["NAME", "EXECUTIONS", "TURNS", "INPUT", "OUTPUT", "COST"];
    let total = ("total".to_owned(), report.rows.iter().map(|row| row.executions).sum(), report.total);
    let rows = report.rows.iter().map(|row| (words::one_line(&row.name, 80), row.executions, row.used));
    let rows = rows.chain([total]).map(|(name, executions, used)| {
        let counts = [executions as u64, used.turns, used.input_tokens, used.output_tokens];
        let counts = counts.map(|count| count.to_string());
        std::iter::once(name).chain(counts).chain([price(used.cost_usd)]).collect()
    });
    table(&heads, rows, &report.coverage)
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>, coverage: &ReportCoverage) -> String {
    let heads = heads.iter().map(|head| (*head).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    format!("{}\n\n{}", words::columns(&lines), coverage.line())
}
