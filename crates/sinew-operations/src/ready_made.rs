//! The agents that ship with Sinew: the files of the top-level folder `agent-cards`, built into the program.

use std::path::Path;

use sinew_agents::{Agent, AgentSet};

use crate::failure::Failure;

/// The files, by name.
const FILES: [(&str, &str); 11] = [
    ("echo.agent.yaml", include_str!("../../../agent-cards/echo.agent.yaml")),
    ("failing.agent.yaml", include_str!("../../../agent-cards/failing.agent.yaml")),
    ("greeter.agent.yaml", include_str!("../../../agent-cards/greeter.agent.yaml")),
    ("http.agent.yaml", include_str!("../../../agent-cards/http.agent.yaml")),
    ("judge.agent.yaml", include_str!("../../../agent-cards/judge.agent.yaml")),
    ("record-tools.agent.yaml", include_str!("../../../agent-cards/record-tools.agent.yaml")),
    ("researcher.agent.yaml", include_str!("../../../agent-cards/researcher.agent.yaml")),
    ("router.agent.yaml", include_str!("../../../agent-cards/router.agent.yaml")),
    ("summariser.agent.yaml", include_str!("../../../agent-cards/summariser.agent.yaml")),
    ("text-tools.agent.yaml", include_str!("../../../agent-cards/text-tools.agent.yaml")),
    ("writer.agent.yaml", include_str!("../../../agent-cards/writer.agent.yaml")),
];

/// Adds the ready-made agents whose names are not in a set. Returns the added names.
pub fn add_ready_made(set: &mut AgentSet) -> Result<Vec<String>, Failure> {
    let mut added = Vec::new();
    for (name, text) in FILES {
        let path = Path::new("<sinew>/agent-cards").join(name);
        let agent = Agent::from_text(&path, text).map_err(Failure::diagnostics)?;
        if set.get(agent.name()).is_none() {
            added.push(agent.name().to_owned());
            set.add(agent).map_err(Failure::diagnostics)?;
        }
    }
    Ok(added)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_the_folder_are_built_in_and_own_agents_come_first() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../agent-cards");
        let mut files: Vec<String> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".agent.yaml"))
            // It reads the folder of its file, which a built-in agent does not have.
            .filter(|name| name != "file-researcher.agent.yaml")
            .collect();
        files.sort();
        assert_eq!(files, FILES.map(|(name, _)| name));
        let mut set = AgentSet::default();
        let own = "name: echo\ndescription: My own.\nrun: {script: {source: \"lambda input: 1\"}}\n";
        set.add(Agent::from_text(Path::new("own.agent.yaml"), own).unwrap()).unwrap();
        let added = add_ready_made(&mut set).unwrap();
        let without_echo = FILES.iter().skip(1).map(|(name, _)| name.trim_end_matches(".agent.yaml"));
        assert_eq!(added, without_echo.collect::<Vec<_>>());
        assert_eq!(set.get("echo").unwrap().description(), "My own.");
    }
}
