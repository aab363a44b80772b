//! Loads the agents of files and folders.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sinew_source::{Diagnostic, Diagnostics};

use crate::agent::{Agent, process_environment};
use crate::load::unreadable;
use crate::template::Environment;

/// Suffixes of agent files.
const ENDINGS: [&str; 3] = [".agent.yaml", ".agent.yml", ".agent.json"];

/// Agents by name.
#[derive(Clone, Debug, Default)]
pub struct AgentSet {
    agents: BTreeMap<String, Arc<Agent>>,
}

impl AgentSet {
    /// Loads agent files, and all agent files directly in folders. Returns the findings of all files.
    pub fn load_paths(paths: &[PathBuf]) -> Result<Self, Diagnostics> {
        Self::load_paths_with(paths, &process_environment())
    }

    /// Loads the agents of folders, nearest first: an agent replaces those of the same name in later
    /// folders.
    pub fn load_nearest(folders: &[PathBuf]) -> Result<Self, Diagnostics> {
        let mut set = Self::default();
        for folder in folders {
            for (name, agent) in Self::load_paths(std::slice::from_ref(folder))?.agents {
                set.agents.entry(name).or_insert(agent);
            }
        }
        Ok(set)
    }

    /// As [`AgentSet::load_paths`]; `environment` resolves `${env:NAME}` at each call.
    pub fn load_paths_with(paths: &[PathBuf], environment: &Arc<Environment>) -> Result<Self, Diagnostics> {
        let mut set = Self::default();
        let mut complaints = Diagnostics::default();
        for path in paths {
            match files(path) {
                Ok(files) => {
                    for file in files {
                        let added = Agent::load_with(&file, environment).and_then(|agent| set.add(agent));
                        if let Err(more) = added {
                            append(&mut complaints, more);
                        }
                    }
                }
                Err(error) => append(&mut complaints, unreadable(&path.display().to_string(), &error)),
            }
        }
        if complaints.has_errors() { Err(complaints) } else { Ok(set) }
    }

    /// Adds an agent. Fails if the set has an agent of the same name.
    pub fn add(&mut self, agent: Agent) -> Result<(), Diagnostics> {
        if let Some(first) = self.agents.get(agent.name()) {
            let (sources, place) = &agent.place;
            let mut complaints = Diagnostics::new(sources.clone());
            let (other, other_place) = &first.place;
            let mut item = Diagnostic::error(
                code::AGENT_NAME_USED_TWICE.as_str(),
                format!("agent '{}' is declared twice", agent.name()),
            )
            .at(*place);
            if let Some(file) = other.get(other_place.file) {
                let span = sinew_source::Span {
                    file: complaints.sources.add(file.name.clone(), file.text.clone()),
                    ..*other_place
                };
                item = item.related(span, "first declared here");
            }
            complaints.push(item);
            return Err(complaints);
        }
        self.agents.insert(agent.name().to_owned(), Arc::new(agent));
        Ok(())
    }

    /// Returns the agent of exactly this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.get(name)
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Returns the agents, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents.values()
    }

    /// Returns the number of agents.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Returns whether the set has no agents.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }
}

/// Returns the file itself, or the agent files in the folder, sorted by name.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if ENDINGS.iter().any(|ending| name.to_string_lossy().ends_with(ending)) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Appends findings. Renumbers their files, because spans index the list of their own set.
fn append(all: &mut Diagnostics, more: Diagnostics) {
    let numbers: Vec<u32> = more
        .sources
        .files()
        .iter()
        .map(|file| all.sources.add(file.name.clone(), file.text.clone()))
        .collect();
    let renumber = |span: &mut sinew_source::Span| {
        if let Some(number) = numbers.get(span.file as usize) {
            span.file = *number;
        }
    };
    for mut item in more.items {
        item.span.iter_mut().for_each(renumber);
        item.related.iter_mut().for_each(|(span, _)| renumber(span));
        all.push(item);
    }
}
