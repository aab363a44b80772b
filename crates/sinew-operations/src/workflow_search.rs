//! Workflow files in files and folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use sinew_agents::{Agent, AgentSet};
use sinew_documents::finding::{CheckedFile, Finding, ValidationReport};
use sinew_protocol::code;
use sinew_source::{Diagnostic, Diagnostics, Sources, Span, token_span, trailing_comma};

use crate::failure::{Failure, FailureKind};
use crate::file_agents;
use crate::neighbours::Neighbours;
use crate::ready_made::add_ready_made;
use crate::workflow_file::{self, Loaded, Options, is_candidate};

/// No workflow was found.
pub const NOTHING_FOUND: &str = code::NO_WORKFLOW_FILE_FOUND.as_str();
/// A file is larger than its limit.
const TOO_LARGE: &str = code::FILE_TOO_LARGE.as_str();
/// Folders with third-party files or build output.
const PASSED_BY: [&str; 2] = ["node_modules", "target"];

/// A file and the result of reading it.
#[derive(Debug)]
pub struct SearchedFile {
    /// Its path, as displayed.
    pub path: PathBuf,
    /// Its workflows, if they are readable.
    pub loaded: Option<Loaded>,
    /// All its findings.
    pub diagnostics: Diagnostics,
}

/// Reads every workflow file among the paths, in the order of the paths, and folders by name. A
/// named file is always read; a file in a folder only if it is invalid or a dialect recognizes it.
pub fn find_workflows(paths: &[PathBuf], options: &Options) -> Result<Vec<SearchedFile>, Failure> {
    let mut found = Vec::new();
    // Agent files are reported once, although many workflows share their folder.
    let mut told = BTreeSet::new();
    let mut neighbours = Neighbours::default();
    for path in paths {
        if path.is_dir() {
            let mut files = Vec::new();
            walk(path, &mut files)?;
            for file in files {
                found.extend(read(&file, options, true, &mut told, &mut neighbours)?);
            }
        } else {
            found.extend(read(path, options, false, &mut told, &mut neighbours)?);
        }
    }
    Ok(found)
}

fn read(
    path: &Path,
    options: &Options,
    in_folder: bool,
    told: &mut BTreeSet<String>,
    neighbours: &mut Neighbours,
) -> Result<Option<SearchedFile>, Failure> {
    let bytes = match workflow_file::read(path) {
        Ok(bytes) => bytes,
        // Among many files in a folder, one that is too large is a finding like other errors.
        Err(failure) if failure.code == TOO_LARGE => {
            let diagnostics = too_large(path, &failure);
            return Ok(Some(SearchedFile { path: path.to_owned(), loaded: None, diagnostics }));
        }
        Err(failure) => return Err(failure),
    };
    let document = match workflow_file::workflow_document(path, &bytes, options) {
        Ok(document) => document,
        Err(diagnostics) => {
            return Ok(Some(SearchedFile { path: path.to_owned(), loaded: None, diagnostics }));
        }
    };
    if in_folder {
        let known = match options.dialect.as_deref().and_then(sinew_dialects::by_name) {
            Some(dialect) => dialect.detect(&document) > 0,
            None => sinew_dialects::detect(&document).is_some(),
        };
        if !known {
            return Ok(None);
        }
    }
    let sources = document.sources.clone();
    let comma = trailing_comma(&sources);
    let (agents, unread) = match file_agents::load(&[], path) {
        Ok(agents) => (agents, None),
        Err(failure) => (AgentSet::default(), Some(agents_unread(&failure))),
    };
    let options = Options { agent_schemas: schemas_of(&agents), ..options.clone() };
    let (loaded, mut diagnostics) = match workflow_file::lower(path, document, &options) {
        Ok(loaded) => {
            let mut diagnostics = check(&loaded, agents, sources);
            diagnostics.extend(neighbours.findings(&loaded, &options));
            diagnostics.sort();
            (Some(loaded), diagnostics)
        }
        Err(Failure { diagnostics: Some(diagnostics), .. }) => (None, diagnostics),
        Err(failure) => return Err(failure),
    };
    diagnostics.extend(comma);
    diagnostics.extend(unread.filter(|finding| told.insert(finding.message.clone())));
    Ok(Some(SearchedFile { path: path.to_owned(), loaded, diagnostics }))
}

/// Returns the finding about invalid agent files next to a workflow.
fn agents_unread(failure: &Failure) -> Diagnostic {
    let findings = failure.diagnostics.as_ref();
    let text = findings.map_or_else(|| failure.message.clone(), ToString::to_string);
    let first = text.lines().next().unwrap_or_default();
    Diagnostic::warning(failure.code, format!("cannot read the agent files next to the workflow: {first}"))
        .hint("the workflow is not checked against its agents; `sinew agent list` shows all their errors")
}

/// Returns the finding about a file that exceeds the size limit of workflow files.
fn too_large(path: &Path, failure: &Failure) -> Diagnostics {
    let mut sources = Sources::default();
    sources.add(path.display().to_string(), "");
    let mut diagnostics = Diagnostics::new(sources);
    let finding = Diagnostic::error(TOO_LARGE, failure.message.clone());
    diagnostics.push(finding.at(sinew_source::Span::default()));
    diagnostics
}

/// Returns the schemas that agents declare, by the names that lowering uses.
fn schemas_of(agents: &AgentSet) -> BTreeMap<String, Value> {
    let parts = |agent: &Arc<Agent>| {
        let of =
            |part: &str, schema: Option<&Value>| Some((format!("{part}:{}", agent.name()), schema?.clone()));
        [of("agent-input", agent.input_schema()), of("agent-output", agent.output_schema())]
    };
    agents.iter().flat_map(parts).flatten().collect()
}

/// Returns the findings of lowering, and those that require the complete plan.
fn check(loaded: &Loaded, mut agents: AgentSet, sources: Sources) -> Diagnostics {
    let mut diagnostics = Diagnostics::new(sources);
    // Without agent files in the folder, nothing is known about the agents of its workflows.
    let has_agents = !agents.is_empty() && add_ready_made(&mut agents).is_ok();
    for lowered in &loaded.workflows {
        if has_agents {
            for (name, node) in file_agents::missing_agents(lowered, &agents) {
                // Other dialects use their own names for work without an agent in the file.
                let is_written = loaded.dialect.name() == "sam"
                    || sinew_source::did_you_mean(name, agents.names()).is_some();
                if !is_written {
                    continue;
                }
                let at = lowered.places.get(node).copied().flatten();
                let at = at.map(|at| agent_token(&diagnostics.sources, at, name).unwrap_or(at));
                diagnostics.extend([missing_agent(name, at, &agents)]);
            }
        }
        diagnostics.extend(file_agents::lacking_tools(loaded.dialect, lowered, &agents));
        diagnostics.extend(lowered.warnings.items.iter().cloned());
        if let Err(failure) = workflow_file::program(loaded.dialect, lowered) {
            diagnostics.push(sinew_source::Diagnostic::error(failure.code, failure.message));
        }
    }
    diagnostics
}

/// Returns the span of an agent's name in the text of a node.
fn agent_token(sources: &Sources, node: Span, name: &str) -> Option<Span> {
    const KEYS: [&str; 3] = ["agent_name", "agentName", "\"agent\":"];
    let text = sources.get(node.file)?.text.get(node.start..node.end)?;
    let after_key = KEYS.iter().find_map(|key| Some(text.find(key)? + key.len()))?;
    let start = after_key + text[after_key..].find(name)?;
    Some(token_span(sources, node, text, start..start + name.len()))
}

/// Returns the finding about an agent that no file next to the workflow declares.
fn missing_agent(name: &str, at: Option<Span>, agents: &AgentSet) -> Diagnostic {
    let finding = Diagnostic::warning(
        code::AGENT_WITHOUT_FILE.as_str(),
        format!("no agent file next to the workflow declares '{name}'"),
    );
    let finding = finding.hint(file_agents::advice_on_missing(name, agents));
    match at {
        Some(at) => finding.at(at),
        None => finding,
    }
}

/// Returns the report on these files.
pub fn validation_report(files: &[SearchedFile]) -> ValidationReport {
    let read = files.iter().map(|file| {
        let workflows = file.loaded.iter().flat_map(|loaded| &loaded.workflows);
        CheckedFile {
            file: file.path.display().to_string(),
            dialect: file.loaded.as_ref().map(|loaded| loaded.dialect.name().to_owned()),
            workflows: workflows.map(|lowered| lowered.plan.name.clone()).collect(),
            errors: file.diagnostics.errors(),
            warnings: file.diagnostics.warnings(),
        }
    });
    ValidationReport {
        version: 1,
        errors: files.iter().map(|file| file.diagnostics.errors()).sum(),
        warnings: files.iter().map(|file| file.diagnostics.warnings()).sum(),
        files: read.collect(),
        diagnostics: findings(files),
        drawings: None,
        sockets: None,
    }
}

/// Returns the findings in all files, in order.
pub fn findings(files: &[SearchedFile]) -> Vec<Finding> {
    files.iter().flat_map(|file| listed_findings(&file.diagnostics)).collect()
}

/// Converts findings to documents, in order.
pub fn listed_findings(diagnostics: &Diagnostics) -> Vec<Finding> {
    let text = sinew_source::render_json(diagnostics);
    serde_json::from_str(&text).map(|list: FindingList| list.diagnostics).unwrap_or_default()
}

/// Findings as the JSON of diagnostics lists them.
#[derive(Deserialize)]
struct FindingList {
    diagnostics: Vec<Finding>,
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::unreadable(folder, &error);
    let mut entries =
        std::fs::read_dir(folder).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder == Path::new(".") { PathBuf::from(&name) } else { entry.path() };
        // Links to folders are not followed, which prevents cycles.
        if entry.file_type().map_err(unreadable)?.is_dir() {
            if !name.starts_with('.') && !PASSED_BY.contains(&name.as_str()) {
                walk(&path, files)?;
            }
        } else if is_candidate(&name) && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the error for paths without a workflow.
pub fn nothing_found(kind: FailureKind, paths: &[PathBuf]) -> Failure {
    let places: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Failure::new(kind, NOTHING_FOUND, format!("no workflow file in {}", places.join(", ")))
        .hint("workflow files in folders end in .yaml, .yml or .json; a named file can have any ending")
}
