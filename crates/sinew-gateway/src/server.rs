//! Connections: their limit, the time limit for request heads, and shutdown.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::access::PeerNames;
use crate::gateway_service::GatewayService;
use crate::stall_guard::StallGuard;
use crate::state::GatewayState;
use crate::tls::TlsListener;

/// Delay after a failed accept, for instance because the process has no file descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Maximum size of a request head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum number of concurrent requests per HTTP/2 connection.
const MAX_HTTP2_STREAMS: u32 = 256;
/// Idle time of an HTTP/2 connection before a ping, and the time limit for its response.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves until the gateway drains, then completes open requests.
pub(crate) async fn serve(
    state: Arc<GatewayState>,
    listener: TcpListener,
    tls: Option<TlsListener>,
    service: GatewayService,
) {
    let room = Arc::new(Semaphore::new(state.limits.connections));
    let open = GracefulShutdown::new();
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(state.limits.head_timeout)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32);
    loop {
        let accepted = tokio::select! {
            biased;
            () = state.draining.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let (stream, permit) = accepted;
        let server = ConnectionServer {
            builder: builder.clone(),
            service: service.clone(),
            open: open.watcher(),
            slow_client: state.limits.slow_client,
            head_timeout: state.limits.head_timeout,
        };
        let Some(tls) = &tls else {
            tokio::spawn(server.serve(stream, None, permit));
            continue;
        };
        let (config, limit) = (tls.config(), state.limits.head_timeout);
        tokio::spawn(async move {
            match timeout(limit, TlsListener::accept(config, stream)).await {
                Ok(Ok((stream, names))) => server.serve(stream, names, permit).await,
                Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake of a connection failed"),
                Err(_) => tracing::debug!("the TLS handshake of a connection timed out"),
            }
        });
    }
    drop(listener);
    let limit = state.limits.drain;
    let ended = pin!(open.shutdown());
    if timeout(limit, ended).await.is_err() {
        tracing::warn!("the drain timeout expired; aborting requests in progress");
    }
}

/// Serves one connection.
struct ConnectionServer {
    builder: Builder<TokioExecutor>,
    service: GatewayService,
    open: Watcher,
    slow_client: Duration,
    /// Time limit for the first request.
    head_timeout: Duration,
}

impl ConnectionServer {
    /// Serves until the connection ends. `names` are those in the client's certificate.
    async fn serve<S>(self, stream: S, names: Option<PeerNames>, permit: Option<OwnedSemaphorePermit>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(StallGuard::new(stream, self.slow_client));
        let begun = CancellationToken::new();
        let service = self.service.for_connection(names, begun.clone());
        let connection = self.builder.serve_connection_with_upgrades(stream, service).into_owned();
        // The library limits the time of a head only after it detected the HTTP version, so a
        // client that sends nothing is not limited.
        let is_silent = async {
            if timeout(self.head_timeout, begun.cancelled()).await.is_ok() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            ended = self.open.watch(connection) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection failed");
                }
            }
            () = is_silent => tracing::debug!("a connection sent no request in time"),
        }
        drop(permit);
    }
}

/// Accepts the next connection when the connection limit allows it.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    let permit = Arc::clone(room).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small responses must not be delayed until more data is available.
                let _ = stream.set_nodelay(true);
                return (stream, permit);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}
