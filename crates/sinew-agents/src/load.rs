//! Loads an agent file: reads it, validates its schema and its parts, and builds the agent.

use sinew_protocol::code;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use sinew_files::read_file;
use sinew_source::{
    Diagnostic, Diagnostics, Document, HostReferences, Limits, LoadOptions, Schema, Sources, Variables,
    check_node, check_schema, is_reserved_variable, is_variable_name, place_within,
};

use crate::agent::{Agent, AgentRunner, process_environment};
use crate::complaint::{FileComplaint, escape_key};
use crate::file::{AgentFile, CommandFile, HttpFile, ReferenceFile, ScriptFile, agent_file_schema};
use crate::mcp_file::McpFile;
use crate::named_files::NamedFiles;
use crate::reach::AgentReach;
use crate::run::{
    Command, Http, McpAgent, RequestTemplate, RunnerSurroundings, Script, ServerKeys, ServerLocation,
    build_model,
};
use crate::schema_slip::schema_slips;
use crate::template::{Environment, Template};

impl Agent {
    /// Loads an agent file. Secrets come from the environment of this process.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Diagnostics> {
        Self::load_with(path, &process_environment())
    }

    /// Loads an agent file. `environment` resolves `${env:NAME}` at each call.
    pub fn load_with(path: impl AsRef<Path>, environment: &Arc<Environment>) -> Result<Self, Diagnostics> {
        load_agent(path.as_ref(), environment)
    }

    /// Loads an agent from the text of its file. Findings name it by `path`.
    pub fn from_text(path: &Path, text: &str) -> Result<Self, Diagnostics> {
        load_bytes(path, text.as_bytes(), &process_environment(), NamedFiles::OnDisk)
    }

    /// Loads an agent from a file that a client sent, for its findings and cases. Reads no other file
    /// and no variable. Models that `models.yaml` would define answer from scripts only.
    pub fn from_posted_text(name: &str, text: &str) -> Result<Self, Diagnostics> {
        let no_variables: Arc<Environment> = Arc::new(|_: &str| None);
        load_bytes(Path::new(name), text.as_bytes(), &no_variables, NamedFiles::Absent)
    }
}

fn load_agent(path: &Path, environment: &Arc<Environment>) -> Result<Agent, Diagnostics> {
    let shown = path.display().to_string();
    let max_bytes = Limits::default().max_bytes as u64;
    let bytes = read_file(path, max_bytes).map_err(|error| unreadable(&shown, &error))?;
    load_bytes(path, &bytes, environment, NamedFiles::OnDisk)
}

/// Loads an agent from the bytes of its file. The paths in it are relative to the folder of `path`.
fn load_bytes(
    path: &Path,
    bytes: &[u8],
    environment: &Arc<Environment>,
    named_files: NamedFiles,
) -> Result<Agent, Diagnostics> {
    let shown = path.display().to_string();
    let limits = Limits::default();
    let max_bytes = limits.max_bytes as u64;
    let options = LoadOptions {
        name: &shown,
        // Only headers and `env` reference variables; each call resolves them.
        variables: Variables::Kept,
        read: &|path| named_files.read(path, max_bytes),
        limits,
    };
    let document = sinew_source::load(bytes, &options)?;
    let mut diagnostics = Diagnostics::new(document.sources.clone());
    match &*FORM {
        Ok(form) => diagnostics.extend(check_node(form, &document.root)),
        Err(problem) => {
            diagnostics.push(Diagnostic::error(code::AGENT_FILE_CANNOT_BE_USED.as_str(), problem.clone()));
        }
    }
    if diagnostics.has_errors() {
        diagnostics.sort();
        return Err(diagnostics);
    }
    let schemas = ["input_schema", "output_schema"].into_iter().filter_map(|key| {
        let schema = document.root.get(key).filter(|schema| schema.as_object().is_some())?;
        Some(check_schema(schema, &format!("'{key}'")))
    });
    diagnostics.extend(schemas.flatten());
    if diagnostics.has_errors() {
        diagnostics.sort();
        return Err(diagnostics);
    }
    let doubts = std::mem::take(&mut diagnostics.items);
    let file = serde_json::from_value(document.root.to_json());
    match file {
        Ok(file) => build(file, (path, bytes, named_files), &document, environment)
            .map(|mut agent| {
                agent.warnings.extend(doubts);
                agent
            })
            .map_err(|complaints| {
                diagnostics.extend(complaints.into_iter().map(|complaint| place(&document, &complaint)));
                diagnostics.sort();
                diagnostics
            }),
        Err(error) => {
            diagnostics.push(
                Diagnostic::error(code::AGENT_FILE_CANNOT_BE_USED.as_str(), error.to_string())
                    .at(document.root.span),
            );
            Err(diagnostics)
        }
    }
}

static FORM: LazyLock<Result<Schema, String>> =
    LazyLock::new(|| Schema::compile(&agent_file_schema()).map_err(|error| error.to_string()));

pub(crate) fn unreadable(path: &str, error: &dyn std::fmt::Display) -> Diagnostics {
    let mut diagnostics = Diagnostics::new(Sources::default());
    diagnostics.push(Diagnostic::error(
        code::AGENT_FILE_CANNOT_BE_USED.as_str(),
        format!("cannot read '{path}': {error}"),
    ));
    diagnostics
}

/// Locates a finding at the deepest existing part of the file on its JSON pointer.
fn place(document: &Document, complaint: &FileComplaint) -> Diagnostic {
    let mut pointer = complaint.pointer.as_str();
    loop {
        if let Some(node) = document.root.at_pointer(pointer) {
            let within = complaint.within.zip(node.as_str());
            let span = within.and_then(|((line, column), text)| {
                place_within(&document.sources, node.span, text, line, column)
            });
            let told = if complaint.is_warning { Diagnostic::warning } else { Diagnostic::error };
            return told(complaint.code, complaint.message.clone()).at(span.unwrap_or(node.span));
        }
        pointer = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
}

fn build(
    file: AgentFile,
    (path, bytes, named_files): (&Path, &[u8], NamedFiles),
    document: &Document,
    environment: &Arc<Environment>,
) -> Result<Agent, Vec<FileComplaint>> {
    let folder = named_files.folder_of(path);
    let mut complaints = Vec::new();
    let mut schema = |which: &str, schema: Option<&serde_json::Value>| {
        schema.and_then(|schema| {
            complaints.extend(schema_slips(&format!("/{which}"), schema));
            Schema::compile(schema)
                .map_err(|error| complaints.push(FileComplaint::new(format!("/{which}"), error.to_string())))
                .ok()
        })
    };
    let input = schema("input_schema", file.input_schema.as_ref());
    let output = schema("output_schema", file.output_schema.as_ref());
    let offer = file.offer.to_offer().map_err(|complaint| complaints.push(complaint)).unwrap_or_default();
    if let Some((member, text)) = file.catalogue.mistake() {
        complaints.push(FileComplaint::new(format!("/catalogue/{member}"), text));
    }
    let run = &file.run;
    let runner = match (&run.script, &run.command, &run.http, &run.mcp, &run.model) {
        (Some(script), None, None, None, None) => {
            build_script(script, &folder, named_files).map(AgentRunner::Script)
        }
        (None, Some(command), None, None, None) => build_command(command, &folder).map(AgentRunner::Command),
        (None, None, Some(http), None, None) => build_http(http).map(AgentRunner::Http),
        (None, None, None, Some(mcp), None) => {
            build_mcp(mcp, &folder).map(|agent| AgentRunner::Mcp(Box::new(agent)))
        }
        (None, None, None, None, Some(model)) => build_model(model, (path, &folder, named_files), bytes)
            .map(|agent| AgentRunner::Model(Box::new(agent))),
        _ => Err(vec![FileComplaint::new(
            "/run",
            "expected exactly one of script, command, http, mcp and model",
        )]),
    };
    match runner {
        Ok(runner) if complaints.is_empty() => {
            let name = document.root.at_pointer("/name").map_or(document.root.span, |node| node.span);
            let doubts = match &runner {
                AgentRunner::Model(model) => {
                    model.doubts.iter().map(|doubt| place(document, doubt)).collect()
                }
                _ => Vec::new(),
            };
            let reach = AgentReach::of(&file, &document.root.to_json(), &folder);
            let mut agent = Agent::new(
                (file, offer),
                runner,
                (input, output),
                RunnerSurroundings { environment: environment.clone() },
                (document.sources.clone(), name),
            );
            agent.warnings.extend(doubts);
            agent.reach = reach;
            Ok(agent)
        }
        Ok(_) => Err(complaints),
        Err(more) => Err(complaints.into_iter().chain(more).collect()),
    }
}

fn build_script(
    file: &ScriptFile,
    folder: &Path,
    named_files: NamedFiles,
) -> Result<Script, Vec<FileComplaint>> {
    let (pointer, source) = match (&file.source, &file.file) {
        (Some(source), None) => ("/run/script/source", Ok(source.clone())),
        (None, Some(name)) => (
            "/run/script/file",
            named_files
                .read_text(&folder.join(name), Limits::default().max_bytes as u64)
                .map_err(|error| format!("cannot read '{name}': {error}")),
        ),
        _ => ("/run/script", Err("expected either source or file".to_owned())),
    };
    let source = source.map_err(|problem| vec![FileComplaint::new(pointer, problem)])?;
    Script::compile(&source, file.timeout.map(|time| time.0)).map_err(|error| {
        let message = format!("the script cannot be used{}: {error}", crate::error::line(&error));
        // The lines of a script in another file are not lines of this file.
        let within =
            error.line.filter(|_| file.source.is_some()).map(|line| (line, error.column.unwrap_or(1)));
        vec![FileComplaint {
            pointer: pointer.to_owned(),
            code: error.code(),
            message,
            within,
            is_warning: false,
        }]
    })
}

fn build_command(file: &CommandFile, folder: &Path) -> Result<Command, Vec<FileComplaint>> {
    let mut complaints = Vec::new();
    for (index, argument) in file.argv.iter().enumerate() {
        let mut complain = |problem: &str| {
            complaints.push(FileComplaint::new(format!("/run/command/argv/{index}"), problem));
        };
        if ["{{input", "{{instruction", "{{context", "${env:"]
            .iter()
            .any(|hole| argument.replace(' ', "").contains(hole))
        {
            complain("argv is taken literally; read the input from stdin or put it into env");
        }
        if argument.contains('\0') || (index == 0 && argument.is_empty()) {
            complain("this is not a valid program name or argument");
        }
    }
    let mut env = Vec::new();
    for (name, value) in &file.env {
        let problem = match Template::parse_with_variables(value) {
            _ if name.is_empty() || name.contains(['=', '\0']) => {
                "this is not a valid name of a variable".to_owned()
            }
            _ if value.contains('\0') => "an environment variable cannot contain a NUL byte".to_owned(),
            Ok(template) => {
                env.push((name.clone(), template));
                continue;
            }
            Err(problem) => problem,
        };
        complaints.push(FileComplaint::new(format!("/run/command/env/{}", escape_key(name)), problem));
    }
    let (names, references): (Vec<(String, &String)>, _) = match &file.references {
        ReferenceFile::Names(names) => (
            names.iter().enumerate().map(|(index, name)| (index.to_string(), name)).collect(),
            HostReferences::local(names),
        ),
        ReferenceFile::Hosts(hosts) => {
            (hosts.keys().map(|name| (escape_key(name), name)).collect(), HostReferences::new(hosts.clone()))
        }
    };
    for (place, name) in names {
        if !is_variable_name(name) || is_reserved_variable(name) {
            let problem = "this is not a valid name of a variable";
            complaints.push(FileComplaint::new(format!("/run/command/references/{place}"), problem));
        }
    }
    let Some((program, arguments)) = file.argv.split_first() else {
        complaints.push(FileComplaint::new("/run/command/argv", "expected a program"));
        return Err(complaints);
    };
    if !complaints.is_empty() {
        return Err(complaints);
    }
    // A name without a slash is looked up in PATH; a path is relative to the agent file.
    let program = if program.contains('/') {
        folder.join(program).to_string_lossy().into_owned()
    } else {
        program.clone()
    };
    Ok(Command {
        program,
        arguments: arguments.to_vec(),
        folder: file.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd)),
        env,
        whole_request: file.stdin == crate::file::StdinContent::Request,
        references,
        timeout: file.timeout.map(|time| time.0),
        grace: file.grace.0,
        max_output: file.max_output,
    })
}

fn build_mcp(file: &McpFile, folder: &Path) -> Result<McpAgent, Vec<FileComplaint>> {
    let keys = ServerKeys {
        command: file.command.as_deref(),
        env: &file.env,
        cwd: file.cwd.as_deref(),
        url: file.url.as_deref(),
        headers: &file.headers,
        allow_private: file.allow_private,
    };
    let complain = |(key, problem): (String, String)| FileComplaint::new(format!("/run/mcp{key}"), problem);
    let server = ServerLocation::read(&keys, folder)
        .map_err(|problems| problems.into_iter().map(complain).collect::<Vec<_>>())?;
    let (tool, allow) = (file.tool.clone(), file.allow.clone());
    Ok(McpAgent { server, tool, allow, timeout: file.timeout.map(|time| time.0) })
}

fn build_http(file: &HttpFile) -> Result<Http, Vec<FileComplaint>> {
    let complain = |problem: &str| vec![FileComplaint::new("/run/http/url", problem)];
    if file.from_input && !file.url.is_empty() {
        return Err(complain("with from_input the input contains the url; remove `url` or `from_input`"));
    }
    if file.from_input && (!file.headers.is_empty() || file.body.is_some()) {
        return Err(complain("with from_input the whole request comes from the input"));
    }
    if !file.from_input && file.url.is_empty() {
        return Err(complain("a request needs a url"));
    }
    let url = if file.from_input { "http://from.input/" } else { &file.url };
    let request = RequestTemplate::parse(&file.method, url, &file.headers, file.body.as_ref())
        .map_err(|(field, problem)| vec![FileComplaint::new(format!("/run/http/{field}"), problem)])?;
    Ok(Http {
        request,
        from_input: file.from_input,
        timeout: file.timeout.0,
        retries: file.retry.limit,
        max_output: file.max_output,
        allow_private: file.allow_private,
        client: std::sync::OnceLock::new(),
    })
}
