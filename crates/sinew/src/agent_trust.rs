//! Confirmation before discovered agent files may run programs and send data.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::Args;
use sinew_agents::{Agent, AgentReach, AgentSet};
use sinew_documents::words;
use sinew_operations::agent_trust::{ReachingAgent, TrustStore, reaching};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

use crate::output::Output;

/// Maximum length of the line of a program or address.
const MAX_LINE: usize = 200;

/// Flag of commands that discover agent files.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct TrustArgs {
    /// Trust the discovered agent files, and remember them until they change
    #[arg(long)]
    pub(crate) trust: bool,
}

impl TrustArgs {
    /// Rejects discovered agents that act outside their sandbox unless they are trusted; asks a
    /// person at a terminal. `needs` selects the agents that may be called. Returns the names of the
    /// other untrusted agents.
    pub(crate) fn check(
        self,
        set: &AgentSet,
        named: &[PathBuf],
        needs: impl Fn(&Agent) -> bool,
        output: &Output,
    ) -> Result<BTreeSet<String>, Failure> {
        if !named.is_empty() {
            return Ok(BTreeSet::new());
        }
        let store = TrustStore::of_user(|name| std::env::var_os(name).map(PathBuf::from));
        let untrusted = |is_needed: bool| {
            let found = reaching(set.iter().filter(|agent| needs(agent.as_ref()) == is_needed));
            store.as_ref().map_or_else(|| found.clone(), |store| store.untrusted(found.clone()))
        };
        let needed = untrusted(true);
        if !needed.is_empty() {
            if !self.trust && !is_confirmed(&needed) {
                return Err(refused(&needed));
            }
            let remembered = store.as_ref().map_or(Ok(()), |store| store.trust(&needed));
            if let Err(failure) = remembered {
                output.note(&format!(
                    "warning: the trusted agent files are not remembered: {}",
                    failure.message
                ));
            }
        }
        Ok(untrusted(false).into_iter().map(|agent| agent.name).collect())
    }
}

fn refused(untrusted: &[ReachingAgent]) -> Failure {
    let text = format!("the agent files discovered here are not trusted:\n{}", listed(untrusted));
    Failure::new(FailureKind::Denied, code::AGENT_FILES_NOT_TRUSTED.as_str(), text)
        .hint("review these files, then add --trust, or name them with --agents")
}

/// Asks for confirmation on a terminal; returns false elsewhere.
fn is_confirmed(untrusted: &[ReachingAgent]) -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    let text = format!("These agent files were discovered here:\n{}\nTrust them? [y/N] ", listed(untrusted));
    let _ = std::io::stderr().write_all(text.as_bytes());
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}

/// Lists agents with their programs, addresses and variables.
fn listed(agents: &[ReachingAgent]) -> String {
    let mut lines = Vec::new();
    for agent in agents {
        lines.push(format!("  {}", words::one_line(&agent.file.display().to_string(), MAX_LINE)));
        lines.extend(reach_lines(&agent.reach));
    }
    lines.join("\n")
}

/// Returns a predicate for the agents of a set that a call of these names may reach: the named
/// agents, or all agents if one of the named agents calls others.
pub(crate) fn called_from<'a>(
    set: &'a AgentSet,
    names: &'a BTreeSet<String>,
) -> impl Fn(&Agent) -> bool + 'a {
    let calls_others = set.iter().any(|agent| names.contains(agent.name()) && agent.reach().calls_others);
    move |agent| calls_others || names.contains(agent.name())
}

fn reach_lines(reach: &AgentReach) -> Vec<String> {
    let line = |verb: &str, what: &str| format!("    {verb:<9} {}", words::one_line(what, MAX_LINE));
    let mut lines: Vec<String> = reach.programs.iter().map(|program| line("runs", program)).collect();
    lines.extend(reach.addresses.iter().map(|address| line("contacts", address)));
    if !reach.variables.is_empty() {
        let names: Vec<&str> = reach.variables.iter().map(String::as_str).collect();
        lines.push(line("uses", &names.join(", ")));
    }
    lines
}
