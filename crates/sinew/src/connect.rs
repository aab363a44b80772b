//! The connection to a mesh: the flags of the `nats` command line, and runtimes for commands that
//! use the network.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sinew_executor::client::Client;
use sinew_mesh::connect::{Connect, default_caller};
use sinew_mesh::{Mesh, MeshError};
use sinew_operations::dev_note::RunningDev;
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_operations::mesh_operator::{MeshOperator, adapter};
use sinew_operations::quantity::parse_duration;
use sinew_protocol::access::group_of;
use sinew_protocol::code;
use sinew_protocol::env;
use sinew_protocol::origin::{ChangeOrigin, EntryPoint};
use sinew_telemetry::TelemetryError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// Heading of the flags that name a mesh, in help.
const CONNECTION_HEADING: &str = "Connection";
/// Pause before the next attempt to reach a server that is starting.
const CONNECT_PAUSE: Duration = Duration::from_millis(500);
/// The current folder.
const HERE: &str = ".";
/// Variables with credentials.
const CREDENTIALS: [&str; 3] = [env::NATS_CREDS, env::NATS_NKEY, env::NATS_USER];

/// Flags of every command that needs a mesh; the names are those of the `nats` command line.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Connection {
    /// Use the mesh (implied by an address, a context or a running `sinew dev` in this folder)
    #[arg(help_heading = CONNECTION_HEADING, long)]
    pub(crate) mesh: bool,
    /// Use this process and this folder, even if the environment names a mesh
    #[arg(help_heading = CONNECTION_HEADING, long, conflicts_with_all = ["mesh", "nats", "context", "namespace"])]
    pub(crate) local: bool,
    /// Use the mesh of the `sinew dev` that runs in this folder
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "DIR", conflicts_with_all = ["local", "nats", "context"])]
    pub(crate) dev: Option<PathBuf>,
    /// Address of the NATS server [env: `NATS_URL`] [default: a running `sinew dev` in this folder, the selected context, else localhost]
    #[arg(help_heading = CONNECTION_HEADING, long, visible_alias = "server", value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Context of the `nats` command line [env: `NATS_CONTEXT`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace of the mesh on the server [env: `SINEW_NAMESPACE`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// File with credentials [env: `NATS_CREDS`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "FILE", hide_short_help = true)]
    pub(crate) creds: Option<String>,
    /// File with an nkey seed [env: `NATS_NKEY`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "FILE", hide_short_help = true)]
    pub(crate) nkey: Option<String>,
    /// User [env: `NATS_USER`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "USER", hide_short_help = true)]
    pub(crate) user: Option<String>,
    /// Password; prefer the environment variable, which other users cannot see [env: `NATS_PASSWORD`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "PASSWORD", hide_short_help = true)]
    pub(crate) password: Option<String>,
    /// File with the client's TLS certificate [env: `NATS_CERT`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "FILE", hide_short_help = true)]
    pub(crate) tlscert: Option<String>,
    /// File with the client's TLS key [env: `NATS_KEY`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "FILE", hide_short_help = true)]
    pub(crate) tlskey: Option<String>,
    /// File with certificate authorities to trust [env: `NATS_CA`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "FILE", hide_short_help = true)]
    pub(crate) tlsca: Option<String>,
    /// Connection timeout (`5s`) [env: `NATS_TIMEOUT`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "DURATION", hide_short_help = true)]
    pub(crate) nats_timeout: Option<String>,
    /// Caller to record with commands [default: from the credentials, else the user]
    #[arg(help_heading = CONNECTION_HEADING, long = "as", value_name = "NAME", hide_short_help = true)]
    pub(crate) caller: Option<String>,
    /// Password of the server that a `sinew dev` runs.
    #[arg(skip)]
    pub(crate) dev_password: Option<String>,
}

/// Role of the connections of commands of operators, whose changes state that they come from the command line.
const OPERATOR_ROLE: &str = "cli";

impl Connection {
    /// Returns whether a flag selects a mesh.
    pub(crate) fn is_given(&self) -> bool {
        self.mesh
            || self.dev.is_some()
            || self.nats.is_some()
            || self.context.is_some()
            || self.namespace.is_some()
    }

    /// Returns whether a mesh is selected: by a flag, by a variable with an address or a context, or
    /// by a `sinew dev` that runs in this folder. If the command line names files of this folder
    /// (`names_files`), only a flag selects a mesh.
    pub(crate) fn is_meant(&self, names_files: bool) -> bool {
        if self.is_given() || self.local || names_files {
            return self.is_given();
        }
        has_address_variable() || RunningDev::find(Path::new(HERE)).is_some()
    }

    /// Returns the connection as arguments for running this program elsewhere. They include the
    /// address and namespace from the environment, or the folder of the running `sinew dev`, but no
    /// password.
    pub(crate) fn arguments(&self) -> Result<Vec<String>, Failure> {
        let resolved = self.resolved()?;
        if resolved.dev_password.is_some() {
            let folder = self.dev.as_deref().unwrap_or(Path::new(HERE));
            let folder = folder.canonicalize().map_err(|error| Failure::unreadable(folder, &error))?;
            let folder = Some(folder.display().to_string());
            let named = [
                ("--dev", &folder),
                ("--namespace", &resolved.namespace),
                ("--nats-timeout", &self.nats_timeout),
                ("--as", &self.caller),
            ];
            return Ok(flags(&named));
        }
        let named_by_context = resolved.context.is_some() || variable(env::NATS_CONTEXT).is_some();
        let nats = resolved.nats.or_else(|| variable(env::NATS_URL).filter(|_| !named_by_context));
        let context = resolved.context.or_else(|| variable(env::NATS_CONTEXT).filter(|_| nats.is_none()));
        let namespace = resolved.namespace.or_else(|| variable(env::NAMESPACE));
        let named = [
            ("--nats", &nats),
            ("--context", &context),
            ("--namespace", &namespace),
            ("--creds", &self.creds),
            ("--nkey", &self.nkey),
            ("--user", &self.user),
            ("--tlscert", &self.tlscert),
            ("--tlskey", &self.tlskey),
            ("--tlsca", &self.tlsca),
            ("--nats-timeout", &self.nats_timeout),
            ("--as", &self.caller),
        ];
        Ok(flags(&named))
    }

    /// Returns the connection with the address and password of a running `sinew dev`: the one of
    /// `--dev`, or the one in the current folder if no other address is given.
    fn resolved(&self) -> Result<Self, Failure> {
        let has_credential_flags = self.user.is_some() || self.creds.is_some() || self.nkey.is_some();
        let dev = match &self.dev {
            Some(folder) => Some(RunningDev::find(folder).ok_or_else(|| {
                let text = format!("no `sinew dev` is running in {}", folder.display());
                Failure::new(FailureKind::Unreachable, code::NATS_NOT_REACHABLE.as_str(), text)
                    .hint("start `sinew dev` in that folder")
            })?),
            None if self.context.is_some() || variable(env::NATS_CONTEXT).is_some() => None,
            None => {
                let address = self.nats.clone().or_else(|| variable(env::NATS_URL));
                let has_credentials =
                    has_credential_flags || CREDENTIALS.iter().any(|name| variable(name).is_some());
                RunningDev::find(Path::new(HERE)).filter(|dev| match &address {
                    Some(address) => !has_credentials && dev.has_addresses(address),
                    None => true,
                })
            }
        };
        Ok(match dev {
            Some(dev) => Self {
                nats: Some(dev.url()),
                user: self.user.clone().or_else(|| (!has_credential_flags).then(|| dev.user().to_owned())),
                namespace: self
                    .namespace
                    .clone()
                    .or_else(|| variable(env::NAMESPACE))
                    .or(Some(dev.namespace)),
                dev_password: Some(dev.password).filter(|_| !has_credential_flags),
                ..self.clone()
            },
            None => self.clone(),
        })
    }

    /// Connects. `role` names the connection.
    pub(crate) async fn open(&self, role: &'static str) -> Result<Mesh, Failure> {
        if self.local {
            return Err(Failure::usage("--local is not supported: this command needs a mesh"));
        }
        if self.caller.as_deref().is_some_and(|name| group_of(name).is_some()) {
            let text = "a group is not a caller: only a gateway proves who is in a group";
            return Err(Failure::usage(text)
                .hint("use your own name, or decide at a gateway with a key of the group"));
        }
        let resolved = self.resolved()?;
        let timeout = self.nats_timeout.as_deref().map(parse_duration).transpose()?;
        // The user of the server of `sinew dev` is everybody's: it does not name the caller.
        let default_caller = resolved.dev_password.is_some().then(default_caller);
        let connect = Connect {
            url: resolved.nats,
            context: self.context.clone(),
            creds: self.creds.clone().map(Into::into),
            nkey: self.nkey.clone().map(Into::into),
            user: resolved.user,
            password: resolved.dev_password.or_else(|| self.password.clone()),
            cert: self.tlscert.clone().map(Into::into),
            key: self.tlskey.clone().map(Into::into),
            ca: self.tlsca.clone().map(Into::into),
            timeout: timeout.map(Duration::from_millis),
            namespace: resolved.namespace,
            caller: self.caller.clone().or(default_caller),
            role,
            screen_calm: None,
        };
        let mut mesh = connect.open().await?;
        if !LASTING.contains(&role)
            && let Ok(tell) = REFUSED.try_with(mpsc::Sender::clone)
        {
            let denied = mesh.admin().denied();
            tokio::spawn(async move { tell.send(denied.await).await });
        }
        if role == OPERATOR_ROLE {
            // Without an answer, nothing proves the name.
            let is_proven = mesh.proves_caller().await.unwrap_or_default();
            mesh = mesh.with_origin(ChangeOrigin { via: EntryPoint::Cli, key: None, is_proven });
        }
        Ok(mesh)
    }

    /// Like [`Connection::open`], but waits for a server that is not reachable yet, for as long as
    /// `--nats-timeout` or `NATS_TIMEOUT` states.
    pub(crate) async fn open_when_reachable(&self, role: &'static str) -> Result<Mesh, Failure> {
        let timeout = self.nats_timeout.clone().or_else(|| variable(env::NATS_TIMEOUT));
        let timeout = timeout.as_deref().map(parse_duration).transpose()?.unwrap_or_default();
        let until = Instant::now() + Duration::from_millis(timeout);
        loop {
            match self.open(role).await {
                Err(failure) if failure.kind == FailureKind::Unreachable && Instant::now() < until => {
                    sleep(CONNECT_PAUSE).await;
                }
                opened => return opened,
            }
        }
    }

    /// Connects to a provisioned mesh to start and inspect executions.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let mesh = self.open(OPERATOR_ROLE).await?;
        Ok(Client::new(mesh, adapter).await?)
    }

    /// Connects to a provisioned mesh as an operator.
    pub(crate) async fn operator(&self) -> Result<MeshOperator, Failure> {
        Ok(MeshOperator::new(self.client().await?))
    }
}

/// Returns the flags that have a value, each followed by it.
fn flags(named: &[(&str, &Option<String>)]) -> Vec<String> {
    let given = named.iter().filter_map(|(flag, value)| Some([(*flag).to_owned(), (*value).clone()?]));
    given.flatten().collect()
}

/// Returns whether a variable gives an address or a context.
fn has_address_variable() -> bool {
    variable(env::NATS_URL).is_some() || variable(env::NATS_CONTEXT).is_some()
}

/// Returns a variable of the environment; `None` if it is not set or empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Time for a command to send its last spans to a collector.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Roles that continue after a permission error: a service must not stop because of one caller's
/// request, and a check reports what it may read.
const LASTING: [&str; 7] = ["executor", "agent", "gateway", "dev", "doctor", "check", "mcp"];

tokio::task_local! {
    /// Receives permission errors of the server, so that a command which cannot succeed fails at once.
    static REFUSED: mpsc::Sender<MeshError>;
}

/// Runs work that waits for the network.
pub(crate) fn block<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on(&mut tokio::runtime::Builder::new_multi_thread(), work)
}

/// Like [`block`], for commands that may start executions: exports the first span of the trace if a
/// collector is configured.
pub(crate) fn block_traced<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block(async {
        let telemetry = sinew_telemetry::start_client().map_err(|error| telemetry_failure(&error))?;
        let done = work.await;
        telemetry.stop(LAST_WORDS).await;
        done
    })
}

/// Like [`block`], on this thread only: work that mostly waits for messages costs a third less
/// without switches between threads.
pub(crate) fn block_here<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on(&mut tokio::runtime::Builder::new_current_thread(), work)
}

/// Starts a runtime.
pub(crate) fn new_runtime(builder: &mut tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Failure> {
    builder.enable_all().build().map_err(|error| {
        Failure::new(
            FailureKind::Failed,
            code::RUNTIME_CANNOT_START.as_str(),
            format!("cannot start the runtime: {error}"),
        )
    })
}

fn block_on<T>(
    runtime: &mut tokio::runtime::Builder,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = new_runtime(runtime)?;
    let (tell, mut told) = mpsc::channel(1);
    let ended = runtime.block_on(REFUSED.scope(tell.clone(), async {
        tokio::select! { biased;
            ended = work => ended,
            Some(refused) = told.recv() => Err(refused.into()),
        }
    }));
    // Connections that are still closing must not delay the exit.
    runtime.shutdown_timeout(Duration::from_millis(500));
    ended
}

/// Returns the failure of a service whose telemetry did not start.
pub(crate) fn telemetry_failure(error: &TelemetryError) -> Failure {
    let kind = match error {
        TelemetryError::Port { .. } => FailureKind::Failed,
        _ => FailureKind::Usage,
    };
    Failure::new(kind, known(error.code()), error.to_string())
}
