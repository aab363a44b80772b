//! The path of a request to its route and back: metrics, shared origins, the guard, and refusals in
//! the client's format.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use sinew_protocol::code;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::access::PeerNames;
use crate::cors::SharedOrigin;
use crate::deadline_body::DeadlineBody;
use crate::grpc;
use crate::guard::answer_allowed;
use crate::http_error::HttpProblem;
use crate::mcp::as_json_rpc;
use crate::protected_resource::MCP_PATH;
use crate::request_metrics::MeasuredRequest;
use crate::state::GatewayState;

/// Answers the requests of one connection. The steps are plain functions: each layer around a
/// router would allocate every request and response once more.
#[derive(Clone)]
pub(crate) struct GatewayService {
    state: Arc<GatewayState>,
    routes: Router,
    /// Threads for console pages, the API and MCP.
    page_threads: Option<Handle>,
    /// Names in the client's certificate.
    names: Option<PeerNames>,
    /// Cancelled when the first request of the connection has arrived.
    begun: CancellationToken,
}

impl GatewayService {
    /// Creates a service of these routes for clients without a certificate.
    pub(crate) fn new(state: Arc<GatewayState>, routes: Router, page_threads: Option<Handle>) -> Self {
        Self { state, routes, page_threads, names: None, begun: CancellationToken::new() }
    }

    /// Returns the service for one connection, whose client has these names in its certificate.
    /// Cancels the token when the first request has arrived.
    pub(crate) fn for_connection(self, names: Option<PeerNames>, begun: CancellationToken) -> Self {
        Self { names, begun, ..self }
    }

    async fn answer(self, mut request: Request) -> Response {
        if let Some(names) = self.names {
            request.extensions_mut().insert(names);
        }
        let measured = MeasuredRequest::begin(request.uri().path());
        let is_grpc = grpc::is_grpc(request.headers());
        let is_mcp = request.method() == Method::POST && request.uri().path() == MCP_PATH;
        let mut response = match SharedOrigin::of(&self.state, &request) {
            Some(origin) if origin.is_preflight(&request) => origin.answer_preflight(&self.state, &request),
            origin => {
                if !measured.is_call() {
                    request = request.map(|body| DeadlineBody::wrap(body, self.state.limits.body_timeout));
                }
                let threads = self.page_threads.filter(|_| !measured.is_call());
                let answer = match threads {
                    None => answer_allowed(&self.state, self.routes, request).await,
                    Some(threads) => answer_on(&threads, self.state, self.routes, request).await,
                };
                match origin {
                    Some(origin) => origin.marked(answer),
                    None => answer,
                }
            }
        };
        if is_grpc {
            response = grpc::word_refusal(response).await;
        } else if is_mcp {
            response = as_json_rpc(response).await;
        }
        measured.end(response)
    }
}

/// Answers a request on other threads. The work is cancelled if the client disconnects.
async fn answer_on(threads: &Handle, state: Arc<GatewayState>, routes: Router, request: Request) -> Response {
    let work = threads.spawn(async move { answer_allowed(&state, routes, request).await });
    AbortOnDropHandle::new(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a request handler panicked");
        let text = "the request failed; see the gateway's log";
        HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, code::GATEWAY_REQUEST_WRONG, text).into_response()
    })
}

impl Service<hyper::Request<Incoming>> for GatewayService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        self.begun.cancel();
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request.map(Body::new)).await) })
    }
}
