//! Workflows in the files next to a workflow, which it can call by name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sinew_dialects::Lowered;
use sinew_documents::words;
use sinew_execution::Library;
use sinew_files::is_stdin;
use sinew_plan::NodeOperation;
use sinew_protocol::card::PERSON_QUESTION;
use sinew_protocol::code;
use sinew_source::{Diagnostic, did_you_mean};

use crate::failure::Failure;
use crate::workflow_file::{self, Loaded, Options, folder_of, is_candidate};

/// Maximum number of files next to a workflow that are read.
const MAX_FILES: usize = 1_000;

/// The workflow files of folders, each read once.
#[derive(Debug, Default)]
pub struct Neighbours {
    folders: BTreeMap<PathBuf, Vec<Loaded>>,
}

impl Neighbours {
    /// Returns the readable workflow files of the folder of `path`, by name.
    fn beside(&mut self, path: &Path, options: &Options) -> &[Loaded] {
        let folder = folder_of(path);
        self.folders.entry(folder.clone()).or_insert_with(|| read_folder(&folder, options))
    }

    /// Returns the workflow names that a file can call: its own, and those of the files next to it.
    fn names(&mut self, loaded: &Loaded, options: &Options) -> BTreeSet<String> {
        let beside = self.beside(&loaded.path, options).iter().flat_map(|file| &file.workflows);
        loaded.workflows.iter().chain(beside).map(|lowered| lowered.plan.name.clone()).collect()
    }

    /// Returns the findings about called workflows that neither the file nor one next to it
    /// defines. If these define no other workflow, nothing is known about the workflow's callees.
    pub(crate) fn findings(&mut self, loaded: &Loaded, options: &Options) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        for (lowered, node, name) in loaded
            .workflows
            .iter()
            .flat_map(|lowered| called_workflows(lowered).map(move |(node, name)| (lowered, node, name)))
        {
            let names = self.names(loaded, options);
            if names.contains(name) || names.len() < 2 {
                continue;
            }
            let message = format!("no workflow file next to this one defines '{name}'");
            let finding =
                Diagnostic::warning(code::WORKFLOW_WITHOUT_FILE.as_str(), message).hint(advice(name, &names));
            found.push(match lowered.places.get(node).copied().flatten() {
                Some(place) => finding.at(place),
                None => finding,
            });
        }
        found
    }
}

/// Returns advice about a workflow that no file defines.
fn advice(name: &str, names: &BTreeSet<String>) -> String {
    match did_you_mean(name, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean '{near}'?"),
        None => "save its file in this folder, or deploy it to the mesh".to_owned(),
    }
}

/// A workflow file, the files next to it whose workflows it calls, and the names of callees that
/// no file defines.
#[derive(Debug)]
pub struct CalledFiles {
    /// Files next to the workflow that define called workflows, directly or indirectly.
    pub files: Vec<Loaded>,
    /// Called workflows that no file defines, with advice for each.
    pub missing: BTreeMap<String, String>,
}

impl CalledFiles {
    /// Finds the files that define the workflows that `loaded` calls, in any dialect.
    ///
    /// # Errors
    /// Fails if two files next to the workflow define a called workflow.
    pub fn of(loaded: &Loaded, options: &Options) -> Result<Self, Failure> {
        let mut open: Vec<String> = names_called_by(loaded);
        let mut known: BTreeSet<String> =
            loaded.workflows.iter().map(|lowered| lowered.plan.name.clone()).collect();
        let mut called = Self { files: Vec::new(), missing: BTreeMap::new() };
        if open.iter().all(|name| known.contains(name)) {
            return Ok(called);
        }
        let mut beside = read_folder(&folder_of(&loaded.path), &Options { dialect: None, ..options.clone() });
        beside.retain(|file| !is_same(&file.path, &loaded.path));
        let all: BTreeSet<String> = beside
            .iter()
            .flat_map(|file| &file.workflows)
            .map(|lowered| lowered.plan.name.clone())
            .chain(known.iter().cloned())
            .collect();
        while let Some(name) = open.pop() {
            if known.contains(&name) {
                continue;
            }
            let defines = |file: &Loaded| file.workflows.iter().any(|lowered| lowered.plan.name == name);
            match beside.iter().position(defines) {
                None => drop(called.missing.insert(name.clone(), advice(&name, &all))),
                Some(at) => {
                    let file = beside.remove(at);
                    if let Some(other) = beside.iter().chain(&called.files).find(|other| defines(other)) {
                        let (one, other) = (file.path.display(), other.path.display());
                        let text = format!("workflow '{name}' is in {one} and in {other}");
                        return Err(
                            Failure::usage(text).hint("rename one of them, so that the call has one meaning")
                        );
                    }
                    open.extend(names_called_by(&file));
                    known.extend(file.workflows.iter().map(|lowered| lowered.plan.name.clone()));
                    called.files.push(file);
                }
            }
        }
        Ok(called)
    }

    /// Returns the workflows of the file and of the called files, ready to run.
    pub fn library(&self, loaded: &Loaded) -> Result<Library, Failure> {
        let mut library = Library::default();
        // The file's own workflows replace those of the same name in other files.
        for file in self.files.iter().chain([loaded]) {
            file.add_to(&mut library)?;
        }
        Ok(library)
    }

    /// Returns the warning about missing workflows, and the hint; `None` if none is missing.
    pub fn warning(&self) -> Option<(String, String)> {
        let (_, hint) = self.missing.first_key_value()?;
        let names: Vec<String> = self.missing.keys().map(|name| words::name(name)).collect();
        let text = format!(
            "no workflow file for {}; nodes that call it will fail [{}]",
            names.join(", "),
            code::NO_SUCH_WORKFLOW.as_str()
        );
        Some((text, hint.clone()))
    }
}

fn names_called_by(loaded: &Loaded) -> Vec<String> {
    loaded.workflows.iter().flat_map(called_workflows).map(|(_, name)| name.to_owned()).collect()
}

/// Returns the workflows that nodes of a plan call, each with the index of the node.
fn called_workflows(lowered: &Lowered) -> impl Iterator<Item = (usize, &str)> {
    let nodes = lowered.plan.nodes.iter().enumerate();
    let calls = nodes.filter(|(_, node)| !node.attached && node.op == NodeOperation::Workflow);
    // Only executors serve the question to a person.
    calls
        .filter_map(|(at, node)| Some((at, node.agent.as_deref()?)))
        .filter(|(_, name)| *name != PERSON_QUESTION)
}

/// Reads the workflow files of a folder. Files with errors define nothing; they are reported when
/// they are validated.
fn read_folder(folder: &Path, options: &Options) -> Vec<Loaded> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = named
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_candidate))
        .filter(|path| path.is_file())
        .take(MAX_FILES)
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let document =
            workflow_file::workflow_document(&path, &workflow_file::read(&path).ok()?, options).ok()?;
        sinew_dialects::detect(&document)?;
        workflow_file::lower(&path, document, options).ok()
    };
    paths.into_iter().filter_map(read).collect()
}

fn is_same(one: &Path, other: &Path) -> bool {
    !is_stdin(other) && one.canonicalize().ok() == other.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "name: parent\nworkflow:\n  description: P\n  nodes:\n    - {id: a, type: workflow, workflow_name: NAME}\n  output_mapping: {a: '{{a.output}}'}\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn sam(name: &str, calls: &str) -> String {
        PARENT.replace("parent", name).replace("NAME", calls)
    }

    const AGENTFLOW: &str = r#"{"name": "other", "connections": [], "nodes": [
        {"id": "s", "type": "start", "x": 0, "y": 0, "data": {"initialInput": "Ship it?"}},
        {"id": "ok", "type": "approval", "x": 1, "y": 0, "data": {"prompt": "Ship it?"}}
    ]}"#;

    fn called(folder: &tempfile::TempDir) -> Result<(Vec<String>, BTreeMap<String, String>), Failure> {
        let options = Options::default();
        let loaded = workflow_file::workflow(&folder.path().join("parent.yaml"), &options)?;
        let called = CalledFiles::of(&loaded, &options)?;
        let library = called.library(&loaded)?;
        let names = library.iter().map(|program| program.name().to_owned()).collect();
        Ok((names, called.missing))
    }

    #[test]
    fn called_workflows_are_found_next_to_the_file() {
        let files = folder(&[
            ("parent.yaml", &sam("parent", "middle")),
            ("middle.yaml", &sam("middle", "leaf")),
            ("leaf.yaml", &sam("leaf", "middle")),
            ("unused.yaml", &sam("unused", "leaf")),
            ("broken.yaml", "name: broken\nworkflow: {}\n"),
            ("middle.test.yaml", &sam("middle", "leaf")),
        ]);
        let (names, missing) = called(&files).unwrap();
        assert_eq!(
            (names, missing),
            (vec!["leaf".into(), "middle".into(), "parent".into()], BTreeMap::new())
        );
    }

    #[test]
    fn missing_workflows_are_reported_with_a_similar_name() {
        let files =
            folder(&[("parent.yaml", &sam("parent", "paiout")), ("payout.yaml", &sam("payout", "leaf"))]);
        let (names, missing) = called(&files).unwrap();
        assert_eq!(names, ["parent"]);
        assert_eq!(missing.get("paiout").map(String::as_str), Some("did you mean 'payout'?"));
        let options = Options::default();
        let loaded = workflow_file::workflow(&files.path().join("parent.yaml"), &options).unwrap();
        let found = Neighbours::default().findings(&loaded, &options);
        assert_eq!(found.len(), 1);
        assert!(found[0].span.is_some() && found[0].message.contains("'paiout'"), "{found:?}");

        let alone = folder(&[("parent.yaml", &sam("parent", "elsewhere"))]);
        let loaded = workflow_file::workflow(&alone.path().join("parent.yaml"), &options).unwrap();
        assert!(Neighbours::default().findings(&loaded, &options).is_empty(), "the mesh may have it");
    }

    #[test]
    fn two_files_with_a_called_workflow_are_refused() {
        let leaf = sam("leaf", "ask:person");
        let files = folder(&[("parent.yaml", &sam("parent", "leaf")), ("a.yaml", &leaf), ("b.yaml", &leaf)]);
        let failure = called(&files).unwrap_err();
        assert!(failure.message.contains("workflow 'leaf' is in"), "{failure:?}");
    }

    #[test]
    fn a_workflow_of_another_dialect_is_found() {
        let files = folder(&[("parent.yaml", &sam("parent", "other")), ("other.json", AGENTFLOW)]);
        assert_eq!(called(&files).unwrap().0, ["other", "parent"]);
    }
}
