//! Settings of a gateway.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sinew_agents::ReachableAddresses;
use sinew_console::ConsoleMode;
use sinew_executor::service::Adapters;
use sinew_protocol::access::KeyLimits;
use tokio::runtime::Handle;

/// Port that a gateway listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 8234;

/// Callers that a gateway lets in.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// Whether requests need credentials. Without, requests from this machine have the rights of the gateway's own user.
    pub is_required: bool,
    /// OpenID providers whose tokens open, beside keys.
    pub oidc: Vec<OidcOptions>,
    /// Limits of callers whose key has none of its own.
    pub limits: KeyLimits,
}

/// Protection of the connections to a gateway.
#[derive(Clone, Debug, Default)]
pub enum TransportSecurity {
    /// None: for the loopback interface.
    #[default]
    Plain,
    /// None here: a proxy before the gateway speaks TLS, and nobody else reaches the address.
    PlainBehindProxy,
    /// TLS.
    Tls(TlsFiles),
}

/// Files of TLS in PEM. They are read again when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Chain of certificates, the gateway's own first.
    pub certificate: PathBuf,
    /// Key of the certificate.
    pub key: PathBuf,
    /// Authorities of client certificates. `None`: clients are not asked for one.
    pub client_authorities: Option<PathBuf>,
}

/// Settings of a gateway.
#[derive(Clone)]
pub struct GatewayOptions {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Address that cards name, for instance `https://agents.example.com`. None: the `Host` that the client used.
    pub public_url: Option<String>,
    /// Names in `Host` and `Origin` that requests may have, beside those of the loopback interface.
    pub hosts: Vec<String>,
    /// Origins whose scripts may call from a browser, as `https://app.example.com`. None unless named.
    pub cors_origins: Vec<String>,
    /// Form of the gRPC interface on cards. `None`: cards name HTTP interfaces only, because clients that check every interface
    /// refuse a card with another one. gRPC is served in any case.
    pub grpc_on_cards: Option<GrpcAddressForm>,
    /// Patterns of the names of agents and workflows that are offered; `*` stands for any text.
    pub expose: Vec<String>,
    /// Agent or workflow that gets messages to the mesh which name none.
    pub default_agent: Option<String>,
    /// Gives the adapter of a dialect.
    pub adapters: Adapters,
    /// Whether the web console is served, and whether it changes the mesh. `None`: no console. A gateway that offers a part
    /// of the mesh has none, because it has no API.
    pub console: Option<ConsoleMode>,
    /// Limits of requests.
    pub limits: GatewayLimits,
    /// Callers that are let in.
    pub access: AccessOptions,
    /// Protection of connections.
    pub transport: TransportSecurity,
    /// Addresses that push notifications may go to.
    pub push_addresses: ReachableAddresses,
    /// Threads that answer pages of the console, requests of the API and of MCP, so that calls of agents do not wait for them.
    /// `None`: the threads of the gateway.
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
    /// The usual settings: loopback only, everything offered.
    pub fn new(adapters: Adapters) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            public_url: None,
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            grpc_on_cards: None,
            expose: vec!["*".to_owned()],
            default_agent: None,
            adapters,
            console: None,
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
    /// Bytes of a request's body. The broker's largest message is a limit of its own.
    pub body_bytes: usize,
    /// Bytes of larger bodies, such as exports and files, that are held at once.
    pub large_bodies: usize,
    /// Inspections, drawings, tests and the like that are computed at once; others wait. Each may take more memory than the
    /// body that it is about.
    pub computations: usize,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// Connections that are open at once.
    pub connections: usize,
    /// Requests that are answered at once; a stream counts until it begins.
    pub in_flight: usize,
    /// Streams that are open at once.
    pub streams: usize,
    /// Sessions of clients of MCP before 2026-07-28 that are open at once.
    pub sessions: usize,
    /// Sessions of one caller that are open at once, where requests need credentials.
    pub sessions_per_caller: usize,
    /// How long a blocking call waits before it answers with the task as it is.
    pub blocking: Duration,
    /// How long an agent may say nothing to a message before its task is looked for.
    pub agent_silence: Duration,
    /// Files that are on their way from the mesh to clients at once: each is held whole.
    pub files: usize,
    /// How long a file waits for its place among them.
    pub file_wait: Duration,
    /// How long a client may read nothing of what waits for it, before its connection is cut.
    pub slow_client: Duration,
    /// How long requests that are answered when the gateway stops may take.
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

/// An OpenID provider whose tokens open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcOptions {
    /// Address of the provider, as `iss` of its tokens has it. HTTPS, or HTTP to this machine.
    pub issuer: String,
    /// Value that `aud` of a token must contain.
    pub audience: String,
    /// Claim that names the caller; `sub` unless told otherwise.
    pub caller_claim: String,
    /// Claim with the scopes, as a text with blanks or a list; `scope` unless told otherwise.
    pub scope_claim: String,
    /// Difference of clocks that is forgiven.
    pub clock_skew: Duration,
    /// How long a document of the provider may take.
    pub answer_timeout: Duration,
    /// Age after which keys are fetched again when a token comes.
    pub max_key_age: Duration,
    /// The gateway as a client of the provider, through which people sign in to the console. `None`: they cannot.
    pub client: Option<OidcClient>,
}

/// A gateway as a client of an OpenID provider.
#[derive(Clone, PartialEq, Eq)]
pub struct OidcClient {
    /// Id of the client, as it is registered.
    pub id: String,
    /// Secret of a confidential client. `None` for a public client, which PKCE alone protects.
    pub secret: Option<String>,
    /// Scopes that a sign-in asks for, with blanks between them.
    pub scopes: String,
}

impl OidcClient {
    /// A public client that asks for the scope `openid`.
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
    /// The usual settings.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audience: audience.into(),
            caller_claim: "sub".to_owned(),
            scope_claim: "scope".to_owned(),
            clock_skew: Duration::from_mins(1),
            answer_timeout: Duration::from_secs(10),
            max_key_age: Duration::from_mins(10),
            client: None,
        }
    }
}
