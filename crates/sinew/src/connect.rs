//! The connection to a mesh: the flags of the `nats` command line, and what its errors mean for an exit code.

use std::future::Future;
use std::time::Duration;

use clap::Args;
use sinew_executor::client::Client;
use sinew_mesh::connect::Connect;
use sinew_mesh::{Mesh, MeshError};
use sinew_operations::dev_note::RunningDev;
use sinew_operations::duration::parse_duration;
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_operations::mesh_operator::{MeshOperator, adapter};
use sinew_protocol::code;
use sinew_protocol::env;
use sinew_telemetry::TelemetryError;
use tokio::sync::mpsc;

/// Heading of the flags that name a mesh, in help.
const CONNECTION_HEADING: &str = "Connection";

/// Flags of every command that needs a mesh; the names are those of the `nats` command line.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Connection {
    /// Mean the mesh. So does an address or a context, as a flag or a variable, and a `sinew dev` of this folder
    #[arg(help_heading = CONNECTION_HEADING, long)]
    pub(crate) mesh: bool,
    /// Mean this process and this folder, whatever the environment names
    #[arg(help_heading = CONNECTION_HEADING, long, conflicts_with_all = ["mesh", "nats", "context", "namespace"])]
    pub(crate) local: bool,
    /// Address of the NATS server [env: `NATS_URL`] [default: a `sinew dev` of this folder, the selected context, else localhost]
    #[arg(help_heading = CONNECTION_HEADING, long, visible_alias = "server", value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Context of the `nats` command line [env: `NATS_CONTEXT`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The mesh on that server [env: `SINEW_NAMESPACE`]
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
    /// Password; better in the environment, where others cannot see it [env: `NATS_PASSWORD`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "PASSWORD", hide_short_help = true)]
    pub(crate) password: Option<String>,
    /// The client's TLS certificate [env: `NATS_CERT`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "FILE", hide_short_help = true)]
    pub(crate) tlscert: Option<String>,
    /// The client's TLS key [env: `NATS_KEY`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "FILE", hide_short_help = true)]
    pub(crate) tlskey: Option<String>,
    /// Certificate authorities to trust [env: `NATS_CA`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "FILE", hide_short_help = true)]
    pub(crate) tlsca: Option<String>,
    /// How long to wait for the server (`5s`) [env: `NATS_TIMEOUT`]
    #[arg(help_heading = CONNECTION_HEADING, long, value_name = "DURATION", hide_short_help = true)]
    pub(crate) nats_timeout: Option<String>,
    /// Caller under which commands are recorded [default: by the credentials, else the user]
    #[arg(help_heading = CONNECTION_HEADING, long = "as", value_name = "NAME", hide_short_help = true)]
    pub(crate) caller: Option<String>,
}

impl Connection {
    /// True if a flag says that a mesh is meant.
    pub(crate) fn is_given(&self) -> bool {
        self.mesh || self.nats.is_some() || self.context.is_some() || self.namespace.is_some()
    }

    /// True if a mesh is meant: by a flag, by a variable that names an address or a context, or by a `sinew dev` that runs
    /// in this folder. `names_files` says that the command line names files of this folder, which only a flag overrules.
    pub(crate) fn is_meant(&self, names_files: bool) -> bool {
        if self.is_given() || self.local || names_files {
            return self.is_given();
        }
        has_address_variable() || RunningDev::find().is_some()
    }

    /// Returns the connection as arguments of a call of this program elsewhere, so with the address and the namespace of
    /// the environment and of the `sinew dev` of this folder. A password is left out.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let resolved = self.resolved();
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
        let given = named.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value.clone()?]));
        given.flatten().collect()
    }

    /// Returns the connection with the address of the `sinew dev` of this folder, if nothing else names one.
    fn resolved(&self) -> Self {
        if self.nats.is_some() || self.context.is_some() || has_address_variable() {
            return self.clone();
        }
        match RunningDev::find() {
            Some(dev) => Self {
                nats: Some(dev.url()),
                namespace: self.namespace.clone().or(Some(dev.namespace)),
                ..self.clone()
            },
            None => self.clone(),
        }
    }

    /// Connects. `role` names the connection.
    pub(crate) async fn open(&self, role: &'static str) -> Result<Mesh, Failure> {
        if self.local {
            return Err(Failure::usage("--local has no meaning here: this command needs a mesh"));
        }
        let resolved = self.resolved();
        let timeout = self.nats_timeout.as_deref().map(parse_duration).transpose()?;
        let connect = Connect {
            url: resolved.nats,
            context: self.context.clone(),
            creds: self.creds.clone().map(Into::into),
            nkey: self.nkey.clone().map(Into::into),
            user: self.user.clone(),
            password: self.password.clone(),
            cert: self.tlscert.clone().map(Into::into),
            key: self.tlskey.clone().map(Into::into),
            ca: self.tlsca.clone().map(Into::into),
            timeout: timeout.map(Duration::from_millis),
            namespace: resolved.namespace,
            caller: self.caller.clone(),
            role,
            screen_calm: None,
        };
        let mesh = connect.open().await?;
        if !LASTING.contains(&role)
            && let Ok(tell) = REFUSED.try_with(mpsc::Sender::clone)
        {
            let denied = mesh.admin().denied();
            tokio::spawn(async move { tell.send(denied.await).await });
        }
        Ok(mesh)
    }

    /// Connects to a provisioned mesh, to start executions and look at them.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let mesh = self.open("cli").await?;
        Ok(Client::new(mesh, adapter).await?)
    }

    /// Connects to a provisioned mesh, to do what an operator does.
    pub(crate) async fn operator(&self) -> Result<MeshOperator, Failure> {
        Ok(MeshOperator::new(self.client().await?))
    }
}

/// Tells whether a variable names an address or a context.
fn has_address_variable() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set(env::NATS_URL) || is_set(env::NATS_CONTEXT)
}

/// How long a command waits for a collector at its end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Roles that go on when they may not do something: what they do for others must not end for what one of them asked,
/// and a check tells of what it may look at.
const LASTING: [&str; 7] = ["executor", "agent", "gateway", "dev", "doctor", "check", "mcp"];

tokio::task_local! {
    /// Hears what the server does not permit, so that a command which cannot succeed ends at once.
    static REFUSED: mpsc::Sender<MeshError>;
}

/// Runs what has to wait for a network.
pub(crate) fn block<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on(&mut tokio::runtime::Builder::new_multi_thread(), work)
}

/// The same for commands that may start executions: the first span of the trace is theirs to tell, if a collector is named.
pub(crate) fn block_traced<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block(async {
        let telemetry = sinew_telemetry::start_client().map_err(|error| telemetry_failure(&error))?;
        let done = work.await;
        telemetry.stop(LAST_WORDS).await;
        done
    })
}

/// The same on this thread only: what waits for messages most of the time spends a third less without hand-overs between
/// threads.
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
    // Connections that still try to say goodbye must not hold the command up.
    runtime.shutdown_timeout(Duration::from_millis(500));
    ended
}

/// The failure of a service whose telemetry did not start.
pub(crate) fn telemetry_failure(error: &TelemetryError) -> Failure {
    let kind = match error {
        TelemetryError::Port { .. } => FailureKind::Failed,
        _ => FailureKind::Usage,
    };
    Failure::new(kind, known(error.code()), error.to_string())
}
