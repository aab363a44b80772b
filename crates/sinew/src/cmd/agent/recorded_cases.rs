//! Recorded conversations as test files that `sinew test` replays without a model.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};
use sinew_agents::Agent;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

use crate::output::{Output, to_yaml};

/// Maximum number of recordings of one agent in one folder.
const MAX_RECORDINGS: u32 = 10_000;

/// Writes cases of an agent into a folder, as `AGENT.recorded-N.test.yaml` with the first free number.
pub(super) fn write(folder: &Path, agent: &Agent, cases: &[Value], output: &Output) -> Result<(), Failure> {
    if cases.is_empty() {
        output.note("nothing was recorded: no conversation with a language model ended");
        return Ok(());
    }
    let failed = |path: &Path, error: &std::io::Error| {
        let text = format!("cannot write {}: {error}", path.display());
        Failure::new(FailureKind::Failed, code::FILE_CANNOT_BE_WRITTEN.as_str(), text)
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let place = folder.canonicalize().map_err(|error| failed(folder, &error))?;
    let file = agent.file().canonicalize().map_err(|error| Failure::unreadable(agent.file(), &error))?;
    let document = json!({ "agent": seen_from(&place, &file).display().to_string(), "cases": cases });
    let path = free_path(folder, agent.name());
    fs::write(&path, to_yaml(&document)).map_err(|error| failed(&path, &error))?;
    output.note(&format!("recorded in {0}; replay it with: sinew test {0}", path.display()));
    Ok(())
}

/// Returns the path of a file relative to a folder; both are absolute.
fn seen_from(folder: &Path, file: &Path) -> PathBuf {
    let (mut here, mut there) = (folder.components().peekable(), file.components().peekable());
    while here.peek().is_some() && here.peek() == there.peek() {
        here.next();
        there.next();
    }
    here.map(|_| Component::ParentDir).chain(there).collect()
}

fn free_path(folder: &Path, agent: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = agent.chars().map(plain).take(64).collect();
    let path = |number: u32| folder.join(format!("{name}.recorded-{number}.test.yaml"));
    (1..MAX_RECORDINGS).map(path).find(|path| !path.exists()).unwrap_or_else(|| path(MAX_RECORDINGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_from_the_folder_of_the_recording() {
        for (folder, file, seen) in [
            ("/a/b", "/a/b/c.yaml", "c.yaml"),
            ("/a/b/rec", "/a/b/cards/c.yaml", "../cards/c.yaml"),
            ("/x", "/a/c.yaml", "../a/c.yaml"),
        ] {
            assert_eq!(seen_from(Path::new(folder), Path::new(file)), Path::new(seen));
        }
    }
}
