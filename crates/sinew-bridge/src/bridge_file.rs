//! Format of a bridge file, `NAME.bridge.yaml`, and the settings that it becomes.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sinew_agents::FileTime;
use sinew_files::{read_file, read_text_file};
use sinew_protocol::code;
use sinew_source::{Diagnostic, Diagnostics, Limits, LoadOptions, Schema, Sources, Variables, check_node};
use url::Url;

use crate::card_signature::CardKeys;
use crate::credentials::{CredentialKind, SecretSource};
use crate::error::BridgeError;
use crate::named_hosts::IdentityFiles;

/// Maximum size of a file that a bridge file references, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Path of a card below the address of an agent.
const CARD_PATH: &str = "/.well-known/agent-card.json";
/// Path of a card before A2A 0.3.
const OLD_CARD_PATH: &str = "/.well-known/agent.json";
/// Default interval between refreshes of a card.
const DEFAULT_REFRESH: Duration = Duration::from_mins(5);
/// Minimum interval between refreshes of a card.
const MIN_REFRESH: Duration = Duration::from_secs(1);
/// Default timeout of one task.
const DEFAULT_TIMEOUT: Duration = Duration::from_hours(1);
/// Default number of concurrent tasks.
const DEFAULT_CONCURRENCY: usize = 64;

/// An external A2A 1.0 agent that is available as an agent of the mesh.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Sinew bridge file")]
struct BridgeFile {
    /// Name by which workflows and agents of the mesh call the agent. Letters, digits, `_` and `-`,
    /// at most 64 characters.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    name: String,
    /// URL of the external agent or of its card, such as `https://agents.example.com/translator`.
    /// The card may name interfaces on this host and on those of `hosts` only.
    card: String,
    /// Description that replaces that of the card.
    description: Option<String>,
    /// Interface of the card to use: `JSONRPC` or `HTTP+JSON`. Default: the first one that the
    /// bridge supports.
    transport: Option<RemoteBinding>,
    /// Additional hosts that the card may name, as `https://host:port`. They receive the
    /// credentials.
    #[serde(default)]
    hosts: Vec<String>,
    /// Credentials for the external agent.
    credentials: Option<CredentialFile>,
    /// Client certificate for mutual TLS.
    certificate: Option<CertificateFile>,
    /// Path of a PEM file with the certificate authorities to trust, relative to the bridge file.
    /// Default: those of the system.
    authorities: Option<String>,
    /// Path of a JSON Web Key Set (P-256, Ed25519), relative to the bridge file. One of its keys
    /// must have signed the card.
    card_keys: Option<String>,
    /// Interval between refreshes of the card, at least `1s`. After three failures in a row the
    /// agent leaves the mesh until its card is available again. Default: `5m`.
    refresh: Option<FileTime>,
    /// Time limit of a task. Default: `1h`.
    timeout: Option<FileTime>,
    /// Maximum number of concurrent tasks, from 1 to 10,000. Default: 64.
    #[schemars(range(min = 1, max = 10_000))]
    concurrency: Option<usize>,
    /// Workflow that answers questions of the external agent (`input-required`). Its input is
    /// `{agent, question, data}`, and its output is the answer; `ask:person` asks people. If
    /// omitted, the caller of the task is asked: the task becomes `input-required`, and the next
    /// message of the caller is the answer. A task of an execution has no caller, so people are
    /// asked.
    ask: Option<String>,
    /// Whether the external agent deduplicates messages by their id. If true, a message whose
    /// outcome is unknown is sent again. Default: false.
    #[serde(default)]
    resend: bool,
}

/// Credentials: exactly one of `api_key`, `bearer` and `client_credentials`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
struct CredentialFile {
    /// API key in a header.
    api_key: Option<ApiKeyFile>,
    /// Bearer token.
    bearer: Option<SecretFile>,
    /// Access tokens of an OAuth2 token endpoint, by the client credentials grant.
    client_credentials: Option<ClientCredentialsFile>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApiKeyFile {
    /// Name of the header, such as `X-API-Key`.
    header: String,
    /// Source of the key.
    value: SecretFile,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClientCredentialsFile {
    /// URL of the token endpoint.
    token_url: String,
    /// Source of the client id.
    client_id: SecretFile,
    /// Source of the client secret.
    client_secret: SecretFile,
    /// Scopes to request.
    #[serde(default)]
    scopes: Vec<String>,
}

/// Source of a secret, read again at each use: exactly one of `env` and `file`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
struct SecretFile {
    /// Name of an environment variable.
    env: Option<String>,
    /// Path of a file, relative to the bridge file.
    file: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CertificateFile {
    /// Path of a PEM file with the certificate and its chain, relative to the bridge file.
    certificate: String,
    /// Path of a PEM file with the private key, relative to the bridge file.
    key: String,
}

/// Protocol of an A2A interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum RemoteBinding {
    /// JSON-RPC 2.0.
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    /// HTTP with JSON (REST).
    #[serde(rename = "HTTP+JSON")]
    HttpJson,
}

/// Settings of a bridge.
#[derive(Clone, Debug)]
pub struct BridgeSettings {
    /// Name on the mesh; `None` to use that of the card.
    pub(crate) name: Option<String>,
    pub(crate) card: Url,
    pub(crate) description: Option<String>,
    pub(crate) transport: Option<RemoteBinding>,
    pub(crate) hosts: Vec<String>,
    pub(crate) credentials: Option<CredentialKind>,
    pub(crate) identity: IdentityFiles,
    pub(crate) card_keys: Option<CardKeys>,
    pub(crate) refresh: Duration,
    pub(crate) timeout: Duration,
    pub(crate) concurrency: usize,
    pub(crate) ask: Option<String>,
    pub(crate) resend: bool,
}

/// Address at which a card may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardPlace {
    pub(crate) url: Url,
    /// Address of the agent, which an interface of the card must have: the card at the origin of a
    /// host may be that of another agent. `None`: the card needs no such interface.
    pub(crate) agent: Option<Url>,
}

/// Returns the JSON Schema of bridge files, for editors and for validation at load.
pub fn bridge_file_schema() -> Value {
    schemars::schema_for!(BridgeFile).into()
}

static FORM: LazyLock<Result<Schema, String>> =
    LazyLock::new(|| Schema::compile(&bridge_file_schema()).map_err(|error| error.to_string()));

impl BridgeSettings {
    /// Returns the name of the agent on the mesh, or `None` if it is that of the card.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the address of the card without its query, which may contain secrets.
    pub(crate) fn shown_address(&self) -> String {
        let mut url = self.card.clone();
        url.set_query(None);
        url.into()
    }

    /// Creates settings from an address alone: no credentials, the name of the card. Fails if it is
    /// not an HTTP address.
    pub fn of_address(address: &str) -> Result<Self, BridgeError> {
        Ok(Self {
            name: None,
            card: card_address(address)?,
            description: None,
            transport: None,
            hosts: Vec::new(),
            credentials: None,
            identity: IdentityFiles::default(),
            card_keys: None,
            refresh: DEFAULT_REFRESH,
            timeout: DEFAULT_TIMEOUT,
            concurrency: DEFAULT_CONCURRENCY,
            ask: None,
            resend: false,
        })
    }

    /// Reads a bridge file and the files that it references. Fails with findings and their
    /// positions.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let shown = path.display().to_string();
        let limits = Limits::default();
        let max_bytes = limits.max_bytes as u64;
        let bytes = read_file(path, max_bytes).map_err(|error| {
            let mut findings = Diagnostics::new(Sources::default());
            let text = format!("cannot read '{shown}': {error}");
            findings.push(Diagnostic::error(code::BRIDGE_FILE_NOT_VALID.as_str(), text));
            findings
        })?;
        let options = LoadOptions {
            name: &shown,
            variables: Variables::Kept,
            read: &|path| read_file(path, max_bytes).map_err(|error| error.to_string()),
            limits,
        };
        let document = sinew_source::load(&bytes, &options)?;
        let mut findings = Diagnostics::new(document.sources.clone());
        match &*FORM {
            Ok(form) => findings.extend(check_node(form, &document.root)),
            Err(problem) => {
                findings.push(Diagnostic::error(code::BRIDGE_FILE_NOT_VALID.as_str(), problem.clone()));
            }
        }
        if findings.has_errors() {
            findings.sort();
            return Err(findings);
        }
        let built = serde_json::from_value::<BridgeFile>(document.root.to_json())
            .map_err(|error| setting("the file", error.to_string()))
            .and_then(|file| file.settings(path.parent().unwrap_or(Path::new("."))));
        built.map_err(|error| {
            let place = match &error {
                BridgeError::Setting { setting, .. } => document.root.at_pointer(&format!("/{setting}")),
                _ => None,
            };
            let span = place.map_or(document.root.span, |node| node.span);
            findings
                .push(Diagnostic::error(code::BRIDGE_FILE_NOT_VALID.as_str(), error.to_string()).at(span));
            findings
        })
    }

    /// Returns the addresses at which the card may be, in order: below the address of the agent,
    /// then below its origin. A file that the operator named is the only one.
    pub(crate) fn card_places(&self) -> Vec<CardPlace> {
        let Some(base) = self.card.path().strip_suffix(CARD_PATH) else {
            return vec![CardPlace { url: self.card.clone(), agent: None }];
        };
        let place = |base: &str, path: &str, agent: Option<&Url>| {
            let mut url = self.card.clone();
            url.set_path(&format!("{base}{path}"));
            CardPlace { url, agent: agent.cloned() }
        };
        let mut places = vec![place(base, CARD_PATH, None), place(base, OLD_CARD_PATH, None)];
        if !base.is_empty() {
            let agent = place(base, "", None).url;
            places.push(place("", CARD_PATH, Some(&agent)));
            places.push(place("", OLD_CARD_PATH, Some(&agent)));
        }
        places
    }

    /// Returns whether a URL belongs to a host that the operator configured.
    pub(crate) fn is_named(&self, url: &Url) -> bool {
        let origin = url.origin().ascii_serialization();
        self.card.origin() == url.origin() || self.hosts.contains(&origin)
    }
}

impl BridgeFile {
    fn settings(self, folder: &Path) -> Result<BridgeSettings, BridgeError> {
        let base = BridgeSettings::of_address(&self.card)?;
        let mut hosts = Vec::new();
        for host in &self.hosts {
            let url = web_address("hosts", host)?;
            hosts.push(url.origin().ascii_serialization());
        }
        let identity = IdentityFiles {
            certificate: self.certificate.map(|file| (folder.join(file.certificate), folder.join(file.key))),
            authorities: self.authorities.map(|name| folder.join(name)),
        };
        // The files are read again at each request; current defects are findings of the bridge
        // file.
        identity.read()?;
        let card_keys = match &self.card_keys {
            None => None,
            Some(name) => {
                let text = read_text_file(&folder.join(name), MAX_FILE_BYTES)
                    .map_err(|error| setting("card_keys", error.to_string()))?;
                Some(CardKeys::read(&text).map_err(|reason| setting("card_keys", reason))?)
            }
        };
        let duration = |time: Option<FileTime>, default| time.map_or(default, |time| time.0);
        Ok(BridgeSettings {
            name: Some(self.name),
            description: self.description,
            transport: self.transport,
            hosts,
            credentials: self.credentials.map(|file| file.kind(folder)).transpose()?,
            identity,
            card_keys,
            refresh: duration(self.refresh, DEFAULT_REFRESH).max(MIN_REFRESH),
            timeout: duration(self.timeout, DEFAULT_TIMEOUT),
            concurrency: self.concurrency.unwrap_or(DEFAULT_CONCURRENCY),
            ask: self.ask,
            resend: self.resend,
            ..base
        })
    }
}

impl CredentialFile {
    fn kind(self, folder: &Path) -> Result<CredentialKind, BridgeError> {
        match (self.api_key, self.bearer, self.client_credentials) {
            (Some(file), None, None) => {
                let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                let header = file.header.to_ascii_lowercase();
                let is_ours = ["host", "content-length", "content-type", "transfer-encoding", "connection"];
                if header.is_empty() || !header.chars().all(good) || is_ours.contains(&header.as_str()) {
                    let reason = format!("{:?} cannot be used as the header of a key", file.header);
                    return Err(setting("credentials", reason));
                }
                Ok(CredentialKind::ApiKey { header, value: file.value.place(folder)? })
            }
            (None, Some(secret), None) => Ok(CredentialKind::Bearer(secret.place(folder)?)),
            (None, None, Some(file)) => {
                web_address("credentials", &file.token_url)?;
                Ok(CredentialKind::ClientCredentials {
                    token_url: file.token_url,
                    client_id: file.client_id.place(folder)?,
                    client_secret: file.client_secret.place(folder)?,
                    scopes: file.scopes,
                })
            }
            _ => {
                let reason = "expected exactly one of api_key, bearer and client_credentials";
                Err(setting("credentials", reason.to_owned()))
            }
        }
    }
}

impl SecretFile {
    fn place(self, folder: &Path) -> Result<SecretSource, BridgeError> {
        match (self.env, self.file) {
            (Some(name), None) => Ok(SecretSource::Variable(name)),
            (None, Some(name)) => Ok(SecretSource::File(PathBuf::from(folder).join(name))),
            _ => Err(setting("credentials", "expected exactly one of env and file".to_owned())),
        }
    }
}

fn setting(setting: &'static str, reason: String) -> BridgeError {
    BridgeError::Setting { setting, reason }
}

fn web_address(which: &'static str, address: &str) -> Result<Url, BridgeError> {
    let url = Url::parse(address).map_err(|error| setting(which, format!("{address:?}: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(setting(which, format!("{address:?} is not an http or https address")));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(setting(which, "an address must not contain credentials".to_owned()));
    }
    Ok(url)
}

/// Returns the address of a card: unchanged if its path ends like a file, otherwise below the
/// address of the agent.
fn card_address(address: &str) -> Result<Url, BridgeError> {
    let mut url = web_address("card", address)?;
    url.set_fragment(None);
    if Path::new(url.path()).extension().is_none_or(|extension| extension != "json") {
        let path = format!("{}{CARD_PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_below_the_agent_or_its_origin() {
        for (address, expected) in [
            ("https://a.example", vec!["/.well-known/agent-card.json", "/.well-known/agent.json"]),
            (
                "https://a.example/x",
                vec![
                    "/x/.well-known/agent-card.json",
                    "/x/.well-known/agent.json",
                    "/.well-known/agent-card.json of /x",
                    "/.well-known/agent.json of /x",
                ],
            ),
            ("https://a.example/x/card.json", vec!["/x/card.json"]),
        ] {
            let settings = BridgeSettings::of_address(address).unwrap();
            let shown = |place: CardPlace| match place.agent {
                None => place.url.path().to_owned(),
                Some(agent) => format!("{} of {}", place.url.path(), agent.path()),
            };
            assert_eq!(settings.card_places().into_iter().map(shown).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn addresses_of_agents_and_cards() {
        for (address, expected) in [
            ("https://a.example", Some("https://a.example/.well-known/agent-card.json")),
            ("http://a:8/agents/x/", Some("http://a:8/agents/x/.well-known/agent-card.json")),
            ("https://a.example/card.json#x", Some("https://a.example/card.json")),
            ("ftp://a.example", None),
            ("https://u:p@a.example", None),
            ("a.example", None),
        ] {
            assert_eq!(card_address(address).ok().as_ref().map(Url::as_str), expected, "{address}");
        }
    }

    #[test]
    fn files_become_settings_or_findings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.bridge.yaml");
        let load = |text: &str| {
            std::fs::write(&path, text).unwrap();
            BridgeSettings::load(&path)
        };
        let good = load(
            "name: x\ncard: https://a.example\nhosts: [https://b.example:444/p]\n\
             credentials: {api_key: {header: X-Key, value: {env: KEY}}}\nrefresh: 30s\nask: review\n",
        )
        .unwrap();
        assert_eq!((good.refresh, good.ask.as_deref()), (Duration::from_secs(30), Some("review")));
        for (url, expected) in [
            ("https://a.example/rpc", true),
            ("https://b.example:444/rpc", true),
            ("https://b.example/rpc", false),
            ("http://a.example/rpc", false),
        ] {
            assert_eq!(good.is_named(&Url::parse(url).unwrap()), expected, "{url}");
        }
        for (text, line) in [
            ("name: x\n", 1),
            ("name: x\ncard: ftp://a\n", 2),
            ("name: x\ncard: https://a\nsecret: y\n", 3),
            ("name: x\ncard: https://a\ncredentials: {bearer: {env: A, file: b}}\n", 3),
            ("name: x\ncard: https://a\ncredentials: {api_key: {header: 'a b', value: {env: A}}}\n", 3),
            ("name: x\ncard: https://a\ncard_keys: absent.json\n", 3),
            ("name: x\ncard: https://a\ntransport: GRPC\n", 3),
        ] {
            let findings = load(text).unwrap_err();
            assert!(findings.has_errors(), "{text}");
            let shown = format!("{findings:?}");
            assert!(!shown.is_empty() && line > 0, "{text}: {shown}");
        }
    }
}
