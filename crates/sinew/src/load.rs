//! Workflow files and agents, from disk to what the libraries take.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use sinew_agents::AgentError;
use sinew_dialects::{Dialect, LowerOptions, Lowered};
use sinew_executor::{Library, Program};
use sinew_source::{Diagnostic, Diagnostics, Document, LoadOptions, Sources};

use crate::exit::{Exit, Failure};

/// No dialect knows the file.
const UNKNOWN_DIALECT: &str = "SINEW-2001";

/// Names that are listed of one folder.
const MAX_LISTED: usize = 1_000;

/// A workflow file that was read and lowered.
pub(crate) struct Loaded {
    /// Where it was read from.
    pub(crate) path: PathBuf,
    /// Its dialect.
    pub(crate) dialect: &'static dyn Dialect,
    /// Its workflows; at least one.
    pub(crate) workflows: Vec<Lowered>,
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
pub(crate) struct Options {
    /// The dialect, instead of what the content says.
    pub(crate) dialect: Option<String>,
    /// Agents for work a dialect leaves open, by kind of work.
    pub(crate) agents: BTreeMap<String, String>,
    /// Whether texts at URLs may be read.
    pub(crate) fetch: bool,
}

/// Reads a file, or stdin for `-`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(|error| Failure::unreadable(path, &error))?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(|error| Failure::unreadable(path, &error))
}

/// Reads and lowers a workflow file. All that is wrong with it is in the failure's diagnostics.
pub(crate) fn workflow(path: &Path, options: &Options) -> Result<Loaded, Failure> {
    let bytes = read(path)?;
    let document = document(path, &bytes).map_err(Failure::diagnostics)?;
    lower(path, document, options)
}

/// Parses a file; included files are looked up beside it.
pub(crate) fn document(path: &Path, bytes: &[u8]) -> Result<Document, Diagnostics> {
    let name = if path == Path::new("-") { "<stdin>".to_owned() } else { path.display().to_string() };
    let folder = folder_of(path);
    sinew_source::load(
        bytes,
        &LoadOptions {
            name: &name,
            env: &|name| std::env::var(name).ok(),
            read: &|included: &Path| read_within(&folder, included),
            limits: sinew_source::Limits::default(),
        },
    )
}

/// The dialect that was asked for, or that a document looks like.
pub(crate) fn dialect_of(document: &Document, wanted: Option<&str>) -> Result<&'static dyn Dialect, Failure> {
    match wanted {
        Some(name) => sinew_dialects::by_name(name).ok_or_else(|| {
            let known: Vec<_> = sinew_dialects::all().iter().map(|dialect| dialect.name()).collect();
            Failure::usage(format!("there is no dialect '{name}'"))
                .hint(format!("use one of {}", known.join(", ")))
        }),
        None => sinew_dialects::detect(document).ok_or_else(|| unknown_dialect(&document.sources)),
    }
}

/// Lowers a parsed document.
pub(crate) fn lower(path: &Path, document: Document, options: &Options) -> Result<Loaded, Failure> {
    let dialect = dialect_of(&document, options.dialect.as_deref())?;
    let stem = path.file_stem().map_or_else(|| "workflow".into(), |stem| stem.to_string_lossy().into_owned());
    let folder = folder_of(path);
    let workflows = dialect
        .lower(
            document,
            &LowerOptions {
                default_name: stem.trim_end_matches(".workflow"),
                read: &|wanted| match wanted.strip_prefix("env:") {
                    // Dialects ask whether a variable is set, never what it holds.
                    Some(name) => {
                        std::env::var_os(name).map(|_| Vec::new()).ok_or_else(|| format!("{name} is not set"))
                    }
                    None => read_source(&folder, wanted, options.fetch),
                },
                list: &|wanted| list_beside(&folder, Path::new(wanted)),
                agents: &options.agents,
            },
        )
        .map_err(Failure::diagnostics)?;
    Ok(Loaded { path: path.to_owned(), dialect, workflows })
}

fn unknown_dialect(sources: &Sources) -> Failure {
    let mut diagnostics = Diagnostics::new(sources.clone());
    diagnostics.push(
        Diagnostic::error(UNKNOWN_DIALECT, "this is not a workflow of any known dialect")
            .hint("a `sam` file has `workflow:` or `apps:` at its top; name the dialect with --dialect"),
    );
    Failure::diagnostics(diagnostics)
}

impl Loaded {
    /// The workflow of this name; the only one (or the first) when no name is given.
    pub(crate) fn pick(&self, name: Option<&str>) -> Result<&Lowered, Failure> {
        match name {
            None => self.workflows.first(),
            Some(name) => self.workflows.iter().find(|lowered| lowered.plan.name == name),
        }
        .ok_or_else(|| {
            let known: Vec<_> = self.workflows.iter().map(|lowered| lowered.plan.name.as_str()).collect();
            let wanted = name.unwrap_or_default();
            Failure::new(
                Exit::NotFound,
                "SINEW-8004",
                format!("{} has no workflow '{wanted}'", self.path.display()),
            )
            .hint(format!("it has {}", known.join(", ")))
        })
    }

    /// All workflows of the file, ready to run and callable by each other.
    pub(crate) fn library(&self) -> Result<Library, Failure> {
        let mut library = Library::default();
        self.add_to(&mut library)?;
        Ok(library)
    }

    /// Adds all workflows of the file to a library.
    pub(crate) fn add_to(&self, library: &mut Library) -> Result<(), Failure> {
        for lowered in &self.workflows {
            library.insert(program(self.dialect, lowered)?);
        }
        Ok(())
    }
}

/// A lowered workflow, ready to run.
pub(crate) fn program(dialect: &dyn Dialect, lowered: &Lowered) -> Result<Program, Failure> {
    Program::new(lowered.plan.clone(), dialect.adapter()).map_err(|error| {
        Failure::new(Exit::Failed, "SINEW-2002", format!("the workflow cannot be run: {error}"))
    })
}

pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// An input with the files it names read, from the current folder: it is of who starts the execution, not of who wrote
/// the workflow.
pub(crate) fn input(
    dialect: &dyn Dialect,
    input: serde_json::Value,
    fetch: bool,
) -> Result<serde_json::Value, Failure> {
    let read = |wanted: &str| read_source(Path::new("."), wanted, fetch);
    dialect.read_input(input, &read).map_err(Failure::diagnostics)
}

/// Reads what a workflow or an input names: a file, or a text at a URL if that is allowed.
fn read_source(folder: &Path, wanted: &str, fetch: bool) -> Result<Vec<u8>, String> {
    if !is_url(wanted) || !fetch {
        return read_beside(folder, Path::new(wanted));
    }
    let url = wanted.to_owned();
    // A thread of its own: the caller may be inside a runtime, which must not be waited in.
    let read = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(sinew_agents::fetch(&url)).map_err(|error| match error {
            AgentError::Status { status, .. } | AgentError::Unavailable { status, .. } => {
                format!("the server answered with HTTP status {status}")
            }
            other => other.to_string(),
        })
    });
    read.join().unwrap_or_else(|_| Err("the reader died".to_owned()))
}

fn is_url(wanted: &str) -> bool {
    wanted.starts_with("http://") || wanted.starts_with("https://")
}

/// Reads a file that a workflow names, by the path written there. Only relative ones: see [`read_within`].
pub(crate) fn read_beside(folder: &Path, wanted: &Path) -> Result<Vec<u8>, String> {
    if wanted.to_str().is_some_and(is_url) {
        return Err("URLs are not allowed here: add --fetch, or save it beside the file and name that".into());
    }
    if !is_relative(wanted) {
        return Err("only relative paths are read".into());
    }
    read_within(folder, &folder.join(wanted))
}

/// Lists a folder that a workflow names, by the path written there: names, those of folders with a slash at their end.
/// The same folders as with [`read_beside`].
fn list_beside(folder: &Path, wanted: &Path) -> Result<Vec<String>, String> {
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

/// Reads a file below the folder of the workflow or the current folder, and no other: a workflow from somebody else
/// must not read what it likes.
fn read_within(folder: &Path, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(allowed(folder, path)?).map_err(|error| error.to_string())
}

/// The real path, if it may be read.
fn allowed(folder: &Path, path: &Path) -> Result<PathBuf, String> {
    let text = |error: std::io::Error| error.to_string();
    let target = path.canonicalize().map_err(text)?;
    let allowed = [folder, Path::new(".")];
    let inside =
        allowed.iter().filter_map(|root| root.canonicalize().ok()).any(|root| target.starts_with(root));
    if !inside {
        return Err("it lies outside the folder of the file and the current folder".into());
    }
    Ok(target)
}

/// Two files that deploy one name would hide each other.
pub(crate) fn unique_names(loaded: &[Loaded]) -> Result<(), Failure> {
    let mut seen: BTreeMap<&str, &Path> = BTreeMap::new();
    for file in loaded {
        for lowered in &file.workflows {
            if let Some(other) = seen.insert(&lowered.plan.name, &file.path) {
                let (name, here) = (&lowered.plan.name, file.path.display());
                let text = format!("workflow '{name}' is in {} and in {here}", other.display());
                return Err(Failure::usage(text).hint("name the files that are meant"));
            }
        }
    }
    Ok(())
}
