//! Opening a connection: the sources of settings, and the requirements for a server.
//!
//! A setting is taken from [`Connect`], else from the environment, else from a context of the
//! `nats` command line, else from a default. Credentials are one setting: an explicit user is not
//! combined with the context's key. The *selected* context applies only if no address is given, so
//! a password that belongs to one server is not sent to another because someone typed its address.
//! A *named* context always applies.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fmt};

use async_nats::jetstream::context::AccountErrorKind;
use async_nats::jetstream::{self, ContextBuilder};
use async_nats::{ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use data_encoding::BASE64URL_NOPAD;
use percent_encoding::percent_decode_str;
use sinew_files::{open_file, read_text_file};
use sinew_protocol::env as var;
use sinew_protocol::subject::DEFAULT_NAMESPACE;
use sinew_protocol::{Token, id::is_token};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::connection_log::ConnectionLog;
use crate::context::{Context, Contexts};
use crate::denied::DeniedOperations;
use crate::error::MeshError;
use crate::go_duration::go_duration;
use crate::mesh::{Line, Mesh, ReplyInboxes, WeakMesh};
use crate::random_token::random_token;
use crate::screen::{ScreenedRoute, UpstreamServer};
use crate::stream::pull::{pause, unreachable};
use crate::version::Version;

/// Default address.
const LOCALHOST: &str = "nats://localhost:4222";
/// Default connection timeout.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Ping interval; a connection that was cut without notice is detected within two intervals.
const PING: Duration = Duration::from_secs(10);
/// Longest wait before the first reconnection attempt; it doubles with each attempt.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
/// Longest wait between two reconnection attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// If a connection is lost without an error from the server, and the same server is reachable again within this
/// time, the cause was probably a message that the client library cannot read.
const QUICK_RETURN: Duration = Duration::from_secs(2);
/// Two losses within this time are attributed to a message that the client library cannot read.
pub const LOSS_WINDOW: Duration = Duration::from_secs(30);
/// So is this number of losses within [`LONG_LOSS_WINDOW`], however far apart.
const MAX_LOSSES: usize = 5;
/// Losses older than this do not count.
const LONG_LOSS_WINDOW: Duration = Duration::from_hours(1);
/// Initial and maximum time without an unreadable message before leaving a screened connection.
const SCREEN_CALM: Duration = Duration::from_mins(15);
const MAX_SCREEN_CALM: Duration = Duration::from_hours(24);
/// Maximum size of a credentials file.
const LONGEST_SECRET: u64 = 64 * 1024;

/// Connection settings. Absent ones are taken from the environment, a context or a default.
#[derive(Clone, Default)]
pub struct Connect {
    /// Addresses of servers, separated by commas.
    pub url: Option<String>,
    /// A context of the `nats` command line.
    pub context: Option<String>,
    /// File with credentials.
    pub creds: Option<PathBuf>,
    /// File with an nkey seed.
    pub nkey: Option<PathBuf>,
    /// User; without a password it is a token.
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// File with the client's TLS certificate.
    pub cert: Option<PathBuf>,
    /// File with the client's TLS key.
    pub key: Option<PathBuf>,
    /// File with the certificate authorities to trust.
    pub ca: Option<PathBuf>,
    /// Connection timeout.
    pub timeout: Option<Duration>,
    /// Namespace of the mesh.
    pub namespace: Option<String>,
    /// Caller in subjects. By default the user that the credentials name, else the system's user and host. It
    /// is an unverified claim unless the server's permissions enforce it.
    pub caller: Option<String>,
    /// Role of this process on the mesh: part of the connection's name.
    pub role: &'static str,
    /// Time without an unreadable message after which a screened connection becomes direct again; 15 minutes by
    /// default. It doubles each time the connection has to be screened again, up to a day.
    pub screen_calm: Option<Duration>,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("role", &self.role)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// Credentials of the connection.
#[derive(Clone, PartialEq, Eq)]
enum ConnectionCredentials {
    Nobody,
    Creds(PathBuf),
    Nkey(PathBuf),
    User(String, String),
    Token(String),
    Jwt { jwt: String, seed: String },
}

/// All settings, after merging the sources.
struct ConnectionSettings {
    servers: Vec<ServerAddr>,
    /// Source of the addresses, for people.
    origin: String,
    auth: ConnectionCredentials,
    cert: Option<(PathBuf, PathBuf)>,
    ca: Option<PathBuf>,
    tls_first: bool,
    timeout: Duration,
    namespace: String,
    caller: Option<String>,
    inbox: Option<String>,
    domain: Option<String>,
    api_prefix: Option<String>,
    screen_calm: Duration,
}

impl Connect {
    /// Connects, and checks that the server meets the requirements.
    ///
    /// nats-server forwards messages that break the client library's connection, see [`crate::wire`]. The
    /// direct connection is therefore replaced by a screened one when it is lost without an error from a server
    /// that keeps running, at the second loss within [`LOSS_WINDOW`], or when the client ends. On the screened
    /// connection, such a message arrives with a mark, so readers quarantine or skip it, and other messages are
    /// unaffected. The connection becomes direct again after some time without such a message.
    pub async fn open(self) -> Result<Mesh, MeshError> {
        // Fails if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let variable = |name: &str| env::var(name).ok();
        let role = self.role;
        let settings = self.settle(&variable)?;
        let named = settings.signed(ConnectOptions::new())?.1;
        let caller = settings.caller.clone().or(named).unwrap_or_else(default_caller);
        let caller = Token::of(&caller);
        let prefix = settings.inbox.clone().unwrap_or_else(|| format!("_INBOX_{caller}"));
        let version = env!("CARGO_PKG_VERSION");
        let name =
            if role.is_empty() { format!("sinew {version}") } else { format!("sinew-{role} {version}") };
        let dialer = ConnectionMaker { settings, name, prefix, denials: DeniedOperations::default() };
        let (line, losses) = Box::pin(dialer.direct()).await?;
        dialer.settings.check(&line.client).await?;
        let inboxes = ReplyInboxes { prefix: dialer.prefix.clone(), renewed: true };
        let namespace = dialer.settings.namespace.clone();
        let mesh = Mesh::over(line, inboxes, &namespace, caller, dialer.denials.clone());
        tokio::spawn(Box::pin(watch_losses(mesh.downgrade(), dialer, losses)));
        Ok(mesh)
    }

    /// Merges all sources of settings. Reads only contexts.
    fn settle(self, variable: &dyn Fn(&str) -> Option<String>) -> Result<ConnectionSettings, MeshError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let file = |name: &str| variable(name).map(PathBuf::from);
        let given = |value: Option<String>| value.filter(|value| !value.is_empty());

        let address = given(self.url).map(|url| (url, "as given".to_owned()));
        let address = address.or_else(|| Some((variable(var::NATS_URL)?, format!("from {}", var::NATS_URL))));
        let contexts = Contexts::of(&variable);
        let name = match given(self.context).or_else(|| variable(var::NATS_CONTEXT)) {
            Some(name) => Some(name),
            None if address.is_some() => None,
            None => contexts.as_ref().map_or(Ok(None), Contexts::selected)?,
        };
        let context = match (&name, contexts) {
            (None, _) => Context::default(),
            (Some(name), Some(contexts)) => contexts.load(name)?,
            (Some(name), None) => {
                let reason =
                    "neither HOME nor XDG_CONFIG_HOME is set, so contexts cannot be found".to_owned();
                return Err(MeshError::BadContext { name: name.clone(), reason });
            }
        };
        let (url, origin) = address
            .or_else(|| Some((context.url.clone()?, format!("from context {}", name.unwrap_or_default()))))
            .unwrap_or_else(|| (LOCALHOST.to_owned(), "the default".to_owned()));
        let (servers, in_address) = servers(&url, &origin)?;

        let layers = [
            auth(self.creds, self.nkey, given(self.user), given(self.password))?,
            in_address,
            auth(
                file(var::NATS_CREDS),
                file(var::NATS_NKEY),
                variable(var::NATS_USER),
                variable(var::NATS_PASSWORD),
            )?,
            in_context(&context)?,
        ];
        let auth = layers
            .into_iter()
            .find(|auth| *auth != ConnectionCredentials::Nobody)
            .unwrap_or(ConnectionCredentials::Nobody);

        let cert = certificate([
            (self.cert, self.key),
            (file(var::NATS_CERT), file(var::NATS_KEY)),
            (context.cert.clone().map(PathBuf::from), context.key.clone().map(PathBuf::from)),
        ])?;
        let timeout = connection_timeout(self.timeout, variable(var::NATS_TIMEOUT))?;
        if let Some(prefix) = &context.inbox_prefix
            && !prefix.split('.').all(is_token)
        {
            return Err(bad(
                var::NATS_CONTEXT,
                "the inbox_prefix of the context is not a subject".to_owned(),
            ));
        }
        Ok(ConnectionSettings {
            servers,
            origin,
            auth,
            cert,
            ca: self.ca.or_else(|| file(var::NATS_CA)).or(context.ca.map(PathBuf::from)),
            tls_first: context.tls_first,
            timeout,
            namespace: given(self.namespace)
                .or_else(|| variable(var::NAMESPACE))
                .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
            screen_calm: self.screen_calm.unwrap_or(SCREEN_CALM),
            caller: given(self.caller),
            inbox: context.inbox_prefix,
            domain: context.jetstream_domain,
            api_prefix: context.jetstream_api_prefix,
        })
    }
}

/// Returns the first certificate with its key; one without the other is an error.
fn certificate(
    pairs: [(Option<PathBuf>, Option<PathBuf>); 3],
) -> Result<Option<(PathBuf, PathBuf)>, MeshError> {
    match pairs.into_iter().find(|(cert, key)| cert.is_some() || key.is_some()) {
        None => Ok(None),
        Some((Some(cert), Some(key))) => Ok(Some((cert, key))),
        Some((None, _)) => Err(bad(var::NATS_CERT, "a TLS key requires its certificate".to_owned())),
        Some((_, None)) => Err(bad(var::NATS_KEY, "a TLS certificate requires its key".to_owned())),
    }
}

/// Returns the connection timeout: as given, else from the variable, else the default.
fn connection_timeout(given: Option<Duration>, variable: Option<String>) -> Result<Duration, MeshError> {
    let timeout = match (given, variable) {
        (Some(timeout), _) => timeout,
        (None, Some(text)) => go_duration(&text)
            .ok_or_else(|| bad(var::NATS_TIMEOUT, "not a duration such as 5s or 500ms".to_owned()))?,
        (None, None) => TIMEOUT,
    };
    if timeout.is_zero() {
        return Err(bad(var::NATS_TIMEOUT, "must be greater than zero".to_owned()));
    }
    Ok(timeout)
}

/// Creates connections with the same settings, one after the other.
struct ConnectionMaker {
    settings: ConnectionSettings,
    name: String,
    /// Prefix of every inbox.
    prefix: String,
    denials: DeniedOperations,
}

/// Changes of one connection; ends when its client has ended.
type ConnectionChanges = mpsc::UnboundedReceiver<ConnectionChange>;

/// A change of a connection.
enum ConnectionChange {
    /// It was lost; `is_explained` if the server reported an error before.
    Lost { is_explained: bool },
    /// It was established or re-established.
    Connected,
}

impl ConnectionMaker {
    /// Connects directly to the server.
    async fn direct(&self) -> Result<(Line, ConnectionChanges), MeshError> {
        let settings = &self.settings;
        let mut options = settings.signed(ConnectOptions::new())?.0;
        if let Some(ca) = &settings.ca {
            readable(var::NATS_CA, ca)?;
            // A certificate authority is configured, so plain text is rejected.
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let Some((cert, key)) = &settings.cert {
            readable(var::NATS_CERT, cert)?;
            readable(var::NATS_KEY, key)?;
            options = options.add_client_certificate(cert.clone(), key.clone()).require_tls(true);
        }
        if settings.tls_first {
            options = options.tls_first();
        }
        let options = options.name(&self.name);
        self.line(options, settings.servers.clone(), None).await
    }

    /// Connects through a screen that checks every frame before the client library reads it.
    async fn screened(&self) -> Result<(Line, ConnectionChanges), MeshError> {
        let settings = &self.settings;
        let upstream = UpstreamServer {
            servers: settings.servers.clone(),
            ca: settings.ca.clone(),
            cert: settings.cert.clone(),
            tls_required: settings.ca.is_some() || settings.cert.is_some(),
            tls_first: settings.tls_first,
            timeout: settings.timeout,
        };
        let route = ScreenedRoute::open(upstream).await;
        let route = route.map_err(|error| unreachable("screen a connection", &error))?;
        let options = settings.signed(ConnectOptions::new())?.0;
        let options = options.name(format!("{} {}", self.name, route.secret)).ignore_discovered_servers();
        let address = vec![route.address.clone()];
        self.line(options, address, Some(Arc::new(route))).await
    }

    async fn line(
        &self,
        options: ConnectOptions,
        servers: Vec<ServerAddr>,
        route: Option<Arc<ScreenedRoute>>,
    ) -> Result<(Line, ConnectionChanges), MeshError> {
        let heard = self.denials.clone();
        // The client may outlive the mesh and reconnect: this process keeps the port until the client ends.
        let held = route.clone();
        let (changes, losses) = mpsc::unbounded_channel();
        let explained = AtomicBool::new(false);
        let log = ConnectionLog::new(self.settings.address());
        let client = options
            // The prefix cannot be guessed, unlike the request ids below it, which the library counts up.
            .custom_inbox_prefix(format!("{}.{}", self.prefix, random_token()))
            .connection_timeout(self.settings.timeout)
            .ping_interval(PING)
            .reconnect_delay_callback(|attempt| reconnect_after(attempt, rand::random()))
            .event_callback(move |event| {
                let _ = &held;
                log.write(&event);
                heard.hear(&event);
                let change = match event {
                    // Denied publishes and subscriptions do not affect the connection.
                    Event::ServerError(ref error) => {
                        if !error.to_string().to_lowercase().contains("permissions violation") {
                            explained.store(true, Ordering::Relaxed);
                        }
                        None
                    }
                    Event::LameDuckMode => {
                        explained.store(true, Ordering::Relaxed);
                        None
                    }
                    Event::Disconnected => Some(ConnectionChange::Lost {
                        is_explained: explained.swap(false, Ordering::Relaxed),
                    }),
                    Event::Connected => Some(ConnectionChange::Connected),
                    _ => None,
                };
                if let Some(change) = change {
                    let _ = changes.send(change);
                }
                std::future::ready(())
            })
            .connect(servers)
            .await
            .map_err(|error| self.settings.cannot_connect(&error))?;
        let jetstream = match (&self.settings.api_prefix, &self.settings.domain) {
            (Some(prefix), _) => ContextBuilder::new().api_prefix(prefix.clone()).build(client.clone()),
            (None, Some(domain)) => ContextBuilder::new().domain(domain.clone()).build(client.clone()),
            (None, None) => jetstream::new(client.clone()),
        };
        Ok((Line { client, jetstream, route }, losses))
    }
}

/// Losses of a direct connection.
#[derive(Default)]
struct LossRecord {
    losses: VecDeque<Instant>,
    /// The last loss without an error from the server.
    unexplained: Option<Instant>,
    /// Id of the server before the last loss; it changes with each restart of the server.
    server: String,
}

impl LossRecord {
    /// Records a loss; returns whether the losses are frequent enough to be caused by messages.
    fn lost(&mut self, now: Instant, is_explained: bool) -> bool {
        self.unexplained = (!is_explained).then_some(now);
        self.losses.retain(|loss| now.duration_since(*loss) < LONG_LOSS_WINDOW);
        let again = self.losses.back().is_some_and(|last| now.duration_since(*last) < LOSS_WINDOW);
        self.losses.push_back(now);
        again || self.losses.len() >= MAX_LOSSES
    }

    /// Records a connection to a server; returns whether a message must have caused the previous loss.
    fn connected(&mut self, now: Instant, server: String) -> bool {
        let is_same = std::mem::replace(&mut self.server, server) == self.server;
        self.unexplained.take().is_some_and(|loss| now.duration_since(loss) < QUICK_RETURN) && is_same
    }
}

/// Replaces the connection by a screened one when messages break it, and the screened one by a direct one after
/// a calm period, until the mesh is dropped.
async fn watch_losses(mesh: WeakMesh, dialer: ConnectionMaker, mut losses: ConnectionChanges) {
    let mut record = LossRecord::default();
    let mut calm = dialer.settings.screen_calm;
    loop {
        let change = tokio::select! {
            change = losses.recv() => change,
            () = screen_is_calm(&mesh, calm) => {
                if let Some(direct) = leave_screen(&mesh, &dialer).await {
                    (losses, record) = (direct, LossRecord::default());
                    // A recurring message then disturbs ever less often.
                    calm = (calm * 2).min(MAX_SCREEN_CALM);
                }
                continue;
            }
        };
        let ended = change.is_none();
        let Some(mesh) = mesh.upgrade() else { return };
        let now = Instant::now();
        let is_broken = match change {
            None => true,
            Some(ConnectionChange::Lost { is_explained }) => record.lost(now, is_explained),
            Some(ConnectionChange::Connected) => {
                // The client learns the new server only when it uses the connection.
                let _ = timeout(QUICK_RETURN, mesh.client().flush()).await;
                record.connected(now, mesh.client().server_info().server_id)
            }
        };
        // A lost screened connection reconnects like any other.
        if !ended && (mesh.is_screened() || !is_broken) {
            continue;
        }
        tracing::warn!(ended, "the connection was lost; checking every message before it is read");
        metrics::counter!("sinew_connections_screened_total").increment(1);
        let mut attempt = 0;
        losses = loop {
            match dialer.screened().await {
                Ok((line, losses)) => {
                    mesh.renew(line);
                    break losses;
                }
                Err(error) => tracing::debug!(%error, "cannot open the screened connection; retrying"),
            }
            attempt += 1;
            sleep(pause(attempt, LONGEST_WAIT)).await;
        };
    }
}

/// Waits until the screen has replaced no message for this time; forever while the connection is direct.
async fn screen_is_calm(mesh: &WeakMesh, calm: Duration) {
    loop {
        let since = mesh.upgrade().and_then(|mesh| mesh.screen_calm());
        match since.map(|since| calm.saturating_sub(since)) {
            None => std::future::pending().await,
            Some(Duration::ZERO) => return,
            Some(left) => sleep(left).await,
        }
    }
}

/// Reconnects directly to the server. If that fails, the screened connection stays, and a retry follows.
async fn leave_screen(mesh: &WeakMesh, dialer: &ConnectionMaker) -> Option<ConnectionChanges> {
    let Ok((line, losses)) = dialer.direct().await else {
        sleep(LONGEST_WAIT).await;
        return None;
    };
    mesh.upgrade()?.renew(line);
    tracing::info!("received no unreadable message for a while; no longer checking messages");
    Some(losses)
}

impl ConnectionSettings {
    /// Adds the credentials to the options; returns the user's name if the credentials contain one.
    fn signed(&self, options: ConnectOptions) -> Result<(ConnectOptions, Option<String>), MeshError> {
        let mut named = None;
        let options = match &self.auth {
            ConnectionCredentials::Nobody => options,
            ConnectionCredentials::User(user, password) => {
                named = Some(user.clone());
                options.user_and_password(user.clone(), password.clone())
            }
            ConnectionCredentials::Token(token) => options.token(token.clone()),
            ConnectionCredentials::Nkey(path) => {
                let seed = secret(var::NATS_NKEY, path)?;
                let seed = seed.lines().map(str::trim).find(|line| line.starts_with("SU"));
                options.nkey(seed.unwrap_or_default().to_owned())
            }
            ConnectionCredentials::Creds(path) => {
                let creds = secret(var::NATS_CREDS, path)?;
                named = name_in(&creds);
                let reason = format!("{}: not a NATS credentials file", path.display());
                options.credentials(&creds).map_err(|_| bad(var::NATS_CREDS, reason))?
            }
            ConnectionCredentials::Jwt { jwt, seed } => {
                let creds = format!(
                    "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
                     -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
                );
                named = name_in(&creds);
                let reason = "user_jwt and user_seed of the context do not match".to_owned();
                options.credentials(&creds).map_err(|_| bad(var::NATS_CONTEXT, reason))?
            }
        };
        Ok((options, named))
    }

    /// Rejects servers that cannot provide the guarantees of the mesh.
    async fn check(&self, client: &async_nats::Client) -> Result<(), MeshError> {
        let info = client.server_info();
        let unknown = || MeshError::Unreachable {
            what: "read the server's version",
            reason: format!("{} does not report one", self.address()),
        };
        let version = Version::parse(&info.version).ok_or_else(unknown)?;
        if !version.is_supported() {
            return Err(MeshError::OldServer { what: format!("the server at {}", self.address()), version });
        }
        if info.jetstream {
            return Ok(());
        }
        // Another server of the cluster may still have JetStream.
        let asked = jetstream::new(client.clone()).query_account().await;
        asked.map(drop).map_err(|error| MeshError::NoJetStream {
            address: self.address(),
            reason: match error.kind() {
                AccountErrorKind::JetStreamUnavailable => {
                    "the server was started without JetStream".to_owned()
                }
                _ => error.to_string(),
            },
        })
    }

    fn cannot_connect(&self, error: &async_nats::ConnectError) -> MeshError {
        let (address, reason) = (self.address(), error.to_string());
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation => MeshError::NotAllowed { address, reason },
            // The client could not sign the server's nonce.
            ConnectErrorKind::Authentication => {
                let setting = if matches!(self.auth, ConnectionCredentials::Nkey(_)) {
                    var::NATS_NKEY
                } else {
                    var::NATS_CREDS
                };
                bad(setting, "its key is damaged".to_owned())
            }
            _ => MeshError::NothingListens { address, reason },
        }
    }

    /// Returns the addresses and their source, without secrets.
    fn address(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(|s| format!("{}:{}", s.host(), s.port())).collect();
        format!("{} ({})", servers.join(","), self.origin)
    }
}

/// Parses addresses. Removes users from them: the client would not use them, and would display them.
fn servers(url: &str, origin: &str) -> Result<(Vec<ServerAddr>, ConnectionCredentials), MeshError> {
    let wrong = || bad("the address of the server", format!("{origin}: not the address of a NATS server"));
    let mut servers = Vec::new();
    let mut auth = ConnectionCredentials::Nobody;
    for address in url.split(',').map(str::trim).filter(|address| !address.is_empty()) {
        let mut address = address.parse::<ServerAddr>().map_err(|_| wrong())?.into_inner();
        if address.host_str().is_none_or(str::is_empty) {
            return Err(wrong());
        }
        let decoded =
            |text: &str| percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| wrong());
        let user = decoded(address.username())?;
        let password = address.password().map(decoded).transpose()?;
        match (user.is_empty(), password) {
            (true, None) => {}
            (true, Some(_)) => return Err(wrong()),
            (false, None) => auth = ConnectionCredentials::Token(user),
            (false, Some(password)) => auth = ConnectionCredentials::User(user, password),
        }
        address.set_username("").and_then(|()| address.set_password(None)).map_err(|()| wrong())?;
        let server = ServerAddr::from_url(address).map_err(|_| wrong())?;
        if server.is_websocket() {
            let reason =
                "WebSocket is not supported because its messages are not checked; use nats:// or tls://";
            return Err(bad(var::NATS_URL, reason.to_owned()));
        }
        servers.push(server);
    }
    if servers.is_empty() { Err(wrong()) } else { Ok((servers, auth)) }
}

/// Reads the credentials of one source.
fn auth(
    creds: Option<PathBuf>,
    nkey: Option<PathBuf>,
    user: Option<String>,
    password: Option<String>,
) -> Result<ConnectionCredentials, MeshError> {
    Ok(match (creds, nkey, user, password) {
        (Some(creds), ..) => ConnectionCredentials::Creds(creds),
        (None, Some(nkey), ..) => ConnectionCredentials::Nkey(nkey),
        (None, None, Some(user), Some(password)) => ConnectionCredentials::User(user, password),
        (None, None, Some(token), None) => ConnectionCredentials::Token(token),
        (None, None, None, Some(_)) => {
            return Err(bad(var::NATS_PASSWORD, "a password requires a user".to_owned()));
        }
        (None, None, None, None) => ConnectionCredentials::Nobody,
    })
}

fn in_context(context: &Context) -> Result<ConnectionCredentials, MeshError> {
    if let (Some(jwt), Some(seed)) = (&context.user_jwt, &context.user_seed) {
        return Ok(ConnectionCredentials::Jwt { jwt: jwt.clone(), seed: seed.clone() });
    }
    if let Some(token) = &context.token {
        return Ok(ConnectionCredentials::Token(token.clone()));
    }
    auth(
        context.creds.clone().map(PathBuf::from),
        context.nkey.clone().map(PathBuf::from),
        context.user.clone(),
        context.password.clone(),
    )
}

/// Reads a small secret file.
fn secret(setting: &'static str, path: &Path) -> Result<String, MeshError> {
    let shown = path.display();
    read_text_file(path, LONGEST_SECRET).map_err(|error| bad(setting, format!("{shown}: {error}")))
}

fn readable(setting: &'static str, path: &Path) -> Result<(), MeshError> {
    open_file(path).map(drop).map_err(|error| bad(setting, format!("{}: {error}", path.display())))
}

/// Returns the user's name in credentials. The server verifies it, not this process.
fn name_in(creds: &str) -> Option<String> {
    let jwt = creds.lines().map(str::trim).find(|line| line.matches('.').count() == 2)?;
    let claims = BASE64URL_NOPAD.decode(jwt.split('.').nth(1)?.as_bytes()).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    claims["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns the default caller: the system's user and host, readable in subjects.
pub fn default_caller() -> String {
    caller_of(&|name| env::var(name).ok())
}

fn caller_of(variable: &dyn Fn(&str) -> Option<String>) -> String {
    let user = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let names =
        [user, host].map(|name| name.chars().map(|c| if legal(c) { c } else { '-' }).collect::<String>());
    let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).collect();
    if names.is_empty() { "anonymous".to_owned() } else { names.join("-").chars().take(60).collect() }
}

/// Returns the wait before a reconnection attempt (counted from 1). `chance` (0 to 1) adds jitter, so that
/// clients that lost a server together do not reconnect together.
fn reconnect_after(attempt: usize, chance: f64) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let longest = SHORTEST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    longest.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

fn bad(setting: &'static str, reason: String) -> MeshError {
    MeshError::BadSetting { setting, reason }
}

#[cfg(test)]
#[path = "connect/tests.rs"]
mod tests;
