//! All routes of a gateway in one table, and the handler of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodFilter, MethodRouter, get};
use serde_json::json;
use sinew_operations::failure::Failure;
use sinew_protocol::a2a::{A2aError, CoreMethod};
use sinew_protocol::access::AccessRole;
use sinew_protocol::code;
use sinew_protocol::header::A2A_EXTENSIONS;

use crate::access::{AccessRefusal, CallerIdentity};
use crate::api::{self, API_ROUTES, ApiRoute};
use crate::ard::{self, ArdOperation};
use crate::cards;
use crate::http_error::HttpProblem;
use crate::operations::{A2aOperations, Endpoint, role_for, short};
use crate::protected_resource::{MCP_PATH, METADATA_PATH};
use crate::state::GatewayState;
use crate::{files, grpc, guard, jsonrpc, protected_resource, rest, webhook};

/// Handler of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RouteWork {
    /// Public keys of the gateways.
    SigningKeys,
    /// Token providers for the gateway, or for a part of it.
    ProtectedResource,
    /// The card of the mesh.
    MeshCard,
    /// The card of the agent in the path.
    AgentCard,
    /// A2A over JSON-RPC.
    JsonRpc,
    /// A file of a task, by a signed address.
    File,
    /// A2A over gRPC; the path names the operation.
    Grpc,
    /// A delivery from an external service to the trigger in the path.
    Webhook,
    /// MCP over streamable HTTP.
    Mcp,
    /// An A2A operation over HTTP+JSON.
    Operation(CoreMethod),
    /// An operation named after a colon at the end of the path: `tasks/ID:cancel`.
    TaskVerb,
    /// Discovery of agents by other systems.
    Ard(ArdOperation),
    /// An operation of the REST API.
    Api(&'static ApiRoute),
}

impl RouteWork {
    /// Returns whether this is an A2A operation.
    fn is_a2a(self) -> bool {
        matches!(self, Self::JsonRpc | Self::Grpc | Self::Operation(_) | Self::TaskVerb)
    }

    /// Returns the lowest role that may call this handler, or `None` if it is public. If the body
    /// of a request names an operation, that operation may require a higher role.
    fn role(self) -> Option<AccessRole> {
        match self {
            // Deliveries and file addresses are authenticated by their signatures.
            Self::SigningKeys
            | Self::ProtectedResource
            | Self::MeshCard
            | Self::Ard(ArdOperation::Document)
            | Self::Webhook
            | Self::File => None,
            // Reads and cancellations share a path; the operation decides.
            Self::AgentCard | Self::Ard(_) | Self::Mcp | Self::JsonRpc | Self::Grpc | Self::TaskVerb => {
                Some(AccessRole::Operator)
            }
            Self::Operation(method) => Some(role_for(method)),
            Self::Api(route) => Some(route.role),
        }
    }
}

/// Public description of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteDescription {
    /// HTTP method.
    pub method: &'static str,
    /// Path, with parameters in braces.
    pub path: String,
    /// Lowest role that may call it; `None` if it is public.
    pub role: Option<AccessRole>,
}

/// Returns all routes of a gateway, without the console pages.
pub fn described_routes() -> Vec<RouteDescription> {
    let routes = all_routes().into_iter();
    routes
        .map(|route| RouteDescription { method: route.method, path: route.path, role: route.work.role() })
        .collect()
}

/// One route.
#[derive(Clone, Debug)]
pub(crate) struct GatewayRoute {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) work: RouteWork,
}

/// Routes below the address of an endpoint, with and without a tenant.
const ENDPOINT_ROUTES: [(&str, &str, RouteWork); 10] = [
    ("POST", "/message:send", RouteWork::Operation(CoreMethod::SendMessage)),
    ("POST", "/message:stream", RouteWork::Operation(CoreMethod::SendStreamingMessage)),
    ("GET", "/tasks", RouteWork::Operation(CoreMethod::ListTasks)),
    ("GET", "/tasks/{id}", RouteWork::TaskVerb),
    ("POST", "/tasks/{id}", RouteWork::TaskVerb),
    (
        "POST",
        "/tasks/{taskId}/pushNotificationConfigs",
        RouteWork::Operation(CoreMethod::CreateTaskPushNotificationConfig),
    ),
    (
        "GET",
        "/tasks/{taskId}/pushNotificationConfigs",
        RouteWork::Operation(CoreMethod::ListTaskPushNotificationConfigs),
    ),
    (
        "GET",
        "/tasks/{taskId}/pushNotificationConfigs/{id}",
        RouteWork::Operation(CoreMethod::GetTaskPushNotificationConfig),
    ),
    (
        "DELETE",
        "/tasks/{taskId}/pushNotificationConfigs/{id}",
        RouteWork::Operation(CoreMethod::DeleteTaskPushNotificationConfig),
    ),
    ("GET", "/extendedAgentCard", RouteWork::Operation(CoreMethod::GetExtendedAgentCard)),
];

/// Path of gRPC operations, with the service name of the schema.
const GRPC_PATH: &str = "/lf.a2a.v1.A2AService/{method}";

/// Addresses of endpoints, with and without a tenant.
const ENDPOINTS: [&str; 4] = ["/a2a", "/a2a/{tenant}", "/agents/{agent}", "/agents/{agent}/{tenant}"];

/// Returns all routes.
pub(crate) fn all_routes() -> Vec<GatewayRoute> {
    let plain = [
        ("GET", "/.well-known/agent-card.json", RouteWork::MeshCard),
        ("GET", "/agents/{agent}/.well-known/agent-card.json", RouteWork::AgentCard),
        ("GET", "/.well-known/ai-catalog.json", RouteWork::Ard(ArdOperation::Document)),
        ("POST", "/ard/search", RouteWork::Ard(ArdOperation::Search)),
        ("POST", "/ard/explore", RouteWork::Ard(ArdOperation::Explore)),
        ("GET", "/ard/agents", RouteWork::Ard(ArdOperation::List)),
        ("GET", "/.well-known/jwks.json", RouteWork::SigningKeys),
        ("GET", METADATA_PATH, RouteWork::ProtectedResource),
        ("GET", "/.well-known/oauth-protected-resource/mcp", RouteWork::ProtectedResource),
        ("POST", "/hooks/{name}", RouteWork::Webhook),
        ("GET", MCP_PATH, RouteWork::Mcp),
        ("POST", MCP_PATH, RouteWork::Mcp),
        ("DELETE", MCP_PATH, RouteWork::Mcp),
        ("POST", "/a2a", RouteWork::JsonRpc),
        ("POST", "/a2a/", RouteWork::JsonRpc),
        ("POST", "/agents/{agent}", RouteWork::JsonRpc),
        ("POST", "/agents/{agent}/", RouteWork::JsonRpc),
        ("POST", GRPC_PATH, RouteWork::Grpc),
        ("GET", "/files/{token}/{name}", RouteWork::File),
    ];
    let route = |base: &str, (method, path, work): (&'static str, &str, RouteWork)| GatewayRoute {
        method,
        path: format!("{base}{path}"),
        work,
    };
    let below = ENDPOINTS.iter().flat_map(|base| ENDPOINT_ROUTES.map(|one| route(base, one)));
    let api = API_ROUTES.iter().map(|one| route(api::BASE, (one.method, one.path, RouteWork::Api(one))));
    plain.map(|one| route("", one)).into_iter().chain(below).chain(api).collect()
}

/// Builds the router of all routes, and of the console if enabled. Requests reach it through
/// [`crate::gateway_service`].
pub(crate) fn router(state: &Arc<GatewayState>, console: Option<Router<Arc<GatewayState>>>) -> Router {
    let mut router: Router<Arc<GatewayState>> = Router::new();
    for route in all_routes() {
        router = router.route(&route.path, method_router(route.method, route.work));
    }
    if let Some(console) = console {
        router = router.merge(console);
    }
    // Tools look for the document at the root.
    router = router.route("/openapi.json", get(async || Redirect::permanent("/api/v1/openapi.json")));
    let unknown = async |request: Request| {
        HttpProblem::not_found(format!("path {} not found", short(request.uri().path(), 200)))
    };
    let wrong_method = async |request: Request| {
        let text = format!("method {} is not allowed for this path", short(request.method().as_str(), 20));
        HttpProblem::new(StatusCode::METHOD_NOT_ALLOWED, code::GATEWAY_PATH_UNKNOWN, text)
    };
    router.fallback(unknown).method_not_allowed_fallback(wrong_method).with_state(Arc::clone(state))
}

/// Builds the router of the API alone, for callers within the process that already passed the
/// guard.
pub(crate) fn api_router(state: &Arc<GatewayState>) -> Router {
    let api = all_routes().into_iter().filter(|route| matches!(route.work, RouteWork::Api(_)));
    let router = api.fold(Router::new(), |router, route| {
        router.route(&route.path, method_router(route.method, route.work))
    });
    router.with_state(Arc::clone(state))
}

fn method_router(method: &str, work: RouteWork) -> MethodRouter<Arc<GatewayState>> {
    let filter = match method {
        "POST" => MethodFilter::POST,
        "DELETE" => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    };
    let serve = async move |State(state): State<Arc<GatewayState>>,
                            path: Result<Path<BTreeMap<String, String>>, PathRejection>,
                            request: Request| match path {
        Ok(Path(path)) => Box::pin(serve(state, work, path, request)).await,
        Err(_) => HttpProblem::not_found("a name in the path is not UTF-8").into_response(),
    };
    MethodRouter::new().on(filter, serve)
}

async fn serve(
    state: Arc<GatewayState>,
    work: RouteWork,
    path: BTreeMap<String, String>,
    request: Request,
) -> Response {
    let caller = match allowed_caller(&state, work, &request) {
        Ok(caller) => caller,
        Err(refused) => {
            guard::read_refused(request.version(), request.into_body()).await;
            return *refused;
        }
    };
    let operations = state.operations_of(&caller);
    let endpoint = match path.get("agent") {
        None => Endpoint::Mesh,
        Some(name) => match operations.find(|all| all.has_card(name).then_some(())).await {
            Ok(Some(())) => Endpoint::Agent(name.clone()),
            Ok(None) => {
                let text = format!("workflow or agent {:?} not found", short(name, 64));
                if let RouteWork::JsonRpc = work {
                    // Clients of JSON-RPC show nothing of another answer but its status.
                    let absent = Err(A2aError::invalid_params(text));
                    return jsonrpc::serve(state, caller, absent, request).await;
                }
                return HttpProblem::not_found(text).into_response();
            }
            Err(error) => return HttpProblem::from(Failure::from(error)).into_response(),
        },
    };
    let activated = activated_extensions(&state, &operations, &endpoint, &request).filter(|_| work.is_a2a());
    let mut response = match work {
        RouteWork::MeshCard | RouteWork::AgentCard => card(&state, &operations, &endpoint, &request),
        RouteWork::SigningKeys => {
            let keys = state.signer.as_ref().map_or_else(|| json!({"keys": []}), |signer| signer.key_set());
            let headers =
                [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "public, max-age=300")];
            (headers, keys.to_string()).into_response()
        }
        RouteWork::Ard(operation) => ard::serve(state, caller, operation, request).await,
        RouteWork::ProtectedResource => protected_resource::respond(&state, &request),
        RouteWork::Webhook => {
            let name = path.get("name").cloned().unwrap_or_default();
            webhook::serve(state, &name, request).await
        }
        RouteWork::Mcp => state.mcp.serve(request).await,
        RouteWork::File => {
            let token = path.get("token").cloned().unwrap_or_default();
            files::serve(state, &token, request).await
        }
        RouteWork::Grpc => {
            let method = path.get("method").cloned().unwrap_or_default();
            grpc::serve(state, caller, &method, request).await
        }
        RouteWork::JsonRpc => jsonrpc::serve(state, caller, Ok(endpoint), request).await,
        RouteWork::Operation(method) => rest::serve(state, caller, endpoint, method, path, request).await,
        RouteWork::TaskVerb => task_verb(state, caller, endpoint, path, request).await,
        RouteWork::Api(route) => api::serve(state, caller, route, path, request).await,
    };
    if let Some(activated) = activated {
        response.headers_mut().insert(A2A_EXTENSIONS, activated);
    }
    response
}

/// Returns the requested extensions that the endpoint's card declares, as the response header lists
/// them, or `None` if there is none.
fn activated_extensions(
    state: &GatewayState,
    operations: &A2aOperations,
    endpoint: &Endpoint,
    request: &Request,
) -> Option<HeaderValue> {
    let asked = request.headers().get_all(A2A_EXTENSIONS).iter().filter_map(|value| value.to_str().ok());
    let asked: Vec<&str> = asked.flat_map(|line| line.split(',')).map(str::trim).collect();
    if asked.is_empty() {
        return None;
    }
    let card =
        cards::card_of(state, operations, endpoint, &state.base_url(request.headers(), request.uri()))?;
    let declared = card.capabilities.extensions.iter().flatten().map(|extension| extension.uri.as_str());
    let activated: Vec<&str> = declared.filter(|uri| asked.contains(uri)).collect();
    HeaderValue::from_str(&activated.join(",")).ok().filter(|named| !named.is_empty())
}

/// `GET tasks/ID`, `POST tasks/ID:cancel`, and `tasks/ID:subscribe` with either method.
async fn task_verb(
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    endpoint: Endpoint,
    mut path: BTreeMap<String, String>,
    request: Request,
) -> Response {
    let id = path.remove("id").unwrap_or_default();
    let is_get = *request.method() == Method::GET;
    let (id, method) = match id.rsplit_once(':') {
        Some((id, "subscribe")) => (id.to_owned(), CoreMethod::SubscribeToTask),
        Some((id, "cancel")) if !is_get => (id.to_owned(), CoreMethod::CancelTask),
        _ if is_get => (id, CoreMethod::GetTask),
        _ => return HttpProblem::not_found("expected tasks/ID:cancel or tasks/ID:subscribe").into_response(),
    };
    path.insert("id".to_owned(), id);
    rest::serve(state, caller, endpoint, method, path, request).await
}

/// Returns the caller of a request to this handler, or the error response. If keys are required,
/// public handlers get a caller who sees nothing.
fn allowed_caller(
    state: &GatewayState,
    work: RouteWork,
    request: &Request,
) -> Result<CallerIdentity, Box<Response>> {
    let refuse = |response| Err(Box::new(response));
    let caller = CallerIdentity::of(request.extensions());
    match (caller, work.role()) {
        (Some(caller), Some(role)) if caller.role < role => {
            refuse(guard::refuse_role(state, caller, request.headers(), request.uri(), role))
        }
        (Some(caller), _) => Ok(caller.clone()),
        (None, None) => Ok(CallerIdentity::nobody(state.operations.client().mesh().caller().clone())),
        (None, Some(_)) => {
            let (headers, uri) = (request.headers(), request.uri());
            refuse(guard::refuse_credentials(state, &AccessRefusal::Missing, headers, uri))
        }
    }
}

fn card(
    state: &GatewayState,
    operations: &A2aOperations,
    endpoint: &Endpoint,
    request: &Request,
) -> Response {
    let base = state.base_url(request.headers(), request.uri());
    match cards::card_of(state, operations, endpoint, &base) {
        Some(card) => {
            let readers = if state.authenticator.is_required() {
                cards::CardReaders::EachCaller
            } else {
                cards::CardReaders::Everybody
            };
            cards::respond(&card, request.headers(), &state.card_times, readers)
        }
        None => HttpProblem::not_found("the agent is no longer available").into_response(),
    }
}
