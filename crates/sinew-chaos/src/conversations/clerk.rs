//! The victim: a file agent with a language model, served as by `sinew serve agent`.

use std::path::{Path, PathBuf};

use sinew_agent::CancellationToken;
use sinew_operations::file_agents;
use sinew_operations::served_agents::ServedAgents;

use crate::Fallible;
use crate::roles::{MeshArgs, prepare};

/// Name of the agent.
pub(crate) const CLERK: &str = "Clerk";

/// The agent file. `URL` is that of the provider. Allows many turns, because crashes use turns.
const FILE: &str = r#"
name: Clerk
concurrency: 4
timeout: 1h
run:
  model:
    use: [main]
    models:
      main:
        provider: openai
        model: fake
        url: URL
        allow_private: true
        headers: {X-Process: "${env:CHAOS_PROCESS}"}
        caps: {stream: false}
    tools:
      - {peer: Look, effect: repeat, trust: own}
      - {peer: Act, effect: once, trust: own}
    budget: {turns: 100, tool_calls: 100, wall: 1h}
"#;

fn agent_file(place: &MeshArgs) -> PathBuf {
    place.folder.join("clerk.agent.yaml")
}

/// Writes the agent's file with the address of its provider.
pub(crate) fn write_agent(place: &MeshArgs, url: &str) -> Fallible<()> {
    Ok(std::fs::write(agent_file(place), FILE.replace("URL", url))?)
}

/// Serves the agent until the process is killed.
pub(crate) async fn serve_clerk(place: &MeshArgs) -> Fallible<()> {
    prepare(place)?;
    let agents = file_agents::load(&[agent_file(place)], Path::new("./workflow.yaml"))
        .map_err(|failure| format!("{failure:?}"))?;
    let mesh = place.connect("clerk").await?;
    let mut served = ServedAgents::serve(&mesh, &agents, &CancellationToken::new());
    Err(format!("{:?}", served.failure().await).into())
}
