//! Workflow files and agent files uploaded by clients. They are untrusted: no files next to them
//! are read, and no variables are available.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sinew_agents::Agent;
use sinew_dialects::{FileVariables, LowerOptions, load_workflow_file};
use sinew_source::{Diagnostics, Document, Limits, LoadOptions, VariableRules, Variables};

use crate::failure::Failure;
use crate::workflow_file::{Loaded, dialect_of, program};
use crate::workflow_search::SearchedFile;

/// Reason why a file next to an uploaded file is not read.
const NOTHING_BESIDE: &str = "an uploaded file cannot reference other files";

/// Reads and checks a workflow file or an agent file. Its diagnostics contain all errors.
pub fn check_posted_file(name: &str, bytes: &[u8], dialect: Option<&str>) -> Result<SearchedFile, Failure> {
    if dialect.is_none() && is_agent_file(name, bytes) {
        let diagnostics = match Agent::from_posted_text(name, &String::from_utf8_lossy(bytes)) {
            Ok(agent) => agent.warnings().clone(),
            Err(diagnostics) => diagnostics,
        };
        return Ok(SearchedFile { path: PathBuf::from(name), loaded: None, diagnostics });
    }
    let (loaded, diagnostics) = match posted_workflow(name, bytes, dialect) {
        Ok(loaded) => {
            let found = warnings(&loaded);
            (Some(loaded), found)
        }
        Err(Failure { diagnostics: Some(diagnostics), .. }) => (None, diagnostics),
        Err(failure) => return Err(failure),
    };
    Ok(SearchedFile { path: PathBuf::from(name), loaded, diagnostics })
}

/// Returns whether a file describes an agent: it defines how the agent runs, and no dialect
/// recognizes it.
fn is_agent_file(name: &str, bytes: &[u8]) -> bool {
    posted_document(name, bytes).is_ok_and(|document| {
        document.root.get("run").is_some_and(|run| run.as_object().is_some())
            && sinew_dialects::detect(&document).is_none()
    })
}

/// Reads and lowers a file. The failure's diagnostics contain all errors.
pub fn posted_workflow(name: &str, bytes: &[u8], dialect: Option<&str>) -> Result<Loaded, Failure> {
    let load_options = LoadOptions {
        name,
        variables: Variables::Kept,
        read: &|_: &Path| Err(NOTHING_BESIDE.to_owned()),
        limits: Limits::default(),
    };
    let no_rules = VariableRules::default();
    let variables = FileVariables { rules: &no_rules, environment: &|_: &str| None };
    let named = dialect.and_then(sinew_dialects::by_name);
    let document =
        load_workflow_file(bytes, &load_options, named, variables).map_err(Failure::diagnostics)?;
    lower_posted(name, document, dialect)
}

/// Lowers an uploaded document; no other file is read.
pub fn lower_posted(name: &str, document: Document, dialect: Option<&str>) -> Result<Loaded, Failure> {
    let dialect = dialect_of(&document, dialect)?;
    let path = PathBuf::from(name);
    let stem = path.file_stem().map_or_else(|| "workflow".into(), |stem| stem.to_string_lossy().into_owned());
    let options = LowerOptions {
        default_name: stem.trim_end_matches(".workflow"),
        read: &|_| Err(NOTHING_BESIDE.to_owned()),
        list: &|_| Err(NOTHING_BESIDE.to_owned()),
        agents: &BTreeMap::new(),
    };
    let workflows = dialect.lower(document, &options).map_err(Failure::diagnostics)?;
    Ok(Loaded { path, dialect, workflows })
}

/// Reads a file as a document, without lowering it.
pub fn posted_document(name: &str, bytes: &[u8]) -> Result<Document, Failure> {
    let options = LoadOptions {
        name,
        variables: Variables::Kept,
        read: &|_: &Path| Err(NOTHING_BESIDE.to_owned()),
        limits: Limits::default(),
    };
    sinew_source::load(bytes, &options).map_err(Failure::diagnostics)
}

/// Returns the findings of lowering, and those that require the complete plan.
fn warnings(loaded: &Loaded) -> Diagnostics {
    let mut found: Option<Diagnostics> = None;
    for lowered in &loaded.workflows {
        let all = found.get_or_insert_with(|| Diagnostics::new(lowered.warnings.sources.clone()));
        all.extend(lowered.warnings.items.iter().cloned());
        if let Err(failure) = program(loaded.dialect, lowered) {
            all.push(sinew_source::Diagnostic::error(failure.code, failure.message));
        }
    }
    let mut found = found.unwrap_or_default();
    found.sort();
    found
}
