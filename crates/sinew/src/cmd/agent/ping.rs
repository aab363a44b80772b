//! `sinew agent ping`: checks whether and how fast an agent responds.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use sinew_documents::words;
use sinew_operations::agent_calls::fetch_card;
use sinew_operations::failure::Failure;
use sinew_operations::quantity::parse_duration;

use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `sinew agent ping`.
#[derive(Args, Debug)]
#[command(
    long_about = "Request the card of an agent of a mesh, and report the round-trip time. No task is \
                  created. If the agent has several replicas, one responds. Exits with 4 if there is no \
                  response.",
    after_help = "Examples:\n  sinew agent ping summarise\n  sinew agent ping summarise --count 5 -o json"
)]
pub(crate) struct PingArgs {
    /// The agent's name
    name: String,
    /// Number of requests, one after the other
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
    /// Timeout of each request (`500ms`, `5s`)
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    timeout: String,
    #[command(flatten)]
    mesh: Connection,
}

/// Checks whether an agent responds.
pub(super) async fn ping(args: &PingArgs, output: &Output) -> Result<Exit, Failure> {
    let patience = Duration::from_millis(parse_duration(&args.timeout)?);
    let mesh = args.mesh.open("cli").await?;
    mesh.admin().layout().await?;
    let mut rows: Vec<Value> = Vec::new();
    for _ in 0..args.count {
        let asked = Instant::now();
        let card = fetch_card(&mesh, &args.name, patience).await?;
        let took = asked.elapsed().as_micros() as f64 / 1_000.0;
        rows.push(json!({ "name": card.name, "version": card.version, "took_ms": took }));
    }
    output.value(&rows, |rows| {
        let line = |row: &Value| {
            let word = |key: &str| words::one_line(row[key].as_str().unwrap_or_default(), 60);
            format!("{} {} responded in {}ms", word("name"), word("version"), row["took_ms"])
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(Exit::Ok)
}
