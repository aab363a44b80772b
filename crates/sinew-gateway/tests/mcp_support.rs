//! A client of MCP: the one of `rmcp`, over HTTP and over pipes, with and without a session.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, ErrorData, FormElicitationCapability,
    Implementation, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::support::GatewayWorld;

/// The newest version of the protocol, which has no sessions.
pub(crate) fn newest() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

/// Transports that a client can take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Road {
    Http,
    Pipes,
}

/// Every transport with every lifecycle.
pub(crate) fn all_roads() -> [(Road, ClientLifecycleMode); 4] {
    let old = ClientLifecycleMode::Initialize;
    [(Road::Http, old.clone()), (Road::Http, newest()), (Road::Pipes, old), (Road::Pipes, newest())]
}

/// A client whose user answers each question with the same form.
#[derive(Clone)]
pub(crate) struct TestClient {
    pub(crate) abilities: ClientCapabilities,
    /// Content of the forms; None declines them.
    pub(crate) form: Option<Value>,
    pub(crate) progress: mpsc::UnboundedSender<String>,
    pub(crate) tools_changed: Arc<Notify>,
    pub(crate) asked: Arc<Notify>,
}

impl TestClient {
    /// A client with these abilities, and the progress that it is told.
    pub(crate) fn new(abilities: ClientCapabilities) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (progress, told) = mpsc::unbounded_channel();
        let (tools_changed, asked) = (Arc::default(), Arc::default());
        (Self { abilities, form: None, progress, tools_changed, asked }, told)
    }

    /// A client without abilities.
    pub(crate) fn plain() -> Self {
        Self::new(ClientCapabilities::default()).0
    }

    /// A client whose user fills forms with this.
    pub(crate) fn answering(form: Value) -> Self {
        let elicitation = ElicitationCapability::new().with_form(FormElicitationCapability::new());
        let abilities = ClientCapabilities::builder().enable_elicitation_with(elicitation).build();
        Self { form: Some(form), ..Self::new(abilities).0 }
    }

    pub(crate) async fn connect(
        self,
        world: &GatewayWorld,
        road: Road,
        lifecycle: ClientLifecycleMode,
    ) -> RunningService<RoleClient, Self> {
        match road {
            Road::Http => self.connect_to(&world.base, lifecycle).await,
            Road::Pipes => {
                let (here, there) = tokio::io::duplex(1 << 16);
                world.serve_pipe(tokio::io::split(there), CancellationToken::new()).await;
                self.serve_with_lifecycle(here, lifecycle).await.unwrap()
            }
        }
    }

    /// Connects to the gateway at an address.
    pub(crate) async fn connect_to(
        self,
        base: &str,
        lifecycle: ClientLifecycleMode,
    ) -> RunningService<RoleClient, Self> {
        self.connect_at(&format!("{base}/mcp"), lifecycle).await
    }

    /// Connects to an MCP endpoint.
    pub(crate) async fn connect_at(
        self,
        address: &str,
        lifecycle: ClientLifecycleMode,
    ) -> RunningService<RoleClient, Self> {
        let transport = StreamableHttpClientTransport::from_uri(address.to_owned());
        self.serve_with_lifecycle(transport, lifecycle).await.unwrap()
    }
}

impl ClientHandler for TestClient {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(self.abilities.clone(), Implementation::new("test", "1"))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.asked.notify_one();
        Ok(match &self.form {
            Some(form) => ElicitResult::new(ElicitationAction::Accept).with_content(form.clone()),
            None => ElicitResult::new(ElicitationAction::Decline),
        })
    }

    async fn on_progress(&self, told: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let _ = self.progress.send(format!("{} {}", told.progress, told.message.unwrap_or_default()));
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }
}

/// A call of a tool.
pub(crate) fn call(tool: &str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object: {arguments}") };
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)
}

pub(crate) fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// The id of a result's task.
pub(crate) fn task_of(result: &CallToolResult) -> String {
    result.meta.as_ref().unwrap().0["io.github.sinew-mesh/task"].as_str().unwrap().to_owned()
}
