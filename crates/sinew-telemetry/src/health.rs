//! Health port: `/healthz` (alive), `/readyz` (ready, or the reason), `/metrics` (for Prometheus).
//!
//! Binds to the loopback interface by default. It reads only a method and a path, and limits the
//! number and duration of connections. At the limit it closes the oldest connection for a new one,
//! so that idle connections do not block probes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::TelemetryError;
use crate::metric::{MetricsPage, upkeep};

/// Returns `Ok` while the service is ready, otherwise the reason in one sentence.
pub type ReadinessCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Maximum number of open connections. Probes and a scraper need few; the others leave a probe
/// enough time to send its request while idle connections are opened.
const MAX_CONNECTIONS: usize = 128;
/// Maximum duration of a connection: probes send one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a request head, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Delay after a failed accept, for instance without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Health server; its port is closed on drop.
#[derive(Debug)]
pub(super) struct HealthServer {
    address: SocketAddr,
    draining: Arc<AtomicBool>,
    stop: CancellationToken,
}

/// State for responses.
struct HealthState {
    ready: ReadinessCheck,
    page: MetricsPage,
    draining: Arc<AtomicBool>,
}

impl HealthServer {
    /// Binds the port and starts serving.
    pub(super) async fn start(
        address: SocketAddr,
        ready: ReadinessCheck,
        page: MetricsPage,
    ) -> Result<Self, TelemetryError> {
        let failed = |error| TelemetryError::Port { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (draining, stop) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let site = Arc::new(HealthState { ready, page: Arc::clone(&page), draining: Arc::clone(&draining) });
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = serve(listener, site, stopped.clone()) => {}
                () = upkeep(page) => {}
            }
        });
        Ok(Self { address, draining, stop })
    }

    /// Returns the bound address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reports the service as draining, regardless of its readiness check.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: TcpListener, site: Arc<HealthState>, stop: CancellationToken) {
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection to the health port");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        make_room(&mut connections);
        let (site, stop) = (Arc::clone(&site), stop.clone());
        let connection = tokio::spawn(async move {
            let answering = service_fn(move |request| {
                let site = Arc::clone(&site);
                async move { Ok::<_, Infallible>(site.answer(&request)) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(MAX_HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), answering);
            tokio::select! {
                // hyper responds to malformed requests itself; an aborted connection needs no
                // report.
                _ = connection => {}
                () = tokio::time::sleep(CONNECTION_TIMEOUT) => {}
                () = stop.cancelled() => {}
            }
        });
        connections.push_back(connection.abort_handle());
    }
}

/// Removes ended connections, and closes the oldest ones at the limit.
fn make_room(connections: &mut VecDeque<AbortHandle>) {
    if connections.len() < MAX_CONNECTIONS {
        return;
    }
    connections.retain(|connection| !connection.is_finished());
    while connections.len() >= MAX_CONNECTIONS {
        if let Some(oldest) = connections.pop_front() {
            oldest.abort();
        }
    }
}

impl HealthState {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".into());
        }
        match request.uri().path() {
            // A process that responds is alive.
            "/healthz" => response(StatusCode::OK, TEXT, "alive\n".into()),
            "/readyz" => match self.ready() {
                Ok(()) => response(StatusCode::OK, TEXT, "ready\n".into()),
                Err(reason) => {
                    response(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {reason}\n"))
                }
            },
            "/metrics" => response(StatusCode::OK, PROMETHEUS, (self.page)()),
            _ => response(StatusCode::NOT_FOUND, TEXT, "only /healthz, /readyz and /metrics exist\n".into()),
        }
    }

    fn ready(&self) -> Result<(), String> {
        if self.draining.load(Ordering::Relaxed) { Err("draining".to_owned()) } else { (self.ready)() }
    }
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
    }

    #[tokio::test]
    async fn it_says_whether_it_is_alive_and_ready_and_why_not() {
        let state = Arc::new(Mutex::new(Err("no shard is open yet".to_owned())));
        let asked = Arc::clone(&state);
        let ready: ReadinessCheck = Arc::new(move || asked.lock().unwrap().clone());
        let page: MetricsPage = Arc::new(|| "sinew_shards_owned 4\n".to_owned());
        let health = HealthServer::start("127.0.0.1:0".parse().unwrap(), ready, page).await.unwrap();
        let address = health.address();

        let answer = get(address, "/readyz").await;
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("not ready: no shard is open yet\n"),
            "{answer}"
        );
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
        *state.lock().unwrap() = Ok(());
        assert!(get(address, "/readyz?verbose").await.starts_with("HTTP/1.1 200 "));
        let answer = get(address, "/metrics").await;
        assert!(answer.contains("version=0.0.4") && answer.ends_with("sinew_shards_owned 4\n"), "{answer}");
        health.drain();
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("not ready: draining\n"), "{answer}");
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "), "draining is alive");
    }

    #[tokio::test]
    async fn it_answers_nothing_else() {
        let page: MetricsPage = Arc::new(String::new);
        let health =
            HealthServer::start("127.0.0.1:0".parse().unwrap(), Arc::new(|| Ok(())), page).await.unwrap();
        let address = health.address();
        let long = format!("GET /{} HTTP/1.1\r\nConnection: close\r\n\r\n", "a".repeat(2 * MAX_HEAD_BYTES));
        for (request, status) in [
            ("GET /../etc/passwd HTTP/1.1\r\nConnection: close\r\n\r\n", "404"),
            ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "404"),
            ("DELETE /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", "405"),
            ("HEAD /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", "200"),
            ("\u{0}\u{1} nonsense\r\n\r\n", "400"),
            (long.as_str(), "4"),
        ] {
            let answer = ask(address, request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:.40}: {answer}");
        }
        // A port in use is an error, not a second listener.
        let taken =
            HealthServer::start(address, Arc::new(|| Ok(())), Arc::new(String::new)).await.unwrap_err();
        assert_eq!(taken.code(), "SINEW-8060");
        drop(health);
    }

    #[tokio::test]
    async fn silent_connections_keep_no_probe_out() {
        let page: MetricsPage = Arc::new(String::new);
        let health =
            HealthServer::start("127.0.0.1:0".parse().unwrap(), Arc::new(|| Ok(())), page).await.unwrap();
        let address = health.address();
        let mut silent = Vec::new();
        for n in 0..3 * MAX_CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if n % 2 == 0 {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHos").await.unwrap();
            }
            silent.push(stream);
        }
        // Well below the timeout of five seconds for an incomplete request.
        for path in ["/healthz", "/readyz"] {
            let answer = tokio::time::timeout(HEAD_TIMEOUT / 5, get(address, path)).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        let mut nothing = Vec::new();
        // The oldest connection was closed, either by a reset or by an end of file.
        let _ = tokio::time::timeout(HEAD_TIMEOUT / 5, silent[0].read_to_end(&mut nothing)).await.unwrap();
    }
}
