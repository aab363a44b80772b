//! `sinew serve gateway`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sinew_gateway::{
    AccessOptions, ConsoleMode, DEFAULT_PORT, Gateway, GatewayError, GatewayLimits, GatewayOptions,
    GrpcAddressForm, OidcClient, OidcOptions, ReachableAddresses, TlsFiles, ToolMode, TransportSecurity,
};
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_operations::gateway_hooks::read_secret;
use sinew_operations::mesh_operator;
use sinew_operations::quantity::parse_byte_count;
use sinew_protocol::access::KeyLimits;
use tokio::runtime::Handle;

use super::{MeshReadiness, MonitoringArgs, Stop};
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew serve gateway
  sinew serve gateway --listen 127.0.0.1:9000 --expose 'orders-*'
  sinew serve gateway --public-url https://agents.example.com
  sinew serve gateway --console=read-only
  sinew serve gateway --listen 0.0.0.0:8234 --keys --tls-certificate tls.crt --tls-key tls.key --host agents.example.com
  curl http://127.0.0.1:8234/.well-known/agent-card.json";

/// Arguments of `sinew serve gateway`.
#[derive(Args, Debug)]
#[command(
    long_about = "Serve the workflows and agents of a mesh over HTTP: as A2A 1.0 agents (cards, JSON-RPC, \
                  REST, event streams), and as MCP tools at /mcp. Gateways are stateless; run any number of \
                  them.\n\n\
                  A gateway listens on this machine only, unless callers need credentials (--keys: keys of \
                  `sinew gateway key create`, tokens of an OpenID provider, client certificates) and their \
                  connections are protected (TLS files, which are reloaded when they change, or \
                  --behind-proxy). On SIGTERM it accepts no new connections, ends streams with a hint on how \
                  to resume them, and completes requests in progress.",
    after_help = EXAMPLES
)]
pub(crate) struct GatewayArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)))]
    listen: SocketAddr,
    /// Also serve the web console: `full`, or `read-only`, which cannot change anything
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "full")]
    console: Option<ConsoleChoice>,
    #[command(flatten)]
    settings: GatewaySettings,
    #[command(flatten)]
    monitoring: MonitoringArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// Settings of a gateway, as arguments of each command that starts one.
#[derive(Args, Debug)]
pub(crate) struct GatewaySettings {
    #[command(flatten)]
    exposure: ExposureArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

impl GatewaySettings {
    /// Returns the options of a gateway with these settings. Fails if a value is not valid, or a
    /// file cannot be read.
    pub(crate) fn options(&self) -> Result<GatewayOptions, Failure> {
        let Self { exposure, access, limits } = self;
        Ok(GatewayOptions {
            public_url: exposure.public_url.clone(),
            publisher: exposure.publisher.clone(),
            hosts: exposure.host.clone(),
            expose: exposure.expose.clone(),
            default_agent: exposure.default_agent.clone(),
            mcp_tools: exposure.mcp_tools.clone(),
            cors_origins: exposure.cors_origin.clone(),
            grpc_on_cards: exposure.grpc_on_cards.map(GrpcAddressForm::from),
            limits: limits.gateway()?,
            access: access.access(limits.caller()?)?,
            transport: access.transport(),
            push_addresses: access.push_addresses(),
            ..GatewayOptions::new(mesh_operator::adapter)
        })
    }
}

/// What a gateway exposes, under which names.
#[derive(Args, Debug)]
pub(crate) struct ExposureArgs {
    /// Public address in cards [default: the one that the client used]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Domain that publishes the entries of catalogues, such as example.com [default: the host of --public-url]
    #[arg(long, value_name = "DOMAIN")]
    publisher: Option<String>,
    /// Name allowed in the Host and Origin of requests, in addition to localhost. May be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Origin allowed to call from a browser (CORS), such as `https://app.example.com`. May be repeated
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Expose only workflows and agents whose names match; `*` matches any text. May be repeated
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    expose: Vec<String>,
    /// Tools in the lists of MCP clients: `auto` (all up to 40, else tools that search), `all`, `find`, or names
    /// and patterns with commas between them. A client selects others with /mcp?tools=…
    #[arg(long, value_name = "MODE", default_value = "auto")]
    mcp_tools: ToolMode,
    /// Workflow or agent for messages to the mesh that name none
    #[arg(long, value_name = "NAME")]
    default_agent: Option<String>,
    /// Name the gRPC interface on agent cards, as `url` (https://HOST:PORT) or as `authority` (HOST:PORT)
    #[arg(long, value_name = "FORM", value_enum)]
    grpc_on_cards: Option<GrpcForm>,
}

/// Authentication of callers, and the security of their connections.
#[derive(Args, Debug)]
pub(crate) struct AccessArgs {
    /// Require credentials; without, callers on this machine have the permissions of the gateway's user
    #[arg(long)]
    keys: bool,
    /// OpenID provider whose tokens are accepted, as in their `iss`
    #[arg(long, value_name = "URL", requires_all = ["keys", "oidc_audience"])]
    oidc_issuer: Option<String>,
    /// Value that the `aud` of a token must contain
    #[arg(long, value_name = "AUDIENCE", requires = "oidc_issuer")]
    oidc_audience: Option<String>,
    /// Claim with the name of the caller, which gets the prefix `oidc-`
    #[arg(long, value_name = "CLAIM", default_value = "sub", requires = "oidc_issuer")]
    oidc_caller_claim: String,
    /// Claim with the scopes sinew:ROLE or sinew:ROLE:PATTERN
    #[arg(long, value_name = "CLAIM", default_value = "scope", requires = "oidc_issuer")]
    oidc_scope_claim: String,
    /// Claim with the groups of the caller, which may decide questions for `group:NAME`
    #[arg(long, value_name = "CLAIM", default_value = "groups", requires = "oidc_issuer")]
    oidc_groups_claim: String,
    /// Client id registered at the provider, with which people sign in to the console
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// File with the secret of a confidential client; a public client has none
    #[arg(long, value_name = "FILE", requires = "oidc_client_id")]
    oidc_client_secret_file: Option<PathBuf>,
    /// Scopes that sign-in requests, separated by spaces
    #[arg(long, value_name = "SCOPES", default_value = "openid", requires = "oidc_client_id")]
    oidc_scopes: String,
    /// Certificate of the gateway, with its chain
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Certificate authorities of client certificates; keys are bound to their DNS names
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_client_authorities: Option<PathBuf>,
    /// Also send push notifications to addresses of this machine and of private networks
    #[arg(long)]
    push_to_private_addresses: bool,
    /// Serve other machines without TLS, behind a proxy that terminates TLS at --public-url
    #[arg(long, conflicts_with = "tls_certificate", requires = "public_url")]
    behind_proxy: bool,
}

/// Limits of a gateway, and default limits of callers whose key has none.
#[derive(Args, Debug)]
pub(crate) struct LimitArgs {
    /// Maximum concurrent requests [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    max_in_flight: Option<u32>,
    /// Maximum open event streams [default: 8000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    max_streams: Option<u32>,
    /// Maximum open connections [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    max_connections: Option<u32>,
    /// Maximum size of a request body: 64KiB, 1MB [default: 1MiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    max_body: Option<String>,
    /// Requests per second of a caller whose key has no limit [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    caller_requests_per_second: Option<u32>,
    /// Concurrent requests of a caller whose key has no limit [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    caller_in_flight: Option<u32>,
    /// Open streams of a caller whose key has no limit [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    caller_streams: Option<u32>,
    /// Maximum body size of a caller whose key has no limit [default: the gateway's]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    caller_max_body: Option<String>,
}

impl LimitArgs {
    fn gateway(&self) -> Result<GatewayLimits, Failure> {
        let usual = GatewayLimits::default();
        let count = |given: Option<u32>, usual: usize| given.map_or(usual, |given| given as usize);
        let body = self.max_body.as_deref().map(parse_byte_count).transpose()?;
        Ok(GatewayLimits {
            in_flight: count(self.max_in_flight, usual.in_flight),
            streams: count(self.max_streams, usual.streams),
            connections: count(self.max_connections, usual.connections),
            body_bytes: body.map_or(usual.body_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            ..usual
        })
    }

    fn caller(&self) -> Result<KeyLimits, Failure> {
        Ok(KeyLimits {
            requests_per_second: self.caller_requests_per_second,
            in_flight: self.caller_in_flight,
            streams: self.caller_streams,
            body_bytes: self.caller_max_body.as_deref().map(parse_byte_count).transpose()?,
        })
    }
}

impl AccessArgs {
    fn access(&self, limits: KeyLimits) -> Result<AccessOptions, Failure> {
        let provider = self.oidc_issuer.as_ref().zip(self.oidc_audience.as_ref());
        let client = self.oidc_client()?;
        let oidc = provider.map(|(issuer, audience)| OidcOptions {
            caller_claim: self.oidc_caller_claim.clone(),
            groups_claim: self.oidc_groups_claim.clone(),
            scope_claim: self.oidc_scope_claim.clone(),
            client,
            ..OidcOptions::new(issuer, audience)
        });
        Ok(AccessOptions { is_required: self.keys, oidc: oidc.into_iter().collect(), limits })
    }

    fn oidc_client(&self) -> Result<Option<OidcClient>, Failure> {
        let Some(id) = &self.oidc_client_id else { return Ok(None) };
        let secret = self.oidc_client_secret_file.as_deref().map(read_secret).transpose()?;
        let secret = secret.map(|secret| secret.trim().to_owned());
        Ok(Some(OidcClient { secret, scopes: self.oidc_scopes.clone(), ..OidcClient::new(id) }))
    }

    fn push_addresses(&self) -> ReachableAddresses {
        if self.push_to_private_addresses { ReachableAddresses::All } else { ReachableAddresses::Public }
    }

    fn transport(&self) -> TransportSecurity {
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => TransportSecurity::Tls(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_authorities: self.tls_client_authorities.clone(),
            }),
            _ if self.behind_proxy => TransportSecurity::PlainBehindProxy,
            _ => TransportSecurity::Plain,
        }
    }
}

/// Form of the gRPC interface on cards.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum GrpcForm {
    /// `https://HOST:PORT`, as A2A requires
    Url,
    /// `HOST:PORT`, as the official SDKs for JavaScript and Python expect
    Authority,
}

impl From<GrpcForm> for GrpcAddressForm {
    fn from(form: GrpcForm) -> Self {
        match form {
            GrpcForm::Url => Self::Url,
            GrpcForm::Authority => Self::Authority,
        }
    }
}

/// Permissions of the console.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ConsoleChoice {
    /// People can start, control and decide
    Full,
    /// People can only read
    ReadOnly,
}

impl From<ConsoleChoice> for ConsoleMode {
    fn from(choice: ConsoleChoice) -> Self {
        match choice {
            ConsoleChoice::Full => Self::Full,
            ConsoleChoice::ReadOnly => Self::ReadOnly,
        }
    }
}

/// Serves until it is stopped; separate threads handle pages and API requests.
pub(super) async fn serve(
    args: &GatewayArgs,
    page_threads: Handle,
    output: &Output,
) -> Result<Exit, Failure> {
    if args.console.is_none() && args.settings.access.oidc_client_id.is_some() {
        return Err(Failure::usage("--oidc-client-id signs people in to the console; add --console"));
    }
    let options = GatewayOptions {
        listen: args.listen,
        console: args.console.map(ConsoleMode::from),
        page_threads: Some(page_threads),
        ..args.settings.options()?
    };
    let stop = Stop::listen()?;
    let readiness = MeshReadiness::default();
    let telemetry = args.monitoring.start("gateway", None, readiness.check(), output).await?;
    let starting = async {
        let mesh = args.mesh.open("gateway").await?;
        let gateway = Gateway::start(mesh.clone(), options).await.map_err(gateway_failure)?;
        Ok::<_, Failure>((gateway, mesh))
    };
    let (gateway, mesh) = tokio::select! { biased;
        started = starting => started?,
        // A broker that does not respond must not keep the process from exiting.
        () = stop.asked() => {
            super::end(telemetry).await;
            return Ok(Exit::Ok);
        }
    };
    readiness.begin(mesh);
    output.note(&format!("card: {}", card_address(&gateway)));
    output.note(&format!("tools: {}", tools_address(&gateway)));
    if args.console.is_some() {
        output.note(&format!("console: {}", console_address(&gateway)));
    }
    stop.asked().await;
    telemetry.drain();
    gateway.drain().await;
    super::end(telemetry).await;
    Ok(Exit::Ok)
}

/// Address of the card of the mesh.
pub(crate) fn card_address(gateway: &Gateway) -> String {
    format!("{}/.well-known/agent-card.json", gateway.own_url())
}

/// Address of the tools of the mesh.
pub(crate) fn tools_address(gateway: &Gateway) -> String {
    format!("{}/mcp", gateway.own_url())
}

/// Address of the console of the mesh.
pub(crate) fn console_address(gateway: &Gateway) -> String {
    format!("{}/console", gateway.own_url())
}

/// The failure of a gateway that did not start.
pub(crate) fn gateway_failure(error: GatewayError) -> Failure {
    match error {
        GatewayError::Mesh(error) => error.into(),
        GatewayError::Client(error) => error.into(),
        GatewayError::Handshake { .. } => {
            Failure::new(FailureKind::Usage, known(error.code()), error.to_string())
                .hint("MCP hosts start this command; `sinew mcp config HOST` prints their configuration")
        }
        GatewayError::Open { .. } => Failure::new(FailureKind::Usage, known(error.code()), error.to_string())
            .hint("add --keys, and TLS files or --behind-proxy with --public-url; or listen on 127.0.0.1"),
        error @ (GatewayError::Tls { .. } | GatewayError::Provider { .. } | GatewayError::Setting { .. }) => {
            Failure::new(FailureKind::Usage, known(error.code()), error.to_string())
        }
        error => Failure::new(FailureKind::Failed, known(error.code()), error.to_string())
            .hint("another process may use the port; choose another with --listen"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// The arguments by themselves.
    #[derive(clap::Parser, Debug)]
    struct LimitCommand {
        #[command(flatten)]
        limits: LimitArgs,
    }

    fn read(flags: &str) -> Result<(GatewayLimits, KeyLimits), String> {
        let words = std::iter::once("gateway").chain(flags.split_whitespace());
        let limits = LimitCommand::try_parse_from(words).map_err(|error| error.to_string())?.limits;
        let failed = |failure: Failure| format!("{failure:?}");
        Ok((limits.gateway().map_err(failed)?, limits.caller().map_err(failed)?))
    }

    #[test]
    fn flags_of_limits_set_one_limit_each() {
        let (usual, none) = (GatewayLimits::default(), KeyLimits::default());
        for (flags, limits, caller) in [
            ("", usual, none),
            ("--max-in-flight 5", GatewayLimits { in_flight: 5, ..usual }, none),
            ("--max-streams 6", GatewayLimits { streams: 6, ..usual }, none),
            ("--max-connections 7", GatewayLimits { connections: 7, ..usual }, none),
            ("--max-body 64KiB", GatewayLimits { body_bytes: 65_536, ..usual }, none),
            ("--caller-requests-per-second 8", usual, KeyLimits { requests_per_second: Some(8), ..none }),
            ("--caller-in-flight 9", usual, KeyLimits { in_flight: Some(9), ..none }),
            ("--caller-streams 10", usual, KeyLimits { streams: Some(10), ..none }),
            ("--caller-max-body 1MB", usual, KeyLimits { body_bytes: Some(1_000_000), ..none }),
        ] {
            let read = read(flags).unwrap_or_else(|error| panic!("{flags}: {error}"));
            assert_eq!(format!("{read:?}"), format!("{:?}", (limits, caller)), "{flags}");
        }
        for wrong in [
            "--max-in-flight 0",
            "--max-streams -1",
            "--max-connections many",
            "--max-body big",
            "--caller-requests-per-second 0",
            "--caller-in-flight 0",
            "--caller-streams 1.5",
            "--caller-max-body 5parsecs",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
