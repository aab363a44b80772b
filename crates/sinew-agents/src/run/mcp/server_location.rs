//! The location of a server: a local program or an address.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::clean::ResolvedSecrets;
use crate::complaint::escape_key;
use crate::template::{Environment, Template, TemplatePiece};

/// Location of a server.
#[derive(Debug)]
pub(crate) enum ServerLocation {
    /// A local program.
    Program { program: String, arguments: Vec<String>, folder: PathBuf, env: Vec<(String, Template)> },
    /// An address.
    Address { url: String, headers: Vec<(String, Template)>, allow_private: bool },
}

/// The keys of an agent file that define the location of a server.
pub(crate) struct ServerKeys<'a> {
    pub(crate) command: Option<&'a [String]>,
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) cwd: Option<&'a str>,
    pub(crate) url: Option<&'a str>,
    pub(crate) headers: &'a BTreeMap<String, String>,
    pub(crate) allow_private: bool,
}

/// A defect of a key: the rest of its pointer, and a sentence.
pub(crate) type KeyProblem = (String, String);

impl ServerLocation {
    /// Parses the keys of a server. `folder` is that of the agent file.
    pub(crate) fn read(keys: &ServerKeys<'_>, folder: &Path) -> Result<Self, Vec<KeyProblem>> {
        let mut problems = Vec::new();
        let env = templates("env", keys.env, &mut problems);
        let headers = templates("headers", keys.headers, &mut problems);
        let place = match (keys.command.and_then(<[String]>::split_first), keys.url) {
            (Some((program, arguments)), None) => Some(Self::Program {
                // A name without a slash is looked up in PATH; a path is relative to the agent file.
                program: if program.contains('/') {
                    folder.join(program).to_string_lossy().into_owned()
                } else {
                    program.clone()
                },
                arguments: arguments.to_vec(),
                folder: keys.cwd.map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd)),
                env,
            }),
            (None, Some(url)) => {
                Some(Self::Address { url: url.to_owned(), headers, allow_private: keys.allow_private })
            }
            _ => {
                problems.push((String::new(), "an MCP server needs either command or url".to_owned()));
                None
            }
        };
        match place {
            Some(place) if problems.is_empty() => Ok(place),
            _ => Err(problems),
        }
    }
}

impl ServerLocation {
    /// Adds the values that the settings read from the environment.
    pub(crate) fn read_secrets(&self, environment: &Environment, secrets: &mut ResolvedSecrets) {
        let (Self::Program { env: settings, .. } | Self::Address { headers: settings, .. }) = self;
        for piece in settings.iter().flat_map(|(_, template)| template.pieces()) {
            if let TemplatePiece::Env { name, .. } = piece {
                // A variable that is not set is reported when the server starts.
                let _unset = secrets.read(environment, name);
            }
        }
    }
}

/// Parses settings as templates. They can reference variables, but not the input, because they
/// are the same for all tasks.
fn templates(
    key: &str,
    values: &BTreeMap<String, String>,
    problems: &mut Vec<KeyProblem>,
) -> Vec<(String, Template)> {
    let mut parsed = Vec::new();
    for (name, value) in values {
        let holds_input =
            |template: &Template| template.pieces().iter().any(|it| matches!(it, TemplatePiece::Value(_)));
        let problem = match Template::parse_with_variables(value) {
            Ok(template) if holds_input(&template) => "settings of a server cannot contain data".to_owned(),
            Ok(template) => {
                parsed.push((name.clone(), template));
                continue;
            }
            Err(problem) => problem,
        };
        problems.push((format!("/{key}/{}", escape_key(name)), problem));
    }
    parsed
}
