//! `sinew model`: the language models of agent files, and whether they respond.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sinew_agents::{Agent, ModelDescription};
use sinew_documents::words;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::file_agents;
use sinew_protocol::code;

use crate::agent_trust::TrustArgs;
use crate::connect::block;
use crate::exit::Exit;
use crate::output::Output;

/// Commands for language models.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    #[command(about = "List the models of agent files: aliases, prices, and which keys are set")]
    #[command(visible_alias = "ls")]
    List(ModelArgs),
    #[command(about = "Request one word from each model")]
    Ping(ModelArgs),
}

/// Agent files, and models in them.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew model list\n  sinew model ping main --agents agent-cards\n  sinew model list -o json"
)]
pub(crate) struct ModelArgs {
    /// Only models with this alias
    #[arg(value_name = "ALIAS")]
    alias: Option<String>,
    /// Agent files, or folders with them [default: . and agent-cards/]
    #[arg(short, long, value_name = "PATH")]
    agents: Vec<PathBuf>,
    #[command(flatten)]
    trust: TrustArgs,
}

/// Runs the command.
pub(crate) fn model(command: &ModelCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        ModelCommand::List(args) => list(args, output),
        ModelCommand::Ping(args) => block(ping(args, output)),
    }
}

/// Returns the models of the files. Agents whose models are called (`asked`) must be trusted.
fn found(args: &ModelArgs, asked: Option<&Output>) -> Result<Vec<(Arc<Agent>, ModelDescription)>, Failure> {
    let set = file_agents::load(&args.agents, Path::new("./workflow.yaml"))?;
    if let Some(output) = asked {
        args.trust.check(&set, &args.agents, Agent::is_model, output)?;
    }
    let all = set.iter().flat_map(|agent| agent.models().into_iter().map(|model| (Arc::clone(agent), model)));
    let found: Vec<_> =
        all.filter(|(_, model)| args.alias.as_ref().is_none_or(|alias| *alias == model.alias)).collect();
    if found.is_empty() {
        let text = "no agent file here has such a model";
        return Err(Failure::new(FailureKind::NotFound, code::NO_AGENT_FILE_FOUND.as_str(), text)
            .hint("`sinew new agent NAME --kind model` creates an agent with one"));
    }
    Ok(found)
}

fn list(args: &ModelArgs, output: &Output) -> Result<Exit, Failure> {
    let rows: Vec<Value> = found(args, None)?.iter().map(|(agent, model)| row(agent, model)).collect();
    output.value(&rows, |rows| {
        let heads = ["AGENT", "ALIAS", "USE", "PROVIDER", "MODEL", "CONTEXT", "PRICE", "KEY"];
        let mut lines = vec![heads.map(str::to_owned).to_vec()];
        lines.extend(rows.iter().map(|row| {
            let text = |key: &str| words::one_line(row[key].as_str().unwrap_or("-"), 60);
            let price = &row["price"];
            let price = if price.is_null() {
                "-".to_owned()
            } else {
                format!("{}/{}", price["input"], price["output"])
            };
            let key = match (&row["key"], row["key_is_set"].as_bool()) {
                (Value::String(name), Some(true)) => format!("{} set", words::one_line(name, 60)),
                (Value::String(name), _) => format!("{} not set", words::one_line(name, 60)),
                _ => "-".to_owned(),
            };
            let place = row["use"].as_u64().map_or_else(|| "-".to_owned(), |place| (place + 1).to_string());
            vec![
                text("agent"),
                text("alias"),
                place,
                text("provider"),
                text("model"),
                row["context"].to_string(),
                price,
                key,
            ]
        }));
        words::columns(&lines)
    });
    Ok(Exit::Ok)
}

fn row(agent: &Agent, model: &ModelDescription) -> Value {
    json!({
        "agent": agent.name(),
        "alias": model.alias,
        "name": model.alias,
        "use": model.place,
        "provider": model.provider,
        "model": model.model,
        "url": model.url,
        "context": model.context,
        "price": model.price.map(|price| json!({
            "input": price.input, "output": price.output, "cached": price.cached,
        })),
        "key": model.key.as_ref().map(|(name, _)| name),
        "key_is_set": model.key.as_ref().map(|(_, is_set)| is_set),
    })
}

async fn ping(args: &ModelArgs, output: &Output) -> Result<Exit, Failure> {
    let mut rows: Vec<Value> = Vec::new();
    for (agent, model) in found(args, Some(output))? {
        let answer = agent.ping_model(&model.alias).await;
        let mut row = json!({"agent": agent.name(), "name": model.alias});
        match answer {
            Some(Ok(pong)) => {
                row["answered"] = true.into();
                row["model"] = pong.model.into();
                row["took_ms"] = u64::try_from(pong.took.as_millis()).unwrap_or(u64::MAX).into();
                row["output_tokens"] = pong.usage.output.into();
            }
            Some(Err(reason)) => {
                row["answered"] = false.into();
                row["reason"] = reason.into();
            }
            None => {}
        }
        rows.push(row);
    }
    let failed = rows.iter().filter(|row| row["answered"] != true).count();
    output.value(&rows, |rows| {
        let line = |row: &Value| {
            let text = |key: &str| words::one_line(row[key].as_str().unwrap_or_default(), 300);
            match row["took_ms"].as_u64() {
                Some(took) => {
                    format!("{} {} responded in {}", text("agent"), text("name"), words::duration(took))
                }
                None => format!("{} {} did not respond: {}", text("agent"), text("name"), text("reason")),
            }
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    if failed > 0 {
        let text = format!("{failed} of {} models did not respond", rows.len());
        return Err(Failure::new(FailureKind::Failed, code::MODEL_UNAVAILABLE.as_str(), text));
    }
    Ok(Exit::Ok)
}
