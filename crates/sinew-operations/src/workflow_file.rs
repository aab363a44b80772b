//! Reads workflow files and agents from disk.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use sinew_agents::AgentError;
use sinew_dialects::{Dialect, FileVariables, LowerOptions, Lowered, load_workflow_file};
use sinew_execution::{Library, Program};
use sinew_files::{is_stdin, read_file, read_stdin};
use sinew_protocol::code;
use sinew_protocol::env;
use sinew_source::{
    Diagnostic, Diagnostics, Document, Limits, LoadOptions, Sources, VariableRules, Variables, load_data,
};

use crate::failure::{Failure, FailureKind};

/// No dialect recognizes the file.
const UNKNOWN_DIALECT: &str = code::UNKNOWN_DIALECT.as_str();

/// Confidence from which a file is certainly of another dialect than the requested one.
const CERTAIN: u8 = 60;

/// Maximum number of names listed in one folder.
const MAX_LISTED: usize = 1_000;

/// Maximum size of a workflow file, a test file or an input.
fn max_source_bytes() -> u64 {
    Limits::default().max_bytes as u64
}

/// A workflow file that was read and lowered.
pub struct Loaded {
    /// Path from which it was read.
    pub path: PathBuf,
    /// Its dialect.
    pub dialect: &'static dyn Dialect,
    /// Its workflows; at least one.
    pub workflows: Vec<Lowered>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded")
            .field("path", &self.path)
            .field("dialect", &self.dialect.name())
            .finish_non_exhaustive()
    }
}

/// Settings for reading workflow files.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The dialect, instead of detecting it from the content.
    pub dialect: Option<String>,
    /// Agents for work without an agent in the file, by kind of work.
    pub agents: BTreeMap<String, String>,
    /// Whether texts may be fetched from URLs.
    pub fetch: bool,
    /// Environment variables that application files may reference.
    pub variables: VariableRules,
    /// Budget of one execution in USD for all reported model calls; `None` for no limit.
    pub cost_usd: Option<f64>,
    /// Schemas of agents next to the file, by `agent-input:NAME` and `agent-output:NAME`.
    pub agent_schemas: BTreeMap<String, serde_json::Value>,
}

/// Reads a workflow file, a test file or an input; `-` reads standard input.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_up_to(path, max_source_bytes())
}

/// Reads a file up to `max_bytes` bytes; `-` reads standard input.
pub fn read_up_to(path: &Path, max_bytes: u64) -> Result<Vec<u8>, Failure> {
    let bytes = if is_stdin(path) { read_stdin(max_bytes) } else { read_file(path, max_bytes) };
    bytes.map_err(|error| Failure::unread(path, &error))
}

/// Reads a caller's data: JSON, or YAML without tags, in which every text is taken literally.
pub fn read_data(path: &Path) -> Result<serde_json::Value, Failure> {
    let document = load_data(&read(path)?, &shown(path), Limits::default());
    document.map(|document| document.root.to_json()).map_err(Failure::diagnostics)
}

/// Reads and lowers a workflow file. The failure's diagnostics contain all its errors.
pub fn workflow(path: &Path, options: &Options) -> Result<Loaded, Failure> {
    let document = workflow_document(path, &read(path)?, options).map_err(Failure::diagnostics)?;
    lower(path, document, options)
}

/// Parses a workflow file; included files are read from its folder. An application file may contain
/// variables.
pub fn workflow_document(path: &Path, bytes: &[u8], options: &Options) -> Result<Document, Diagnostics> {
    let folder = folder_of(path);
    let load_options = LoadOptions {
        name: &shown(path),
        variables: Variables::Kept,
        read: &|included: &Path| read_within(&folder, included),
        limits: Limits::default(),
    };
    // Lowering reports an unknown dialect.
    let dialect = options.dialect.as_deref().and_then(sinew_dialects::by_name);
    let environment = |name: &str| std::env::var(name).ok();
    let variables = FileVariables { rules: &options.variables, environment: &environment };
    load_workflow_file(bytes, &load_options, dialect, variables)
}

/// Parses an author's file without variables; included files are read from its folder.
pub fn document(path: &Path, bytes: &[u8]) -> Result<Document, Diagnostics> {
    let folder = folder_of(path);
    sinew_source::load(
        bytes,
        &LoadOptions {
            name: &shown(path),
            variables: Variables::Kept,
            read: &|included: &Path| read_within(&folder, included),
            limits: Limits::default(),
        },
    )
}

/// Returns the name of a file in diagnostics.
fn shown(path: &Path) -> String {
    if is_stdin(path) { "<stdin>".to_owned() } else { path.display().to_string() }
}

/// Returns the requested dialect, or the one detected from a document.
pub fn dialect_of(document: &Document, wanted: Option<&str>) -> Result<&'static dyn Dialect, Failure> {
    let Some(name) = wanted else {
        return sinew_dialects::detect(document).ok_or_else(|| unknown_dialect(&document.sources));
    };
    let dialect = sinew_dialects::by_name(name).ok_or_else(|| {
        let known: Vec<_> = sinew_dialects::all().iter().map(|dialect| dialect.name()).collect();
        Failure::usage(format!("unknown dialect '{name}'")).hint(format!("use one of {}", known.join(", ")))
    })?;
    match sinew_dialects::detect(document) {
        // Its findings would all have the same cause.
        Some(other) if dialect.detect(document) == 0 && other.detect(document) >= CERTAIN => {
            let mut diagnostics = Diagnostics::new(document.sources.clone());
            let text = format!("not a workflow of the dialect '{name}': it looks like '{}'", other.name());
            let finding = Diagnostic::error(UNKNOWN_DIALECT, text).at(document.root.span);
            diagnostics.push(finding.hint(format!("use --dialect {}, or omit --dialect", other.name())));
            Err(Failure::diagnostics(diagnostics))
        }
        _ => Ok(dialect),
    }
}

/// Lowers a parsed document.
pub fn lower(path: &Path, document: Document, options: &Options) -> Result<Loaded, Failure> {
    let dialect = dialect_of(&document, options.dialect.as_deref())?;
    let stem = path.file_stem().map_or_else(|| "workflow".into(), |stem| stem.to_string_lossy().into_owned());
    let folder = folder_of(path);
    let mut workflows = dialect
        .lower(
            document,
            &LowerOptions {
                default_name: stem.trim_end_matches(".workflow"),
                read: &|wanted| match wanted.split_once(':') {
                    // Dialects only check whether a variable is set, never its value.
                    Some(("env", name)) => {
                        std::env::var_os(name).map(|_| Vec::new()).ok_or_else(|| format!("{name} is not set"))
                    }
                    Some(("caller", path)) => read_of_caller(path),
                    Some(("agent-input" | "agent-output", _)) => {
                        let schema = options.agent_schemas.get(wanted);
                        schema
                            .map(|schema| schema.to_string().into_bytes())
                            .ok_or_else(|| "the schema of the agent is unknown".to_owned())
                    }
                    _ => read_source(&folder, wanted, options.fetch),
                },
                list: &|wanted| list_beside(&folder, Path::new(wanted)),
                agents: &options.agents,
            },
        )
        .map_err(Failure::diagnostics)?;
    for lowered in workflows.iter_mut().filter(|_| options.cost_usd.is_some()) {
        lowered.plan.limits.cost_usd = options.cost_usd;
    }
    Ok(Loaded { path: path.to_owned(), dialect, workflows })
}

fn unknown_dialect(sources: &Sources) -> Failure {
    let mut diagnostics = Diagnostics::new(sources.clone());
    diagnostics.push(Diagnostic::error(UNKNOWN_DIALECT, "not a workflow of any known dialect").hint(
        "a `sam` file has `nodes:`, `workflow:` or `apps:` at the top level; set the dialect with --dialect",
    ));
    Failure::diagnostics(diagnostics)
}

impl Loaded {
    /// Returns the workflow with this name; without a name the only (or first) one.
    pub fn pick(&self, name: Option<&str>) -> Result<&Lowered, Failure> {
        match name {
            None => self.workflows.first(),
            Some(name) => self.workflows.iter().find(|lowered| lowered.plan.name == name),
        }
        .ok_or_else(|| {
            let known: Vec<_> = self.workflows.iter().map(|lowered| lowered.plan.name.as_str()).collect();
            let wanted = name.unwrap_or_default();
            Failure::new(
                FailureKind::NotFound,
                code::FILE_WITHOUT_WORKFLOW.as_str(),
                format!("{} has no workflow '{wanted}'", self.path.display()),
            )
            .hint(format!("it has {}", known.join(", ")))
        })
    }

    /// Returns all workflows of the file, ready to run and able to call each other.
    pub fn library(&self) -> Result<Library, Failure> {
        let mut library = Library::default();
        self.add_to(&mut library)?;
        Ok(library)
    }

    /// Adds all workflows of the file to a library.
    pub fn add_to(&self, library: &mut Library) -> Result<(), Failure> {
        for lowered in &self.workflows {
            library.insert(program(self.dialect, lowered)?);
        }
        Ok(())
    }
}

/// Converts a lowered workflow to a program.
pub fn program(dialect: &dyn Dialect, lowered: &Lowered) -> Result<Program, Failure> {
    Program::new(lowered.plan.clone(), dialect.adapter()).map_err(|error| {
        Failure::new(
            FailureKind::Failed,
            code::WORKFLOW_CANNOT_BE_RUN.as_str(),
            format!("the workflow cannot be run: {error}"),
        )
    })
}

/// Returns whether a file with this name may be a workflow.
pub(crate) fn is_candidate(name: &str) -> bool {
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    let other = [".test", ".agent"].iter().any(|kind| stem.ends_with(kind));
    matches!(extension, "yaml" | "yml" | "json") && !other && !name.starts_with('.')
}

/// Returns the folder of a file; the current one for a file name only.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Reads an input with the files that it names, from the current folder: it belongs to the caller,
/// not to the author of the workflow.
pub fn input(
    dialect: &dyn Dialect,
    input: serde_json::Value,
    fetch: bool,
) -> Result<serde_json::Value, Failure> {
    let read = |wanted: &str| read_source(Path::new("."), wanted, fetch);
    dialect.read_input(input, &read).map_err(Failure::diagnostics)
}

/// Reads a source named by a workflow or an input: a file, or a text at a URL if allowed.
fn read_source(folder: &Path, wanted: &str, fetch: bool) -> Result<Vec<u8>, String> {
    if !is_url(wanted) || !fetch {
        return read_beside(folder, Path::new(wanted));
    }
    let url = wanted.to_owned();
    // Uses a separate thread, because the caller may be inside a runtime, which must not block.
    let read = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(sinew_agents::fetch(&url)).map_err(|error| match error {
            AgentError::Status { status, .. } | AgentError::Unavailable { status, .. } => {
                format!("the server responded with HTTP status {status}")
            }
            other => other.to_string(),
        })
    });
    read.join().unwrap_or_else(|_| Err("the reading thread panicked".to_owned()))
}

fn is_url(wanted: &str) -> bool {
    wanted.starts_with("http://") || wanted.starts_with("https://")
}

/// Reads a file named by a workflow, by its relative path. Only files below the folder of the
/// workflow or the current folder are allowed.
pub fn read_beside(folder: &Path, wanted: &Path) -> Result<Vec<u8>, String> {
    if wanted.to_str().is_some_and(is_url) {
        return Err(
            "URLs are not allowed; add --fetch, or save the file next to the workflow and reference it"
                .into(),
        );
    }
    if !is_relative(wanted) {
        return Err("only relative paths are read".into());
    }
    read_within(folder, &folder.join(wanted))
}

/// Lists a folder named by a workflow, by its relative path; names of folders end with a slash. The
/// same folders as for [`read_beside`] are allowed.
pub(crate) fn list_beside(folder: &Path, wanted: &Path) -> Result<Vec<String>, String> {
    if !is_relative(wanted) {
        return Err("only relative paths are read".into());
    }
    let text = |error: std::io::Error| error.to_string();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(allowed(folder, &folder.join(wanted))?).map_err(text)?.take(MAX_LISTED) {
        let entry = entry.map_err(text)?;
        if let Ok(name) = entry.file_name().into_string() {
            let is_folder = entry.file_type().map_err(text)?.is_dir();
            names.push(if is_folder { name + "/" } else { name });
        }
    }
    names.sort();
    Ok(names)
}

fn is_relative(path: &Path) -> bool {
    !path.is_absolute() && !path.components().any(|part| matches!(part, Component::Prefix(_)))
}

/// Reads a file below the folder of the workflow or the current folder only: a third-party workflow
/// must not read other files.
fn read_within(folder: &Path, path: &Path) -> Result<Vec<u8>, String> {
    read_file(&allowed(folder, path)?, max_source_bytes()).map_err(|error| error.to_string())
}

/// Reads a file that the caller provides for a workflow: `skills/PATH` in the folder of
/// [`env::SKILLS`].
fn read_of_caller(path: &str) -> Result<Vec<u8>, String> {
    let folder = std::env::var_os(env::SKILLS).filter(|folder| !folder.is_empty());
    let (Some(folder), Some(path)) = (folder, path.strip_prefix("skills/")) else {
        return Err("the caller does not provide this file".to_owned());
    };
    let text = |error: std::io::Error| error.to_string();
    let folder = PathBuf::from(folder).canonicalize().map_err(text)?;
    let target = folder.join(path).canonicalize().map_err(text)?;
    if !target.starts_with(&folder) {
        return Err("it is outside the folder of the caller's skills".into());
    }
    read_file(&target, max_source_bytes()).map_err(|error| error.to_string())
}

/// Returns the canonical path, if it may be read.
fn allowed(folder: &Path, path: &Path) -> Result<PathBuf, String> {
    let text = |error: std::io::Error| error.to_string();
    let target = path.canonicalize().map_err(text)?;
    let allowed = [folder, Path::new(".")];
    let inside =
        allowed.iter().filter_map(|root| root.canonicalize().ok()).any(|root| target.starts_with(root));
    if !inside {
        return Err("it is outside the folder of the file and the current folder".into());
    }
    Ok(target)
}

/// Rejects two files with one workflow name, because one would replace the other.
pub fn unique_names(loaded: &[Loaded]) -> Result<(), Failure> {
    let mut seen: BTreeMap<&str, &Path> = BTreeMap::new();
    for file in loaded {
        for lowered in &file.workflows {
            if let Some(other) = seen.insert(&lowered.plan.name, &file.path) {
                let (name, here) = (&lowered.plan.name, file.path.display());
                let text = format!("workflow '{name}' is in {} and in {here}", other.display());
                return Err(Failure::usage(text).hint("specify the files to use"));
            }
        }
    }
    Ok(())
}
