//! Contexts of the `nats` command line (ADR-21): named sets of connection settings in the user's configuration folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sinew_files::{FileReadError, read_text_file};

use crate::error::MeshError;

/// Maximum size of a context file.
const LONGEST: u64 = 1024 * 1024;

/// Content of a context. Entries for other programs (colours, event prefixes) are not read.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Context {
    pub(crate) url: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) creds: Option<String>,
    pub(crate) nkey: Option<String>,
    pub(crate) user_jwt: Option<String>,
    pub(crate) user_seed: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) ca: Option<String>,
    pub(crate) tls_first: bool,
    pub(crate) inbox_prefix: Option<String>,
    pub(crate) jetstream_domain: Option<String>,
    pub(crate) jetstream_api_prefix: Option<String>,
    nsc: Option<String>,
    socks_proxy: Option<String>,
    windows_cert_store: Option<String>,
}

/// The folder of all contexts.
#[derive(Clone, Debug)]
pub(crate) struct Contexts {
    folder: PathBuf,
    home: Option<PathBuf>,
}

impl Contexts {
    /// Returns the contexts of the user with these environment variables; `None` without a home
    /// folder.
    pub(crate) fn of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")))?;
        Some(Self { folder: config.join("nats"), home })
    }

    /// Returns the name of the selected context.
    pub(crate) fn selected(&self) -> Result<Option<String>, MeshError> {
        let path = self.folder.join("context.txt");
        match read(&path) {
            Ok(name) => Ok(Some(name.trim().to_owned()).filter(|name| !name.is_empty())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(bad("(selected)", format!("{}: {error}", path.display()))),
        }
    }

    /// Reads the context of this name.
    pub(crate) fn load(&self, name: &str) -> Result<Context, MeshError> {
        // The name becomes part of a path.
        if name.is_empty() || name.contains("..") || name.contains(['/', '\\', '\0']) {
            return Err(bad(name, "not a valid context name".to_owned()));
        }
        let path = self.folder.join("context").join(format!("{name}.json"));
        let text = read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => bad(name, format!("not found ({}){}", path.display(), self.others())),
            _ => bad(name, format!("{}: {error}", path.display())),
        })?;
        // The parser's message may quote secrets, so only the position is reported.
        let mut context: Context = serde_json::from_str(&text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            bad(name, format!("{}:{line}:{column}: not a context", path.display()))
        })?;
        for (entry, value) in [
            ("nsc", &context.nsc),
            ("socks_proxy", &context.socks_proxy),
            ("windows_cert_store", &context.windows_cert_store),
        ] {
            if value.as_deref().is_some_and(|value| !value.is_empty()) {
                return Err(bad(name, format!("the entry `{entry}` is not supported")));
            }
        }
        for text in context.texts() {
            *text = text.take().filter(|text| !text.is_empty());
        }
        for path in
            [&mut context.creds, &mut context.nkey, &mut context.cert, &mut context.key, &mut context.ca]
        {
            *path = path.take().map(|path| self.at_home(path));
        }
        Ok(context)
    }

    /// Expands `~/…` to the user's home, like the `nats` command line.
    fn at_home(&self, path: String) -> String {
        match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest).to_string_lossy().into_owned(),
            _ => path,
        }
    }

    /// Lists the existing contexts, for a mistyped name.
    fn others(&self) -> String {
        let entries = fs::read_dir(self.folder.join("context")).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
            .collect();
        names.sort();
        names.truncate(10);
        if names.is_empty() { String::new() } else { format!("; available contexts: {}", names.join(", ")) }
    }
}

impl Context {
    fn texts(&mut self) -> [&mut Option<String>; 14] {
        [
            &mut self.url,
            &mut self.token,
            &mut self.user,
            &mut self.password,
            &mut self.creds,
            &mut self.nkey,
            &mut self.user_jwt,
            &mut self.user_seed,
            &mut self.cert,
            &mut self.key,
            &mut self.ca,
            &mut self.inbox_prefix,
            &mut self.jetstream_domain,
            &mut self.jetstream_api_prefix,
        ]
    }
}

fn read(path: &Path) -> Result<String, FileReadError> {
    read_text_file(path, LONGEST)
}

fn bad(name: &str, reason: String) -> MeshError {
    MeshError::BadContext { name: name.chars().filter(|c| !c.is_control()).take(100).collect(), reason }
}
