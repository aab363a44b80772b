//! Trust in agent files that a command discovered: they may run programs and send environment
//! variables, so a person has to trust each of them in its current state.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sinew_agents::{Agent, AgentReach};
use sinew_files::read_file;
use sinew_protocol::artifact::sha256;
use sinew_protocol::code;

use crate::failure::{Failure, FailureKind};
use crate::private_folder::make_private_folder;

/// Maximum size of a file in a digest.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Maximum size of the file of trusted folders.
const MAX_STORE_BYTES: u64 = 1 << 20;

/// An agent file that acts outside its sandbox.
#[derive(Clone, Debug)]
pub struct ReachingAgent {
    /// Name of the agent.
    pub name: String,
    /// Path of the file, as discovered.
    pub file: PathBuf,
    /// Work of the agent.
    pub reach: AgentReach,
    /// Absolute path of the file.
    place: PathBuf,
    /// sha256 of the file and the files that it names.
    digest: String,
}

/// The file that stores trusted agent files.
#[derive(Clone, Debug)]
pub struct TrustStore {
    path: PathBuf,
}

/// Trusted agent files by folder, each with its digest.
#[derive(Default, Deserialize, Serialize)]
struct TrustedFiles {
    #[serde(default)]
    folders: BTreeMap<PathBuf, BTreeMap<String, String>>,
}

impl TrustStore {
    /// Returns the store of the user with these environment variables, or `None` without a home
    /// folder.
    pub fn of_user(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        let state =
            absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
        Some(Self { path: state.join("sinew/trusted-agents.json") })
    }

    fn read(&self) -> TrustedFiles {
        let read = read_file(&self.path, MAX_STORE_BYTES).ok();
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Returns the agents that are not trusted in the current state of their files.
    pub fn untrusted(&self, agents: Vec<ReachingAgent>) -> Vec<ReachingAgent> {
        let trusted = self.read().folders;
        let is_trusted = |agent: &ReachingAgent| {
            let (folder, name) = agent.place();
            trusted.get(&folder).and_then(|files| files.get(&name)) == Some(&agent.digest)
        };
        agents.into_iter().filter(|agent| !is_trusted(agent)).collect()
    }

    /// Stores agents as trusted while their files are unchanged. Only the user can read the store.
    pub fn trust(&self, agents: &[ReachingAgent]) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            let text = format!("cannot write {}: {error}", self.path.display());
            Failure::new(FailureKind::Failed, code::FILE_CANNOT_BE_WRITTEN.as_str(), text)
        };
        let parent = self.path.parent().unwrap_or(Path::new("."));
        make_private_folder(parent).map_err(|error| failed(&error))?;
        let mut trusted = self.read();
        for agent in agents {
            let (folder, name) = agent.place();
            trusted.folders.entry(folder).or_default().insert(name, agent.digest.clone());
        }
        let text = serde_json::to_vec_pretty(&trusted).map_err(|error| failed(&error))?;
        // Written atomically, because a partial file would lose every folder.
        let mut file = private_file(parent).map_err(|error| failed(&error))?;
        file.write_all(&text).map_err(|error| failed(&error))?;
        file.persist(&self.path).map(drop).map_err(|error| failed(&error))
    }
}

impl ReachingAgent {
    fn place(&self) -> (PathBuf, String) {
        let name = self.place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (self.place.parent().unwrap_or(Path::new("/")).to_owned(), name)
    }
}

/// Creates a file for the user only, which gets its final name when it is complete.
fn private_file(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    tempfile::NamedTempFile::new_in(folder)
}

/// Returns the agents that act outside their sandbox, by file.
pub fn reaching<'a>(agents: impl Iterator<Item = &'a Arc<Agent>>) -> Vec<ReachingAgent> {
    let reaching = agents.filter(|agent| !agent.reach().is_empty()).filter_map(|agent| {
        // Built-in agents have no file.
        let place = agent.file().canonicalize().ok()?;
        let (file, reach) = (agent.file().to_owned(), agent.reach().clone());
        let digest = digest_of(&place, &reach);
        Some(ReachingAgent { name: agent.name().to_owned(), file, reach, place, digest })
    });
    let mut found: Vec<ReachingAgent> = reaching.collect();
    found.sort_by(|one, other| one.file.cmp(&other.file));
    found
}

/// Returns the sha256 of an agent file and the files that it names.
fn digest_of(file: &Path, reach: &AgentReach) -> String {
    let mut lines = String::new();
    for path in std::iter::once(file).chain(reach.files.iter().map(PathBuf::as_path)) {
        // An unreadable file differs from any content.
        let content = read_file(path, MAX_FILE_BYTES).map_or_else(|_| "-".to_owned(), |bytes| sha256(&bytes));
        lines.push_str(&content);
        lines.push('\n');
    }
    sha256(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sinew_agents::AgentSet;

    use super::*;

    fn untrusted(store: &TrustStore, folder: &Path) -> Vec<String> {
        let set = AgentSet::load_paths(&[folder.to_owned()]).unwrap();
        let untrusted = store.untrusted(reaching(set.iter()));
        untrusted.iter().map(|agent| agent.place().1).collect()
    }

    #[test]
    fn a_folder_is_trusted_until_a_file_changes() {
        let home = tempfile::tempdir().unwrap();
        let store = TrustStore::of_user(|name| (name == "HOME").then(|| home.path().to_owned())).unwrap();
        let agents = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(agents.path().join(name), text).unwrap();
        write("sum.agent.yaml", "name: Sum\nrun: {script: {source: 'lambda input: 1'}}\n");
        assert_eq!(untrusted(&store, agents.path()), Vec::<String>::new(), "it only computes");
        write("x.agent.yaml", "name: X\nrun: {command: {argv: [python3, x.py]}}\n");
        write("x.py", "print(1)");
        let trust = || {
            let set = AgentSet::load_paths(&[agents.path().to_owned()]).unwrap();
            store.trust(&reaching(set.iter())).unwrap();
            assert_eq!(untrusted(&store, agents.path()), Vec::<String>::new());
        };
        let changes: [(&str, &str); 4] = [
            ("x.agent.yaml", "name: X\nrun: {command: {argv: [python3, x.py, more]}}\n"),
            ("x.py", "print(2)"),
            ("y.agent.yaml", "name: Y\nrun: {http: {url: 'https://a.example/'}}\n"),
            ("sum.agent.yaml", "name: Sum\nrun: {command: {argv: ['true']}}\n"),
        ];
        assert_eq!(untrusted(&store, agents.path()), ["x.agent.yaml"]);
        trust();
        for (file, text) in changes {
            write(file, text);
            assert!(!untrusted(&store, agents.path()).is_empty(), "{file}");
            trust();
        }
        // An agent that only computes needs no trust.
        write("z.agent.yaml", "name: Z\nrun: {script: {source: 'lambda input: 2'}}\n");
        assert_eq!(untrusted(&store, agents.path()), Vec::<String>::new());
        #[cfg(unix)]
        for (path, mode) in [("", 0o700), ("trusted-agents.json", 0o600)] {
            use std::os::unix::fs::PermissionsExt as _;
            let path = home.path().join(".local/state/sinew").join(path);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{path:?}");
        }
    }
}
