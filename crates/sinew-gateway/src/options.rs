//! Settings of a gateway.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sinew_agents::ReachableAddresses;
use sinew_console::ConsoleMode;
use sinew_executor::service::Adapters;
use sinew_protocol::access::KeyLimits;
use tokio::runtime::Handle;

use crate::tool_mode::ToolMode;

/// Default port of a gateway.
pub const DEFAULT_PORT: u16 = 8234;

/// Authentication settings of a gateway.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// Whether requests need credentials. If not, requests from this machine have the rights of the
    /// gateway's own user.
    pub is_required: bool,
    /// OpenID providers whose tokens are accepted, in addition to keys.
    pub oidc: Vec<OidcOptions>,
    /// Limits of callers whose key has no limits.
    pub limits: KeyLimits,
}

/// Protection of the connections to a gateway.
#[derive(Clone, Debug, Default)]
pub enum TransportSecurity {
    /// No protection: for the loopback interface.
    #[default]
    Plain,
    /// No protection here: a proxy in front of the gateway terminates TLS, and only the proxy can
    /// reach the address.
    PlainBehindProxy,
    /// TLS.
    Tls(TlsFiles),
}

/// TLS files in PEM format. They are reloaded when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain, the gateway's own certificate first.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Certificate authorities of client certificates. `None`: client certificates are not
    /// requested.
    pub client_authorities: Option<PathBuf>,
}

/// Settings of a gateway.
#[derive(Clone)]
pub struct GatewayOptions {
    /// Address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Address on cards, for instance `https://agents.example.com`. `None`: the `Host` of the
    /// client's request.
    pub public_url: Option<String>,
    /// Domain that publishes the gateway's entries in catalogues, such as `example.com`. `None`: the
    /// host of `public_url`.
    pub publisher: Option<String>,
    /// Names that requests may have in `Host` and `Origin`, besides those of the loopback
    /// interface.
    pub hosts: Vec<String>,
    /// Origins whose scripts may call from a browser, such as `https://app.example.com`. Empty by
    /// default.
    pub cors_origins: Vec<String>,
    /// Form of the gRPC interface on cards. `None`: cards list HTTP interfaces only, because
    /// clients that check every interface reject a card with another one. gRPC is always served.
    pub grpc_on_cards: Option<GrpcAddressForm>,
    /// Name patterns of the exposed agents and workflows; `*` matches any text.
    pub expose: Vec<String>,
    /// Agent or workflow that receives messages to the mesh without a target.
    pub default_agent: Option<String>,
    /// Returns the adapter of a dialect.
    pub adapters: Adapters,
    /// Whether the web console is served, and whether it can change the mesh. `None`: no console. A
    /// gateway that exposes only a part of the mesh has no console, because it has no API.
    pub console: Option<ConsoleMode>,
    /// Tools that the lists of MCP clients contain, unless the address of a client selects others.
    pub mcp_tools: ToolMode,
    /// Limits of requests.
    pub limits: GatewayLimits,
    /// Authentication of callers.
    pub access: AccessOptions,
    /// Protection of connections.
    pub transport: TransportSecurity,
    /// Addresses to which push notifications may be sent.
    pub push_addresses: ReachableAddresses,
    /// Threads for console pages and for requests to the API and MCP, so that calls of agents do
    /// not wait for them. `None`: the gateway's own threads.
    pub page_threads: Option<Handle>,
}

/// Form of the address of a gRPC interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcAddressForm {
    /// `https://HOST:PORT`, as A2A 1.0 requires (section 4.4.6).
    Url,
    /// `HOST:PORT`, as the official SDKs for JavaScript and Python pass it to their gRPC library.
    Authority,
}

impl GatewayOptions {
    /// Returns the default settings: loopback only, everything exposed.
    pub fn new(adapters: Adapters) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            public_url: None,
            publisher: None,
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            grpc_on_cards: None,
            expose: vec!["*".to_owned()],
            default_agent: None,
            adapters,
            console: None,
            mcp_tools: ToolMode::default(),
            limits: GatewayLimits::default(),
            access: AccessOptions::default(),
            transport: TransportSecurity::default(),
            push_addresses: ReachableAddresses::Public,
            page_threads: None,
        }
    }
}

impl std::fmt::Debug for GatewayOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayOptions")
            .field("listen", &self.listen)
            .field("public_url", &self.public_url)
            .field("expose", &self.expose)
            .finish_non_exhaustive()
    }
}

/// Limits of requests to a gateway.
#[derive(Clone, Copy, Debug)]
pub struct GatewayLimits {
    /// Maximum size of a request body. The broker's maximum message size applies as well.
    pub body_bytes: usize,
    /// Total size of larger bodies, such as exports and files, that are held concurrently.
    pub large_bodies: usize,
    /// Maximum number of concurrent inspections, drawings, tests and similar computations; others
    /// wait. Each may use more memory than the body that it processes.
    pub computations: usize,
    /// Time limit for receiving a request body.
    pub body_timeout: Duration,
    /// Time limit for receiving a request head.
    pub head_timeout: Duration,
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum number of concurrent requests; a stream counts until it starts.
    pub in_flight: usize,
    /// Maximum number of open streams.
    pub streams: usize,
    /// Maximum number of open sessions of MCP clients before 2026-07-28.
    pub sessions: usize,
    /// Maximum number of open sessions per caller, if requests need credentials.
    pub sessions_per_caller: usize,
    /// How long a blocking call waits before it returns the task in its current state.
    pub blocking: Duration,
    /// How long an agent may leave a message unanswered before its task is looked up.
    pub agent_silence: Duration,
    /// Maximum number of files in transfer from the mesh to clients; each is held completely in
    /// memory.
    pub files: usize,
    /// How long a file waits for a permit.
    pub file_wait: Duration,
    /// How long a client may leave its output unread before its connection is closed.
    pub slow_client: Duration,
    /// How long open requests may take when the gateway stops.
    pub drain: Duration,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            large_bodies: 256 << 20,
            computations: 2,
            body_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(10),
            connections: 10_000,
            in_flight: 10_000,
            streams: 8_000,
            sessions: 1_000,
            sessions_per_caller: 100,
            blocking: Duration::from_mins(10),
            agent_silence: Duration::from_secs(15),
            files: 8,
            file_wait: Duration::from_secs(10),
            slow_client: Duration::from_secs(30),
            drain: Duration::from_secs(20),
        }
    }
}

/// An OpenID provider whose tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcOptions {
    /// Address of the provider, as in `iss` of its tokens. HTTPS, or HTTP to this machine.
    pub issuer: String,
    /// Value that `aud` of a token must contain.
    pub audience: String,
    /// Claim that names the caller; default `sub`.
    pub caller_claim: String,
    /// Claim with the scopes, as a space-separated string or a list; default `scope`.
    pub scope_claim: String,
    /// Claim with the names of the caller's groups, as a list; default `groups`.
    pub groups_claim: String,
    /// Tolerated clock difference.
    pub clock_skew: Duration,
    /// Time limit for fetching a document of the provider.
    pub answer_timeout: Duration,
    /// Age after which keys are fetched again when a token arrives.
    pub max_key_age: Duration,
    /// The gateway as a client of the provider for console sign-in. `None`: no sign-in with the
    /// provider.
    pub client: Option<OidcClient>,
}

/// A gateway as a client of an OpenID provider.
#[derive(Clone, PartialEq, Eq)]
pub struct OidcClient {
    /// Registered id of the client.
    pub id: String,
    /// Secret of a confidential client. `None` for a public client, which only PKCE protects.
    pub secret: Option<String>,
    /// Scopes that a sign-in requests, separated by spaces.
    pub scopes: String,
}

impl OidcClient {
    /// Creates a public client that requests the scope `openid`.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), secret: None, scopes: "openid".to_owned() }
    }
}

impl std::fmt::Debug for OidcClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OidcClient")
            .field("id", &self.id)
            .field("has_secret", &self.secret.is_some())
            .field("scopes", &self.scopes)
            .finish()
    }
}

impl OidcOptions {
    /// Returns the default settings.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audience: audience.into(),
            caller_claim: "sub".to_owned(),
            scope_claim: "scope".to_owned(),
            groups_claim: "groups".to_owned(),
            clock_skew: Duration::from_mins(1),
            answer_timeout: Duration::from_secs(10),
            max_key_age: Duration::from_mins(10),
            client: None,
        }
    }
}
