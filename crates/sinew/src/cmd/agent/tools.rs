//! `sinew agent tools`: the tools offered to an agent's model, and the lock file for their descriptions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use sinew_agents::{Agent, AgentTools, PinnedTool, ToolPin};
use sinew_documents::words;
use sinew_operations::agent_calls::fault_failure;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::file_agents;
use sinew_protocol::code;

use super::files::{find_file, is_file_name};
use crate::agent_trust::TrustArgs;
use crate::connect::block;
use crate::exit::Exit;
use crate::output::Output;

/// Longest description in a line of the list, in characters.
const MAX_DESCRIPTION: usize = 200;

/// Arguments of `sinew agent tools`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show the tools of a model agent as they are offered to its model: names, effects, \
                  descriptions. This starts and queries the MCP servers of the file.\n\n\
                  Descriptions of a server's tools are untrusted text. `--accept` writes their digests to \
                  NAME.tools.lock next to the agent file; afterwards a tool whose description changed is \
                  rejected (SINEW-5209), and a new tool is omitted, until they are accepted again.",
    after_help = "Examples:\n  sinew agent tools clerk\n  sinew agent tools agent-cards/clerk.agent.yaml --accept"
)]
pub(crate) struct ToolsArgs {
    /// Name or file of the agent
    name: String,
    /// Agent files, or folders with them [default: . and agent-cards/]
    #[arg(short, long, value_name = "PATH")]
    agents: Vec<PathBuf>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Accept the current descriptions
    #[arg(long)]
    accept: bool,
}

/// Shows the tools of an agent.
pub(super) fn tools(args: &ToolsArgs, output: &Output) -> Result<Exit, Failure> {
    let agent = find_file(&args.name, &args.agents)?;
    let around = file_agents::load(&args.agents, Path::new("./workflow.yaml")).unwrap_or_default();
    if !is_file_name(&args.name) {
        args.trust.check(&around, &args.agents, |one| one.name() == agent.name(), output)?;
    }
    let peers: Vec<_> = around.iter().map(|agent| agent.as_peer()).collect();
    let found = block(async { ask(&agent, &peers).await })?;
    if args.accept {
        std::fs::write(&found.lock_path, &found.lock).map_err(|error| {
            let text = format!("cannot write '{}': {error}", found.lock_path.display());
            Failure::new(FailureKind::Failed, code::FILE_CANNOT_BE_WRITTEN.as_str(), text)
        })?;
    }
    let rows: Vec<Value> = found.tools.iter().map(|tool| row(tool, args.accept)).collect();
    output.value(&rows, |_| listed(&found.tools, args.accept));
    if args.accept {
        output.note(&format!("accepted in {}", found.lock_path.display()));
    }
    Ok(Exit::Ok)
}

async fn ask(agent: &Arc<Agent>, peers: &[sinew_agents::PeerDescription]) -> Result<AgentTools, Failure> {
    let Some(tools) = agent.tools(peers).await else {
        let text = format!("agent '{}' calls no language model, so it has no tools", agent.name());
        return Err(Failure::usage(text));
    };
    tools.map_err(|fault| fault_failure(&fault))
}

fn pin(tool: &PinnedTool, accepted: bool) -> Option<&'static str> {
    tool.pin.map(|pin| if accepted { ToolPin::Accepted } else { pin }.as_str())
}

fn row(tool: &PinnedTool, accepted: bool) -> Value {
    json!({
        "name": tool.name,
        "source": tool.source,
        "description": tool.description,
        "parameters": tool.parameters,
        "effect": tool.effect,
        "trust": if tool.is_open { "open" } else { "own" },
        "pin": pin(tool, accepted),
    })
}

fn listed(tools: &[PinnedTool], accepted: bool) -> String {
    let names: Vec<String> = tools.iter().map(|tool| words::name(&tool.name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |(tool, name): (&PinnedTool, &String)| {
        let trust = if tool.is_open { "open" } else { "own" };
        let pin = pin(tool, accepted).map(|pin| format!("  [{pin}]")).unwrap_or_default();
        let description = words::one_line(&tool.description, MAX_DESCRIPTION);
        format!("{name:<width$}  {:<6}  {trust:<4}  {description}{pin}", tool.effect).trim_end().to_owned()
    };
    tools.iter().zip(&names).map(line).collect::<Vec<_>>().join("\n")
}
