//! A connection to the server on which every frame is checked before the client library reads it.
//!
//! The library accepts only a connection from a socket, so this is a listener of this process on
//! the loopback interface and one connection to the server for each accepted one. It costs a copy
//! and two system calls per direction, so it is used only after a message broke the direct
//! connection, see [`crate::connect`].
//!
//! Other users of the machine could connect to the listener, so a connection is forwarded only if
//! it contains the secret that this process created for it. TLS to the server ends here; between
//! the library and the listener, no data leaves the process.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::ServerAddr;
use bytes::BytesMut;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sinew_protocol::subject::COUNTED_SUBJECT_KINDS;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::random_token::random_token;
use crate::wire::{FrameScreen, ReplacedFrame};

/// Largest first line of either side.
const MAX_GREETING_BYTES: usize = 1 << 20;
/// Limit of connections that have not sent the secret yet; further ones are closed at once.
const MAX_UNPROVED_CONNECTIONS: usize = 8;
/// Size of one read.
const READ_BYTES: usize = 64 << 10;
/// Shortest time between two log lines about replaced messages, so that a flood does not fill the
/// log.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// How the server is reached.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamServer {
    /// Addresses, tried in turn.
    pub(crate) servers: Vec<ServerAddr>,
    /// File with the certificate authorities to trust; the system's by default.
    pub(crate) ca: Option<PathBuf>,
    /// Files with the client's certificate and its key.
    pub(crate) cert: Option<(PathBuf, PathBuf)>,
    /// Use TLS even if the server does not request it.
    pub(crate) tls_required: bool,
    /// Start the TLS handshake before the server's first line.
    pub(crate) tls_first: bool,
    /// Connection timeout for one server.
    pub(crate) timeout: Duration,
}

/// A listener whose connections are screened; it closes with its connections when it is dropped.
#[derive(Debug)]
pub(crate) struct ScreenedRoute {
    /// Address for the client library.
    pub(crate) address: ServerAddr,
    /// Secret that must be part of a connection's name.
    pub(crate) secret: String,
    accepting: AbortHandle,
    state: Arc<RouteState>,
}

impl Drop for ScreenedRoute {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// State that all connections of one route share.
#[derive(Debug)]
struct RouteState {
    upstream: UpstreamServer,
    tls: Arc<ClientConfig>,
    secret: String,
    /// Permits for connections that have not sent the secret yet.
    unproved: Semaphore,
    /// Addresses that servers announced.
    cluster: Mutex<Vec<ServerAddr>>,
    /// When a replaced message was last logged at the usual level.
    shown: Mutex<Option<Instant>>,
    /// When a message was last replaced; initially, when the route was opened.
    replaced: Mutex<Instant>,
}

impl ScreenedRoute {
    /// Opens the listener. Does not connect to a server yet.
    pub(crate) async fn open(upstream: UpstreamServer) -> io::Result<Self> {
        let tls = tokio::task::spawn_blocking({
            let upstream = upstream.clone();
            move || tls_config(&upstream)
        });
        let tls = Arc::new(tls.await.map_err(io::Error::other)??);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = format!("nats://{}", listener.local_addr()?);
        let address = ServerAddr::from_str(&address).map_err(io::Error::other)?;
        let secret = random_token();
        let (cluster, shown, replaced) = (Mutex::default(), Mutex::default(), Mutex::new(Instant::now()));
        let unproved = Semaphore::new(MAX_UNPROVED_CONNECTIONS);
        let state = RouteState { upstream, tls, secret: secret.clone(), unproved, cluster, shown, replaced };
        let state = Arc::new(state);
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state))).abort_handle();
        Ok(Self { address, secret, accepting, state })
    }

    /// Time since a message was replaced, or since the route was opened.
    pub(crate) fn calm(&self) -> Duration {
        self.state.replaced.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

async fn accept(listener: TcpListener, state: Arc<RouteState>) {
    // Ends with its connections when the route is dropped.
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((local, _)) => {
                    carried.spawn(carry(local, Arc::clone(&state)));
                }
                // No file descriptor is free: the library retries.
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a screened connection; retrying");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = carried.join_next(), if !carried.is_empty() => {}
        }
    }
}

async fn carry(local: TcpStream, state: Arc<RouteState>) {
    if let Err(error) = carried(local, &state).await {
        tracing::debug!(%error, "a screened connection ended");
    }
}

async fn carried(local: TcpStream, state: &RouteState) -> io::Result<()> {
    // The library sends the secret only after the server's greeting, so untrusted peers cause
    // dials, too.
    let unproved = state.unproved.try_acquire().map_err(io::Error::other)?;
    local.set_nodelay(true)?;
    let (remote, info) = state.dial().await?;
    let (mut from_server, mut to_server) = tokio::io::split(remote);
    let (mut from_client, mut to_client) = local.into_split();
    let up = async {
        let hello = timeout(state.upstream.timeout, first_line(&mut from_client, BytesMut::new()));
        let (hello, rest) = hello.await??;
        // The server must not list the secret among its connections.
        let hello = String::from_utf8(hello.to_vec()).map_err(io::Error::other)?;
        if !hello.contains(&state.secret) {
            return Err(io::Error::other("the connection does not have the secret of the route"));
        }
        drop(unproved);
        to_server.write_all(hello.replace(&format!(" {}", state.secret), "").as_bytes()).await?;
        to_server.write_all(&rest).await?;
        to_server.flush().await?;
        copy(&mut from_client, &mut to_server).await.map(drop)
    };
    let down = async {
        let mut screen = FrameScreen { received: info, ..FrameScreen::default() };
        loop {
            let frames = screen.screened().map_err(io::Error::other)?;
            state.discovered(&mut screen);
            for replaced in screen.replaced.drain(..) {
                state.count(&replaced);
            }
            for frame in frames {
                to_client.write_all(&frame).await?;
            }
            screen.received.reserve(READ_BYTES);
            if from_server.read_buf(&mut screen.received).await? == 0 {
                return Ok(());
            }
        }
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}

/// A connection to a server, before or after its TLS handshake.
trait ServerStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ServerStream for T {}

impl RouteState {
    /// Connects to one of the servers; returns the connection and the first bytes received.
    async fn dial(&self) -> io::Result<(Box<dyn ServerStream>, BytesMut)> {
        let mut servers = self.upstream.servers.clone();
        servers.extend(self.cluster.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        // Clients that lose one server together must not all choose the same other one.
        let first = rand::random_range(0..servers.len().max(1));
        servers.rotate_left(first);
        let mut failed = io::Error::other("no server address is known");
        for server in &servers {
            match timeout(self.upstream.timeout, self.reach(server)).await {
                Ok(Ok(reached)) => return Ok(reached),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(failed)
    }

    async fn reach(&self, server: &ServerAddr) -> io::Result<(Box<dyn ServerStream>, BytesMut)> {
        let tcp = TcpStream::connect((server.host(), server.port())).await?;
        tcp.set_nodelay(true)?;
        if self.upstream.tls_first {
            let mut tls = self.secured(tcp, server).await?;
            let (info, rest) = first_line(&mut tls, BytesMut::new()).await?;
            return Ok((Box::new(tls), joined(info, &rest)));
        }
        let mut tcp = tcp;
        let (info, rest) = first_line(&mut tcp, BytesMut::new()).await?;
        let asked = info.strip_prefix(b"INFO ").and_then(|info| serde_json::from_slice(info).ok());
        let asked = asked.is_some_and(|info: serde_json::Value| info["tls_required"] == true);
        if asked || self.upstream.tls_required || server.tls_required() {
            if !rest.is_empty() {
                return Err(io::Error::other("the server sent data before the TLS handshake"));
            }
            return Ok((Box::new(self.secured(tcp, server).await?), info));
        }
        Ok((Box::new(tcp), joined(info, &rest)))
    }

    async fn secured(
        &self,
        tcp: TcpStream,
        server: &ServerAddr,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = ServerName::try_from(server.host().to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp).await
    }

    /// Reports a replaced message: counts it by the kind of its subject, and logs it.
    fn count(&self, replaced: &ReplacedFrame) {
        *self.replaced.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let kind = replaced.subject.split('.').nth(2).unwrap_or_default();
        let kind = COUNTED_SUBJECT_KINDS.into_iter().find(|known| *known == kind).unwrap_or("other");
        metrics::counter!("sinew_undeliverable_total", "kind" => kind).increment(1);
        // The subject is untrusted.
        let subject: String = replaced.subject.chars().take(300).flat_map(char::escape_default).collect();
        let reason = replaced.reason.as_str();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_none_or(|shown| shown.elapsed() > LOG_INTERVAL) {
            *shown = Some(Instant::now());
            tracing::warn!(subject, reason, "cannot parse a message; it is quarantined or skipped");
        } else {
            tracing::debug!(subject, reason, "cannot parse a message; it is quarantined or skipped");
        }
    }

    fn discovered(&self, screen: &mut FrameScreen) {
        if screen.cluster.is_empty() {
            return;
        }
        let named = std::mem::take(&mut screen.cluster);
        let named = named.iter().filter_map(|address| ServerAddr::from_str(address).ok());
        let named = named.filter(|address| !self.upstream.servers.contains(address)).collect();
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = named;
    }
}

fn joined(mut first: BytesMut, rest: &[u8]) -> BytesMut {
    first.extend_from_slice(rest);
    first
}

/// Reads the first line of a peer; returns the bytes after it, too.
async fn first_line(
    from: &mut (impl AsyncRead + Unpin),
    mut received: BytesMut,
) -> io::Result<(BytesMut, BytesMut)> {
    loop {
        if let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            let line = received.split_to(end + 1);
            return Ok((line, received));
        }
        if received.len() > MAX_GREETING_BYTES {
            return Err(io::Error::other("the first line is longer than any peer sends"));
        }
        if from.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// TLS settings, as the client library creates them.
fn tls_config(upstream: &UpstreamServer) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &upstream.ca {
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
        Some(ca) => {
            for certificate in CertificateDer::pem_file_iter(ca).map_err(io::Error::other)? {
                roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let Some((cert, key)) = &upstream.cert else { return Ok(config.with_no_client_auth()) };
    let chain = CertificateDer::pem_file_iter(cert).map_err(io::Error::other)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    config.with_client_auth_cert(chain, key).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Server, ServerOptions};

    #[tokio::test]
    async fn only_this_process_may_pass() {
        let server = Server::start(ServerOptions::default()).await.unwrap();
        let upstream = UpstreamServer {
            servers: vec![server.url().parse().unwrap()],
            ca: None,
            cert: None,
            tls_required: false,
            tls_first: false,
            timeout: Duration::from_secs(5),
        };
        let route = ScreenedRoute::open(upstream).await.unwrap();
        for (name, passes) in [(format!("test {}", route.secret), true), ("test".to_owned(), false)] {
            let mut stream = TcpStream::connect(("127.0.0.1", route.address.port())).await.unwrap();
            let (info, _) = first_line(&mut stream, BytesMut::new()).await.unwrap();
            assert!(info.starts_with(b"INFO "));
            let hello = format!("CONNECT {{\"verbose\":false,\"name\":\"{name}\"}}\r\nPING\r\n");
            stream.write_all(hello.as_bytes()).await.unwrap();
            let answer = first_line(&mut stream, BytesMut::new()).await;
            assert_eq!(answer.is_ok_and(|(line, _)| &line[..] == b"PONG\r\n"), passes, "{name}");
        }
    }
    #[tokio::test]
    async fn strangers_hold_few_connections_and_not_for_long() {
        let server = Server::start(ServerOptions::default()).await.unwrap();
        let upstream = UpstreamServer {
            servers: vec![server.url().parse().unwrap()],
            ca: None,
            cert: None,
            tls_required: false,
            tls_first: false,
            timeout: Duration::from_secs(1),
        };
        let route = ScreenedRoute::open(upstream).await.unwrap();
        let mut strangers = Vec::new();
        let mut greeted = 0;
        for _ in 0..2 * MAX_UNPROVED_CONNECTIONS {
            let mut stream = TcpStream::connect(("127.0.0.1", route.address.port())).await.unwrap();
            greeted += usize::from(first_line(&mut stream, BytesMut::new()).await.is_ok());
            strangers.push(stream);
        }
        assert_eq!(greeted, MAX_UNPROVED_CONNECTIONS);
        // The connections that sent no secret are closed.
        for mut stream in strangers {
            let mut rest = Vec::new();
            let closed = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
            assert!(closed.is_ok());
        }
    }
}
